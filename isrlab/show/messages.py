"""Who said what to whom: arrows between lanes, time downwards, not to scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes

from isrlab.engine.messages import Fetch, FetchResponse
from isrlab.engine.model import Leader
from isrlab.show.style import INK, LOST, WHITE, axes, broker_colour, finish, plain
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

# What a reader of a story need not see
_PLUMBING = {"RegisterBroker", "UpdateMetadata", "Disconnected"}


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message from lane to lane; `news` is what it changed there, `when` stands at the left."""

    source: int
    target: int
    text: str
    news: str = ""
    when: str = ""
    was_lost: bool = False
    is_inner: bool = False  # something that the model does within one step


def plot_arrows(
    arrows: Sequence[Arrow],
    title: str,
    *,
    lanes: Mapping[int, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Arrows in the colours of who sent them. `lanes`: machine -> name, from left to right."""
    machines = sorted({m for arrow in arrows for m in (arrow.source, arrow.target)})
    lanes = lanes or {machine: words.address(machine) for machine in machines}
    places = {machine: x for x, machine in enumerate(lanes)}
    ax = ax or axes(9.5, 0.9 + 0.44 * len(arrows))
    for machine, name in lanes.items():
        lane = places[machine]
        ax.plot([lane] * 2, [-0.6, len(arrows) - 0.3], color=_colour(machine), lw=1.4, zorder=1)
        ax.text(lane, -0.85, plain(name), ha="center", color=_colour(machine), fontweight="bold")
    back = {"facecolor": WHITE, "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
    for y, arrow in enumerate(arrows):
        start, end = places[arrow.source], places[arrow.target]
        colour = LOST if arrow.was_lost else _colour(arrow.source)
        style = ":" if arrow.was_lost or arrow.is_inner else "-"
        look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.5, "linestyle": style}
        ax.annotate("", (end, y + 0.2), (start, y - 0.06), arrowprops=look)
        text = f"{arrow.text}  LOST" if arrow.was_lost else arrow.text
        x, side = ((start + end) / 2, "center") if not arrow.is_inner else (start - 0.05, "right")
        ax.text(x, y - 0.1, plain(text), ha=side, va="bottom", fontsize=8,
                color=LOST if arrow.was_lost else INK, bbox=back)  # fmt: skip
        if arrow.news:
            x, side = (end - 0.06, "right") if end < start else (end + 0.06, "left")
            ax.text(x, y + 0.3, plain(arrow.news), ha=side, fontsize=8, color=INK, bbox=back)
        if arrow.when:
            ax.text(-0.72, y, plain(arrow.when), fontsize=8.5, va="center", color=INK)
    needs_margin = any(a.when or (a.news and places[a.target] == 0) for a in arrows)
    ax.set_xlim(-0.75 if needs_margin else -0.35, len(lanes) - 0.45)
    ax.set_ylim(len(arrows) - 0.2, -1.2)
    ax.axis("off")
    return finish(ax, title, spines=())


def _colour(machine: int) -> str:
    return broker_colour(machine) if machine > 0 else INK


def plot_messages(
    run: Run, *, first: int = 0, last: int | None = None, ax: Axes | None = None
) -> Axes:
    """The messages of a run between machines, with what each changed.

    `first` and `last` choose blocks of the scenario (0-based, `last` inclusive). Left out are
    registrations, metadata, broken connections, and rounds of fetching that change nothing.
    """
    blocks = run.blocks[first : None if last is None else last + 1]
    start, end = blocks[0].frames[0], blocks[-1].frames[1]
    arrows: list[Arrow] = []
    rounds: set[tuple[int, int, str]] = set()  # of fetching, that are drawn already
    for index in range(start, end):
        frame = run.frames[index]
        if frame.source == frame.target or type(frame.message).__name__ in _PLUMBING:
            continue
        news = _changes(run.frames[index - 1] if index else frame, frame)
        message = frame.source, frame.target, " ".join(words.describe(frame.message).split())
        if news or message not in rounds:
            arrows.append(Arrow(*message, news, was_lost=frame.was_lost))
        if isinstance(frame.message, Fetch | FetchResponse):
            rounds.add(message)
    return plot_arrows(arrows, _finding(run.frames[start:end]), ax=ax)


def _changes(before: Frame, after: Frame) -> str:
    """What a message changed at its target: LEO, HW, ISR."""
    old, new = before.brokers.get(after.target), after.brokers.get(after.target)
    if old is None or new is None:
        return ""
    pairs = (
        ("LEO", old.log.log_end_offset, new.log.log_end_offset),
        ("HW", old.log.high_watermark, new.log.high_watermark),
    )
    parts = [f"{name} {a} → {b}" for name, a, b in pairs if a != b]
    isrs = [b.role.isr for b in (old, new) if isinstance(b.role, Leader)]
    if len(isrs) == 2 and isrs[0] != isrs[1]:
        parts.append(f"ISR {words.ids(isrs[0])} → {words.ids(isrs[1])}")
    return "   ".join(parts)


def _finding(frames: list[Frame]) -> str:
    """Who truncated what; else how long the followers took to learn the high watermark."""
    for before, after in pairwise(frames):
        for number, log in after.disks.items():
            was, end = before.disks[number].log_end_offset, log.log_end_offset
            if end < was:
                return f"Replica {number} truncates its log from {was} to {end}"
    leader = frames[-1].controller.leader
    if leader not in frames[-1].disks:
        return "No leader is left"
    goal = frames[-1].disks[leader].high_watermark
    if frames[0].disks[leader].high_watermark == goal:
        return "Nothing is truncated"
    delay = high_watermark_delay(frames)
    if delay is None:
        return f"The leader's high watermark is {goal}; not every follower knows it yet"
    messages, ms = delay
    return f"The followers learn the high watermark ({goal}) {ms} ms, {messages} message(s) later"


def high_watermark_delay(frames: list[Frame]) -> tuple[int, int] | None:
    """(messages, ms) from the leader's last high watermark until every follower has it, or None."""
    leader = frames[-1].controller.leader
    goal = frames[-1].disks[leader].high_watermark
    known = [i for i, f in enumerate(frames) if f.disks[leader].high_watermark == goal]
    learnt = [
        i for i in known if all(b.log.high_watermark == goal for b in frames[i].brokers.values())
    ]
    if not learnt:
        return None
    return learnt[0] - known[0], frames[learnt[0]].now_ms - frames[known[0]].now_ms
