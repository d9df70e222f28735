"""The command behind `make hold`; `python -m hold --help` in packages/book explains it."""

from __future__ import annotations

import sys
import time

import click

from hold import claims as table
from hold import measured, results


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1)
@click.option("--again", is_flag=True, help="Also run cells with stored results.")
@click.option("--sample", is_flag=True, help="Run one cell of each claim, and store nothing.")
@click.option("--most", type=int, help="Stop after this many cells; the next run continues.")
def main(names: tuple[str, ...], again: bool, sample: bool, most: int | None) -> None:
    """Run the claims of notebooks, all or those with a given name or number, over their ranges.

    \b
    make hold ARGS="02 isr_churn"
    """
    every = table.read()
    chosen = [claim for claim in every if _is_meant(claim, names)]
    if not chosen:
        sys.exit(f"no claim of {', '.join(names)}; notebooks: "
                 f"{', '.join(dict.fromkeys(c.notebook for c in every))}")  # fmt: skip
    if sample:
        sys.exit(_sampled(chosen))
    try:
        store, began = results.Store(alone=True), time.monotonic()
    except BlockingIOError:
        sys.exit("another run is in progress; when it has ended, repeat this command to continue")
    wanted = {cell.key(claim): (claim, cell) for claim in chosen for cell in table.cells(claim)}
    missing = [key for key in wanted if again or key not in store.known][:most]
    for done, key in enumerate(missing, 1):
        claim, cell = wanted[key]
        store.add(key, measured.measure(claim.measure, cell))
        if sys.stderr.isatty() or done % 50 == 0:
            text = f"{done} of {len(missing)} cells, {time.monotonic() - began:.0f} s: "
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{text}{claim.name[:60]:<60}", end=end, file=sys.stderr, flush=True)
    store.fold(every)
    verdicts = [results.judge(claim, store.known) for claim in every]
    (results.FOLDER / "verdicts.csv").write_text(results.table(verdicts), "utf-8")
    for verdict in verdicts:
        if verdict.claim in chosen:
            held = f"{len(verdict.settings) - len(verdict.broken)} of {len(verdict.settings)}"
            print(f"{verdict.word:<8} {held:>10} settings  {verdict.claim.name}")
            if verdict.broken:
                print(f"{'':<20} breaks: {verdict.where()}")


def _is_meant(claim: table.Claim, names: tuple[str, ...]) -> bool:
    number = table.path_of(claim.notebook).stem.partition("_")[0]
    return not names or any(name in (number, claim.notebook) for name in names)


def _sampled(chosen: list[table.Claim]) -> int:
    """Run one cell of each claim; returns how many claims do not hold there."""
    broken = 0
    for claim, cell, held in measured.sample(chosen):
        broken += not held
        print(f"{'holds' if held else 'BREAKS':<8} {claim.name} ({cell.version} {cell.values})")
    return broken


if __name__ == "__main__":
    main()
