"""Pictures of waiting: timing wheels and how they turn, parked fetches of a run, late news."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Wedge

from isrlab.closeups.purgatory import Move, Timer
from isrlab.engine.messages import ExpireFetch, Fetch, Produce
from isrlab.engine.model import Leader, ParkedFetch
from isrlab.show.style import INK, bare, broker_colour, plain
from isrlab.workbook.reading_a_log import png
from isrlab.world.frames import Frame
from isrlab.world.script import Run

HUB, RING, GAP = 0.8, 0.62, 0.12  # radii: where the finest wheel begins, its width, the space
CAUSES = {  # colour and mark of what completes a parked fetch
    "append": (broker_colour(3), "o", "new records"),
    "high watermark": (broker_colour(1), "D", "a new high watermark"),
    "expiry": (broker_colour(2), "^", "timeout"),
    "other": ("#777777", "s", "something else"),
}


# Wheels


@dataclass(frozen=True, slots=True)
class Turn:
    """The wheels at one moment, and what moved since the moment before."""

    now_ms: int
    timer: Timer
    moves: tuple[Move, ...] = ()


def turns(timer: Timer, times_ms: Iterable[int]) -> list[Turn]:
    """The wheels at each of these times, ascending, in ms."""
    found = []
    for now_ms in times_ms:
        timer, moves = timer.advance(now_ms)
        found.append(Turn(now_ms, timer, moves))
    return found


def plot_wheel(turn: Turn, names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """The wheels as rings, the finest inside; slot 0 is at the top, time goes clockwise.

    The grey slot is where a wheel's clock is. A dot is a task; `names` gives each its colour.
    """
    ax = ax or plt.subplots(figsize=(5.2, 5.6))[1]
    for level, wheel in enumerate(turn.timer.wheels):
        hand = wheel.current_ms // wheel.tick_ms % len(wheel.slots)
        for number, slot in enumerate(wheel.slots):
            _draw_slot(ax, level, (number, len(wheel.slots)), number == hand)
            for index, task in enumerate(slot.tasks):
                angle = _angle(number + 0.5, len(wheel.slots))
                radius = _inner(level) + RING * (index + 0.5) / len(slot.tasks)
                _draw_task(ax, radius, angle, task.id, names)
        ax.text(
            0,
            _inner(level) + RING + GAP / 2,
            f"{wheel.tick_ms:,} ms a slot".replace(",", " "),
            ha="center",
            va="center",
            fontsize=6.5,
            color=INK,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
        )
    ax.text(0, 0, f"{turn.now_ms} ms", ha="center", va="center", fontsize=11, color=INK)
    edge = _inner(len(turn.timer.wheels)) + 0.1
    ax.set_xlim(-edge, edge)
    ax.set_ylim(-edge, edge)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set_title(plain(turn_finding(turn)), fontsize=9, color=INK)
    return ax


def _inner(level: int) -> float:
    return HUB + level * (RING + GAP)


def _angle(slot: float, size: int) -> float:
    return math.radians(90 - 360 * slot / size)


def _draw_slot(ax: Axes, level: int, slot: tuple[int, int], is_current: bool) -> None:
    number, size = slot
    ax.add_patch(
        Wedge(
            (0, 0),
            _inner(level) + RING,
            90 - 360 * (number + 1) / size,
            90 - 360 * number / size,
            width=RING,
            facecolor="#BBBBBB" if is_current else "white",
            edgecolor="#888888",
            linewidth=0.6,
        )
    )


def _draw_task(ax: Axes, radius: float, angle: float, name: str, names: Sequence[str]) -> None:
    x, y = radius * math.cos(angle), radius * math.sin(angle)
    colour = broker_colour(names.index(name) + 1)
    pale = to_rgba(colour, 0.5)
    ax.plot(x, y, marker="o", markersize=10, color="white", zorder=5)
    ax.plot(x, y, marker="o", markersize=10, color=pale, markeredgecolor=colour, zorder=5)
    ax.text(x, y, plain(name), ha="center", va="center", fontsize=7, fontweight="bold", zorder=6)


def turn_finding(turn: Turn) -> str:
    """What has moved since the last picture, in one sentence."""
    ran = [f"{m.task.id} at {m.at_ms} ms" for m in turn.moves if m.runs]
    fell = sorted({m.task.id for m in turn.moves if not m.runs})
    parts = [f"runs: {', '.join(ran)}"] if ran else []
    parts += [f"finer wheel: {', '.join(fell)}"] if fell else []
    return "; ".join(parts) or f"{len(turn.timer.tasks)} tasks wait"


def plot_turning(found: Sequence[Turn], *, columns: int = 3) -> Figure:
    """The wheels at several moments, side by side: the static twin of the slider."""
    names = task_names(found)
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.7 * columns, 4.0 * rows), squeeze=False)
    for ax in axes.flat[len(found) :]:
        ax.axis("off")
    for turn, ax in zip(found, axes.flat, strict=False):
        plot_wheel(turn, names, ax=ax)
    figure.suptitle(plain(turning_finding(found)), x=0.01, ha="left", fontsize=12, color=INK)
    figure.tight_layout()
    return figure


def task_names(found: Sequence[Turn]) -> list[str]:
    held = {t.id for turn in found for t in turn.timer.tasks}
    return sorted(held | {m.task.id for turn in found for m in turn.moves})


def turning_finding(found: Sequence[Turn]) -> str:
    """How many tasks ran, and whether on time."""
    runs = [m for turn in found for m in turn.moves if m.runs]
    late = max((abs(m.at_ms - m.task.expiration_ms) for m in runs), default=0)
    falls = sum(not m.runs for turn in found for m in turn.moves)
    left = len(found[-1].timer.tasks)
    timing = "each in its millisecond" if late == 0 else f"up to {late} ms off"
    return f"{len(runs)} tasks run, {timing}, after {falls} moves to finer wheels; {left} wait"


def wheel_slider(timer: Timer, until_ms: int, step_ms: int = 1) -> widgets.VBox:
    """A slider through time, in ms; the wheels are redrawn as the reader moves it."""
    picture = widgets.Image(format="png", layout=widgets.Layout(max_width="480px"))
    slider = widgets.IntSlider(
        value=0,
        min=0,
        max=until_ms,
        step=step_ms,
        description="ms",
        layout=widgets.Layout(width="560px"),
    )
    names = task_names([Turn(0, timer)])
    cache: dict[int, bytes] = {}

    def draw(now_ms: int) -> None:
        if now_ms not in cache:
            before = timer.advance(max(0, now_ms - step_ms))[0] if now_ms else timer
            figure = Figure(figsize=(5, 5.3), dpi=85)
            plot_wheel(turns(before, [now_ms])[0], names, ax=figure.subplots())
            cache[now_ms] = png(figure)
        picture.value = cache[now_ms]

    slider.observe(lambda change: draw(change["new"]), names="value")
    draw(0)
    return widgets.VBox([slider, picture])


# Parked fetches of a run


@dataclass(frozen=True, slots=True)
class Wait:
    """One fetch at the leader, from being parked to being answered (None: it still waits)."""

    replica: int
    start_ms: int
    deadline_ms: int
    end_ms: int | None
    cause: str


def waits(run: Run) -> list[Wait]:
    """Every fetch that was parked in a run, by what completed it; times are since its start."""
    frames = run.frames
    start = frames[run.first_frame].now_ms
    since: dict[ParkedFetch, int] = dict.fromkeys(_parked(frames[0]), frames[0].now_ms)
    found = []
    for before, after in pairwise(frames):
        for parked in _parked(before) - _parked(after):
            begun = since.pop(parked, before.now_ms)
            found.append(_wait(parked, begun - start, after.now_ms - start, _cause(parked, after)))
        since |= dict.fromkeys(_parked(after) - _parked(before), after.now_ms)
    found += [_wait(parked, begun - start, None, "") for parked, begun in since.items()]
    is_seen = [w for w in found if w.end_ms is None or w.end_ms >= 0]
    return sorted(is_seen, key=lambda w: (w.replica, w.start_ms))


def _wait(parked: ParkedFetch, start_ms: int, end_ms: int | None, cause: str) -> Wait:
    deadline = start_ms + parked.fetch.max_wait_ms
    return Wait(parked.fetch.replica, start_ms, deadline, end_ms, cause)


def _parked(frame: Frame) -> set[ParkedFetch]:
    roles = [b.role for b in frame.brokers.values() if isinstance(b.role, Leader)]
    return {parked for role in roles for parked in role.parked}


def _cause(parked: ParkedFetch, frame: Frame) -> str:
    if isinstance(frame.message, ExpireFetch):
        return "expiry"
    leader = frame.brokers.get(frame.target)
    if leader is None or not isinstance(leader.role, Leader):
        return "other"
    if parked.fetch.offset < leader.log.log_end_offset:
        return "append"
    is_own = isinstance(frame.message, Fetch) and frame.message.replica == parked.fetch.replica
    return "other" if is_own else "high watermark"


def plot_waits(run: Run, *, ax: Axes | None = None) -> Axes:
    """Parked fetches over time: a bar is a wait, the mark at its end is what ended it.

    The leader's row shows appends and (dashed) each new high watermark, the followers' rows when
    each of them learns it.
    """
    found = waits(run)
    lanes = sorted({wait.replica for wait in found})
    ax = ax or plt.subplots(figsize=(11, 1.6 + 0.85 * len(lanes)))[1]
    start = run.frames[run.first_frame].now_ms
    end = run.frames[-1].now_ms - start
    for wait in found:
        _draw_wait(ax, lanes.index(wait.replica) + 1, wait, end)
    _draw_news(ax, run, lanes, start)
    for cause in dict.fromkeys(w.cause for w in found if w.cause):
        colour, mark, text = CAUSES[cause]
        ax.plot([], [], marker=mark, color=colour, linestyle="", label=f"ended by {text}")
    ax.plot([], [], marker="|", color="#777777", linestyle="", label="deadline that was not needed")
    ax.plot([], [], color=INK, linewidth=2, label="append")
    ax.legend(fontsize=8, frameon=False, ncol=6, loc="upper left", bbox_to_anchor=(0, -0.22))
    leader = run.frames[-1].controller.leader
    ax.set_yticks(
        range(len(lanes) + 1), [f"leader {leader}"] + [f"fetches of {n}" for n in lanes], fontsize=9
    )
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(lanes) + 0.6, -0.7)
    ax.set_xlim(-0.01 * max(end, 1), end * 1.04)
    ax.set_xlabel("ms since the start", fontsize=9)
    bare(ax, "bottom")
    ax.set_title(waits_finding(found), fontsize=11, loc="left", color=INK)
    return ax


def _draw_wait(ax: Axes, row: int, wait: Wait, end: int) -> None:
    colour, mark, _ = CAUSES.get(wait.cause, ("#777777", "", ""))
    start, stop = max(wait.start_ms, 0), end if wait.end_ms is None else wait.end_ms
    ax.barh(row, stop - start, left=start, height=0.34, color=to_rgba(colour, 0.3))
    if wait.deadline_ms <= end and stop < wait.deadline_ms:
        ax.plot(wait.deadline_ms, row + 0.27, marker="|", color="#777777", markersize=5)
    if wait.end_ms is not None:
        ax.plot(stop, row, marker=mark, color=colour, markersize=6)


def _draw_news(ax: Axes, run: Run, lanes: Sequence[int], start: int) -> None:
    """Appends, and every new high watermark at its replica."""
    frames = run.frames[run.first_frame :]
    leader = frames[-1].controller.leader
    texts: dict[tuple[int, int], str] = {}
    for before, after in pairwise(frames):
        now = after.now_ms - start
        if isinstance(after.message, Produce) and after.target == leader:
            ax.plot([now] * 2, [-0.3, 0.15], color=INK, linewidth=2)
        for number, log in after.disks.items():
            if log.high_watermark != before.disks[number].high_watermark:
                row = lanes.index(number) + 1 if number in lanes else 0
                texts[now, row] = f"HW {log.high_watermark}"
    for (now, row), text in texts.items():
        low, high = (-0.1, 0.3) if row == 0 else (row - 0.36, row + 0.3)
        ax.plot([now] * 2, [low, high], color=INK, linewidth=1.3, linestyle=(0, (2, 1.4)))
        y = -0.42 if row == 0 else row - 0.42
        ax.annotate(text, (now, y), (2, 0), textcoords="offset points", fontsize=7, color=INK)


def waits_finding(found: Sequence[Wait]) -> str:
    """What ended the waits, in one sentence."""
    ended = [w for w in found if w.end_ms is not None]
    counts = {cause: sum(w.cause == cause for w in ended) for cause in CAUSES}
    texts = [f"{n} by {CAUSES[cause][2]}" for cause, n in counts.items() if n]
    return f"{len(ended)} parked fetches answered: {', '.join(texts)}" if ended else "All wait"


# When the follower learns the high watermark


def news_delays_ms(run: Run) -> list[int]:
    """For each high watermark of the leader, ms until every live replica knows as much."""
    frames = run.frames[run.first_frame :]
    leader, delays = frames[-1].controller.leader, []
    for i in range(1, len(frames)):
        goal = frames[i].disks[leader].high_watermark
        if goal <= frames[i - 1].disks[leader].high_watermark:
            continue
        known = (f.now_ms for f in frames[i:] if _all_know(f, goal))
        learnt = next(known, None)
        if learnt is not None:
            delays.append(learnt - frames[i].now_ms)
    return delays


def _all_know(frame: Frame, goal: int) -> bool:
    return all(broker.log.high_watermark >= goal for broker in frame.brokers.values())


def plot_news(delays_ms: dict[str, dict[str, float]], *, ax: Axes | None = None) -> Axes:
    """Delays in ms: for each producer (key) and each version, until the followers know."""
    producers, versions = list(delays_ms), list(next(iter(delays_ms.values())))
    ax = ax or plt.subplots(figsize=(9, 1.2 + 0.27 * len(versions) * len(producers)))[1]
    height = 0.8 / len(producers)
    most = max(max(by_version.values()) for by_version in delays_ms.values()) or 1
    for number, producer in enumerate(producers):
        colour = broker_colour(number + 1)
        rows = [y + (number - (len(producers) - 1) / 2) * height for y in range(len(versions))]
        values = [delays_ms[producer][v] for v in versions]
        hatch = "" if number == 0 else "////"
        ax.barh(
            rows,
            values,
            height=height * 0.9,
            color=to_rgba(colour, 0.6),
            edgecolor=colour,
            hatch=hatch,
            label=plain(producer),
        )
        for row, value in zip(rows, values, strict=True):
            ax.text(value + 0.01 * most, row, f"{value:.0f} ms", va="center", fontsize=8)
    ax.set_yticks(range(len(versions)), [plain(v) for v in versions])
    ax.invert_yaxis()
    ax.set_xlim(0, most * 1.15)
    ax.set_xlabel("ms from the leader's high watermark to the followers'")
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    bare(ax, "left", "bottom")
    ax.set_title(plain(news_finding(delays_ms)), fontsize=11, loc="left", color=INK)
    return ax


def news_finding(delays_ms: dict[str, dict[str, float]]) -> str:
    """Which versions are quickest, in one sentence."""
    first = next(iter(delays_ms))
    worst = max(delays_ms[first].values())
    quick = [version for version, ms in delays_ms[first].items() if ms < worst]
    if not quick:
        return f"Every version: {worst:.0f} ms ({first})"
    ms = max(delays_ms[first][version] for version in quick)
    return f"{', '.join(quick)}: {ms:.0f} ms, all others {worst:.0f} ms ({first})"
