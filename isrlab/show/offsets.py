"""Offsets and lag clocks in time: log end offsets solid, high watermark dashed, ISR as bands below.

`offsets_of` takes them from a scenario's run, as its leader knows them; a fleet gives the same
numbers from its own samples. Times are in s since the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.engine.model import Leader
from isrlab.events import exact
from isrlab.events.exact import IsrSpan
from isrlab.show.bands import isr_rows
from isrlab.show.curves import Numbers
from isrlab.show.style import (
    GREY,
    INK,
    STATES,
    axes,
    broker_colour,
    counted,
    finish,
    headline,
    legend_below,
    listed,
    panels,
    plain,
    thousands,
)
from isrlab.world.script import Run
from isrlab.world.words import START_MS

_DASHED = (0, (4, 2))


@dataclass(frozen=True, slots=True)
class Offsets:
    """A partition in time: each array has an entry for each moment of `times_s`."""

    times_s: Numbers
    leader: int
    log_end_offset: Numbers
    high_watermark: Numbers
    ends: Mapping[int, Numbers]  # of the followers, as the leader knows them
    caught_up_s: Mapping[int, Numbers] = field(default_factory=dict)  # of their lag clocks
    isr: Sequence[IsrSpan] = ()


def offsets_of(run: Run) -> Offsets:
    """The offsets of a scenario, while its partition had a leader."""
    rows: list[tuple[Any, ...]] = []
    for frame in run.frames[run.first_frame :]:
        leader = frame.brokers.get(frame.controller.leader)
        if leader is None or not isinstance(leader.role, Leader):
            continue
        remotes = {r.id: r for r in leader.role.remotes}
        log = leader.log
        rows.append(
            ((frame.now_ms - START_MS) / 1000, log.log_end_offset, log.high_watermark, remotes)
        )
    end_s = (run.cluster.now_ms - START_MS) / 1000
    rows.append((end_s, *rows[-1][1:]))
    followers = sorted(set(run.cluster.replicas) - {run.cluster.controller.leader})
    known = [[row[3].get(f) for row in rows] for f in followers]
    ends = {
        f: np.array([max(r.log_end_offset, 0) if r else 0 for r in several])
        for f, several in zip(followers, known, strict=True)
    }
    clocks = {
        f: np.array(
            [max(r.last_caught_up_time_ms - START_MS, 0) / 1000 if r else 0.0 for r in several]
        )
        for f, several in zip(followers, known, strict=True)
    }
    times, leads, marks = (np.array([row[place] for row in rows]) for place in (0, 1, 2))
    leader_id = run.cluster.controller.leader
    return Offsets(times, leader_id, leads, marks, ends, clocks, isr_of(run))


def isr_of(run: Run) -> list[IsrSpan]:
    """The stored ISR of a scenario in time, ms since its start."""
    (spans,) = exact.isr_spans(run.events(), end_ms=run.cluster.now_ms).values()
    return [IsrSpan(s.start_ms - START_MS, s.end_ms - START_MS, s.isr) for s in spans]


def isr_finding(spans: Sequence[IsrSpan]) -> str:
    """Who left, when, who came back, in one sentence."""
    parts = []
    for before, after in pairwise(spans):
        gone, back = sorted({*before.isr} - {*after.isr}), sorted({*after.isr} - {*before.isr})
        word = "leaves" if gone else "joins"
        parts.append(f"replica {listed(gone or back)} {word} at {after.start_ms / 1000:g} s")
    if len(parts) > 4:
        return f"R{parts[0][1:]}; then the ISR changes {len(parts) - 1} more times"
    return f"R{', '.join(parts)[1:]}" if parts else "Nobody leaves the ISR"


def plot_offsets(seen: Offsets, title: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Log end offsets, high watermark, what is not committed (hatched), and the ISR below."""
    ax = ax or axes(9.5, 3.6)
    times = np.asarray(seen.times_s, float)
    top = float(max(np.max(seen.log_end_offset), 1))
    ax.fill_between(
        times, np.asarray(seen.high_watermark, float), np.asarray(seen.log_end_offset, float),
        step="post", facecolor="none", edgecolor=GREY, hatch="////", linewidth=0,
        label="not committed",
    )  # fmt: skip
    lines = {seen.leader: seen.log_end_offset, **seen.ends}
    for place, (broker, values) in enumerate(lines.items()):
        role = "leader" if broker == seen.leader else "as its leader knows it"
        ax.plot(times, values, color=broker_colour(broker), drawstyle="steps-post",
                linewidth=2.2 / (1 + 0.4 * place), label=f"LEO of {broker} ({role})")  # fmt: skip
    ax.plot(times, seen.high_watermark, color=INK, linewidth=1.3, linestyle=_DASHED,
            drawstyle="steps-post", label="high watermark")  # fmt: skip
    rows = isr_rows(seen.isr, sorted(lines)) if seen.isr else {}
    for place, row in enumerate(rows.values()):
        y = -top * (0.12 + 0.1 * place)
        for span in row:
            is_out = span.state == "out"
            colour = STATES["out"] if is_out else broker_colour(int(span.state.split()[1]))
            ax.plot([span.start_s, span.end_s], [y, y], color=colour, solid_capstyle="butt",
                    linewidth=1 if is_out else 5)  # fmt: skip
        if row:
            text = "out of the ISR" if row[-1].state == "out" else "in the ISR"
            ax.annotate(text, (row[-1].end_s, y), (3, 0), textcoords="offset points", fontsize=7,
                        va="center")  # fmt: skip
    ax.set_xlim(times[0], times[-1])
    ax.set_yticks([t for t in ax.get_yticks() if 0 <= t <= 1.02 * top and t == int(t)])
    ax.yaxis.set_major_formatter(thousands)
    ax.set_xlabel("time since the start (s)")
    ax.set_ylabel("offset", loc="top")
    legend_below(ax)
    return finish(ax, title or isr_finding(seen.isr))


def clock_ages(seen: Offsets, replica: int) -> tuple[np.ndarray, np.ndarray]:
    """Times (s) and the age (s) of a replica's lag clock, just before and just after each reset."""
    times = np.asarray(seen.times_s, float)
    set_at = np.asarray(seen.caught_up_s[replica], float)
    moved = np.flatnonzero(np.diff(set_at, prepend=-1.0))
    points = [(times[i], times[i] - set_at[j]) for i in moved.tolist() for j in (max(i - 1, 0), i)]
    points.append((times[-1], times[-1] - set_at[-1]))
    x, y = np.array(points).T
    return x, np.maximum(y, 0)


def plot_clocks(
    runs: Mapping[str, Offsets], limit_s: float | Mapping[str, float], replica: int = 2
) -> Figure:
    """The age of one replica's lag clock in each run; above the dotted limit it is out of sync."""
    figure, grid = panels(len(runs), 1, (9.5, 0.9 + 1.5 * len(runs)), sharex=True)
    stays: list[str] = []
    leaves: list[str] = []
    last_s = max(float(seen.times_s[-1]) for seen in runs.values())
    for ax, (name, seen) in zip(grid.flat, runs.items(), strict=True):
        limit = limit_s if isinstance(limit_s, int | float) else limit_s[name]
        x, y = clock_ages(seen, replica)
        highest = 1.25 * max(limit, float(np.minimum(y, 3 * limit).max()))
        ax.plot(x, y, color=broker_colour(replica), linewidth=1.2)
        ax.axhline(limit, color=INK, linestyle=":", linewidth=1)
        ax.text(x[0], limit, " limit", fontsize=7, va="bottom", color=INK)
        away = [s for s in seen.isr if replica not in s.isr]
        for span in away:
            start, end = span.start_ms / 1000, span.end_ms / 1000
            ax.axvspan(start, end, color=STATES["out"], alpha=0.18, linewidth=0)
        if away:
            start = away[0].start_ms / 1000
            ax.text(start, highest, " out of the ISR ", fontsize=8, color=STATES["out"], va="top",
                    ha="right" if start > 0.85 * last_s else "left")  # fmt: skip
        ax.set(ylim=(0, highest), xlim=(0, last_s))
        ax.set_ylabel("age (s)", fontsize=8)
        finish(ax, plain(name))
        (leaves if away else stays).append(name)
    grid.flat[-1].set_xlabel("time since the start (s)")
    parts = [f"Leaves the ISR: {listed(leaves)}"] if leaves else []
    parts += [f"Stays: {listed(stays)}"] if stays else []
    return headline(figure, ". ".join(parts))


def changes(spans: Sequence[IsrSpan]) -> str:
    """How often the stored ISR changed, with its noun."""
    return counted(len(spans) - 1, "ISR change")
