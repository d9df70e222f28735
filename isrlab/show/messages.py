"""Messages between machines: arrows between lanes, time downwards, not to scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from matplotlib.axes import Axes

from isrlab.engine import messages as m
from isrlab.engine.messages import Fetch, FetchResponse
from isrlab.engine.model import Leader
from isrlab.show import style
from isrlab.show.style import INK, LOST, WHITE, axes, broker_colour, finish, note, plain
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

ZOOKEEPER = -2  # a lane of its own
_PLUMBING = {"RegisterBroker", "UpdateMetadata", "Disconnected"}  # messages that are not drawn


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message from lane to lane; `news` is its effect there, `when` is drawn at the left."""

    source: int
    target: int
    text: str
    news: str = ""
    when: str = ""
    was_lost: bool = False
    is_inner: bool = False  # within one step of the model


def plot_arrows(
    arrows: Sequence[Arrow], title: str, *, lanes: Mapping[int, str] | None = None
) -> Axes:
    """Arrows in the colours of their senders. `lanes`: machine -> name, from left to right.

    The content of a message is above its arrow, and its effect beyond the arrow's head.
    """
    machines = {each for arrow in arrows for each in (arrow.source, arrow.target)}
    order = sorted(machines, key=lambda each: m.CONTROLLER + 0.5 if each == ZOOKEEPER else each)
    lanes = lanes or {n: "ZooKeeper" if n == ZOOKEEPER else words.address(n) for n in order}
    places = {machine: x for x, machine in enumerate(lanes)}
    ax = axes(style.WIDTH, 0.8 + 0.46 * len(arrows))
    for machine, name in lanes.items():
        lane = places[machine]
        ax.plot([lane] * 2, [-0.6, len(arrows) - 0.3], color=_colour(machine), lw=1.4, zorder=1)
        ax.text(lane, -0.75, plain(name), ha="center", color=_colour(machine), fontweight="bold",
                fontsize=9)  # fmt: skip
    left, right = _margins(arrows, places)
    gap = (ax.figure.bbox.width / ax.figure.dpi - 0.2 - left - right) / max(len(lanes) - 1, 1)
    back: dict[str, Any] = {"facecolor": WHITE, "edgecolor": "none", "pad": 0.5}
    for y, arrow in enumerate(arrows):
        start, end = places[arrow.source], places[arrow.target]
        colour = LOST if arrow.was_lost else _colour(arrow.source)
        line = ":" if arrow.was_lost or arrow.is_inner else "-"
        look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.5, "linestyle": line}
        ax.annotate("", (end, y + 0.2), (start, y - 0.06), arrowprops=look, zorder=3)
        text = plain(f"{arrow.text}  LOST" if arrow.was_lost else arrow.text)
        x, side = ((start + end) / 2, "center") if not arrow.is_inner else (start - 0.05, "right")
        if abs(end - start) > 1 and 0.066 * len(text) < gap and not arrow.is_inner:
            x = start + (0.5 if end > start else -0.5)  # between two lanes, not across one
        ax.text(x, y - 0.12, text, ha=side, va="bottom", fontsize=8, zorder=2, bbox=back,
                color=LOST if arrow.was_lost else INK)  # fmt: skip
        points = -5 if end < start else 5
        note(ax, end, y + 0.22, arrow.news, points=points, zorder=2, bbox=back)
        if arrow.when:
            ax.annotate(plain(arrow.when), (0, y), xycoords=ax.get_yaxis_transform(), fontsize=8,
                        va="center", color=INK)  # fmt: skip
    ax.set_xlim(-left / gap, len(lanes) - 1 + right / gap)
    ax.set_ylim(len(arrows) - 0.2, -1.1)
    ax.axis("off")
    return finish(ax, title, spines=())


def _margins(arrows: Sequence[Arrow], places: Mapping[int, int]) -> tuple[float, float]:
    """Inches beside the outer lanes: at the left also for the times."""
    sides = [[0.3], [0.3]]
    for arrow in arrows:
        is_right = places[arrow.target] > places[arrow.source]
        if arrow.news and places[arrow.target] == is_right * (len(places) - 1):
            sides[is_right].append(0.2 + 0.08 * len(arrow.news))
        sides[0] += [0.4 + 0.08 * len(arrow.when)] if arrow.when else []
    return max(sides[0]), max(sides[1])


def _colour(machine: int) -> str:
    return broker_colour(machine) if machine > 0 else INK


def plot_messages(run: Run, *, first: int = 0, last: int | None = None) -> Axes:
    """The messages of a run between machines, with the changes that each made.

    `first` and `last` choose blocks of the scenario (0-based, `last` inclusive). Left out are
    registrations, metadata, broken connections, and repeated fetches that change nothing.
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
        (*_, last_arrow) = shown = arrows_of(frame, run.cluster.version.writes_zookeeper)
        message = last_arrow.source, last_arrow.target, last_arrow.text
        if news or message not in rounds:
            arrows += [*shown[:-1], replace(last_arrow, news=news)]
        if isinstance(frame.message, Fetch | FetchResponse):
            rounds.add(message)
    return plot_arrows(arrows, _finding(run.frames[start:end]))


def arrows_of(frame: Frame, has_zookeeper: bool) -> list[Arrow]:
    """A message as arrows. Up to 2.6 the leader writes the ISR and a notification into ZooKeeper,
    which triggers a watch of the controller."""
    text = " ".join(words.describe(frame.message, frame.controller.version).split())
    arrow = Arrow(frame.source, frame.target, text, was_lost=frame.was_lost)
    kind = type(frame.message).__name__
    if not has_zookeeper:
        return [arrow]
    if kind == "IsrChangeNotification":
        reads = "a watch fires: read notice and state, notify all, delete the notice"
        fires = Arrow(ZOOKEEPER, m.CONTROLLER, reads, is_inner=True)
        return [replace(arrow, target=ZOOKEEPER, text="isr_change_notification"), fires]
    if kind == "AlterPartitionResponse":
        return [replace(arrow, source=ZOOKEEPER)]
    if kind == "AlterPartition":
        return [replace(arrow, target=ZOOKEEPER)]
    return [arrow]


def _changes(before: Frame, after: Frame) -> str:
    """The changes at the target of a message: LEO, HW, ISR."""
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


def _finding(frames: Sequence[Frame]) -> str:
    """The truncations; without any, how long the followers took to learn the high watermark."""
    for before, after in pairwise(frames):
        for number, log in after.disks.items():
            was, end = before.disks.get(number, log).log_end_offset, log.log_end_offset
            if end < was:
                return f"Replica {number} truncates its log from {was} to {end}"
    leader = frames[-1].controller.leader
    if leader not in frames[-1].disks:
        return "No leader is left"
    goal = frames[-1].disks[leader].high_watermark
    if frames[0].disks[leader].high_watermark == goal:
        return "Nothing is truncated"
    if _least(frames[-1], goal) < goal:
        return f"The leader's high watermark is {goal}; not every follower knows it yet"
    delay_ms = high_watermark_delays(frames)[-1]
    who = "follower learns" if len(frames[-1].brokers) == 2 else "followers learn"
    return f"The {who} the high watermark ({goal}) {delay_ms} ms after the leader"


def high_watermark_delays(frames: Sequence[Frame]) -> list[int]:
    """For each new high watermark of the leader, ms until every live replica has it, if all do."""
    leader, delays = frames[-1].controller.leader, list[int]()
    for place, (before, after) in enumerate(pairwise(frames), start=1):
        goal = after.disks[leader].high_watermark
        if goal > before.disks[leader].high_watermark:
            know = (frame.now_ms for frame in frames[place:] if _least(frame, goal) >= goal)
            delays += [at_ms - after.now_ms for at_ms in islice(know, 1)]
    return delays


def _least(frame: Frame, default: int) -> int:
    """The smallest high watermark of the live replicas."""
    return min((b.log.high_watermark for b in frame.brokers.values()), default=default)
