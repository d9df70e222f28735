"""The logs of all replicas at one moment, and a scenario told block by block."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from isrlab.engine.log import Log
from isrlab.engine.model import Broker, Leader
from isrlab.show import style
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

MOST_OFFSETS = 16  # drawn of a log; older ones are left out
_DASHED = (0, (2, 1.4))


def plot_replicas(
    frame: Frame, title: str | None = None, *, inclusive: bool = False, ax: Axes | None = None
) -> Axes:
    """Each replica's log at one moment: records, log end offset, high watermark, ISR.

    Hatched records are at or above their replica's high watermark. Triangles over the leader's log
    are the followers' end offsets as the leader knows them; the high watermark is the smallest of
    those that count. A record outlined in red is another than the leader has at that offset. With
    `inclusive`, the labels name the last offset instead of the next one, as some texts do.
    """
    ax = ax or style.axes(7.4, 0.8 + 0.78 * len(frame.disks))
    end = max(log.log_end_offset for log in frame.disks.values())
    start = max(min(log.log_start_offset for log in frame.disks.values()), end - MOST_OFFSETS + 1)
    for row, number in enumerate(sorted(frame.disks)):
        broker = frame.brokers.get(number)
        _draw_log(ax, row, frame, number, start)
        if broker:
            _draw_marks(ax, row, broker, start, inclusive)
        ax.text(start - 0.25, row, _label(number, broker), ha="right", va="center", fontsize=9,
                color=_colour(number, broker), fontweight="bold")  # fmt: skip
    right = max(end, start + 3)
    ax.set_xlim(start - 0.1, right + 1.1)
    ax.set_ylim(len(frame.disks) - 0.4, -0.7)
    offsets = range(start, right + 1)
    ax.set_xticks([o + 0.5 for o in offsets], [str(o) for o in offsets])
    ax.set_yticks([])
    ax.set_xlabel("offset", fontsize=8)
    return style.finish(ax, title or finding(frame), spines=())


def _leader(frame: Frame) -> Broker | None:
    broker = frame.brokers.get(frame.controller.leader)
    return broker if broker is not None and isinstance(broker.role, Leader) else None


def _colour(number: int, broker: Broker | None) -> str:
    return style.broker_colour(number) if broker else style.STATES["away"]


def _label(number: int, broker: Broker | None) -> str:
    if broker is None:
        return f"{number}  dead"
    if broker.role is None:
        return f"{number}  idle"
    if isinstance(broker.role, Leader):
        return f"{number}  Leader\nISR {words.ids(broker.role.isr)}  epoch {broker.leader_epoch}"
    return f"{number}  Follower\nof {broker.role.leader}" if broker.role.leader > 0 else f"{number}"


def _draw_log(ax: Axes, row: int, frame: Frame, number: int, start: int) -> None:
    log, broker, leader = frame.disks[number], frame.brokers.get(number), _leader(frame)
    colour = _colour(number, broker)
    high_watermark = log.high_watermark if broker else log.checkpointed_high_watermark
    first = max(start, log.log_start_offset)
    for offset in range(first, log.log_end_offset):
        record = log.record_at(offset)
        assert record is not None
        theirs = leader.log.record_at(offset) if leader else None
        differs = theirs is not None and theirs.id != record.id
        is_open = offset >= high_watermark
        ax.add_patch(
            Rectangle(
                (offset + 0.04, row - 0.26), 0.92, 0.52,
                facecolor=style.WHITE if is_open else to_rgba(colour, 0.22),
                edgecolor=style.LOST if differs else to_rgba(colour, 1.0 if broker else 0.5),
                linewidth=2.6 if differs else 1.0, hatch="////" if is_open else None,
            )
        )  # fmt: skip
        ax.text(
            offset + 0.5, row, style.plain(record.id), ha="center", va="center", fontsize=9,
            color=style.LOST if differs else style.INK,
            bbox={"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
        )  # fmt: skip


def _draw_marks(ax: Axes, row: int, broker: Broker, start: int, inclusive: bool) -> None:
    """LEO solid, HW dashed; on a leader, where it believes its followers to be."""
    log, colour = broker.log, style.broker_colour(broker.id)
    end, high_watermark = log.log_end_offset, log.high_watermark
    leo = f"last offset {end - 1}" if inclusive else f"LEO {end}"
    hw = f"readable up to {high_watermark - 1}" if inclusive else f"HW {high_watermark}"
    marks = (
        (end, leo, (-0.3, 0.38), colour, 2.2, "-"),
        (high_watermark, hw, (0.3, -0.44), style.INK, 1.6, _DASHED),
    )
    for x, text, (far, near), shade, width, line in marks:
        if x >= start:
            ax.plot([x] * 2, [row + far, row + near], color=shade, linewidth=width, linestyle=line)
        shown = text if x >= start else f"← {text}"  # the log ends before what is drawn
        place = max(x, start) + 0.07, row + 0.97 * near
        ax.text(*place, shown, fontsize=7, color=shade, va="center")
    if not isinstance(broker.role, Leader) or inclusive:
        return
    middle = (len(broker.role.remotes) - 1) / 2
    for nth, remote in enumerate(broker.role.remotes):
        if remote.log_end_offset >= start:
            nudge = 0.09 * (nth - middle)
            ax.plot(remote.log_end_offset + nudge, row - 0.33, marker="v", markersize=6,
                    color=style.broker_colour(remote.id))  # fmt: skip


def finding(frame: Frame) -> str:
    """What the picture shows, in one sentence."""
    leader = _leader(frame)
    if leader is None:
        return "No leader: nothing can be written or read"
    other = [n for n in sorted(frame.disks) if _differs(frame.disks[n], leader.log)]
    if other:
        return f"Replica {style.listed(other)} holds other records than leader {leader.id}"
    end, high_watermark = leader.log.log_end_offset, leader.log.high_watermark
    followers = [b for b in frame.brokers.values() if b.id != leader.id]
    behind = [b.id for b in followers if b.log.high_watermark < high_watermark]
    text = f"Committed: {high_watermark} of {end} records"
    return text + (f"; replica {style.listed(behind)} does not know it yet" if behind else "")


def _differs(log: Log, other: Log) -> bool:
    """They hold different records at an offset that both have."""
    start = max(log.log_start_offset, other.log_start_offset)
    end = min(log.log_end_offset, other.log_end_offset)
    return start < end and log.read(start, end) != other.read(start, end)


def plot_story(run: Run) -> Figure:
    """The replicas at the end of each block of a scenario: the static twin of the slider."""
    blocks = [b for b in run.blocks if b.frames[1] > 0]
    rows = -(-len(blocks) // 2)
    height = rows * (1.5 + 0.72 * len(run.cluster.replicas))
    figure, grid = style.panels(rows, 2, (11.0, height))
    for ax in grid.flat[len(blocks) :]:
        ax.axis("off")
    for number, (ax, block) in enumerate(zip(grid.flat, blocks, strict=False), start=1):
        commands = [c.text.strip() for c in block.commands if c.words[0] not in ("status", "check")]
        story = " ".join(block.comments) or "; ".join(commands)
        title = textwrap.shorten(f"{number}. {story}", 250, placeholder=" ...")
        plot_replicas(run.frames[block.frames[1] - 1], ax=ax, title=title)
    return style.headline(figure, story_finding(run))


def plot_ends(runs: Mapping[str, Run]) -> Figure:
    """The replicas at the end of some runs, one below the other, each with what it shows."""
    figure, grid = style.panels(len(runs), 1, (9, 2.4 * len(runs)))
    for ax, (name, run) in zip(grid.flat, runs.items(), strict=True):
        plot_replicas(run.frames[-1], ax=ax, title=f"{name}: {story_finding(run)}")
    return figure


def story_finding(run: Run) -> str:
    """What became of the records, in one sentence."""
    outcome = run.outcome
    if outcome.diverged:
        follower, offset = outcome.diverged[0]
        return f"Diverged: replica {follower} differs from its leader from offset {offset:,} on"
    if outcome.lost:
        return f"Committed, and lost: {style.listed(outcome.lost)}"
    if outcome.lost_acknowledged:
        return f"Lost, though never committed: {style.listed(outcome.lost_acknowledged)}"
    return finding(run.frames[-1])
