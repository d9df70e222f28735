"""The logs of all replicas at one moment, and a scenario block by block, alone or next to the state
of real brokers after the same blocks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Transform, offset_copy

from isrlab.engine.choices import EpochEntry
from isrlab.engine.log import Log
from isrlab.engine.model import Broker, Leader
from isrlab.show import style
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

MOST_OFFSETS = 16  # drawn of a log; older ones are left out
MOST_OF_STORY = 8  # in all panels of a story; in a longer one each panel has its own offsets
MOST_EPOCHS = 3  # of a cache; earlier ones are left out
_DASHED = (0, (2, 1.4))
_ARROW = {"arrowstyle": "->", "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}


def plot_replicas(
    frame: Frame,
    title: str | None = None,
    *,
    before: Frame | None = None,
    epochs: bool | None = None,
    offsets: tuple[int, int] | None = None,
    inclusive: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Each replica's log at one moment: records, log end offset, high watermark, ISR.

    Hatched records are at or above their replica's high watermark (that of a dead one is the last
    that it knew). Triangles over the leader's log
    are the followers' end offsets as the leader knows them; the high watermark is the smallest of
    those that count. A record outlined in red differs from the leader's at that offset. With
    `before`, what changed since then is marked: arrows show where an offset moved, and records that
    are gone are crossed out. `epochs` draws each record's leader epoch and each replica's epoch
    cache (default: if there are several). `offsets` are the first and the end of the drawn range.
    With `inclusive`, the labels name the last offset instead of the next one, as some texts do.
    """
    ax = ax or style.axes(7.4, 0.8 + 0.72 * len(frame.disks))
    has_epochs = has_several_epochs(frame) if epochs is None else epochs
    labels = {n: _label(frame, n, has_epochs, before) for n in sorted(frame.disks)}
    start, end, inch = _set_offsets(ax, [f for f in (frame, before) if f], labels, offsets)
    for row, number in enumerate(sorted(frame.disks)):
        broker, old = frame.brokers.get(number), before.brokers.get(number) if before else None
        if broker is None:
            ax.axhspan(row - 0.5, row + 0.5, color=style.FAINT, linewidth=0, zorder=0)
        _draw_log(ax, row, frame, number, (start, has_epochs, before))
        if broker:
            _draw_marks(ax, row, broker, (start, inclusive, old))
        _draw_label(ax, row, start - 0.14 * inch, labels[number])
    ax.set_ylim(len(frame.disks) - 0.45, -0.65)
    ticks = range(start, end, 1 + int(0.08 * len(f"{end:,}") * inch))
    ax.set_xticks([o + 0.5 for o in ticks], [f"{o:,}" for o in ticks])
    ax.set_yticks([])
    about = "   (e1: written in leader epoch 1; epochs: epoch, start offset)" if has_epochs else ""
    ax.set_xlabel(f"offset{about}", fontsize=8)
    return style.finish(ax, title or finding(frame), spines=())


def _set_offsets(
    ax: Axes,
    frames: Sequence[Frame],
    labels: Mapping[int, tuple[str, str, str]],
    offsets: tuple[int, int] | None,
) -> tuple[int, int, float]:
    """The first and the end of the drawn offsets, and their number per inch."""
    names = [(0.083 * len(name), *(0.063 * len(d) for d in details.split("\n")))
             for name, details, _ in labels.values()]  # fmt: skip
    left = 0.25 + max(max(widths) for widths in names)
    start, end = offsets or _offsets(frames)
    right = 0.3 + 0.065 * len(f"LEO {end:,}")
    grid = ax.get_gridspec()
    width = ax.figure.bbox.width / ax.figure.dpi / (grid.ncols if grid else 1)
    width -= 0.15 + left + right
    if offsets is None:  # those with legible names
        records = [log.records[-1:] for log in frames[0].disks.values()]
        longest = max((len(r.id) for last in records for r in last), default=2)
        start = max(start, end - max(2, int(width / (0.1 + 0.08 * longest))))
    inch = (end - start) / width
    ax.set_xlim(start - left * inch, end + right * inch)
    return start, end, inch


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
    return style.broker_colour(number) if broker else style.STATES["away"]


def _draw_label(ax: Axes, row: int, x: float, label: tuple[str, str, str]) -> None:
    name, details, colour = label
    at: dict[str, Any] = {"x": x, "ha": "right"}
    lift = 0.06 * (1 + details.count("\n")) if details else 0
    ax.text(y=row - lift, s=name, va="bottom" if details else "center", fontsize=9, color=colour,
            fontweight="bold", **at)  # fmt: skip
    ax.text(y=row - lift, s=details, va="top", fontsize=8, color=style.INK, **at)


def _label(
    frame: Frame, number: int, has_epochs: bool, before: Frame | None
) -> tuple[str, str, str]:
    """A replica's name, role and remarks, and its colour."""
    broker, old = frame.brokers.get(number), before.brokers.get(number) if before else None
    role, was = broker and broker.role, old and old.role
    name, details = f"{number}  {'dead' if broker is None else 'no replica'}", []
    if isinstance(role, Leader):
        is_new = before is not None and not isinstance(was, Leader)
        name = f"{number}  Leader{' (new)' if is_new else ''}"
        details = [f"ISR {words.ids(role.isr)}, epoch {role.leader_epoch}"]
        if isinstance(was, Leader) and was.isr != role.isr:
            details.append(f"(ISR was {words.ids(was.isr)})")
    elif role:
        name = f"{number}  Follower" + (f" of {role.leader}" if role.leader > 0 else "")
    if number in frame.controller.state.elr:
        details.append("in the ELR")
    if has_epochs:
        entries = frame.disks[number].epochs.entries
        pairs = " ".join(f"({epoch},{start:,})" for epoch, start in entries[-MOST_EPOCHS:])
        more = "… " if len(entries) > MOST_EPOCHS else ""
        details.append(f"epochs {more}{pairs or 'none'}")
    return name, "\n".join(details), _colour(number, broker)


def _draw_log(
    ax: Axes, row: int, frame: Frame, number: int, view: tuple[int, bool, Frame | None]
) -> None:
    start, has_epochs, before = view
    log, broker, leader = frame.disks[number], frame.brokers.get(number), _leader(frame)
    colour, old = _colour(number, broker), before.disks.get(number, log) if before else log
    for offset in range(max(start, log.log_start_offset), log.log_end_offset):
        record, gone = log.record_at(offset), old.record_at(offset)
        assert record is not None
        theirs = leader.log.record_at(offset) if leader else None
        differs = theirs is not None and theirs.id != record.id
        is_open = offset >= log.high_watermark  # of a dead broker: what it last knew
        _draw_box(
            ax, row, offset,
            facecolor=style.WHITE if is_open else to_rgba(colour, 0.22),
            edgecolor=style.LOST if differs else to_rgba(colour, 1.0 if broker else 0.5),
            linewidth=2.6 if differs else 1.0, hatch="////" if is_open else None,
        )  # fmt: skip
        text = f"≠ {record.id}" if differs else record.id
        is_other = gone is not None and gone.id != record.id
        gap = "  " if is_other else "\n"
        text += f"{gap}e{record.leader_epoch}" if has_epochs else ""
        text += f"\nwas {gone.id}" if gone and is_other else ""
        _write(ax, row, offset, text, style.LOST if differs else style.INK)
    for offset in range(max(start, log.log_end_offset), old.log_end_offset):
        gone = old.record_at(offset)
        _draw_box(ax, row, offset, facecolor="none", edgecolor=style.GREY, linestyle=":")
        for up in (1, -1):
            ax.plot([offset + 0.04, offset + 0.96], [row + 0.26 * up, row - 0.26 * up],
                    color=style.LOST, linewidth=1.2)  # fmt: skip
        _write(ax, row, offset, gone.id if gone else "", style.GREY)


def _draw_box(ax: Axes, row: int, offset: int, **look: Any) -> None:
    ax.add_patch(Rectangle((offset + 0.04, row - 0.26), 0.92, 0.52, **look))


def _write(ax: Axes, row: int, offset: int, text: str, colour: str) -> None:
    """Write into a record's box."""
    back = {"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
    ax.text(offset + 0.5, row, style.plain(text), ha="center", va="center", fontsize=8.5,
            color=colour, linespacing=1.0, bbox=back)  # fmt: skip


def _draw_marks(ax: Axes, row: int, broker: Broker, view: tuple[int, bool, Broker | None]) -> None:
    """LEO solid, HW dashed, arrows from their former places; on a leader, its followers' end
    offsets as it knows them."""
    start, inclusive, old = view
    log, colour = broker.log, style.broker_colour(broker.id)
    end, high_watermark = log.log_end_offset, log.high_watermark
    was = (old.log.log_end_offset, old.log.high_watermark) if old else (end, high_watermark)
    is_leader = isinstance(broker.role, Leader) and not inclusive
    leo = f"last offset {end - 1}" if inclusive else f"LEO {end:,}"
    hw = f"readable up to {high_watermark - 1}" if inclusive else f"HW {high_watermark:,}"
    marks = (
        (end, was[0], leo, (-0.3, 0.36), colour, 2.2, "-"),
        (high_watermark, was[1], hw, (0.3, -0.46), style.INK, 1.6, _DASHED),
    )
    for x, old_x, text, (far, near), shade, width, line in marks:
        y, is_back = row + 0.97 * near, start < x < old_x
        if x >= start:  # slightly to the left of the other line, so that both are visible
            beside = _beside(ax, -3 * (near < 0 and end == high_watermark))
            ax.plot([x, x], [row + far, row + near], color=shade, linewidth=width, linestyle=line,
                    transform=beside)  # fmt: skip
        if x != old_x and min(x, old_x) >= start:
            ax.annotate("", (x, y), (old_x, y), arrowprops=_ARROW | {"color": shade})
        shown = text if x >= start else f"← {text}"  # the log ends before what is drawn
        place = x if is_back else max(x, start, old_x if x == start else x)
        style.note(ax, place, y, shown, color=shade, points=-4 if is_back else
                   10 if is_leader and near < 0 else 4)  # fmt: skip
    remotes = broker.role.remotes if isinstance(broker.role, Leader) and is_leader else ()
    for nth, remote in enumerate(remotes):
        if remote.log_end_offset >= start:
            ax.plot(remote.log_end_offset, row - 0.32, marker="v", markersize=6,
                    color=style.broker_colour(remote.id),
                    transform=_beside(ax, 7 * (nth - (len(remotes) - 1) / 2)))  # fmt: skip


def _beside(ax: Axes, points: float) -> Transform:
    return offset_copy(ax.transData, ax.get_figure(root=True), x=points, units="points")


def finding(frame: Frame) -> str:
    """The finding of the picture, in one sentence."""
    leader = _leader(frame)
    if leader is None:
        return "No leader: nothing can be written or read"
    other = [n for n in sorted(frame.disks) if _differs(frame.disks[n], leader.log)]
    if other:
        others = _replicas(other, "holds", "hold").capitalize()
        return f"{others} other records than leader {leader.id}"
    log = leader.log
    parts = [f"Consumers can read {log.high_watermark - log.log_start_offset:,} of "
             f"{style.counted(len(log.records), 'record')}"]  # fmt: skip
    hosts = [b for b in frame.brokers.values() if b.id in frame.controller.replicas]
    behind = [b for b in hosts if b.log.high_watermark < log.high_watermark]
    for text, has_all in (("not know that yet", True), ("not have them all yet", False)):
        ids = [b.id for b in behind if (b.log.log_end_offset >= log.high_watermark) == has_all]
        parts += [f"{_replicas(ids, 'does', 'do')} {text}"] if ids else []
    return "; ".join(parts)


def _replicas(numbers: Sequence[int], does: str, do: str) -> str:
    is_one = len(numbers) == 1
    return f"replica{'' if is_one else 's'} {style.listed(numbers)} {does if is_one else do}"


def _differs(log: Log, other: Log) -> bool:
    """Whether they hold different records at the same offset."""
    start = max(log.log_start_offset, other.log_start_offset)
    end = min(log.log_end_offset, other.log_end_offset)
    return start < end and log.read(start, end) != other.read(start, end)


def plot_story(run: Run) -> Figure:
    """The replicas at the end of each block of a scenario, with its caption: the static version of
    the slider. Each panel marks what changed since the one before; one without a change is left
    out.
    """
    shown = _panels(run)
    frames = [frame for frame, _ in shown]
    look = common_look(frames)
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    lines = max(len(caption) for _, caption in shown) // (104 // columns) + 1
    height = rows * (0.3 + 0.16 * lines + 0.72 * len(run.cluster.replicas)) + 0.5
    figure, grid = style.panels(rows, columns, (style.WIDTH if columns > 1 else 7.4, height))
    for ax in grid.flat[len(shown) :]:
        ax.axis("off")
    for place, (ax, (frame, caption)) in enumerate(zip(grid.flat, shown, strict=False)):
        before, title = frames[place - 1] if place else None, f"{place + 1}. {caption}"
        plot_replicas(frame, title, before=before, ax=ax, **look)
        if place > 0:  # label the axis once
            ax.set_xlabel("")
    return style.headline(figure, story_finding(run))


def plot_beside(
    run: Run, real: Sequence[Frame], name: str, *, blocks: Sequence[int] | None = None,
    right: str = "On real brokers",
) -> Figure:  # fmt: skip
    """A row for each block (all, or those numbered from 1): on the left the engine, on the right
    the brokers, one frame a block. What a leader knows of its followers is visible only on the
    left, unless `right` is not real brokers.
    """
    numbers = blocks or range(1, len(run.blocks) + 1)
    ends = [(run.frames[run.blocks[n - 1].frames[1] - 1], real[n - 1]) for n in numbers]
    look = common_look([frame for pair in ends for frame in pair])
    height = len(ends) * (0.85 + 0.72 * len(real[0].disks)) + 0.4
    figure, grid = style.panels(len(ends), 2, (style.WIDTH, height))
    for row, (number, frames) in enumerate(zip(numbers, ends, strict=True)):
        captions = words.caption(run, run.blocks[number - 1]), right
        for column, (frame, caption) in enumerate(zip(frames, captions, strict=True)):
            before = ends[row - 1][column] if row else None
            ax = grid[row, column]
            plot_replicas(frame, f"{row + 1}. {caption}", before=before, ax=ax, **look)
            if row > 0:  # label the axis once
                ax.set_xlabel("")
    return style.headline(figure, f"{story_finding(run)}. {name}")


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
    marks = [(b.id, b.log.high_watermark, _label(frame, b.id, True, None)) for b in brokers]
    return (*marks, *((number, log.records) for number, log in frame.disks.items()))


def story_finding(run: Run) -> str:
    """The fate of the records, in one sentence."""
    outcome = run.outcome
    if outcome.diverged:
        follower, offset = outcome.diverged[0]
        return f"Diverged: replica {follower} differs from its leader, first at offset {offset:,}"
    if outcome.lost:
        return f"Committed, and lost: {style.listed(outcome.lost)}"
    if outcome.lost_acknowledged:
        return f"Lost, though never committed: {style.listed(outcome.lost_acknowledged)}"
    leader = _leader(run.frames[-1])
    log = leader.log if leader else Log()
    above = [r.id for r in log.read(log.high_watermark, log.log_end_offset)]
    known = [name for name in above if name in run.cluster.observer.committed]
    text = f"; {style.listed(known)}, committed before, is above the new leader's high watermark"
    return finding(run.frames[-1]) + (text if known else "")
