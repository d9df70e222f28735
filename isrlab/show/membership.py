"""One follower in and out of the stored ISR: a row for each run, for its last replica."""

from collections.abc import Mapping
from dataclasses import replace

from matplotlib.axes import Axes

from isrlab.show import bands, offsets
from isrlab.show.bands import Span
from isrlab.show.style import counted, listed
from isrlab.world.script import Run

# By the states that follow each other, in sync or out
_DOES = {"i": "stays", "o": "stays out", "io": "leaves", "oi": "joins", "ioi": "leaves and returns"}
_DOES |= {"oio": "joins and leaves"}


def spans(run: Run) -> list[Span]:
    """When the last replica was in the stored ISR ("in sync"), and when it was "out"."""
    follower = max(run.cluster.replicas)
    (row,) = bands.isr_rows(offsets.isr_of(run), (follower,)).values()
    begins_before = len(row) > 1 and row[0].end_s == row[0].start_s  # it changed immediately
    return [
        replace(span, state="out" if span.state == "out" else "in sync")
        for span in row[begins_before:]
    ]


def changes(run: Run) -> int:
    """How often the last replica left or joined."""
    return len(spans(run)) - 1


def time_out_s(run: Run) -> float:
    """How long the last replica was outside (s)."""
    return sum(span.end_s - span.start_s for span in spans(run) if span.state == "out")


def plot_membership(runs: Mapping[str, Run]) -> Axes:
    """A row for each run: in the ISR, or out of it."""
    rows = {name: spans(run) for name, run in runs.items()}
    notes = {
        n: f"{counted(changes(r), 'change')}, {time_out_s(r):.1f} s out" for n, r in runs.items()
    }
    legend = {"in sync": "in the ISR", "out": "out"}
    return bands.plot_bands(rows, finding(runs), notes=notes, legend=legend)


def finding(runs: Mapping[str, Run]) -> str:
    """What the replica does in each run; if that is the same, the longest and shortest time out."""
    names: dict[str, list[str]] = {}
    for name, run in runs.items():
        states = [span.state for span in spans(run)]
        names.setdefault(_DOES.get("".join(s[0] for s in states), "flaps"), []).append(name)
    if len(names) > 1:
        parts = [f"{does} ({listed(those)})" for does, those in names.items()]
        return f"The follower {', '.join(parts[:-1])} or {parts[-1]}"
    if "stays" in names:
        return f"The follower stays in the ISR ({listed(names['stays'])})"
    outs = {name: round(time_out_s(run), 1) for name, run in runs.items()}
    longest, shortest = max(outs.values()), min(outs.values())
    parts = [f"{s:.1f} s ({_having(outs, s)})" for s in (shortest, longest)]
    return f"The follower is out of the ISR for {' to '.join(dict.fromkeys(parts))}"


def _having(numbers: Mapping[str, float], number: float) -> str:
    return listed([name for name, value in numbers.items() if value == number])
