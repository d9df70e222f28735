"""Pictures of one partition: its replicas at one moment, a run step by step, messages in time."""

from __future__ import annotations

import textwrap
from itertools import pairwise

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from isrlab.engine.log import Log
from isrlab.engine.messages import Fetch, FetchResponse
from isrlab.engine.model import Broker, Leader
from isrlab.show.style import INK, LOST, OUTCOMES, bare, broker_colour, draw_matrix, plain
from isrlab.world import words
from isrlab.world.frames import Frame
from isrlab.world.script import Run

_PLUMBING = ("RegisterBroker", "UpdateMetadata", "Disconnected")
MOST_OFFSETS = 16  # drawn of a log; older ones are left out


def plot_replicas(
    frame: Frame, *, ax: Axes | None = None, title: str | None = None, inclusive: bool = False
) -> Axes:
    """Each replica's log at one moment: records, log end offset, high watermark, ISR.

    Hatched records are at or above their replica's high watermark. Triangles over the leader's log
    are the followers' end offsets as the leader knows them; the high watermark is the smallest of
    those that count. A record outlined in red is another than the leader has at that offset. With
    `inclusive`, the labels name the last offset instead of the next one, as some texts do.
    """
    ax = ax or plt.subplots(figsize=(7, 0.7 + 0.75 * len(frame.disks)))[1]
    brokers = sorted(frame.disks)
    end = max(log.log_end_offset for log in frame.disks.values())
    start = max(min(log.log_start_offset for log in frame.disks.values()), end - MOST_OFFSETS + 1)
    for row, number in enumerate(brokers):
        broker = frame.brokers.get(number)
        _draw_log(ax, row, frame, number, start)
        if broker:
            _draw_marks(ax, row, broker, inclusive)
        ax.text(
            start - 0.25,
            row,
            _label(number, broker),
            ha="right",
            va="center",
            fontsize=9,
            color=broker_colour(number) if broker else "#999999",
            fontweight="bold",
        )
    right = max(end, start + 3)
    ax.set_xlim(start - 0.1, right + 1.1)
    ax.set_ylim(len(brokers) - 0.4, -0.7)
    ax.set_xticks(
        [o + 0.5 for o in range(start, right + 1)], [str(o) for o in range(start, right + 1)]
    )
    ax.tick_params(axis="x", labelsize=8, length=0)
    ax.set_xlabel("offset", fontsize=8)
    ax.set_yticks([])
    bare(ax)
    ax.set_title(plain(title or finding(frame)), fontsize=9 if title else 10, loc="left", color=INK)
    return ax


def _leader(frame: Frame) -> Broker | None:
    broker = frame.brokers.get(frame.controller.leader)
    return broker if broker is not None and isinstance(broker.role, Leader) else None


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
    colour = broker_colour(broker.id) if broker else "#999999"
    high_watermark = log.high_watermark if broker else log.checkpointed_high_watermark
    for offset in range(max(start, log.log_start_offset), log.log_end_offset):
        record = log.record_at(offset)
        assert record is not None
        theirs = leader.log.record_at(offset) if leader else None
        differs = theirs is not None and theirs.id != record.id
        is_open = offset >= high_watermark
        ax.add_patch(
            Rectangle(
                (offset + 0.04, row - 0.26),
                0.92,
                0.52,
                facecolor="white" if is_open else to_rgba(colour, 0.22),
                edgecolor=LOST if differs else to_rgba(colour, 1.0 if broker else 0.5),
                linewidth=2.6 if differs else 1.0,
                hatch="////" if is_open else None,
            )
        )
        ax.text(
            offset + 0.5,
            row,
            plain(record.id),
            ha="center",
            va="center",
            fontsize=9,
            color=LOST if differs else INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
        )


def _draw_marks(ax: Axes, row: int, broker: Broker, inclusive: bool) -> None:
    """LEO solid, HW dashed; on a leader, where it believes its followers to be."""
    log, colour = broker.log, broker_colour(broker.id)
    end, high_watermark = log.log_end_offset, log.high_watermark
    ax.plot([end, end], [row - 0.3, row + 0.38], color=colour, linewidth=2.2)
    ax.plot(
        [high_watermark] * 2,
        [row - 0.44, row + 0.3],
        color=INK,
        linewidth=1.6,
        linestyle=(0, (2, 1.4)),
    )
    texts = (
        (end, row + 0.37, f"last offset {end - 1}" if inclusive else f"LEO {end}", colour),
        (
            high_watermark,
            row - 0.42,
            f"readable up to {high_watermark - 1}" if inclusive else f"HW {high_watermark}",
            INK,
        ),
    )
    for x, y, text, shade in texts:
        ax.text(x + 0.07, y, text, fontsize=7, color=shade, va="center")
    if not isinstance(broker.role, Leader) or inclusive:
        return
    for remote in broker.role.remotes:
        if remote.log_end_offset >= 0:
            nudge = 0.09 * (broker.role.remotes.index(remote) - (len(broker.role.remotes) - 1) / 2)
            ax.plot(
                remote.log_end_offset + nudge,
                row - 0.33,
                marker="v",
                markersize=6,
                color=broker_colour(remote.id),
            )


def finding(frame: Frame) -> str:
    """What the picture shows, in one sentence."""
    leader = _leader(frame)
    if leader is None:
        return "No leader: nothing can be written or read"
    other = [n for n in sorted(frame.disks) if _differs(frame.disks[n], leader.log)]
    if other:
        return f"Replica {words.ids(other)} holds other records than leader {leader.id}"
    end, high_watermark = leader.log.log_end_offset, leader.log.high_watermark
    behind = [
        b.id
        for b in frame.brokers.values()
        if b.id != leader.id and b.log.high_watermark < high_watermark
    ]
    text = f"Committed: {high_watermark} of {end} records"
    return text + (f"; replica {words.ids(behind)} does not know it yet" if behind else "")


def _differs(log: Log, other: Log) -> bool:
    offsets = range(
        max(log.log_start_offset, other.log_start_offset),
        min(log.log_end_offset, other.log_end_offset),
    )
    return any(log.record_at(o) != other.record_at(o) for o in offsets)


def plot_story(run: Run, *, columns: int = 2, width: float = 11.0) -> Figure:
    """The replicas at the end of each block of a scenario: the static twin of the slider."""
    blocks = [b for b in run.blocks if b.frames[1] > b.frames[0] or b.frames[1] > 0]
    rows = -(-len(blocks) // columns)
    replicas = len(run.cluster.replicas)
    figure, axes = plt.subplots(
        rows, columns, figsize=(width, rows * (1.45 + 0.72 * replicas)), squeeze=False
    )
    for ax in axes.flat[len(blocks) :]:
        ax.axis("off")
    for number, (ax, block) in enumerate(zip(axes.flat, blocks, strict=False), start=1):
        told = [c.text.strip() for c in block.commands if c.words[0] not in ("status", "check")]
        story = " ".join(block.comments) or "; ".join(told)
        sentence = textwrap.shorten(f"{number}. {story}", 250, placeholder=" ...")
        plot_replicas(
            run.frames[block.frames[1] - 1], ax=ax, title="\n".join(textwrap.wrap(sentence, 66))
        )
    figure.suptitle(plain(story_finding(run)), x=0.01, ha="left", fontsize=12)
    figure.tight_layout()
    return figure


def story_finding(run: Run) -> str:
    """What became of the records, in one sentence."""
    outcome = run.outcome
    if outcome.diverged:
        follower, offset = outcome.diverged[0]
        return f"Diverged: replica {follower} differs from its leader from offset {offset} on"
    if outcome.lost:
        return f"Committed, and lost: {' '.join(outcome.lost)}"
    if outcome.lost_acknowledged:
        return f"Lost, though never committed: {' '.join(outcome.lost_acknowledged)}"
    return finding(run.frames[-1])


def plot_messages(
    run: Run, *, first: int = 0, last: int | None = None, ax: Axes | None = None
) -> Axes:
    """The messages of a run as arrows between machines, time downwards, with what each changed.

    `first` and `last` choose blocks of the scenario (0-based, `last` inclusive). Left out are
    registrations, metadata, broken connections, and rounds of fetching that change nothing.
    """
    blocks = run.blocks[first : None if last is None else last + 1]
    frames = _talk(run.frames, blocks[0].frames[0], blocks[-1].frames[1])
    lanes = sorted({m for f, _ in frames for m in (f.source, f.target)})
    ax = ax or plt.subplots(figsize=(9.5, 0.9 + 0.42 * len(frames)))[1]
    for x, machine in enumerate(lanes):
        colour = broker_colour(machine) if machine > 0 else INK
        ax.plot([x, x], [-0.6, len(frames) - 0.3], color=colour, linewidth=1.4, zorder=1)
        ax.text(x, -0.85, words.address(machine), ha="center", color=colour, fontweight="bold")
    for y, (frame, news) in enumerate(frames):
        _draw_message(ax, y, frame, lanes)
        if news:
            ax.text(
                lanes.index(frame.target) + 0.06,
                y + 0.3,
                news,
                fontsize=8,
                color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
    ax.set_xlim(-0.35, len(lanes) - 0.45)
    ax.set_ylim(len(frames) - 0.2, -1.2)
    ax.axis("off")
    shown = run.frames[blocks[0].frames[0] : blocks[-1].frames[1]]
    ax.set_title(_talk_finding(shown), fontsize=10, loc="left")
    return ax


def _talk(frames: list[Frame], start: int, end: int) -> list[tuple[Frame, str]]:
    """The messages worth an arrow, each with what it changed at its target."""
    kept: list[tuple[Frame, str]] = []
    for index in range(start, end):
        frame = frames[index]
        kind = type(frame.message).__name__
        news = _changes(frames[index - 1] if index else frame, frame)
        if frame.source == frame.target or kind in _PLUMBING:
            continue
        is_idle = kept and not news and any(_says_the_same(frame, f) for f, _ in kept)
        if not is_idle:
            kept.append((frame, news))
    return kept


def _says_the_same(one: Frame, other: Frame) -> bool:
    """A message of a round of fetching that has been seen already."""
    return (
        one.source == other.source
        and one.target == other.target
        and isinstance(one.message, Fetch | FetchResponse)
        and words.describe(one.message) == words.describe(other.message)
    )


def _talk_finding(frames: list[Frame]) -> str:
    """Who cut what; else how long the followers took to learn the high watermark."""
    for before, after in pairwise(frames):
        for number, log in after.disks.items():
            was, end = before.disks[number].log_end_offset, log.log_end_offset
            if end < was:
                return f"Replica {number} cuts its log from {was} to {end}"
    leader = frames[-1].controller.leader
    if leader not in frames[-1].disks:
        return "No leader is left"
    goal = frames[-1].disks[leader].high_watermark
    if frames[0].disks[leader].high_watermark == goal:
        return "Nothing is cut"
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


def _draw_message(ax: Axes, y: int, frame: Frame, lanes: list[int]) -> None:
    start, end = lanes.index(frame.source), lanes.index(frame.target)
    colour = LOST if frame.was_lost else (broker_colour(frame.source) if frame.source > 0 else INK)
    ax.annotate(
        "",
        (end, y + 0.18),
        (start, y - 0.18),
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 1.5,
            "linestyle": ":" if frame.was_lost else "-",
        },
    )
    text = " ".join(words.describe(frame.message).split())
    ax.text(
        (start + end) / 2,
        y - 0.12,
        plain(text),
        ha="center",
        va="bottom",
        fontsize=8,
        color=LOST if frame.was_lost else INK,
    )


def _changes(before: Frame, after: Frame) -> str:
    old, new = before.brokers.get(after.target), after.brokers.get(after.target)
    if old is None or new is None:
        return ""
    pairs = (
        ("LEO", old.log.log_end_offset, new.log.log_end_offset),
        ("HW", old.log.high_watermark, new.log.high_watermark),
    )
    parts = [f"{name} {a} → {b}" for name, a, b in pairs if a != b]
    if (
        isinstance(old.role, Leader)
        and isinstance(new.role, Leader)
        and old.role.isr != new.role.isr
    ):
        parts.append(f"ISR {words.ids(old.role.isr)} → {words.ids(new.role.isr)}")
    return "   ".join(parts)


def plot_outcomes(
    outcomes: dict[str, dict[str, str]], *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """A matrix: one row for each schedule, one column for each version, a word in each cell."""
    columns = next(iter(outcomes.values()))
    ax = ax or plt.subplots(figsize=(2.4 + 0.72 * len(columns), 0.9 + 0.45 * len(outcomes)))[1]
    shades = {r: {c: OUTCOMES[word] for c, word in row.items()} for r, row in outcomes.items()}
    draw_matrix(ax, shades)
    ax.set_title(plain(title or outcome_finding(outcomes)), fontsize=11, loc="left", pad=12)
    return ax


def outcome_finding(outcomes: dict[str, dict[str, str]]) -> str:
    """Up to which version something bad happens, and from which on everything is safe."""
    columns = list(next(iter(outcomes.values())))
    bad = _last_with(outcomes, {"lost", "diverged"})
    if bad is None:
        return "No version loses anything"
    if bad + 1 < len(columns):
        return f"Records are lost up to {columns[bad]}; all is safe from {columns[bad + 1]} on"
    split = _last_with(outcomes, {"diverged"})
    if split is None or split + 1 == len(columns):
        return f"Even {columns[bad]} can lose committed records"
    return f"Logs diverge up to {columns[split]}, and not from {columns[split + 1]} on"


def _last_with(outcomes: dict[str, dict[str, str]], words: set[str]) -> int | None:
    """The place of the last column in which any row has one of the words."""
    hits = [i for row in outcomes.values() for i, word in enumerate(row.values()) if word in words]
    return max(hits, default=None)
