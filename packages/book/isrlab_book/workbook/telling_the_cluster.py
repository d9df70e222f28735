"""Notebook 04: where an ISR change is stored, what can refuse it, and when every broker knows.

A broker knows of a change once the controller's metadata with it, or with a later one, has arrived.
Up to 2.6 the leader writes ZooKeeper itself; from 0.9 on it announces the change later.
Times are in ms since the start of a run.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

from matplotlib.axes import Axes

from isrlab.engine import messages as m
from isrlab.engine.choices import AfterShrink, IsrWrite
from isrlab.engine.model import CommittedIsr, Leader
from isrlab.show import bands, curves, style
from isrlab.show.messages import ZOOKEEPER, Arrow, arrows_of, draw_arrows
from isrlab.show.svg import Drawing, shown
from isrlab.world import scenario, words
from isrlab.world.frames import Frame
from isrlab.world.script import Run
from isrlab.world.words import START_MS
from isrlab_book.closeups.batching import SentBatch

NEVER_S = 300  # where a delay without an end is drawn
TICKS = {0.01: "10 ms", 0.1: "100 ms", 1: "1 s", 5: "5", 10: "10 s", 60: "60 s", NEVER_S: "never"}
PARTITION = "partition replicas=1,2,3 latency=5ms replica.lag.time.max.ms="
HANG = "\npause 3 fetcher\nproduce 1 acks=1\nadvance {}ms"
RETURN = "\nresume 3\nadvance {}ms"

# When each broker knows


def updates(run: Run) -> dict[int, list[tuple[int, int]]]:
    """The metadata that each live broker got: (when, partition epoch)."""
    received: dict[int, list[tuple[int, int]]] = {n: [] for n in sorted(run.cluster.brokers)}
    for frame in run.frames[run.first_frame :]:
        message, is_up = frame.message, frame.target in received
        if isinstance(message, m.UpdateMetadata) and is_up and not frame.was_lost:
            received[frame.target].append((frame.now_ms - START_MS, message.partition_epoch))
    return received


def stored(run: Run) -> list[tuple[int, int]]:
    """The changes of the stored ISR: (when, partition epoch)."""
    return [
        (event.ts_ms - START_MS, event.partition_epoch or 0)
        for event in run.cluster.events
        if event.kind == "isr_commit" and event.is_stored_state and event.isr_before
    ]


def delays(run: Run, from_ms: float = 0, to_ms: float = inf) -> list[float]:
    """For each change stored in that time, how long until every broker knew; `inf` for never."""
    received = updates(run).values()
    return [
        max(next((at for at, newer in known if newer >= epoch), inf) for known in received) - ms
        for ms, epoch in stored(run)
        if from_ms <= ms < to_ms
    ]


def single_delays(version: str) -> dict[str, list[float]]:
    """Delays of single changes, at 12 moments in 2.5 s: of the first after a quiet minute (a
    replica returns over a minute after it left), and of the next two (it leaves again, returns)."""
    text = PARTITION + "10000" + HANG + RETURN.format(1_000) + HANG.format(32_000)
    text += RETURN.format(10_000)
    ends = [90_000 + sample * 2_500 // 12 for sample in range(12)]
    measured = [delays(scenario.play(text.format(end), version=version))[1:] for end in ends]
    return {
        "after a quiet minute": [first for first, *_ in measured],
        "again within a minute": [ms for _, *later in measured for ms in later],
    }


def churn_delays(version: str, minutes: int) -> list[float]:
    """The delays with a follower that hangs for 3 s, is back for 1 s, and so on; lag limit 2 s."""
    tooth = HANG.format(3_000) + RETURN.format(1_000)
    run = scenario.play(PARTITION + "2000" + tooth * (minutes * 15), version=version)
    return delays(run, to_ms=run.cluster.now_ms - START_MS - 70_000)  # the last may come later


def plot_delays(measured: Mapping[str, Mapping[str, Sequence[float]]]) -> Axes:
    """The delay until every broker knows, a tick for each change: a row for each version."""
    rows, worst = {}, {}
    for version, loads in measured.items():
        rows[version] = {k: [min(max(ms, 1) / 1000, NEVER_S) for ms in v] for k, v in loads.items()}
        if known := [ms for values in loads.values() for ms in values if ms < inf]:
            worst[version] = max(known)
    ends = dict.fromkeys(end(worst, key=worst.__getitem__) for end in (max, min))
    title = ", ".join(f"{style.duration(worst[version])} in {version}" for version in ends)
    label = "from the stored ISR change until every broker knows it"
    scale = curves.Scale(label, "log", tuple(TICKS), tuple(TICKS.values()), 0.003, 600)
    return curves.plot_ticks(rows, f"Until every broker knows: up to {title}", scale)


def finding(waits: Sequence[float]) -> str:
    """How long it took until every broker knew."""
    if not waits:
        return "The ISR does not change"
    known = sorted(ms for ms in waits if ms < inf)
    ends = " to ".join(dict.fromkeys(style.duration(ms) for ms in known[:1] + known[-1:]))
    parts = [f"Every broker knows of an ISR change after {ends}"] if known else []
    if late := len(waits) - len(known):
        of_all = f"{late} of {style.counted(len(waits), 'ISR change')}"
        parts += [f"{of_all} {'is' if late == 1 else 'are'} not known to all by the end"]
    return "; ".join(parts)


# Messages


def draw_sequence(run: Run, from_ms: int = 0) -> Drawing:
    """The messages about ISR changes from `from_ms` on, and when every broker knew."""
    leader, has_zookeeper = run.cluster.controller.leader, run.cluster.version.writes_zookeeper
    lanes = {b: f"{b} (leader)" if b == leader else str(b) for b in sorted(run.cluster.replicas)}
    lanes |= ({ZOOKEEPER: "ZooKeeper"} if has_zookeeper else {}) | {m.CONTROLLER: "controller"}
    pairs = pairwise(run.frames[run.first_frame :])
    later = [pair for pair in pairs if pair[1].now_ms - START_MS >= from_ms]
    arrows = [arrow for pair in later for arrow in _arrows(*pair, has_zookeeper)]
    refused = [e for e in run.cluster.events if e.kind == "isr_rejected"]
    when = [f"at {(e.ts_ms - START_MS) / 1000:g} s ({e.detail['error']})" for e in refused]
    title = f"The leader's write is refused {', '.join(when)}" if when else ""
    return draw_arrows(arrows, title or finding(delays(run, from_ms)), lanes=lanes)


plot_sequence = shown(draw_sequence)


def _arrows(before: Frame, frame: Frame, has_zookeeper: bool) -> list[Arrow]:
    """The arrows of a step: a message about the ISR, or what the controller stores by itself."""
    kind, arrows = type(frame.message).__name__, arrows_of(frame)
    state, old = frame.controller.state, before.controller.state
    if has_zookeeper and state != old and not kind.startswith("AlterPartition"):
        text = f"write of the state epoch={state.leader_epoch} version={old.partition_epoch} "
        arrows = [Arrow(m.CONTROLLER, ZOOKEEPER, f"{text}isr={words.ids(state.isr)}")]
    elif not kind.startswith(("AlterPartition", "IsrChange", "UpdateMetadata", "LeaderAndIsr")):
        return []
    elif kind == "UpdateMetadata" and frame.controller.version.kraft:
        return []  # a broker's metadata log is also its cache
    return [replace(arrow, when=f"{frame.now_ms - START_MS:,} ms") for arrow in arrows]


# What ZooKeeper holds


def nodes(run: Run) -> str:
    """The node of the partition's state at the start, and after each write to ZooKeeper.

    Source: ZkData.scala 1.1.1:261-268.
    """
    if run.cluster.version.kraft:
        return f"Kafka {run.cluster.version.name} keeps the state in its metadata log"
    known: object = None
    lines, notices = list[str](), 0
    for frame in run.frames[run.first_frame :]:
        when = f"{frame.now_ms - START_MS:>8,} ms" if known else "   at start"
        if (state := frame.controller.state) != known:
            content = {"controller_epoch": 1, "leader": state.leader, "version": 1,
                       "leader_epoch": state.leader_epoch, "isr": list(state.isr)}  # fmt: skip
            node = f"/brokers/topics/t/partitions/0/state  {json.dumps(content)}"
            lines.append(f"{when}  {node}  zkVersion {state.partition_epoch}")
        if isinstance(frame.message, m.IsrChangeNotification) and not frame.was_lost:
            content = {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}
            node = f"/isr_change_notification/isr_change_{notices:010}  {json.dumps(content)}"
            lines.append(f"{when}  {node}")
            notices += 1
        known = state
    return "\n".join(lines)


# The leader's decisions, as a chart

CHART: dict[str, Any] = {  # box -> x, y, text, and what leads to it: box, answer, what is counted
    "check": (2.2, 0, "a check of the ISR:\nis a member out of sync?"),
    "fetch": (7.2, 0, "a fetch from outside the ISR:\nmay it join?"),
    "nothing": (0.2, 1.35, "nothing", "check no keep"),
    "outside": (9.4, 1.35, "stays outside", "fetch no stay"),
    "flight": (4.7, 1.35, "is a change in flight?", "check yes isr_shrink", "fetch yes isr_expand"),
    "later": (8.2, 2.5, "waits for the answer", "flight yes busy"),
    "ask": (4.7, 2.5, "ask the controller", "flight no asked"),
    "stored": (4.7, 3.65, "is it stored?", "ask  asked"),
    "refused": (8.5, 3.65, "the ISR stays", "stored no isr_rejected"),
    "watermark": (4.7, 4.85, "can the high watermark move?", "stored yes isr_commit"),
    "moves": (1.0, 4.85, "it moves; requests\nthat wait are answered", "watermark yes moves"),
    "tell": (4.7, 6.05, "the controller notifies every broker", "watermark  isr_commit"),
}
WRITES = {  # a leader that writes ZooKeeper itself waits for the answer: nothing is in flight
    "flight": None,
    "later": None,
    "ask": (4.7, 1.9, "write ZooKeeper, if its version is v",
            "check yes isr_shrink", "fetch yes isr_expand"),
}  # fmt: skip
TAKEN, NOT_TAKEN = (style.BLUE, style.INK, "-"), (style.PALE, style.GREY, "--")


def flow(run: Run) -> Counter[str]:
    """How often leaders took each branch of the chart; refusals also by `error <its name>`."""
    events = [event for event in run.cluster.events if not event.is_stored_state]
    taken = Counter(event.kind for event in events)
    taken.update(f"error {e.detail['error']}" for e in events if e.kind == "isr_rejected")
    taken.update(_checked(before, frame) for before, frame in pairwise(run.frames))
    steps = [(last.kind, e.kind, e.place - last.place) for last, e in pairwise(events)]
    taken["moves"] = steps.count(("isr_commit", "high_watermark", 1))  # of one step
    taken["asked"] = taken["isr_shrink"] + taken["isr_expand"]
    taken["keep"] = taken["check"] - taken["isr_shrink"]
    taken["stay"] = taken["fetch"] - taken["isr_expand"]
    return taken


def _checked(before: Frame, frame: Frame) -> str:
    """The branch that a step takes: "check", "fetch", "busy" (a change is in flight) or "none"."""
    leader, message = before.brokers.get(frame.target), frame.message
    if leader is None or not isinstance(leader.role, Leader) or frame.was_lost:
        return "none"
    is_check = isinstance(message, m.ExpireIsr)
    is_outside = isinstance(message, m.Fetch) and message.replica not in leader.role.maximal_isr
    if not is_check and not is_outside:
        return "none"
    is_busy = not isinstance(leader.role.isr_state, CommittedIsr)
    return "busy" if is_busy else "check" if is_check else "fetch"


def plot_flow(run: Run) -> Axes:
    """The leader's decisions about its ISR, with how often this run took each branch."""
    taken, ax = flow(run), style.axes(9.5, 6.2)
    texts, boxes = _texts(run, taken), {}
    middle: dict[str, Any] = {"ha": "center", "va": "center"}
    changed = WRITES if run.cluster.version.writes_zookeeper else {}
    chart = {name: box for name, box in (CHART | changed).items() if box}
    for name, (x, y, text, *edges) in chart.items():
        parts = [edge.split(" ") for edge in edges]
        is_reached = not parts or any(taken[key] for *_, key in parts)
        colour, ink, _ = TAKEN if is_reached else NOT_TAKEN
        frame = {"boxstyle": "round,pad=0.45", "edgecolor": colour, "facecolor": style.WHITE}
        box = ax.text(x, y, style.plain(texts.get(name, text)), fontsize=8.5, bbox=frame,
                      color=ink, zorder=1, **middle)  # fmt: skip
        boxes[name] = box.get_bbox_patch()
        for start, answer, key in parts:
            (x0, y0, *_), number = chart[start], taken[key]
            colour, ink, line = TAKEN if number else NOT_TAKEN
            arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "linestyle": line}
            arrow |= {"patchA": boxes[start], "patchB": boxes[name]}
            ax.annotate("", (x, y), (x0, y0), arrowprops=arrow, zorder=2)
            label = f"{answer} ×{number:,}".strip() if number else answer
            back = {"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.4} if label else None
            ax.text((x0 + x) / 2, (y0 + y) / 2, label, fontsize=8, color=ink, zorder=3, bbox=back,
                    **middle)  # fmt: skip
    ax.set(xlim=(-0.7, 10.4), ylim=(6.6, -0.5))
    ax.axis("off")
    title = f"In {run.cluster.version.name} the leader asks for "
    title += f"{style.counted(taken['asked'], 'ISR change')}: "
    title += f"{taken['isr_commit']} stored, {taken['isr_rejected']} refused"
    return style.finish(ax, title, spines=())


def _texts(run: Run, taken: Counter[str]) -> dict[str, str]:
    """The texts of boxes that depend on the version."""
    errors = [f"{key[6:]} ×{n}" for key, n in taken.items() if key.startswith("error ")]
    version, texts = run.cluster.version, {"refused": "\n".join(["the ISR stays", *errors])}
    if run.cluster.version.writes_zookeeper:
        number = style.counted(taken["notify"], "announcement")
        texts["tell"] = f"announced when 5 s are quiet, or after 60 s:\n{number}"
    if version.isr_write == IsrWrite.ZOOKEEPER:
        texts["tell"] = "no broker is notified"
    if version.high_watermark_after_shrink == AfterShrink.NEVER:
        texts["watermark"] = "the high watermark is\nnot checked (KAFKA-13091)"
    return texts


# Several partitions of one broker


def plot_batches(submitted: Mapping[str, int], requests: Sequence[SentBatch]) -> Axes:
    """Each partition's change: how long it waits to be sent, and which request takes it."""
    rows, ready = {name: list[bands.Span]() for name in submitted}, dict(submitted)
    for number, request in enumerate(requests, 1):
        sent_s, answered_s = request.sent_ms / 1000, request.answered_ms / 1000
        for name in request.partitions:
            sent = bands.Span(sent_s, answered_s, style.BLUE, f"request {number}")
            rows[name] += bands.Span(ready[name] / 1000, sent_s, "waits"), sent
            ready[name] = request.answered_ms
    last = max(submitted, key=lambda name: ready[name] - submitted[name])
    title = f"The leader sends {style.counted(len(submitted), 'change')} in "
    title += f"{style.counted(len(requests), 'request')}, one at a time: "
    title += f"{last} waits longest, {ready[last] - submitted[last]} ms"
    legend = {"waits": "waits to be sent", style.BLUE: "its request is in flight"}
    return bands.plot_bands(rows, title, legend=legend)
