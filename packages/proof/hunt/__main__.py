"""`python -m hunt --help`, in the folder packages/proof, or `make hunt` at the top."""

from __future__ import annotations

import csv
import sys
from functools import partial
from pathlib import Path

import click

from hunt import engine, javac, kinds, repairs
from judge import jars

RUNS = kinds.FILE.with_name("runs.csv")
UNREACHABLE = jars.NoJarsError, javac.NoCompilerError


@click.command(context_settings={"max_content_width": 100})
@click.argument("releases", nargs=-1)
@click.option("--seconds", default=60.0, show_default=True, help="Processor time, of each release.")
@click.option("--schedules", default=10**12, help="Ends after so many, on any machine the same.")
@click.option("--seed", default=1, show_default=True)
@click.option("--repair", multiple=True, help="A repair by its name: hunt the repaired class.")
@click.option(
    "--whole", is_flag=True, help="Level two: brokers with their logs, messages in any order."
)
@click.option("--store", is_flag=True, help="Keep in data/hunt what was run, or replayed.")
@click.option("--replay", help="A schedule, a file of them, a kind's name, or all kinds.")
def main(
    releases: tuple[str, ...], seconds: float, schedules: int, seed: int,
    repair: tuple[str, ...], whole: bool, store: bool,
    replay: str | None,
) -> None:  # fmt: skip
    """Look for schedules in which Kafka's controller breaks what Kafka promises."""
    unknown = [name for name in repair if name not in repairs.REPAIRS]
    if unknown:
        raise click.BadParameter(f"no repair {unknown[0]}; there are {', '.join(repairs.REPAIRS)}")
    late = [release for release in releases if whole and not javac.is_whole(release)]
    if late:
        raise click.BadParameter(f"level two begins with {javac.WHOLE}, and {late[0]} is older")
    if replay:
        if store:
            engine.store()
        sys.exit(play(releases or javac.RELEASES, replay, repair))
    for release in releases or javac.RELEASES[-1:]:
        limits = [str(seed), str(seconds), str(schedules), *(["whole"] if whole else [])]
        row = hunt(release, repair, limits)
        if store and not repair:
            keep(row)


def keep(row: dict[str, str]) -> None:
    """Adds a run to the stored runs, in place of one with equal release, level and seed."""
    mark = ("release", "level", "seed")
    rows = list(csv.DictReader(RUNS.open())) if RUNS.exists() else []
    rows = [old for old in rows if any(old[name] != row[name] for name in mark)] + [row]
    with RUNS.open("w", newline="") as file:
        out = csv.DictWriter(file, row, lineterminator="\n")
        out.writeheader()
        out.writerows(sorted(rows, key=lambda x: (jars.numbers(x["release"]), *x.values())))


def hunt(
    release: str, repaired: tuple[str, ...], limits: list[str], only_new: bool = False
) -> dict[str, str]:
    """Prints each break once, with its kind if it is known. Returns the run as a row of `RUNS`."""
    known, seen, new, rate = kinds.stored(), set[str](), 0, ""
    row = {"release": release, "level": "brokers" if "whole" in limits else "controller"}
    row |= {"seed": limits[0]}
    print(f"{release}: hunting{' with ' + ', '.join(repaired) if repaired else ''}", flush=True)
    for what, *said in javac.hunted(release, limits, repaired):
        if what == "progress":
            count, steps, took = int(said[0]), int(said[1]), float(said[2])
            row |= {"seconds": f"{took:.0f}", "schedules": f"{count}", "steps": f"{steps}"}
            rate = f"{count:,} schedules, {steps:,} steps, {took:.0f} s of processor time"
            print(f"  {rate}", end="\r" if sys.stdout.isatty() else "\n", flush=True)
        elif what == "break":
            shown = kinds.Break.of(said)
            names, alike = kinds.of(release, shown, known, partial(broken, repaired))
            new += not names
            seen |= {*names}
            if names and only_new:
                continue
            name = ", ".join(names) or f"NEW{', looks like ' * bool(alike)}{', '.join(alike)}"
            print(f"{name}: {shown.broken}, after {shown.seconds:.1f} s, {shown.schedules}"
                  f" schedules{'' if shown.root == shown.broken else f' (first: {shown.root})'}"
                  f"\n    {shown.schedule}", flush=True)  # fmt: skip
            print(f"    {engine.agreement(release, shown.schedule, repaired)}", flush=True)
    print(f"{release}: {rate}; {new} shapes of breaks that no kind explains")
    return row | {"kinds": f"{len(seen)}", "new": f"{new}"}


def broken(
    repaired: tuple[str, ...], release: str, schedule: str, more: tuple[str, ...]
) -> list[str]:
    """The promises that a schedule breaks with the repairs of this run and more."""
    return javac.broken(release, schedule, tuple(dict.fromkeys((*repaired, *more))))


def play(releases: tuple[str, ...], what: str, repaired: tuple[str, ...]) -> int:
    """Replays schedules. For kinds, returns how many results differ from the stored ones."""
    known = kinds.stored()
    if what == "all" or what in known:
        return sum(compare(release, known, what, repaired) for release in releases)
    is_file = ";" not in what and Path(what).exists()
    if not is_file and ";" not in what:
        raise click.BadParameter(f"no kind, schedule or file {what!r}; kinds: {', '.join(known)}")
    text = Path(what).read_text() if is_file else what
    for release in releases:
        print(release)
        for schedule in text.splitlines():
            print(*map("\t".join, javac.replayed(release, schedule, repaired)), sep="\n")
    return 0


def played(
    release: str, known: dict[str, kinds.Kind], repaired: tuple[str, ...]
) -> dict[str, bool]:
    """For each kind that this release can play: whether its schedule breaks its promise."""
    chosen = [kind for kind in known.values() if javac.is_whole(release) or not kind.is_whole]
    return {x.name: x.broken in javac.broken(release, x.schedule, repaired) for x in chosen}


def compare(
    release: str, known: dict[str, kinds.Kind], what: str, repaired: tuple[str, ...]
) -> int:
    chosen = {name: kind for name, kind in known.items() if what in ("all", name)}
    try:
        broken = played(release, chosen, repaired)
    except UNREACHABLE as reason:
        print(f"{release}: not hunted: {reason}")
        return 0
    differing = 0
    for name, is_broken in broken.items():
        is_other = not repaired and is_broken != (release in known[name].releases)
        is_other &= release in javac.RELEASES  # nothing is stored of others
        differing += is_other
        shown = f"breaks {known[name].broken}" if is_broken else "holds"
        shown += "   NOT AS STORED" * is_other
        judged = engine.agreement(release, known[name].schedule, repaired)
        print(f"{release} {name:28} {shown}; {judged}")
    return differing


if __name__ == "__main__":
    main()
