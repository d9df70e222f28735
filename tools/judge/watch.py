"""`python -m judge.watch 4.4.0`: what a release changes against the one before it.

Rules: those in which the engine's table differs. Promises: the stored kinds of breaks that come or
go. Log lines: the sentences in the classes of the controller, the leader and the follower that only
one of the releases has, read from the constants of their class files. Then the judge and the hunt
run on the new release, a few minutes each.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
from hunt import kinds

from isrlab.engine.versions import RULES, KafkaVersion
from judge import jars

SPEAKERS = re.compile(
    r"(kafka/(cluster|server|controller)/|org/apache/kafka/(controller|server|metadata|storage)/)"
    r"(\w+/)*(Partition|Replica|Cluster|Feature|Broker|Alter|Abstract|Default)\w*(\$\w+)*\.class"
)
# Bytes after the tag, of each kind of constant but text (JVM specification, 4.4)
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}
SIZES |= {19: 2, 20: 2}


def sentences(release: str) -> set[str]:
    """What the classes that speak of the ISR can log."""
    paths = [Path(path) for path in jars.classpath(release, jars.controller)]
    found = set()
    for path in (p for p in paths if "/org/apache/kafka/" in str(p)):
        with zipfile.ZipFile(path) as jar:
            for name in filter(SPEAKERS.fullmatch, jar.namelist()):
                found |= {" ".join(text.split()) for text in constants(jar.read(name))}
    return {text for text in found if is_sentence(text)}


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


def changes(before: str, after: str) -> Iterator[str]:
    """What the release `after` has otherwise, a line each."""
    old, new = KafkaVersion.of(before), KafkaVersion.of(after)
    rules = [r for r in RULES if getattr(old, r) != getattr(new, r)]
    yield f"rules of the engine's table that differ: {len(rules)}"
    yield from (f"  {rule}: {old.form(rule)} -> {new.form(rule)}" for rule in rules)
    for word, one, other in (("come", after, before), ("go", before, after)):
        stored = kinds.stored().values()
        names = [k.name for k in stored if one in k.releases and other not in k.releases]
        yield f"stored kinds of broken promises that {word}: {len(names)}"
        yield from (f"  {name}" for name in names)
    ours, theirs = sentences(before), sentences(after)
    for word, texts in (("only " + after, theirs - ours), ("only " + before, ours - theirs)):
        yield f"sentences that {word} can log: {len(texts)}"
        yield from (f"  {text[:160]}" for text in sorted(texts))


@click.command()
@click.argument("release")
@click.option("--before", help="The release before it; else the newest that is known before it.")
@click.option("--seconds", default=300, show_default=True, help="Of the hunt; 0: do not run it.")
@click.option("--runs", default=100, show_default=True, help="Of the judge; 0: do not run it.")
def main(release: str, before: str | None, seconds: int, runs: int) -> None:
    """What RELEASE changes in rules, promises and log lines against the release before it."""
    try:
        known = [each for each in jars.EVERY if jars.numbers(each) < jars.numbers(release)]
        print(*changes(before or known[-1], release), sep="\n", flush=True)
    except (jars.NoJarsError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    for command in (
        ["judge", release, f"--runs={runs}"] if runs else [],
        ["hunt", release, "--replay=all"] if seconds else [],
        ["hunt", release, f"--seconds={seconds}"] if seconds else [],
    ):
        if command:
            subprocess.run([sys.executable, "-m", *command], check=False)


if __name__ == "__main__":
    main()
