"""`python -m hunt --help`, in the folder tools, or `make hunt` at the top."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from judge import jars

from hunt import javac, kinds, repairs

UNREACHABLE = jars.NoJarsError, javac.NoCompilerError


@click.command(context_settings={"max_content_width": 100})
@click.argument("releases", nargs=-1)
@click.option("--seconds", default=60.0, show_default=True, help="Processor time, of each release.")
@click.option("--schedules", default=10**12, help="Ends after so many, on any machine the same.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--repair", multiple=True, help="A repair by its name, or all: hunt the repaired class."
)
@click.option(
    "--whole", is_flag=True, help="Level two: brokers with their logs, messages in any order."
)
@click.option("--replay", help="A schedule, a file of them, a kind's name, or all kinds.")
def main(
    releases: tuple[str, ...], seconds: float, schedules: int, seed: int,
    repair: tuple[str, ...], whole: bool, replay: str | None,
) -> None:  # fmt: skip
    """Look for schedules in which Kafka's controller breaks what Kafka promises."""
    unknown = [name for name in repair if name not in {*repairs.REPAIRS, "all"}]
    if unknown:
        raise click.BadParameter(f"no repair {unknown[0]}; there are {', '.join(repairs.REPAIRS)}")
    chosen = tuple(repairs.REPAIRS) if "all" in repair else repair
    late = [release for release in releases if whole and release not in javac.WHOLE]
    if late:
        raise click.BadParameter(f"level two has {', '.join(javac.WHOLE)}, not {late[0]}")
    if replay:
        sys.exit(play(releases or javac.RELEASES, replay, chosen))
    for release in releases or javac.RELEASES[-1:]:
        limits = [str(seed), str(seconds), str(schedules), *(["whole"] if whole else [])]
        hunt(release, chosen, limits)


def hunt(release: str, repaired: tuple[str, ...], limits: list[str]) -> int:
    """Prints each break once, and whether its kind is known; the number of new ones."""
    known, new, rate = kinds.stored(), 0, ""
    print(f"{release}: hunting{' with ' + ', '.join(repaired) if repaired else ''}", flush=True)
    for row in javac.lines(javac.compiled(release, repaired), ["hunt", *limits], None, repaired):
        if row[0] == "progress":
            count, steps, took = int(row[1]), int(row[2]), float(row[3])
            rate = f"{count:,} schedules, {steps:,} steps, {took:.0f} s of processor time"
            print(f"  {rate}", end="\r" if sys.stdout.isatty() else "\n", flush=True)
        elif row[0] == "break":
            shown = kinds.Break.of(row[1:])
            name = kinds.of(shown, known)
            new += not name
            print(f"{name or 'NEW'}: {shown.broken}, after {shown.seconds:.1f} s, {shown.schedules}"
                  f" schedules{'' if shown.root == shown.broken else f' (first: {shown.root})'}"
                  f"\n    {shown.schedule}", flush=True)  # fmt: skip
    print(f"{release}: {rate}; {new} shapes of breaks that no kind explains")
    return new


def play(releases: tuple[str, ...], what: str, repaired: tuple[str, ...]) -> int:
    """Replays schedules; of kinds also says where they no longer do what is stored of them."""
    known = kinds.stored()
    if what == "all" or what in known:
        return sum(compare(release, known, what, repaired) for release in releases)
    is_file = ";" not in what and Path(what).exists()
    text = Path(what).read_text() if is_file else what + "\n"
    for release in releases:
        print(release)
        path = javac.compiled(release, repaired)
        for row in javac.lines(path, ["replay", "loud"], text, repaired):
            print("\t".join(row))
    return 0


def compare(
    release: str, known: dict[str, kinds.Kind], what: str, repaired: tuple[str, ...]
) -> int:
    chosen = [
        kind
        for kind in known.values()
        if what in ("all", kind.name) and (release in javac.WHOLE or not kind.is_whole)
    ]
    try:
        path = javac.compiled(release, repaired)
    except UNREACHABLE as reason:
        print(f"{release}: not hunted: {reason}")
        return 0
    text = "".join(kind.schedule + "\n" for kind in chosen)
    rows = [row for row in javac.lines(path, ["replay"], text, repaired) if row[0] == "replayed"]
    differing = 0
    for kind, (_, *broken) in zip(chosen, rows, strict=True):
        is_broken = kind.broken in [x.strip() for x in broken]
        is_other = not repaired and is_broken != (release in kind.releases)
        differing += is_other
        shown = f"breaks {kind.broken}" if is_broken else "holds"
        print(f"{release} {kind.name:28} {shown}{'   NOT AS STORED' if is_other else ''}")
    return differing


if __name__ == "__main__":
    main()
