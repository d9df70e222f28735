"""`python -m hunt.proof`: how long the hunt takes to find each known bug by itself.

A bug counts as found by the first break of its promise that its repair silences; a bug that
cannot be repaired here, by the first break of that promise. Times are for one core.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from hunt import javac, kinds
from judge import jars

FILE = Path(kinds.FILE).with_name("proof.csv")
COLUMNS = ("bug", "kind", "release", "level", "seed", "seconds", "schedules", "schedule")


class Bug(NamedTuple):
    """A known bug: its usual name, its kind, a release with it, and a test of its schedule."""

    name: str
    kind: str
    release: str
    tells: Callable[[str], bool] = lambda schedule: True
    shows: str = ""  # the promise that is broken; else that of the kind


def _has_two_partitions(schedule: str) -> bool:
    return "/" in schedule.split("; ")[1]


def _loses_in_412(schedule: str) -> bool:
    return "LEADER_HAS_ALL" in javac.broken("4.1.2", schedule)


BUGS = (
    Bug("KAFKA-12670", "unclean_leader_ignored", "3.8.1"),
    Bug("KAFKA-15583", "committed_under_min_isr", "3.6.2"),
    Bug("KAFKA-19497", "topic_of_one_delta", "4.1.2"),
    Bug("race", "pending_change_forgotten", "3.9.2", shows="ISR_HAS_ALL"),
    Bug("A", "elr_of_a_removed_replica", "4.3.1", _has_two_partitions),
    Bug("C", "elr_of_a_drained_broker", "4.3.1",
        lambda schedule: not _has_two_partitions(schedule) and not _loses_in_412(schedule)),
    Bug("D", "min_isr_of_partition_0", "4.3.1"),
    Bug("F", "unknown_directory", "4.3.1"),
    Bug("G", "elr_of_one_partition", "4.3.1",
        lambda schedule: not _has_two_partitions(schedule) and _loses_in_412(schedule)),
    Bug("S1", "index_of_cleared_elr", "4.3.1"),
    Bug("S4a", "reassignment_back", "4.3.1"),
)  # fmt: skip


def finds(bug: Bug, kind: kinds.Kind, shown: kinds.Break) -> bool:
    if shown.broken != (bug.shows or kind.broken) or not bug.tells(shown.schedule):
        return False
    return not kind.repair or shown.broken not in javac.broken(
        bug.release, shown.schedule, (kind.repair,)
    )


def hunted(bugs: list[Bug], seed: int, seconds: float) -> list[dict[str, object]]:
    """Hunts for bugs of one release and level: a row for each, without seconds if not found."""
    known = kinds.stored()
    is_whole = known[bugs[0].kind].is_whole
    limits = [str(seed), str(seconds), str(10**12), *(["whole"] if is_whole else [])]
    level = "brokers" if is_whole else "controller"
    left = list(bugs)
    rows: dict[str, dict[str, object]] = {
        bug.name: dict.fromkeys(COLUMNS, "")
        | {"bug": bug.name, "kind": bug.kind, "release": bug.release, "level": level, "seed": seed}
        for bug in bugs
    }
    breaks = javac.hunted(bugs[0].release, limits, is_patient=True)
    for row in breaks:
        if row[0] != "break":
            continue
        shown = kinds.Break.of(row[1:])
        for bug in [x for x in left if finds(x, known[x.kind], shown)]:
            left.remove(bug)
            rows[bug.name] |= {"seconds": shown.seconds, "schedules": shown.schedules,
                               "schedule": shown.schedule}  # fmt: skip
            print(f"{bug.name}: {bug.release}, seed {seed}, {shown.seconds:.1f} s", flush=True)
        if not left:
            break
    breaks.close()
    return list(rows.values())


@click.command()
@click.option("--seeds", default=5, show_default=True)
@click.option("--seconds", default=300.0, show_default=True, help="Processor time of a hunt.")
def main(seeds: int, seconds: float) -> None:
    """Hunt for each known bug with each seed; what data/hunt/proof.csv has is not hunted again."""
    table = list(csv.DictReader(FILE.open())) if FILE.exists() else []
    known = kinds.stored()
    for seed in range(1, seeds + 1):
        done = {row["bug"] for row in table if row["seed"] == str(seed)}
        places: dict[tuple[str, bool], list[Bug]] = {}
        for bug in (bug for bug in BUGS if bug.name not in done):
            places.setdefault((bug.release, known[bug.kind].is_whole), []).append(bug)
        for bugs in places.values():
            try:
                table += [{k: str(v) for k, v in row.items()}
                          for row in hunted(bugs, seed, seconds)]  # fmt: skip
            except (jars.NoJarsError, javac.NoCompilerError) as error:
                raise click.UsageError(str(error)) from None
            order = [bug.name for bug in BUGS]
            table.sort(key=lambda row: (order.index(row["bug"]), int(row["seed"])))
            with FILE.open("w", newline="") as file:
                out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                out.writeheader()
                out.writerows(table)


if __name__ == "__main__":
    main()
