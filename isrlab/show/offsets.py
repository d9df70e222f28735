"""Offsets in time: log end offsets solid, high watermark dashed, ISR as bands below.

`offsets_of` takes them from a scenario's run, as the leader knows them; a fleet has the same
numbers in its samples. Times are in s since the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from isrlab.engine.model import Leader
from isrlab.events import exact
from isrlab.events.exact import IsrSpan
from isrlab.events.wording import replicas_do
from isrlab.show import bands, style
from isrlab.show.curves import Numbers
from isrlab.world.script import Run
from isrlab.world.words import START_MS

_DASHED = (0, (4, 2))


@dataclass(frozen=True, slots=True)
class Offsets:
    """A partition over time: each array has one entry for each moment of `times_s`."""

    times_s: Numbers
    leader: int
    log_end_offset: Numbers
    high_watermark: Numbers
    ends: Mapping[int, Numbers]  # of the followers, as the leader knows them
    caught_up_s: Mapping[int, Numbers] = field(default_factory=dict)  # of their lag clocks
    isr: Sequence[IsrSpan] = ()


def offsets_of(run: Run) -> Offsets:
    """The offsets of a scenario, while its partition had a leader."""
    followers = sorted(set(run.cluster.replicas) - {run.cluster.controller.leader})
    rows: list[list[float]] = []  # time, LEO, HW, end offsets and clocks of followers
    for frame in run.frames[run.first_frame :]:
        leader = frame.brokers.get(frame.controller.leader)
        if leader is None or not isinstance(leader.role, Leader):
            continue
        remotes = {remote.id: remote for remote in leader.role.remotes}
        known = [remotes.get(follower) for follower in followers]
        ends = [max(r.log_end_offset, 0) if r else 0 for r in known]
        clocks = [max(r.last_caught_up_time_ms - START_MS, 0) / 1000 if r else 0 for r in known]
        at_s, log = (frame.now_ms - START_MS) / 1000, leader.log
        rows.append([at_s, log.log_end_offset, log.high_watermark, *ends, *clocks])
    rows.append([(run.cluster.now_ms - START_MS) / 1000, *rows[-1][1:]])
    times, leads, marks, *rest = np.array(rows).T
    return Offsets(
        times, run.cluster.controller.leader, leads, marks,
        dict(zip(followers, rest, strict=False)),
        dict(zip(followers, rest[len(followers) :], strict=True)), isr_of(run),
    )  # fmt: skip


def isr_of(run: Run) -> list[IsrSpan]:
    """The stored ISR of a scenario in time, ms since its start."""
    (spans,) = exact.isr_spans(run.events(), end_ms=run.cluster.now_ms).values()
    return [IsrSpan(s.start_ms - START_MS, s.end_ms - START_MS, s.isr) for s in spans]


def isr_finding(spans: Sequence[IsrSpan]) -> str:
    """The replicas that left, when, and those that came back, in one sentence."""
    parts = []
    for before, after in pairwise([span for span in spans if span.end_ms > 0]):
        gone, back = sorted({*before.isr} - {*after.isr}), sorted({*after.isr} - {*before.isr})
        does = replicas_do(gone or back, *(("leaves", "leave") if gone else ("joins", "join")))
        parts += [f"{does} at {after.start_ms / 1000:g} s"] * bool(gone or back)
    if len(parts) > 4:
        return f"R{parts[0][1:]}; then the ISR changes {len(parts) - 1} more times"
    return f"R{', '.join(parts)[1:]}" if parts else "No replica leaves the ISR"


def plot_offsets(data: Offsets, title: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Log end offsets, high watermark, uncommitted records (hatched), and the ISR below."""
    ax = ax or style.axes(9.5, 3.6)
    times = np.asarray(data.times_s, float)
    top = float(max(np.max(data.log_end_offset), 1))
    ax.fill_between(
        times, np.asarray(data.high_watermark, float), np.asarray(data.log_end_offset, float),
        step="post", facecolor="none", edgecolor=style.GREY, hatch="////", linewidth=0,
        label="not committed",
    )  # fmt: skip
    lines = {data.leader: data.log_end_offset, **data.ends}
    for place, (broker, values) in enumerate(lines.items()):
        role = "leader" if broker == data.leader else "as its leader knows it"
        width = (4.5, 2.2, 1.2)[min(place, 2)]  # so that coinciding lines stay visible
        ax.plot(times, values, color=style.broker_colour(broker), drawstyle="steps-post",
                linewidth=width, label=f"LEO of {broker} ({role})")  # fmt: skip
    ax.plot(times, data.high_watermark, color=style.INK, linewidth=1.3, linestyle=_DASHED,
            drawstyle="steps-post", label="high watermark")  # fmt: skip
    for place, row in enumerate(bands.isr_rows(data.isr, sorted(lines)).values()):
        y = -top * (0.12 + 0.1 * place)
        for span in row:
            ax.plot([span.start_s, span.end_s], [y, y], solid_capstyle="butt",
                    color=bands.state_colour(span.state),
                    linewidth=1 if span.state == "out" else 5)  # fmt: skip
        if row:
            text = "out of the ISR" if row[-1].state == "out" else "in the ISR"
            style.note(ax, row[-1].end_s, y, text)
    ax.set_xlim(times[0], times[-1])
    ax.set_yticks([t for t in ax.get_yticks() if 0 <= t <= 1.02 * top and t == int(t)])
    ax.yaxis.set_major_formatter(style.thousands)
    ax.set_xlabel("time since the start (s)")
    ax.set_ylabel("offset", loc="top")
    style.legend_below(ax)
    return style.finish(ax, title or isr_finding(data.isr))
