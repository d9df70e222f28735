"""Notebook 08: logs that are too long to draw record by record, compared with their leader's."""

from itertools import pairwise

from matplotlib.axes import Axes

from isrlab.engine.log import Log
from isrlab.show import curves, replicas, style
from isrlab.world.script import Run

EXTENTS = {  # parts of a log
    "as the leader": style.SERIES[2],
    "other records than the leader": style.LOST,
    "as the leader again": style.SKY,
}


def plot_extents(run: Run) -> Axes:
    """Each replica's log as a bar: where it differs from its leader's, as far as that reaches."""
    disks = dict(sorted(run.cluster.disks.items()))
    leader = disks.get(run.cluster.controller.leader, Log())
    lengths, notes = [], []
    for log in disks.values():
        start, end = log.log_start_offset, log.log_end_offset
        pairs = ((at, log.record_at(at), leader.record_at(at)) for at in range(start, end))
        other = [at for at, own, leads in pairs if leads not in (None, own)] or [end]
        places = start, other[0], min(other[-1] + 1, end), end
        lengths.append([last - first for first, last in pairwise(places)])
        notes.append(f"other records from {other[0]:,}" if other[0] < end else f"ends at {end:,}")
    parts = zip(EXTENTS, zip(*lengths, strict=True), strict=True)
    filled = {name: numbers for name, numbers in parts if any(numbers)}
    label = f"offset, counted from {min(log.log_start_offset for log in disks.values()):,}"
    rows, title = [f"broker {number}" for number in disks], replicas.story_finding(run)
    return curves.plot_bars(rows, filled, title, label, notes=notes, colours=EXTENTS)
