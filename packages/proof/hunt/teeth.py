"""`python -m hunt.teeth [SECONDS] [--rest]`, in packages/proof: wrong patches, and their names.

Each patch of data/hunt/wrong.toml is hunted until a break of its promise appears that no kind
explains. The result, data/hunt/wrong.csv, has the seconds of processor time until then, and the
kinds that the break looks like. An empty time means that nothing was found in the given seconds.
"""

from __future__ import annotations

import csv
from functools import partial

import click

from hunt import javac, kinds
from hunt.__main__ import broken
from hunt.repairs import WRONG

RELEASE = "4.3.1"
FILE = kinds.FILE.with_name("wrong.csv")


def noticed(patch: str, seconds: float, seed: int = 1) -> dict[str, str]:
    """The first break of the patch's promise that no kind explains, as a row."""
    promise, known, is_known = WRONG[patch]["promise"], kinds.stored(), set[str]()
    limits = [str(seed), str(seconds), str(10**12)]
    row = {"patch": patch, "promise": promise, "seconds": "", "looks_like": "", "schedule": ""}
    for what, *said in javac.hunted(RELEASE, limits, (patch,), is_patient=True):
        if what != "break" or not said[0].startswith(promise):
            continue
        shown = kinds.Break.of(said)
        names, alike = kinds.of(RELEASE, shown, known, partial(broken, (patch,)))
        is_known |= {*names}
        if not names:
            return row | {"seconds": f"{shown.seconds:.1f}", "looks_like": " ".join(alike),
                          "schedule": shown.schedule}  # fmt: skip
    return row | {"looks_like": " ".join(sorted(is_known))}


@click.command(context_settings={"show_default": True})
@click.argument("seconds", type=click.FloatRange(1), default=60)
@click.option("--rest", is_flag=True, help="Only the patches that are not in the table yet.")
def main(seconds: float, rest: bool) -> None:
    """Hunt in Kafka's classes with each wrong patch, for so many seconds, and store the table."""
    rows = {row["patch"]: row for row in csv.DictReader(FILE.open())} if FILE.exists() else {}
    for patch in WRONG.keys() - rows.keys() if rest else WRONG:
        rows[patch] = noticed(patch, seconds)
        print(*rows[patch].values(), sep="  ", flush=True)
        with FILE.open("w", newline="") as file:
            out = csv.DictWriter(file, rows[patch], lineterminator="\n")
            out.writeheader()
            out.writerows(rows[name] for name in WRONG if name in rows)


if __name__ == "__main__":
    main()
