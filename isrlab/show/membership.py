"""One follower in and out of the stored ISR: a row for each run, of its last replica."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from isrlab.show import bands, offsets
from isrlab.show.bands import Span
from isrlab.show.style import counted
from isrlab.world.script import Run


def spans(run: Run) -> list[Span]:
    """When the last replica was in the stored ISR ("in sync"), and when it was "out"."""
    follower = max(run.cluster.replicas)
    (row,) = bands.isr_rows(offsets.isr_of(run), (follower,)).values()
    return [Span(s.start_s, s.end_s, "out" if s.state == "out" else "in sync") for s in row]


def changes(run: Run) -> int:
    """How often it left or joined."""
    return len(spans(run)) - 1


def time_out_s(run: Run) -> float:
    """How long it was outside (s)."""
    return sum(span.end_s - span.start_s for span in spans(run) if span.state == "out")


def plot_membership(runs: Mapping[str, Run]) -> Axes:
    """A row for each run: in the ISR, or out of it."""
    rows = {name: spans(run) for name, run in runs.items()}
    notes = {n: f"{counted(changes(r), 'change')}, {time_out_s(r):.1f} s out" for n, r in runs.items()}
    legend = {"in sync": "in the ISR", "out": "out"}
    return bands.plot_bands(rows, finding(runs), notes=notes, legend=legend)


def finding(runs: Mapping[str, Run]) -> str:
    """The most and the fewest changes; if all have as many, the longest and the shortest absence."""
    counts = {name: changes(run) for name, run in runs.items()}
    most, least = (end(counts, key=counts.__getitem__) for end in (max, min))
    if counts[most] != counts[least]:
        return f"{counted(counts[most], 'ISR change')} in {most}, {counts[least]} in {least}"
    outs = {name: time_out_s(run) for name, run in runs.items()}
    long, short = (end(outs, key=outs.__getitem__) for end in (max, min))
    return f"Out of the ISR for {outs[long]:.1f} s in {long}, for {outs[short]:.1f} s in {short}"
