"""In or out of sync: a run's offsets, ISR and lag clocks in time, and when a stalled follower goes.

Times are in milliseconds since the run began. What a run kept is enough: nothing is played again,
but for `eviction_times`, which plays one stall many times, each begun at another moment.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.engine.model import Leader
from isrlab.engine.versions import KafkaVersion
from isrlab.show.style import INK, LOST, PALE, bare, broker_colour, plain
from isrlab.world import scenario, words
from isrlab.world.cluster import START_MS
from isrlab.world.frames import Frame
from isrlab.world.script import Run

IN_SYNC = "#009E73"


# What a run holds


@dataclass(frozen=True, slots=True)
class Moment:
    """A partition after one step: offsets as the leader knows them, who is in sync, the clocks."""

    ms: int
    isr: tuple[int, ...]
    leader_end: int
    high_watermark: int
    ends: dict[int, int]  # of the followers
    caught_up_ms: dict[int, int]


def moments(run: Run) -> list[Moment]:
    """Every moment at which something of that changed, while the partition had a leader."""
    found: list[Moment] = []
    for frame in run.frames[max(run.first_frame, 0) :]:
        moment = _moment(frame)
        if moment is not None:
            found.append(moment)
    return found


def _moment(frame: Frame) -> Moment | None:
    leader = frame.brokers.get(frame.controller.leader)
    if leader is None or not isinstance(leader.role, Leader):
        return None
    return Moment(
        frame.now_ms - START_MS,
        frame.controller.isr,
        leader.log.log_end_offset,
        leader.log.high_watermark,
        {r.id: r.log_end_offset for r in leader.role.remotes},
        {r.id: r.last_caught_up_time_ms - START_MS for r in leader.role.remotes},
    )


def isr_history(run: Run) -> list[tuple[int, tuple[int, ...]]]:
    """The stored ISR: (since when, members), from the beginning of the run."""
    history: list[tuple[int, tuple[int, ...]]] = []
    for entry in run.cluster.journal:
        if not isinstance(entry, Frame):
            continue
        isr = entry.controller.isr
        if not history or set(history[-1][1]) != set(isr):
            history.append((entry.now_ms - START_MS, isr))
    return history


def changes(run: Run) -> int:
    """How often the stored ISR changed."""
    return len(isr_history(run)) - 1


def spans_in_sync(run: Run, replica: int) -> list[tuple[int, int]]:
    """From when to when a replica was in the stored ISR."""
    history = [*isr_history(run), (_end_ms(run), ())]
    spans: list[tuple[int, int]] = []
    for (start, isr), (stop, _) in pairwise(history):
        if replica in isr and spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], stop)
        elif replica in isr and stop > start:
            spans.append((start, stop))
    return spans


def time_out_ms(run: Run, replica: int) -> int:
    """How long a replica was outside the ISR."""
    return _end_ms(run) - sum(b - a for a, b in spans_in_sync(run, replica))


def clock_ages(run: Run, replica: int) -> list[tuple[int, int]]:
    """(time, age of the replica's lag clock just before and just after it was set), in order."""
    points: list[tuple[int, int]] = []
    caught_up: int | None = None
    for moment in moments(run):
        now = max(moment.caught_up_ms.get(replica, 0), 0)
        if caught_up is not None and now != caught_up:
            points.append((moment.ms, moment.ms - caught_up))
        if now != caught_up:
            points.append((moment.ms, moment.ms - now))
        caught_up = now
    if caught_up is not None:
        points.append((_end_ms(run), _end_ms(run) - caught_up))
    return points


def _end_ms(run: Run) -> int:
    return run.cluster.now_ms - START_MS


# How long a stalled follower stays


def stall_script(begin_ms: int, settings: str = "", watch_ms: int = 100_000) -> str:
    """A follower that is caught up at `begin_ms`, lacks a record from then on, and hangs."""
    return "\n".join(
        (
            f"partition replicas=1,2 {settings}",
            f"advance {begin_ms}ms",
            "produce 1 acks=1",
            "stabilize",
            "pause 2 fetcher",
            "produce 1 acks=1",
            f"advance {watch_ms}ms",
        )
    )


def eviction_times(version: str, samples: int = 40, settings: str = "") -> list[int]:
    """From the stall to the smaller ISR, for stalls begun evenly over one period of the check."""
    known = scenario.play(f"partition {settings}", version=version).cluster.settings
    lag = known.replica_lag_time_max_ms
    period = lag // KafkaVersion.of(version).isr_checks_per_lag_time
    times = []
    for sample in range(samples):
        begin = period + (sample * period) // samples
        run = scenario.play(stall_script(begin, settings, 3 * lag), version=version)
        times.append(isr_history(run)[1][0] - begin)
    return times


# Pictures


def plot_membership(run: Run, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Log end offsets (solid; as the leader knows them), high watermark (dashed), ISR below.

    A thick line below is a replica in the stored ISR, a thin red one a replica outside it.
    """
    ax = ax or plt.subplots(figsize=(9.5, 3.6))[1]
    seen = moments(run)
    times = [m.ms / 1000 for m in seen] + [_end_ms(run) / 1000]
    leader = run.cluster.controller.leader
    lines = [(leader, [m.leader_end for m in seen])]
    lines += [(r, [max(m.ends[r], 0) for m in seen]) for r in sorted(seen[-1].ends)]
    for replica, values in lines:
        _steps(ax, times, values, color=broker_colour(replica), linewidth=1.8)
    marks = [m.high_watermark for m in seen]
    _steps(ax, times, marks, color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
    top = max(m.leader_end for m in seen) or 1
    names = [(f"replica {r}", v[-1], broker_colour(r)) for r, v in lines]
    _name_lines(ax, times[-1], [*names, ("high watermark", marks[-1], INK)], top)
    _draw_bands(ax, run, top)
    ax.set_xlim(0, times[-1] * 1.1)
    ax.set_xticks([t for t in ax.get_xticks() if t <= times[-1]])
    ax.set_xlabel("time since the start (s)")
    ax.set_ylabel("offset", loc="top")
    ax.set_yticks([t for t in ax.get_yticks() if 0 <= t <= top * 1.02 and t == int(t)])
    bare(ax, "left", "bottom")
    ax.set_title(plain(title or membership_finding(run)), fontsize=10, loc="left")
    return ax


def _steps(ax: Axes, times: list[float], values: list[int], **look: object) -> None:
    ax.plot(times, [*values, values[-1]], drawstyle="steps-post", **look)  # type: ignore[arg-type]


def _name_lines(ax: Axes, x: float, names: list[tuple[str, int, str]], top: int) -> None:
    """The names at the lines' right ends, pushed apart where they would overlap."""
    floor = -float("inf")
    for text, value, colour in sorted(names, key=lambda n: n[1]):
        floor = max(value, floor + 0.08 * top)
        ax.text(x * 1.01, floor, text, color=colour, fontsize=8, va="center")


def _draw_bands(ax: Axes, run: Run, top: int) -> None:
    for row, replica in enumerate(sorted(run.cluster.replicas)):
        y = -top * (0.12 + 0.11 * row)
        end = _end_ms(run) / 1000
        ax.plot([0, end], [y, y], color=LOST, linewidth=0.9)
        for start, stop in spans_in_sync(run, replica):
            shade = broker_colour(replica)
            ax.plot(
                [start / 1000, stop / 1000], [y, y], color=shade, linewidth=5, solid_capstyle="butt"
            )
        is_out = replica not in run.cluster.controller.isr
        ax.text(end * 1.01, y, "out of ISR" if is_out else "in ISR", fontsize=7, va="center")


def membership_finding(run: Run) -> str:
    """Who left, when, who came back, in one sentence."""
    parts = []
    for (_, before), (ms, after) in pairwise(isr_history(run)):
        gone, back = sorted(set(before) - set(after)), sorted(set(after) - set(before))
        word = "leaves" if gone else "joins"
        parts.append(f"replica {words.ids(gone or back)} {word} at {ms / 1000:g} s")
    if len(parts) > 4:
        return f"R{parts[0][1:]}; then the ISR changes {len(parts) - 1} more times"
    return f"R{', '.join(parts)[1:]}" if parts else "Nobody leaves the ISR"


def plot_clocks(runs: dict[str, Run], replica: int = 2) -> Figure:
    """The age of one replica's lag clock in each run; above the dotted limit it is out of sync."""
    figure, axes = plt.subplots(
        len(runs), 1, figsize=(9.5, 0.8 + 1.55 * len(runs)), sharex=True, squeeze=False
    )
    for ax, (label, run) in zip(axes.flat, runs.items(), strict=True):
        _draw_clock(ax, run, replica, label)
    axes.flat[-1].set_xlabel("time since the start (s)")
    out = [label for label, run in runs.items() if changes(run)]
    kept = [label for label in runs if label not in out]
    parts = [f"Leaves the ISR: {', '.join(out)}"] if out else []
    parts += [f"Stays: {', '.join(kept)}"] if kept else []
    figure.suptitle(plain(". ".join(parts)), x=0.01, ha="left", fontsize=11)
    figure.tight_layout()
    return figure


def _draw_clock(ax: Axes, run: Run, replica: int, label: str) -> None:
    points = clock_ages(run, replica)
    limit = run.cluster.settings.replica_lag_time_max_ms / 1000
    highest = 1.12 * max(limit, max(min(age / 1000, 3 * limit) for _, age in points))
    colour = broker_colour(replica)
    ax.plot([t / 1000 for t, _ in points], [a / 1000 for _, a in points], color=colour, lw=1.2)
    ax.axhline(limit, color=INK, linestyle=":", linewidth=1)
    ax.text(0, limit, " limit", fontsize=7, va="bottom", color=INK)
    inside = [*spans_in_sync(run, replica), (_end_ms(run), _end_ms(run))]
    outside = [(left, back) for (_, left), (back, _) in pairwise(inside) if back > left]
    for left, back in outside:
        ax.axvspan(left / 1000, back / 1000, color=LOST, alpha=0.18, linewidth=0)
        ax.text(left / 1000, highest * 0.14, " out of the ISR", fontsize=8, color=LOST)
    ax.set_ylim(0, highest)
    ax.set_xlim(0, _end_ms(run) / 1000)
    ax.set_ylabel("age (s)", fontsize=8)
    bare(ax, "left", "bottom")
    ax.set_title(plain(label), fontsize=9, loc="left")


def plot_evictions(times: dict[str, list[int]], *, ax: Axes | None = None) -> Axes:
    """When a stalled follower leaves: for each version a tick for every run."""
    ax = ax or plt.subplots(figsize=(9.5, 1.0 + 0.75 * len(times)))[1]
    most = max(max(values) for values in times.values()) / 1000
    for row, values in enumerate(times.values()):
        seconds = [v / 1000 for v in values]
        colour = broker_colour(row + 1)
        ax.barh(row, max(seconds) - min(seconds), left=min(seconds), height=0.5, color=PALE)
        ax.plot(
            seconds, [row] * len(seconds), "|", color=colour, markersize=14, markeredgewidth=1.2
        )
        mean = sum(seconds) / len(seconds)
        text = f"{min(seconds):.1f} to {max(seconds):.1f} s, on average {mean:.1f} s"
        ax.text(most * 1.03, row, text, fontsize=8, va="center")
    ax.set_yticks(range(len(times)), [plain(label) for label in times])
    ax.set_ylim(len(times) - 0.5, -0.6)
    ax.set_xlim(0, most * 1.42)
    ax.set_xticks([t for t in ax.get_xticks() if t <= most])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("from the stall to the smaller ISR (s)")
    bare(ax, "bottom")
    ax.set_title(plain(eviction_finding(times)), fontsize=10, loc="left")
    return ax


def eviction_finding(times: dict[str, list[int]]) -> str:
    """The two ends: who is quickest, who slowest, on average."""
    means = {label: sum(values) / len(values) / 1000 for label, values in times.items()}
    quick, slow = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    return (
        f"The same stall: gone after {means[quick]:.1f} s on average in {quick}, "
        f"after {means[slow]:.1f} s in {slow}"
    )


def plot_bands(
    runs: dict[str, Run], replica: int = 2, *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """One row for each run: when the replica was in the stored ISR (thick), and when not (red)."""
    ax = ax or plt.subplots(figsize=(9.5, 0.9 + 0.42 * len(runs)))[1]
    last = max(_end_ms(run) for run in runs.values()) / 1000
    for row, run in enumerate(runs.values()):
        end = _end_ms(run) / 1000
        ax.plot([0, end], [row, row], color=LOST, linewidth=1.2)
        for start, stop in spans_in_sync(run, replica):
            ax.plot(
                [start / 1000, stop / 1000], [row, row], color=IN_SYNC, linewidth=9,
                solid_capstyle="butt",
            )  # fmt: skip
        number, out = count_changes(changes(run)), time_out_ms(run, replica) / 1000
        ax.text(last * 1.02, row, f"{number}, {out:.1f} s out", fontsize=8, va="center")
    ax.set_yticks(range(len(runs)), [plain(label) for label in runs])
    ax.set_ylim(len(runs) - 0.5, -0.6)
    ax.set_xlim(0, last * 1.28)
    ax.set_xticks([t for t in ax.get_xticks() if t <= last])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time since the start (s)")
    bare(ax, "bottom")
    ax.set_title(plain(title or bands_finding(runs)), fontsize=10, loc="left")
    return ax


def bands_finding(runs: dict[str, Run]) -> str:
    """The most and the fewest ISR changes."""
    counts = {label: changes(run) for label, run in runs.items()}
    most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
    if counts[most] == counts[least]:
        outs = {label: time_out_ms(run, 2) / 1000 for label, run in runs.items()}
        long, short = max(outs, key=outs.__getitem__), min(outs, key=outs.__getitem__)
        return (
            f"Out of the ISR for {outs[long]:.1f} s in {long}, for {outs[short]:.1f} s in {short}"
        )
    return f"{count_changes(counts[most])} in {most}, {counts[least]} in {least}"


def count_changes(number: int) -> str:
    """The number with its noun."""
    return f"{number} ISR change{'' if number == 1 else 's'}"


# A control


def saw_tooth_script(hang_ms: int, lag_ms: int = 10_000, teeth: int = 4) -> str:
    """A follower that hangs for `hang_ms`, catches up in half a second, and hangs again."""
    tooth = [
        "pause 2 fetcher",
        f"produce 1 acks=1 every=500ms for={hang_ms}ms",
        "resume 2",
        "produce 1 acks=1 every=500ms for=500ms",
    ]
    return "\n".join([f"partition replicas=1,2 replica.lag.time.max.ms={lag_ms}", *tooth * teeth])


def hang_slider(version: str, seconds: int = 8) -> widgets.VBox:
    """How long may a follower hang, again and again, and still be in sync? Lag limit 10 s."""

    def draw(value: int) -> Figure:
        run = scenario.play(saw_tooth_script(value * 1000), version=version)
        return plot_clocks({version: run})

    slider = widgets.IntSlider(value=seconds, min=2, max=20, description="hangs for (s)")
    return redrawn(slider, draw)


def redrawn(control: widgets.Widget, draw: Callable[..., Figure]) -> widgets.VBox:
    """A control over a picture that `draw` makes of its value."""
    picture = widgets.Image(format="png", layout=widgets.Layout(max_width="860px"))
    cache: dict[object, bytes] = {}

    def show(value: object) -> None:
        if value not in cache:
            cache[value] = _png(draw(value))
        picture.value = cache[value]

    control.observe(lambda change: show(change["new"]), names="value")
    show(control.value)
    return widgets.VBox([control, picture])


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90, bbox_inches="tight")
    plt.close(figure)
    return buffer.getvalue()
