"""`python -m judge.watch 4.4.0`: what a release changes against the one before it.

Rules: those in which the engine's table differs. Log messages: sentences in the classes of
controller, leader and follower that only one of the releases has, read from the constants of their
class files, and messages that isrlab's reader knows and no class has any more. Judge: Kafka's
classes beside the engine. Promises: each stored kind of break, played on both releases, and both
levels of the hunt on the new one, a few minutes each. The last lines sum it up, one line per part.
"""

from __future__ import annotations

import difflib
import re
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator

import click

from hunt import __main__ as hunting
from hunt import javac, kinds
from isrlab.engine.versions import RULES, KafkaVersion
from isrlab_ops.logs.reader import formats
from judge import jars

SPEAKERS = re.compile(
    r"(kafka/(cluster|server|controller)/|org/apache/kafka/(controller|server|metadata|storage)/)"
    r"(\w+/)*(?!\w*Config)(Partition|Replica|Cluster|Feature|Broker|Alter|Abstract|Default)\w*"
    r"(\$\w+)*\.class"
)
# The bytes after the tag of each kind of constant except text (JVM specification, 4.4)
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}
SIZES |= {19: 2, 20: 2}
HOLE = re.compile(r"\$\{\w*\}|\{\w*\}|%[sd]|\$[a-z]\w*")
LIKE = 0.8  # the least similarity of a message and its rewording (difflib)
UNREACHABLE = jars.NoJarsError, javac.NoCompilerError, RuntimeError  # the last: Java ended


def of_kafka(release: str) -> Iterator[tuple[str, bytes]]:
    """The class files of a release, with their names."""
    for path in (p for p in jars.classpath(release, jars.controller) if "/org/apache/kafka/" in p):
        with zipfile.ZipFile(path) as jar:
            yield from ((x, jar.read(x)) for x in jar.namelist() if x.endswith(".class"))


def sentences(files: list[tuple[str, bytes]]) -> set[str]:
    """What the classes that speak of the ISR can log; `{}` stands for a value."""
    spoken = {text for name, data in files if SPEAKERS.fullmatch(name) for text in constants(data)}
    plain = {HOLE.sub("{}", " ".join(text.split())).strip(" .:()") for text in spoken}
    return {text for text in plain if is_sentence(text)}


def is_sentence(text: str) -> bool:
    return text.count(" ") >= 3 and text.isprintable() and not re.search(r"[;<>]\S*[;(]", text)


def constants(data: bytes) -> Iterator[str]:
    """The texts among the constants of a class file."""
    (count,), place, number = struct.unpack_from(">H", data, 8), 10, 1
    while number < count:
        tag = data[place]
        size = 2 + struct.unpack_from(">H", data, place + 1)[0] if tag == 1 else SIZES[tag]
        if tag == 1:
            text = data[place + 3 : place + 1 + size].decode("utf-8", "replace")
            yield text.replace("\x01", "{}")
        place, number = place + 1 + size, number + (2 if tag in (5, 6) else 1)


def unread(old: list[tuple[str, bytes]], new: list[tuple[str, bytes]]) -> list[str]:
    """The messages that the reader of logs knows, of which only the older classes have the text."""
    before, after = (b"\n".join(data for _, data in files) for files in (old, new))
    known = {x.landmark.strip().encode(): x.template for x in formats.FORMATS if x.until is None}
    return [known[text] for text in known if text in before and text not in after]


def change_of_rules(before: str, after: str) -> str:
    print(f"\nRULES: the engine's table, {before} and {after}")
    try:
        KafkaVersion.of(after)
    except ValueError:
        newest = jars.rules(after).releases
        print(f"  The table ends with {newest}: {after} is judged by those rules.")
        return f"{after} is not in the table, and was judged by the rules of {newest}"
    old, new = jars.rules(before), jars.rules(after)
    changed = [rule for rule in RULES if getattr(old, rule) != getattr(new, rule)]
    lines = [f"  {rule}: {old.form(rule)} -> {new.form(rule)}" for rule in changed]
    print("\n".join(lines or ["  none differs"]))
    return f"{len(changed)} differ"


def change_of_messages(before: str, after: str) -> str:
    old, new = list(of_kafka(before)), list(of_kafka(after))
    ours, theirs = sentences(old), sentences(new)
    gone, come = sorted(ours - theirs), sorted(theirs - ours)
    print(f"\nLOG MESSAGES (and errors) of controller, leader and follower, {before} and {after}")
    pairs = {}
    for text in come:
        for other in difflib.get_close_matches(text, gone, 1, LIKE):
            pairs[text] = other
            gone.remove(other)
    come = [text for text in come if text not in pairs]
    lost = unread(old, new)
    lines = [f"  + {text[:160]}" for text in come] + [f"  - {text[:160]}" for text in gone]
    lines += [f"  - {old[:160]}\n    + {text[:160]}" for text, old in pairs.items()]
    lines += [f"  isrlab reads, and no class has any more: {text[:120]}" for text in lost]
    print("\n".join(lines or ["  none differs"]))
    changed = f"{len(come)} come, {len(gone)} go, {len(pairs)} are reworded"
    return f"{changed}; of those that isrlab reads {len(lost)} go"


def judged(release: str, runs: int) -> str:
    print(
        f"\nJUDGE: Kafka's classes of {release} beside the engine, {runs} schedules each",
        flush=True,
    )
    command = [sys.executable, "-m", "judge", release, f"--runs={runs}"]
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            said.append(line.strip())
            print(" ", line, end="", flush=True)
    start = re.compile(rf"{re.escape(release)} +(\w+) +(is not judged|.* (\d+) differences)")
    kinds_said = [match for match in map(start.match, said) if match]
    found = [f"{x[1]}: {x[3] + ' differences' if x[3] else x[2]}" for x in kinds_said]
    if process.returncode and not any(x[3] and int(x[3]) for x in kinds_said):
        found.append(f"it ended with an error: {(said or ['nothing said'])[-1]}")
    return "; ".join(found)


def change_of_kinds(before: str, after: str) -> str:
    print(f"\nPROMISES: the stored kinds of breaks, played on {before} and {after}", flush=True)
    try:
        known = kinds.stored()
        old, new = (hunting.played(release, known, ()) for release in (before, after))
    except UNREACHABLE as reason:
        print(f"  not played: {reason}")
        return f"stored kinds were not played: {reason}"
    groups: dict[str, list[str]] = {"break as before": [], "break anew": [], "no longer break": []}
    for name, is_broken in new.items():
        if is_broken:
            groups["break as before" if old.get(name, True) else "break anew"].append(name)
        elif old.get(name):
            groups["no longer break"].append(name)
    for word in ("break anew", "no longer break"):
        for kind in (known[name] for name in groups[word]):
            print(
                f"  {word}: {kind.name}, {kind.broken[:90]}\n    {kind.what}\n    {kind.schedule}"
            )
    print(f"  break as before: {', '.join(groups['break as before'])}")
    counts = ", ".join(f"{len(names)} {word}" for word, names in groups.items())
    return f"of {len(new)} stored kinds {counts}"


def hunted(release: str, level: str, seconds: int) -> str:
    name = "brokers with their logs" if level else "the controller alone"
    print(f"\nHUNT: {name}, {seconds} s of processor time", flush=True)
    try:
        row = hunting.hunt(
            release, (), ["1", str(seconds), str(10**12), *[level] * bool(level)], True
        )
    except UNREACHABLE as reason:
        print(f"  not hunted: {reason}")
        return f"{name}: not hunted: {reason}"
    return f"{name}: {row['schedules']} schedules, {row['kinds']} known kinds, {row['new']} new"


@click.command()
@click.argument("release")
@click.option("--before", help="The release before it; else the newest that is known before it.")
@click.option(
    "--seconds", default=300, show_default=True, help="Of each level of the hunt; 0: no hunt."
)
@click.option("--runs", default=100, show_default=True, help="Of the judge, or 0.")
def main(release: str, before: str | None, seconds: int, runs: int) -> None:
    """What RELEASE changes in rules, log messages and promises against the release before it.

    Maven fetches its jars. Those of a release candidate have the number of the release: name the
    staging repository in Maven's settings.
    """
    begun = time.monotonic()
    try:
        known = {*jars.EVERY, *javac.RELEASES}
        older = [each for each in known if jars.numbers(each) < jars.numbers(release)]
        before = before or max(older, key=jars.numbers)
        print(f"Kafka {release} against {before}", flush=True)
        found = {"rules": change_of_rules(before, release),
                 "log messages": change_of_messages(before, release)}  # fmt: skip
    except (jars.NoJarsError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if runs:
        found["judge"] = judged(release, runs)
    if seconds:
        found["promises"] = change_of_kinds(before, release)
        found["hunt"] = hunted(release, "", seconds)
        found["hunt, level two"] = hunted(release, "whole", seconds)
    print(
        f"\nIN SHORT, Kafka {release} against {before}, {(time.monotonic() - begun) / 60:.0f} min"
    )
    print(*(f"  {name}: {text}" for name, text in found.items()), sep="\n")


if __name__ == "__main__":
    main()
