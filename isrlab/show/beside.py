"""The engine's run of a schedule beside what real brokers had at the end of the same blocks."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from isrlab.show import style
from isrlab.show.replicas import common_look, plot_replicas, story_finding
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run


def plot_beside(
    run: Run, real: Sequence[Frame], name: str, *, blocks: Sequence[int] | None = None
) -> Figure:
    """A row for each block (all, or those numbered from 1): on the left the engine, on the right
    the brokers, one frame a block. What a leader knows of its followers is seen on the left only.
    """
    numbers = blocks or range(1, len(run.blocks) + 1)
    ends = [(run.frames[run.blocks[n - 1].frames[1] - 1], real[n - 1]) for n in numbers]
    look = common_look([frame for pair in ends for frame in pair])
    height = len(ends) * (0.85 + 0.72 * len(real[0].disks)) + 0.4
    figure, grid = style.panels(len(ends), 2, (style.WIDTH, height))
    for row, (number, frames) in enumerate(zip(numbers, ends, strict=True)):
        captions = words.caption(run, run.blocks[number - 1]), "On real brokers"
        for column, (frame, caption) in enumerate(zip(frames, captions, strict=True)):
            before = ends[row - 1][column] if row else None
            ax = grid[row, column]
            plot_replicas(frame, f"{row + 1}. {caption}", before=before, ax=ax, **look)
            if row > 0:  # what the axis says, once
                ax.set_xlabel("")
    return style.headline(figure, f"{story_finding(run)}. {name}")
