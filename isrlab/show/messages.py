"""Messages between machines: arrows between lanes, time downwards, not to scale."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from isrlab.engine import messages as m
from isrlab.engine.messages import Fetch, FetchResponse
from isrlab.engine.model import Leader
from isrlab.show import svg
from isrlab.show.colours import INK, LOST, PALE, broker_colour
from isrlab.show.svg import Drawing, text_at
from isrlab.world import words
from isrlab.world.frames import Fault, Frame
from isrlab.world.script import Run

ZOOKEEPER = -2  # a lane of its own
_PLUMBING = {"RegisterBroker", "UpdateMetadata", "Disconnected"}  # messages that are not drawn
_LINE, _HEAD, _GAP = 32, 20, 108  # an arrow, the names; from lane to lane at least


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


def draw_arrows(
    arrows: Sequence[Arrow], title: str, *, lanes: Mapping[int, str] | None = None
) -> Drawing:
    """Arrows in the colours of their senders. `lanes`: machine -> name, from left to right.

    The content of a message is above its arrow, and its effect beyond the arrow's head.
    """
    heads, body = draw_lanes(arrows, svg.WIDTH, lanes)
    below = f'<g transform="translate(0 {_HEAD})">{body.parts}</g>'
    both = Drawing(body.width, _HEAD + body.height, heads.parts + below)
    return svg.titled(title, both)


def draw_lanes(
    rows: Sequence[Arrow | str], most: float, lanes: Mapping[int, str] | None = None
) -> tuple[Drawing, Drawing]:
    """The names of the machines, and below them the arrows, as two pictures of `most` pixels, if
    that is enough; a text among the arrows is a line across all lanes."""
    arrows = [row for row in rows if isinstance(row, Arrow)]
    machines = {each for arrow in arrows for each in (arrow.source, arrow.target)}
    order = sorted(machines or {m.CONTROLLER}, key=lambda n: 0.5 if n == ZOOKEEPER else n)
    lanes = lanes or {n: "ZooKeeper" if n == ZOOKEEPER else words.address(n) for n in order}
    left, right = _margins(arrows, [*lanes])
    gap = max((most - left - right) / max(len(lanes) - 1, 1), _GAP)
    places = {machine: left + gap * nth for nth, machine in enumerate(lanes)}
    width, y, drawn = left + gap * (len(lanes) - 1) + right, 4, list[str]()
    for row in rows:
        if isinstance(row, Arrow):
            y += _LINE
            drawn += _draw_arrow(row, (places[row.source], places[row.target], y - 12), gap, width)
        else:
            y += 22
            drawn.append(f'<rect y="{y - 17}" width="100%" height="19" fill="{PALE}"/>')
            drawn.append(text_at(6, y - 4, row, INK, "start", more=svg.BOLD))
    look = 'stroke-width="1.4" opacity="0.7"'
    lines = [svg.line_at((x, 0, x, y + 8), _colour(n), look) for n, x in places.items()]
    heads = [text_at(places[n], 14, name, _colour(n), more=svg.BOLD, size=11.5)
             for n, name in lanes.items()]  # fmt: skip
    return (Drawing(width, _HEAD, "".join(heads)),
            Drawing(width, y + 8, "".join([*lines, *drawn])))  # fmt: skip


def _draw_arrow(
    arrow: Arrow, place: tuple[float, float, float], gap: float, width: float
) -> Iterator[str]:
    start, end, y = place
    colour, side = LOST if arrow.was_lost else _colour(arrow.source), 1 if end > start else -1
    dots = 'stroke-dasharray="3 3"' if arrow.was_lost or arrow.is_inner else ""
    text = f"{arrow.text}  LOST" if arrow.was_lost else arrow.text
    half, middle = svg.LETTER * len(text) / 2, (start + end) / 2
    if abs(end - start) > 1.5 * gap > 3 * half:
        middle = start + side * gap / 2  # between two lanes, not across one
    middle = max(half + 4, min(middle, width - half - 4))
    yield svg.arrow_at((start, y, end - side, y + 8), colour, f'stroke-width="1.5" {dots}')
    ink, anchor = colour if arrow.was_lost else INK, "start" if side > 0 else "end"
    yield text_at(middle, y - 3, text, ink, more=svg.HALO)
    yield text_at(end + 6 * side, y + 12, arrow.news, INK, anchor, more=svg.HALO) * bool(arrow.news)
    yield text_at(4, y + 6, arrow.when, INK, "start") * bool(arrow.when)


def _margins(arrows: Sequence[Arrow], lanes: Sequence[int]) -> tuple[float, float]:
    """Pixels beside the outer lanes: at the left also for the times."""
    sides = [[44.0], [44.0]]
    for arrow in arrows:
        is_right = lanes.index(arrow.target) > lanes.index(arrow.source)
        if arrow.news and arrow.target == lanes[-is_right]:
            sides[is_right].append(14 + svg.LETTER * len(arrow.news))
        sides[0] += [40 + svg.LETTER * len(arrow.when)] if arrow.when else []
    return max(sides[0]), max(sides[1])


def _colour(machine: int) -> str:
    return broker_colour(machine) if machine > 0 else INK


def draw_messages(run: Run, *, first: int = 0, last: int | None = None) -> Drawing:
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
        if not is_drawn(frame):
            continue
        news = _changes(run.frames[index - 1] if index else frame, frame)
        (*_, last_arrow) = shown = arrows_of(frame)
        message = last_arrow.source, last_arrow.target, last_arrow.text
        if news or message not in rounds:
            arrows += [*shown[:-1], replace(last_arrow, news=news)]
        if isinstance(frame.message, Fetch | FetchResponse):
            rounds.add(message)
    return draw_arrows(arrows, _finding(run.frames[start:end]))


def is_drawn(frame: Frame) -> bool:
    """Whether a step is a message between machines that tells something."""
    is_plumbing = isinstance(frame.message, Fault) or type(frame.message).__name__ in _PLUMBING
    return frame.source != frame.target and not is_plumbing


def arrows_of(frame: Frame) -> list[Arrow]:
    """A message as arrows. Up to 2.6 the leader writes the ISR and a notification into ZooKeeper,
    which triggers a watch of the controller."""
    text = " ".join(words.describe(frame.message, frame.controller.version).split())
    arrow = Arrow(frame.source, frame.target, text, was_lost=frame.was_lost)
    kind = type(frame.message).__name__
    if not frame.controller.version.writes_zookeeper:
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
    return ", ".join(parts)


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


plot_arrows, plot_messages = svg.shown(draw_arrows), svg.shown(draw_messages)
