"""One follower in and out of the ISR: a row for each run of a scenario."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from isrlab.show import bands, offsets
from isrlab.show.style import counted
from isrlab.world.script import Run

FOLLOWER = 2


def changes(run: Run) -> int:
    """How often the stored ISR changed."""
    return len(offsets.isr_of(run)) - 1


def time_out_ms(run: Run) -> int:
    """How long the follower was outside the stored ISR."""
    spans = offsets.isr_of(run)
    return sum(span.end_ms - span.start_ms for span in spans if FOLLOWER not in span.isr)


def plot_membership(runs: Mapping[str, Run]) -> Axes:
    """A row for each run: when the follower was in the stored ISR, and when it was not."""
    rows, notes = {}, {}
    for name, run in runs.items():
        (rows[name],) = bands.isr_rows(offsets.isr_of(run), (FOLLOWER,)).values()
        notes[name] = f"{counted(changes(run), 'ISR change')}, {time_out_ms(run) / 1000:.1f} s out"
    legend = {f"broker {FOLLOWER}": f"broker {FOLLOWER} in the ISR", "out": "out"}
    return bands.plot_bands(rows, finding(runs), notes=notes, legend=legend)


def finding(runs: Mapping[str, Run]) -> str:
    """The most and the fewest ISR changes; if all have as many, the longest absence."""
    counts = {name: changes(run) for name, run in runs.items()}
    most, least = _ends(counts)
    if counts[most] != counts[least]:
        return f"{counted(counts[most], 'ISR change')} in {most}, {counts[least]} in {least}"
    outs = {name: time_out_ms(run) / 1000 for name, run in runs.items()}
    long, short = _ends(outs)
    return f"Out of the ISR for {outs[long]:.1f} s in {long}, for {outs[short]:.1f} s in {short}"


def _ends(numbers: Mapping[str, float]) -> tuple[str, str]:
    """Under which names the largest and the smallest number stand."""
    return max(numbers, key=numbers.__getitem__), min(numbers, key=numbers.__getitem__)
