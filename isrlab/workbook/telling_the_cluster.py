"""Telling the cluster: when each broker learns of an ISR change, and who said what to whom.

An ISR change is known to a broker once the controller's metadata with it (or with a later one) has
arrived there. Up to 2.6 the leader writes ZooKeeper itself, and the controller learns of it by an
announcement; in the model ZooKeeper and the controller share an address, so a picture that shows
both draws the controller's reading as a step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.engine.messages import (
    CONTROLLER,
    AlterPartition,
    AlterPartitionResponse,
    IsrChangeNotification,
    LeaderAndIsr,
    UpdateMetadata,
)
from isrlab.show.style import INK, LOST, PALE, bare, broker_colour, plain
from isrlab.workbook.in_or_out_of_sync import redrawn
from isrlab.world import scenario, words
from isrlab.world.cluster import START_MS
from isrlab.world.frames import Frame
from isrlab.world.script import Run

ZOOKEEPER = -2  # a lane of its own in pictures
NEVER = "never"
_TOLD, _OLD = "#C7E9DC", "#F6C28B"
_NAMES = {"AlterPartition": "write of the state", "AlterPartitionResponse": "answer"}


# When each broker knows


@dataclass(frozen=True, slots=True)
class Change:
    """A stored ISR change, and when each live broker was told of it or of a later one."""

    stored_ms: int
    isr: tuple[int, ...]
    partition_epoch: int
    told_ms: dict[int, int]
    brokers: tuple[int, ...]

    @property
    def delay_ms(self) -> int | None:
        """Until every broker knew; None if that never came in this run."""
        if any(b not in self.told_ms for b in self.brokers):
            return None
        return max(self.told_ms.values()) - self.stored_ms


def frames(run: Run) -> list[Frame]:
    """All messages of a run, those too that came after it stopped to keep states."""
    found = [e for e in run.cluster.journal if isinstance(e, Frame)]
    return found[max(run.first_frame, 0) :]


def stored_changes(run: Run) -> list[Change]:
    """Every ISR change of a run in the order in which they were stored."""
    found: list[Change] = []
    seen = frames(run)
    news = {b: _believed(seen, b) for b in sorted(run.cluster.brokers)}
    epoch, isr = seen[0].controller.partition_epoch, seen[0].controller.isr
    for frame in seen:
        if frame.controller.partition_epoch > epoch and set(frame.controller.isr) != set(isr):
            found.append(_change(frame, news))
        epoch, isr = frame.controller.partition_epoch, frame.controller.isr
    return found


def _change(stored: Frame, news: dict[int, list[tuple[int, int]]]) -> Change:
    epoch = stored.controller.partition_epoch
    firsts = {b: next((ms for ms, e in told if e >= epoch), None) for b, told in news.items()}
    told = {b: ms for b, ms in firsts.items() if ms is not None}
    return Change(stored.now_ms - START_MS, stored.controller.isr, epoch, told, brokers=tuple(news))


def _believed(seen: list[Frame], broker: int) -> list[tuple[int, int]]:
    """(since when, partition epoch) of the metadata that a broker has."""
    return [
        (f.now_ms - START_MS, f.message.partition_epoch)
        for f in seen
        if isinstance(f.message, UpdateMetadata) and f.target == broker and not f.was_lost
    ]


def quiet_script(begin_ms: int, latency_ms: int = 5) -> str:
    """One replica leaves, and much later comes back, at a moment that `begin_ms` shifts."""
    return "\n".join(
        (
            f"partition replicas=1,2,3 latency={latency_ms}ms replica.lag.time.max.ms=10000",
            "pause 3 fetcher",
            "produce 1 acks=1",
            f"advance {20_000 + begin_ms}ms",
            "resume 3",
            "advance 10s",
        )
    )


def churn_script(minutes: int = 4, latency_ms: int = 5) -> str:
    """A follower that hangs for 3 s, comes back for 1 s, and so on; the lag limit is 2 s."""
    tooth = ["pause 3 fetcher", "produce 1 acks=1", "advance 3s", "resume 3", "advance 1s"]
    head = f"partition replicas=1,2,3 latency={latency_ms}ms replica.lag.time.max.ms=2000"
    return "\n".join([head, *tooth * (minutes * 15)])


def quiet_delays(version: str, samples: int = 12) -> list[int | None]:
    """Until everyone knows that a replica joined, for changes at evenly spread moments."""
    period = 2_500
    runs = (
        scenario.play(quiet_script(i * period // samples), version=version) for i in range(samples)
    )
    return [stored_changes(run)[-1].delay_ms for run in runs]


def churn_delays(version: str, minutes: int = 4) -> list[int | None]:
    """The same for every change of constant churn; the last 70 s are left to be told of."""
    run = scenario.play(churn_script(minutes), version=version)
    last = run.cluster.now_ms - START_MS - 70_000
    return [c.delay_ms for c in stored_changes(run) if c.stored_ms < last]


def plot_delays(delays: dict[str, dict[str, list[int | None]]], *, ax: Axes | None = None) -> Axes:
    """Until every broker knows, one dot a change: rows are versions, colours are loads."""
    ax = ax or plt.subplots(figsize=(9.5, 1.3 + 0.55 * len(delays)))[1]
    loads = list(next(iter(delays.values())))
    for row, values in enumerate(delays.values()):
        for nth, load in enumerate(loads):
            colour = broker_colour(nth + 1)
            y = row + 0.22 * (nth - (len(loads) - 1) / 2)
            known = [max(v, 1) / 1000 for v in values[load] if v is not None]
            ax.plot(known, [y] * len(known), "o", color=colour, markersize=4, alpha=0.35, mew=0)
            if len(known) < len(values[load]):
                ax.plot(300, y, "x", color=colour, markersize=6)
            ax.plot([], [], "o", color=colour, markersize=4, label=load if row == 0 else None)
    ax.set_xscale("log")
    ax.set_xlim(0.003, 600)
    ticks = {0.01: "10 ms", 0.1: "100 ms", 1: "1 s", 5: "5", 10: "10 s", 60: "60 s", 300: NEVER}
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.minorticks_off()
    ax.grid(axis="x", color=PALE, linewidth=0.6)
    ax.set_yticks(range(len(delays)), [plain(label) for label in delays])
    ax.set_ylim(len(delays) - 0.5, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("from the stored ISR change until every broker knows it")
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=3, fontsize=8, frameon=False)
    bare(ax, "bottom")
    ax.set_title(plain(delays_finding(delays)), fontsize=10, loc="left")
    return ax


def delays_finding(delays: dict[str, dict[str, list[int | None]]]) -> str:
    """The longest delay of the slowest and of the fastest version, never aside."""
    worst = {
        label: max(v for values in loads.values() for v in values if v is not None)
        for label, loads in delays.items()
        if any(v is not None for values in loads.values() for v in values)
    }
    slow, fast = max(worst, key=worst.__getitem__), min(worst, key=worst.__getitem__)
    text = f"Until every broker knows: up to {span(worst[slow])} in {slow}"
    return f"{text}, {span(worst[fast])} in {fast}" if fast != slow else text


def span(duration_ms: float | None) -> str:
    """A duration for reading."""
    if duration_ms is None:
        return NEVER
    return f"{duration_ms:g} ms" if duration_ms < 1000 else f"{duration_ms / 1000:.1f} s"


def plot_knowledge(run: Run, *, ax: Axes | None = None) -> Axes:
    """What each broker's metadata says in time: green is the stored ISR, orange an older one."""
    known = stored_changes(run)
    brokers = sorted(run.cluster.brokers)
    ax = ax or plt.subplots(figsize=(9.5, 1.2 + 0.45 * (len(brokers) + 1)))[1]
    end = run.cluster.now_ms - START_MS
    rows = {"stored": [(c.stored_ms, c.partition_epoch) for c in known]}
    rows |= {f"broker {b} knows": _believed(frames(run), b) for b in brokers}
    isrs = {c.partition_epoch: c.isr for c in known}
    stale = 0.0
    for y, beliefs in enumerate(rows.values()):
        pieces = _pieces(known, beliefs, end)
        _draw_beliefs(ax, y, pieces, isrs, end)
        stale = max(stale, sum(b - a for a, b, _, is_right in pieces if not is_right) / end)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, end / 1000)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time since the start (s)")
    bare(ax, "bottom")
    text = f"{knowledge_finding(known)} (metadata out of date {stale:.0%} of the time)"
    ax.set_title(plain(text), fontsize=10, loc="left")
    return ax


def _pieces(
    known: list[Change], beliefs: list[tuple[int, int]], end: int
) -> list[tuple[int, int, int, bool]]:
    """(from, to, believed epoch, whether that is the stored one) between any two news."""
    times = sorted({0, end, *(c.stored_ms for c in known), *(t for t, _ in beliefs)})
    pieces = []
    for start, stop in pairwise(times):
        stored = max((c.partition_epoch for c in known if c.stored_ms <= start), default=0)
        believed = max((e for t, e in beliefs if t <= start), default=0)
        pieces.append((start, stop, believed, believed >= stored))
    return pieces


def _draw_beliefs(
    ax: Axes,
    y: int,
    pieces: list[tuple[int, int, int, bool]],
    isrs: dict[int, tuple[int, ...]],
    end: int,
) -> None:
    last = None
    for start, stop, epoch, is_right in pieces:
        colour = _TOLD if is_right else _OLD
        ax.barh(y, (stop - start) / 1000, left=start / 1000, height=0.7, color=colour)
        if epoch != last and epoch in isrs and stop - start > end / 25:
            text = f" ISR {words.ids(sorted(isrs[epoch]))}"
            ax.text(start / 1000, y, text, fontsize=7.5, va="center", color=INK)
        last = epoch


def knowledge_finding(known: list[Change]) -> str:
    """How long it took until every broker knew, at most."""
    delays = [c.delay_ms for c in known]
    told = [d for d in delays if d is not None]
    if not known:
        return "The ISR does not change"
    text = count = f"{len(known)} ISR change{'' if len(known) == 1 else 's'}"
    if told:
        text = f"{count}: every broker knows after {span(min(told))}"
        text += f" to {span(max(told))}" if max(told) != min(told) else ""
    if len(told) < len(delays):
        text += f"{'; ' if told else ', '}{len(delays) - len(told)} not told to all by the end"
    return text


def version_choice(versions: Sequence[str], script: str, value: str) -> widgets.VBox:
    """Choose a version: what every broker knows, and when."""

    def draw(version: str) -> Figure:
        figure, ax = plt.subplots(figsize=(9.5, 3.0))
        plot_knowledge(scenario.play(script, version=version), ax=ax)
        return figure

    options = list(dict.fromkeys([*versions, value]))
    return redrawn(widgets.Dropdown(options=options, value=value, description="version"), draw)


# Who said what to whom


def plot_sequence(
    run: Run, *, from_ms: int = 0, to_ms: int | None = None, ax: Axes | None = None
) -> Axes:
    """The messages about ISR changes as arrows between lanes, time downwards (not to scale)."""
    arrows = _arrows(run, from_ms, to_ms)
    lanes = [*sorted(run.cluster.replicas), CONTROLLER]
    if run.cluster.writes_zookeeper:
        lanes.insert(-1, ZOOKEEPER)
    ax = ax or plt.subplots(figsize=(9.5, 0.9 + 0.44 * len(arrows)))[1]
    for x, machine in enumerate(lanes):
        colour = broker_colour(machine) if machine > 0 else INK
        ax.plot([x, x], [-0.5, len(arrows) - 0.3], color=colour, linewidth=1.4, zorder=1)
        name = "ZooKeeper" if machine == ZOOKEEPER else words.address(machine)
        name += " (leader)" if machine == run.cluster.controller.leader else ""
        ax.text(x, -0.75, name, ha="center", color=colour, fontweight="bold")
    for y, arrow in enumerate(arrows):
        _draw_arrow(ax, y, arrow, lanes)
    ax.set_xlim(-0.75, len(lanes) - 0.6)
    ax.set_ylim(len(arrows) - 0.2, -1.1)
    ax.axis("off")
    ax.set_title(plain(knowledge_finding(_within(run, from_ms, to_ms))), fontsize=10, loc="left")
    return ax


@dataclass(frozen=True, slots=True)
class Arrow:
    """One line of a sequence diagram; `is_drawn_in` marks what the model does within one step."""

    ms: int
    source: int
    target: int
    text: str
    was_lost: bool = False
    is_drawn_in: bool = False


def _within(run: Run, from_ms: int, to_ms: int | None) -> list[Change]:
    last = run.cluster.now_ms - START_MS if to_ms is None else to_ms
    return [c for c in stored_changes(run) if from_ms <= c.stored_ms <= last]


def _arrows(run: Run, from_ms: int, to_ms: int | None) -> list[Arrow]:
    kinds = (
        AlterPartition,
        AlterPartitionResponse,
        IsrChangeNotification,
        UpdateMetadata,
        LeaderAndIsr,
    )
    found: list[Arrow] = []
    for frame in frames(run):
        ms = frame.now_ms - START_MS
        if isinstance(frame.message, kinds) and from_ms <= ms <= (ms if to_ms is None else to_ms):
            found += _lines(frame, ms, run.cluster.writes_zookeeper)
    return found


def _lines(frame: Frame, ms: int, has_zookeeper: bool) -> list[Arrow]:
    """A message as one arrow; the announcement also as what the controller does about it."""
    text = " ".join(words.describe(frame.message).split())
    if not has_zookeeper:
        return [Arrow(ms, frame.source, frame.target, text, frame.was_lost)]
    kind = type(frame.message).__name__
    if isinstance(frame.message, AlterPartition | AlterPartitionResponse):
        text = text.replace(kind, _NAMES[kind]).replace("partition_epoch", "version")
        ends = [ZOOKEEPER if m == CONTROLLER else m for m in (frame.source, frame.target)]
        return [Arrow(ms, ends[0], ends[1], text, frame.was_lost)]
    if isinstance(frame.message, IsrChangeNotification):
        note = Arrow(ms, frame.source, ZOOKEEPER, "isr_change_notification", frame.was_lost)
        reads = "a watch fires: read notice and state, tell all, delete the notice"
        return [note, Arrow(ms, ZOOKEEPER, CONTROLLER, reads, is_drawn_in=True)]
    return [Arrow(ms, frame.source, frame.target, text, frame.was_lost)]


def _draw_arrow(ax: Axes, y: int, arrow: Arrow, lanes: list[int]) -> None:
    start, end = lanes.index(arrow.source), lanes.index(arrow.target)
    colour = LOST if arrow.was_lost else broker_colour(arrow.source) if arrow.source > 0 else INK
    style = ":" if arrow.was_lost or arrow.is_drawn_in else "-"
    look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.4, "linestyle": style}
    ax.annotate("", (end, y + 0.12), (start, y - 0.12), arrowprops=look)
    text = f"{arrow.text}{'  LOST' if arrow.was_lost else ''}"
    back = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
    x, side = ((start + end) / 2, "center") if not arrow.is_drawn_in else (start - 0.05, "right")
    ax.text(x, y - 0.12, plain(text), ha=side, va="bottom", fontsize=7.5, color=INK, bbox=back)
    ax.text(-0.72, y, f"{arrow.ms:,} ms", fontsize=7.5, va="center", color=INK)
