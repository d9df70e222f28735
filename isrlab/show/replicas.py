"""The logs of all replicas at one moment, and a scenario block by block, alone or next to the state
of real brokers after the same blocks."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from isrlab.engine.choices import EpochEntry
from isrlab.engine.log import Log
from isrlab.engine.model import Broker, Leader
from isrlab.events.wording import counted, listed, replicas_do
from isrlab.show import svg
from isrlab.show.colours import FAINT, GREY, INK, LOST, STATES, WHITE, broker_colour
from isrlab.show.svg import Drawing, line_at, text_at
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

MOST_OFFSETS = 16  # drawn of a log; older ones are left out
MOST_OF_STORY = 8  # in all panels of a story; in a longer one each panel has its own offsets
MOST_EPOCHS = 3  # of a cache; earlier ones are left out
MOST_LETTERS = 20  # of a record's name
_BOX, _HIGH, _ROW, _LINE = 46, 32, 66, 13  # a record, a replica, a line of text
_ALONE, _HALF = 740, svg.WIDTH / 2 - 8  # pixels, at most, of one picture, and of one of two
_NOTE = "e1: written in leader epoch 1; epochs: epoch, start offset"


class _View(NamedTuple):
    """What the logs of a picture share; x = zero + box * offset."""

    frame: Frame
    before: Frame | None
    start: int  # the first offset that is drawn
    zero: float
    box: float
    has_epochs: bool
    inclusive: bool

    def x(self, offset: int) -> float:
        return self.zero + self.box * offset


def draw_replicas(frame: Frame, title: str | None = None, **options: Any) -> Drawing:
    """Each replica's log at one moment, under a title, by default the finding; the options are
    those of `draw_logs`."""
    return svg.titled(finding(frame) if title is None else title, draw_logs(frame, **options))


def draw_logs(
    frame: Frame,
    *,
    before: Frame | None = None,
    epochs: bool | None = None,
    offsets: tuple[int, int] | None = None,
    inclusive: bool = False,
    most: float = _ALONE,
    notes: bool = True,
) -> Drawing:
    """Each replica's log at one moment: records, log end offset, high watermark, ISR.

    Hatched records are at or above their replica's high watermark (that of a dead one is the last
    that it knew). Triangles over the leader's log are the followers' end offsets as the leader
    knows them; the high watermark is the smallest of those that count. A record outlined in red
    differs from the leader's at that offset. With `before`, what changed since then is marked:
    arrows show where an offset moved, and records that are gone are crossed out. `epochs` draws
    each record's leader epoch and each replica's epoch cache (default: if there are several), which
    `notes` explain. `offsets` are the first and the end of the drawn range (default: the last ones
    that fit into `most` pixels). With `inclusive`, the labels name the last offset instead of the
    next one, as some texts do.
    """
    has_epochs = has_several_epochs(frame) if epochs is None else epochs
    labels = {n: _label(frame, n, has_epochs, before) for n in sorted(frame.disks)}
    start, end = offsets or _offsets([each for each in (frame, before) if each])
    left = 18 + svg.LETTER * max(len(line) + len(label[0]) * 0.15 for label in labels.values()
                                 for line in label)  # fmt: skip
    right = 12 + svg.LETTER * len(f"readable up to {end:,}" if inclusive else f"LEO {end:,}")
    ends = [log.records[-1:] for log in frame.disks.values()]
    longest = min(MOST_LETTERS, max((len(r.id) for last in ends for r in last), default=2))
    box, room = max(_BOX, svg.LETTER * (longest + 4)), most - left - right
    if offsets is None:
        start = max(start, end - max(2, int(room / box)))
    box = min(box, max(svg.LETTER * (longest + 2), room / (end - start)))
    view = _View(frame, before, start, left - box * start, box, has_epochs, inclusive)
    row, top = max(_ROW, 14 + _LINE * max(map(len, labels.values()))), 22
    colours = sorted({_colour(number, frame.brokers.get(number)) for number in labels})
    parts = [f"<defs>{''.join(map(_hatching, colours))}</defs>"]
    for number, label in labels.items():
        if number not in frame.brokers:
            parts.append(f'<rect y="{top - 17}" width="100%" height="{row}" fill="{FAINT}"/>')
        parts += _draw_label(label, left - 12, top, _colour(number, frame.brokers.get(number)))
        parts += [*_draw_log(view, number, top), *_draw_marks(view, number, top)]
        top += row
    parts.append(text_at(left - 12, top, "offset", GREY, "end"))
    every = 1 + int(svg.LETTER * len(f"{end:,}") / box)
    parts += [text_at(view.x(o) + box / 2, top, f"{o:,}", GREY) for o in range(start, end, every)]
    if has_epochs and notes:
        top += 16
        parts.append(text_at(4, top, _NOTE, GREY, "start"))
    return Drawing(left + (end - start) * box + right, top + 8, "".join(parts))


def _offsets(frames: Iterable[Frame]) -> tuple[int, int]:
    """The first and the end of all offsets; of many the last ones."""
    logs = [log for frame in frames for log in frame.disks.values()]
    end = max(log.log_end_offset for log in logs)
    start = max(min(log.log_start_offset for log in logs), end - MOST_OFFSETS)
    return start, max(end, start + 2)


def has_several_epochs(frame: Frame) -> bool:
    """Whether there was an election, in a version with leader epochs."""
    if frame.controller.version.epoch_entry == EpochEntry.NONE:
        return False
    epochs = {broker.leader_epoch for broker in frame.brokers.values() if broker.role}
    for log in frame.disks.values():
        epochs |= {record.leader_epoch for record in log.records[-1:]}
        epochs |= {epoch for epoch, _ in log.epochs.entries}
    return len(epochs) > 1


def _leader(frame: Frame) -> Broker | None:
    broker = frame.brokers.get(frame.controller.leader)
    return broker if broker is not None and isinstance(broker.role, Leader) else None


def _colour(number: int, broker: Broker | None) -> str:
    return broker_colour(number) if broker else STATES["away"]


def _label(frame: Frame, number: int, has_epochs: bool, before: Frame | None) -> list[str]:
    """A replica's name with its role, and remarks, a line each."""
    broker, old = frame.brokers.get(number), before.brokers.get(number) if before else None
    role, was, state = broker and broker.role, old and old.role, frame.controller.state
    name, details = f"{number} {'dead' if broker is None else 'no replica'}", []
    if isinstance(role, Leader):
        is_new = before is not None and not isinstance(was, Leader)
        name = f"{number} Leader{' (new)' if is_new else ''}"
        details = [f"ISR {words.ids(role.isr)}, epoch {role.leader_epoch}"]
        if isinstance(was, Leader) and was.isr != role.isr:
            details.append(f"(ISR was {words.ids(was.isr)})")
    elif role:
        name = f"{number} Follower" + (f" of {role.leader}" if role.leader > 0 else "")
    if broker and number == state.leader and not isinstance(role, Leader):
        details.append("stored as leader")
    if number in state.elr:
        details.append("in the ELR")
    if has_epochs:
        entries = frame.disks[number].epochs.entries
        pairs = " ".join(f"({epoch},{start:,})" for epoch, start in entries[-MOST_EPOCHS:])
        more = "… " if len(entries) > MOST_EPOCHS else ""
        details.append(f"epochs {more}{pairs or 'none'}")
    return [name, *details]


def _draw_label(label: Sequence[str], x: float, top: int, colour: str) -> Iterator[str]:
    y = top + _HIGH / 2 + 4 - _LINE * (len(label) - 1) / 2
    yield text_at(x, y, label[0], colour, "end", more=svg.BOLD, size=11.5)
    for nth, line in enumerate(label[1:], 1):
        yield text_at(x, y + _LINE * nth, line, INK, "end")


def _hatching(colour: str) -> str:
    return (
        f'<pattern id="open{colour[1:]}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{WHITE}"/>'
        f'<path d="M0 6L6 0" stroke="{colour}" opacity="0.6"/></pattern>'
    )


def _draw_log(view: _View, number: int, top: int) -> Iterator[str]:
    """A box for each record, crossed out if it is gone."""
    frame, log, leader = view.frame, view.frame.disks[number], _leader(view.frame)
    colour = _colour(number, frame.brokers.get(number))
    old = view.before.disks.get(number, log) if view.before else log
    for offset in range(max(view.start, log.log_start_offset), log.log_end_offset):
        record, gone = log.record_at(offset), old.record_at(offset)
        assert record is not None
        theirs = leader.log.record_at(offset) if leader else None
        differs = theirs is not None and theirs.id != record.id
        is_open = offset >= log.high_watermark  # of a dead broker: what it last knew
        fill = f'"url(#open{colour[1:]})"' if is_open else f'"{colour}" fill-opacity="0.22"'
        edge = f'"{LOST}" stroke-width="2.6"' if differs else f'"{colour}"'
        lines = [f"{'≠ ' * differs}{record.id[:MOST_LETTERS]}"]
        lines += [f"e{record.leader_epoch}"] if view.has_epochs else []
        if gone and gone.id != record.id:
            lines = [" ".join(lines), f"was {gone.id[:MOST_LETTERS]}"]
        ink = LOST if differs else INK
        yield from _record(view, offset, top, f"fill={fill} stroke={edge}", (lines, ink))
    for offset in range(max(view.start, log.log_end_offset), old.log_end_offset):
        gone, look = old.record_at(offset), f'fill="none" stroke="{GREY}" stroke-dasharray="2"'
        left, right = view.x(offset) + 2, view.x(offset) + view.box - 2
        for y in (top, top + _HIGH):
            yield line_at((left, y, right, 2 * top + _HIGH - y), LOST)
        name = gone.id[:MOST_LETTERS] if gone else ""
        yield from _record(view, offset, top, look, ([name], GREY))


def _record(
    view: _View, offset: int, top: int, look: str, text: tuple[Sequence[str], str]
) -> Iterator[str]:
    """A box with lines of text in a colour."""
    x, (lines, colour) = view.x(offset), text
    size = f'width="{view.box - 4:.5g}" height="{_HIGH}"'
    yield f'<rect x="{x + 2:.5g}" y="{top}" {size} {look}/>'
    y = top + _HIGH / 2 + 4 - _LINE * (len(lines) - 1) / 2
    for nth, line in enumerate(lines):
        yield text_at(x + view.box / 2, y + _LINE * nth, line, colour, more=svg.HALO)


def _draw_marks(view: _View, number: int, top: int) -> Iterator[str]:
    """A live replica's LEO solid, HW dashed, arrows from their former places; on a leader, its
    followers' end offsets as it knows them."""
    frame, before, start = view.frame, view.before, view.start
    if (broker := frame.brokers.get(number)) is None:
        return
    old = (before and before.brokers.get(number)) or broker
    end, high = broker.log.log_end_offset, broker.log.high_watermark
    remotes = broker.role.remotes if isinstance(broker.role, Leader) and not view.inclusive else ()
    leo = f"last offset {end - 1}" if view.inclusive else f"LEO {end:,}"
    hw = f"readable up to {high - 1}" if view.inclusive else f"HW {high:,}"
    colour, dashed = broker_colour(number), 'stroke-width="1.6" stroke-dasharray="4 2"'
    for offset, was, text, shade, look, (above, below), y in (
        (end, old.log.log_end_offset, leo, colour, 'stroke-width="2.5"', (-3, 44), 40),
        (high, old.log.high_watermark, hw, INK, dashed, (-9, 35), -13),
    ):
        x, is_high, is_back = view.x(max(start, offset)), y < 0, start < offset < was
        if offset >= start:  # slightly to the left of the other line, so that both are visible
            beside = x - 3 * (is_high and end == high)
            yield line_at((beside, top + above, beside, top + below), shade, look)
        if offset != was and min(offset, was) >= start:
            yield svg.arrow_at((view.x(was), top + y, x, top + y), shade)
        text = text if offset >= start else f"← {text}"  # the log ends before what is drawn
        place = view.x(was) if offset == start < was else x  # no room at the left
        place += -5 if is_back else 12 if remotes and is_high else 5
        yield text_at(place, top + y + 4, text, shade, "end" if is_back else "start")
    for nth, remote in enumerate(remotes):
        if remote.log_end_offset >= start:
            x = view.x(remote.log_end_offset) + 9 * (nth - (len(remotes) - 1) / 2)
            points = f"{x - 4:.5g},{top - 8} {x + 4:.5g},{top - 8} {x:.5g},{top - 1}"
            yield f'<polygon points="{points}" fill="{broker_colour(remote.id)}"/>'


def finding(frame: Frame) -> str:
    """The finding of the picture, in one sentence."""
    leader = _leader(frame)
    if leader is None and frame.controller.leader in frame.brokers:
        return f"Broker {frame.controller.leader} is elected, but does not lead yet"
    if leader is None:
        return "No broker leads: nothing can be written or read"
    other = [n for n in sorted(frame.disks) if _differs(frame.disks[n], leader.log)]
    if other:
        others = replicas_do(other, "holds", "hold").capitalize()
        return f"{others} other records than leader {leader.id}"
    if not (log := leader.log).records:
        return "The log is empty"
    parts = [f"Consumers can read {log.high_watermark - log.log_start_offset:,} of "
             f"{counted(len(log.records), 'record')}"]  # fmt: skip
    hosts = [b for b in frame.brokers.values() if b.id in frame.controller.replicas]
    behind = [b for b in hosts if b.log.high_watermark < log.high_watermark]
    for text, has_all in (("not know that yet", True), ("not have them all yet", False)):
        ids = [b.id for b in behind if (b.log.log_end_offset >= log.high_watermark) == has_all]
        parts += [f"{replicas_do(ids, 'does', 'do')} {text}"] if ids else []
    return "; ".join(parts)


def _differs(log: Log, other: Log) -> bool:
    """Whether they hold different records at the same offset."""
    start = max(log.log_start_offset, other.log_start_offset)
    end = min(log.log_end_offset, other.log_end_offset)
    return start < end and log.read(start, end) != other.read(start, end)


def draw_story(run: Run) -> Drawing:
    """The replicas at the end of each block of a scenario, with its caption: the static version of
    the slider. Each panel marks what changed since the one before; one without a change is left
    out.
    """
    moments = _panels(run)
    panels = [(frame, f"{n + 1}. {caption}", moments[n - 1][0] if n else None)
              for n, (frame, caption) in enumerate(moments)]  # fmt: skip
    columns = min(2, len(panels))
    rows = [panels[n : n + columns] for n in range(0, len(panels), columns)]
    return _board(story_finding(run), rows)


def draw_beside(
    run: Run, real: Sequence[Frame], name: str, *, blocks: Sequence[int] | None = None,
    right: str = "On real brokers",
) -> Drawing:  # fmt: skip
    """A row for each block (all, or those numbered from 1): on the left the engine, on the right
    the brokers, one frame a block. What a leader knows of its followers is visible only on the
    left, unless `right` is not real brokers.
    """
    rows: list[list[tuple[Frame, str, Frame | None]]] = []
    for number in blocks or range(1, len(run.blocks) + 1):
        block, place = run.blocks[number - 1], len(rows) + 1
        befores = [frame for frame, *_ in rows[-1]] if rows else [None, None]
        ours = run.frames[block.frames[1] - 1], f"{place}. {words.caption(run, block)}", befores[0]
        rows.append([ours, (real[number - 1], f"{place}. {right}", befores[1])])
    return _board(f"{story_finding(run)}. {name}", rows)


def _board(title: str, rows: Sequence[Sequence[tuple[Frame, str, Frame | None]]]) -> Drawing:
    """Panels of moments, each with its caption and the moment before."""
    look = common_look([frame for row in rows for frame, *_ in row])
    most = _HALF if len(rows[0]) > 1 else _ALONE
    drawn = [[(caption, draw_logs(frame, before=before, notes=row is rows[0], most=most, **look))
              for frame, caption, before in row] for row in rows]  # fmt: skip
    if any(body.width > most for row in drawn for _, body in row) and most == _HALF:
        return _board(title, [[panel] for row in rows for panel in row])  # one below the other
    return svg.board(title, drawn)


def common_look(frames: Sequence[Frame]) -> dict[str, Any]:
    """Settings that the pictures of one run share: whether epochs are drawn, which offsets."""
    start, end = _offsets(frames)
    is_short = all(log.log_start_offset >= start for f in frames for log in f.disks.values())
    is_shared = is_short and end - start <= MOST_OF_STORY
    epochs = any(map(has_several_epochs, frames))
    return {"epochs": epochs, "offsets": (start, end) if is_shared else None}


def _panels(run: Run) -> list[tuple[Frame, str]]:
    """The moments of a story and their captions; a block that changes nothing adds its sentence to
    the previous one."""
    shown: list[tuple[Frame, str]] = []
    for block in run.blocks:
        if block.frames[1] <= run.first_frame:
            continue
        frame, caption = run.frames[block.frames[1] - 1], words.caption(run, block)
        if shown and visible(shown[-1][0]) == visible(frame):
            if caption != words.NOTHING:
                shown[-1] = frame, f"{shown[-1][1]} {caption}"
        else:
            shown.append((frame, caption))
    return shown


def visible(frame: Frame) -> tuple[Hashable, ...]:
    """Everything that a picture shows, except what a leader knows of its followers."""
    brokers = frame.brokers.values()
    marks = [(b.id, b.log.high_watermark, *_label(frame, b.id, True, None)) for b in brokers]
    return (*marks, *((number, log.records) for number, log in frame.disks.items()))


def story_finding(run: Run) -> str:
    """The fate of this partition's records, in one sentence."""
    outcome, frame = run.cluster.observer.outcome, run.frames[-1]
    if outcome.diverged:
        follower, offset = outcome.diverged[0]
        how = f"replica {follower} differs from its leader, first at offset {offset:,}"
        return f"The logs diverge: {how}"
    if names := outcome.lost or outcome.lost_acknowledged:
        was, is_now = ("was", "is") if len(names) == 1 else ("were", "are")
        once = "committed" if outcome.lost else "acknowledged but never committed"
        rest = "" if outcome.lost else "; every committed record is kept"
        return f"{listed(names)} {was} {once}, and {is_now} lost{rest}"
    end, log = finding(frame), leader.log if (leader := _leader(frame)) else Log()
    above = [r.id for r in log.read(log.high_watermark, log.log_end_offset)]
    known = [name for name in above if name in run.cluster.observer.committed]
    text = f"; {listed(known)}, committed before, is above the new leader's high watermark"
    return f"At the end {end[0].lower()}{end[1:]}{text if known else ''}"


plot_replicas, plot_story = svg.shown(draw_replicas), svg.shown(draw_story)
plot_beside = svg.shown(draw_beside)
