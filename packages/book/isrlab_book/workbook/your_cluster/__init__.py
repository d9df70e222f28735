"""Notebook 13: what broker logs show about their cluster, in figures, tables and a sentence.

Everything comes from `isrlab_ops.logs.incidents`, as in the command `isrlab logs`; here the answers
are drawn. Names of topics and lines of logs come from untrusted files: figures and tables show them
escaped.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import ipywidgets as widgets
import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.events import exact
from isrlab.events.exact import IsrSpan, Key
from isrlab.show import bands, style
from isrlab.show.bands import BandMark, Span, plot_bands, size_state
from isrlab.show.controls import LiveFigure, pick
from isrlab.show.style import counted, duration, printable
from isrlab.show.table import table
from isrlab_book.workbook.your_cluster import alerts
from isrlab_ops.logs.history.rules import RULES
from isrlab_ops.logs.incidents import command, timeline
from isrlab_ops.logs.incidents.find import Incident
from isrlab_ops.logs.incidents.look import NOT_KNOWN, Findings
from isrlab_ops.logs.incidents.window import Window
from isrlab_ops.logs.recordings import Outage

DONE = {"SIGSTOP": "paused", "SIGKILL": "killed", "SIGTERM": "shut down"}
OVER, OPEN = style.SERIES[3], style.VERMILION  # incidents; brokers have other colours
LEGEND = {style.GREY: "what was done", OVER: "incident, over", OPEN: "incident, not over"}
LEAST_WIDTH = 300  # an incident is drawn at least this fraction of the picture wide
MOST_ROWS = 16  # of a figure


def finding(findings: Findings) -> str:
    """The verdict, the state at the end, and the worst incidents, in sentences."""
    answer = command.shown_answer(findings).answer
    worst = sorted(findings.incidents, key=lambda each: (each.is_over, -each.under_replicated_ms))
    times = Counter(each.says for each in worst)
    says = [f"{text.rstrip('.')} ({count} times)." if count > 1 else text
            for text, count in [*times.items()][:3]]  # fmt: skip
    still = sum(not each.is_over for each in findings.incidents)
    count = counted(len(findings.incidents), "incident")
    count = f"{count}, {still} not over." if still else f"{count}, {'all ' * (len(worst) > 1)}over."
    first = [*(findings.doubts[:1] if answer.status == NOT_KNOWN else ()), answer.state]
    title = answer.title.capitalize()
    return printable(" ".join([f"{title}.", *first, *[count] * bool(worst), *says]), 1_500)


# The cluster over time


def plot_cluster(
    findings: Findings, faults: Sequence[Outage] = (), broker: int | None = None
) -> Figure:
    """Faults, incidents, brokers, and the number of partitions with a short ISR, over time; with a
    broker, of those whose ISR lacked it."""
    record, start_ms = findings.record, findings.record.start_ms
    rows: dict[str, list[Span]] = {}
    for fault in faults:
        name = f"{DONE.get(fault.signal, fault.signal)}: broker {fault.broker}"
        rows.setdefault(name, []).append(_span(fault.start_ms, fault.end_ms, start_ms, style.GREY))
    least_ms = (record.end_ms - start_ms) // LEAST_WIDTH
    is_few = len(findings.incidents) <= MOST_ROWS
    for number, each in enumerate(findings.incidents, 1):
        end_ms, colour = (record.end_ms, OPEN) if each.end_ms is None else (each.end_ms, OVER)
        end_ms = max(end_ms, each.start_ms + least_ms)
        name = f"{number}  " * is_few + each.what.replace("_", " ")  # of many: a row for each kind
        rows.setdefault(name, []).append(_span(each.start_ms, end_ms, start_ms, colour))
    for each_id in sorted(record.brokers)[:MOST_ROWS]:
        rows[f"broker {each_id}"] = _presence(findings, each_id)
    heights = (0.25 * max(len(rows), 2), 1.3)
    figure, grid = style.panels(2, 1, (5.4, 1.4 + sum(heights)), height_ratios=heights)
    plot_bands(rows, "", legend=LEGEND | {"away": "broker away"}, ax=grid[0, 0])
    worst = _draw_counts(grid[1, 0], findings, broker)
    if broker is not None:
        grid[1, 0].set_ylabel(f"partitions without broker {broker}")
    length_s = (record.end_ms - start_ms) / 1000
    for ax in grid.flat:
        ax.set_xlim(0, max(length_s, 0.001))
        utc_axis(ax, start_ms)
    grid[0, 0].set_xlabel("")
    still = sum(not each.is_over for each in findings.incidents)
    over = f"{still} not over" if still else "all over"
    title = f"{counted(len(findings.incidents), 'incident')}, {over}; "
    lacks = "were under-replicated" if broker is None else f"had no broker {broker} in the ISR"
    title += f"at worst {worst:,} of {len(findings.partitions):,} partitions {lacks}"
    return style.headline(figure, title)


def _span(start_ms: int, end_ms: int, origin_ms: int, state: str) -> Span:
    return Span((start_ms - origin_ms) / 1000, (end_ms - origin_ms) / 1000, state)


def _presence(findings: Findings, broker: int) -> list[Span]:
    """When a broker was up, when it was away, and when no line shows which."""
    start_ms, states = findings.record.start_ms, {timeline.THERE: f"broker {broker}"}
    return bands.joined(
        _span(bar.start_ms, bar.end_ms, start_ms, states.get(bar.state, bar.state))
        for bar in timeline.presence(findings.record, broker)
    )


def _draw_counts(ax: Axes, findings: Findings, broker: int | None) -> int:
    """Draw how many ISRs are short, and by how much; returns the most at any time."""
    start_ms = findings.record.start_ms
    spans = [
        _span(span.start_ms, span.end_ms, start_ms, _size(findings, key, span))
        for key in findings.partitions
        for span in findings.record.spans[key]
        if broker is None or broker in findings.record.held(key, span) - set(span.isr)
    ]
    spans += [
        _span(gap.from_ms, gap.to_ms, start_ms, bands.HATCHED)
        for gap in findings.history.gaps
        if gap.key in findings.partitions
    ]
    return int(bands.stack(ax, spans).max())


def _size(findings: Findings, key: Key, span: IsrSpan) -> str:
    return size_state(len(span.isr), len(findings.record.held(key, span)))


def cluster_player(findings: Findings, faults: Sequence[Outage] = ()) -> widgets.VBox:
    """The cluster over time, for one topic, one broker, or both."""
    topics = sorted({key.topic for key in findings.partitions})[:6]
    names = [("all", None), *((printable(topic, 60), topic) for topic in topics)]
    brokers = [("all", None), *((str(b), b) for b in sorted(findings.record.brokers)[:5])]

    def draw(topic: str | None, broker: int | None) -> Figure:
        asked = Window(topic=topic, broker=broker)
        incidents = [each for each in findings.incidents if asked.has(each)]
        partitions = tuple(filter(asked.has_key, findings.partitions))
        chosen = replace(findings, incidents=incidents, partitions=partitions)
        return plot_cluster(chosen, faults, broker)

    return LiveFigure([pick("topic", names, None), pick("broker", brokers, None)], draw, most=12)


# Incidents


def so_far(each: Incident) -> str:
    return "" if each.is_over else " so far"


def incidents_table(findings: Findings) -> HTML:
    """A row for each incident, numbered as in the figure."""
    rows = [
        {
            "": number,
            "from_ms": each.start_ms,
            "lasted": "not over" if each.end_ms is None else duration(each.end_ms - each.start_ms),
            "what": printable(each.says, 300),
            "look first at": ", ".join(f"broker {b}" for b in each.blamed),
            "partitions": len(each.partitions),
            "under-replicated": duration(each.under_replicated_ms) + so_far(each),
            "one copy": duration(each.one_copy_ms) if each.one_copy_ms else "",
            "no leader": duration(each.leaderless_ms) if each.leaderless_ms else "",
            "refused": each.refused or "",
        }
        for number, each in enumerate(findings.incidents, 1)
    ]
    return table(rows)


def plot_partition(findings: Findings, key: Key) -> Axes:
    """The ISR of one partition over time; diamonds are elections."""
    record, start_ms = findings.record, findings.record.start_ms
    shifted = [IsrSpan(s.start_ms - start_ms, s.end_ms - start_ms, s.isr)
               for s in record.spans.get(key, ())]  # fmt: skip
    members = record.replicas.get(key, frozenset()).union(*(span.isr for span in shifted))
    rows = bands.isr_rows(shifted, sorted(members))
    times, leaders = record.leaders.get(key, ([], []))
    elected: dict[str, list[BandMark]] = {}
    for ts_ms, leader in zip(times, leaders, strict=True):
        if f"broker {leader}" in rows:
            at_s = (ts_ms - start_ms) / 1000
            elected.setdefault(f"broker {leader}", []).append(BandMark(at_s, "D"))
    for gap in findings.history.gaps:
        if key == gap.key:
            for spans in rows.values():
                spans.append(_span(gap.from_ms, gap.to_ms, start_ms, bands.HATCHED))
    least = min((len(s.isr) for s in shifted), default=0)
    name = f"{printable(key.topic, 60)}-{key.partition}"
    title = f"The ISR of {name} changed {counted(max(0, len(shifted) - 1), 'time')} and never had "
    title += f"fewer than {counted(least, 'member')}"
    return utc_axis(plot_bands(rows, title, events=elected), start_ms)


def partition_player(findings: Findings) -> widgets.VBox:
    """A list of partitions, those with most changes first, and the ISR of the chosen one."""
    keys = sorted(findings.partitions, key=lambda key: (-len(findings.record.spans[key]), key))[:12]
    names = [(f"{printable(key.topic, 60)}-{key.partition}", key) for key in keys]
    if not keys:
        return widgets.VBox([widgets.HTML("No partition.")])
    chosen = pick("partition", names, keys[0])
    return LiveFigure([chosen], lambda key: plot_partition(findings, key))


def changes_table(findings: Findings, most: int = 20) -> HTML:
    """How often each ISR changed, by leader or controller, and for how long it was short."""
    record, rows = findings.record, []
    counts: Counter[tuple[Key, str]] = Counter()
    for move in exact.moves(record.events, record.end_ms):
        counts[move.key, "joined" if move.joined else "evicted" if move.evictor else "removed"] += 1
    shown = sorted(findings.partitions, key=lambda k: -counts[k, "evicted"] - counts[k, "removed"])
    for key in shown:
        short = [(s.end_ms - s.start_ms, len(s.isr)) for s in record.spans[key]
                 if len(s.isr) < len(record.held(key, s))]  # fmt: skip
        rows.append({
            "topic": printable(key.topic, 80), "partition": key.partition,
            "replicas": len(record.replicas[key]), "joined": counts[key, "joined"],
            "evicted by a leader": counts[key, "evicted"],
            "removed by the controller": counts[key, "removed"],
            "under-replicated": duration(sum(ms for ms, _ in short)),
            "one copy": duration(sum(ms for ms, size in short if size == 1)),
        })  # fmt: skip
    return table(rows, most)


# Lines that Kafka cannot have printed


def verdict_table(findings: Findings, release: str | None, limit_s: float | None) -> HTML:
    """Whether every line can be Kafka's: how much was checked, and the lines that break a rule.

    `release` is the newest that any broker ran, `limit_s` replica.lag.time.max.ms, if known.
    """
    lag_ms = round(limit_s * 1000) if limit_s else None
    judged = findings.history.verdicts(release or None, lag_ms)
    faults = [fault for each in judged for fault in each.faults]
    partitions, changes = sum(v.partitions for v in judged), sum(v.changes for v in judged)
    text = f"{changes:,} changes of {counted(partitions, 'partition')}, {len(RULES)} rules: "
    best = ", ".join(sorted({verdict.releases for verdict in judged}))
    text += f"{counted(len(faults), 'line')} that Kafka {best} cannot have printed"
    shown = table(pd.DataFrame(faults).drop(columns="key"), 10).data if faults else ""
    return HTML(f"<p>{text}.</p>{shown}")


# Which alert would have fired


def alerts_table(
    findings: Findings,
    faults: Sequence[Outage],
    min_insync_replicas: int,
    for_s: Iterable[float],
    every_s: float,
) -> HTML:
    """A row for each alert, a column for each `for:`: how often it fires, how many faults it
    misses. The faults are the known ones, or else the incidents.
    """
    held = alerts.conditions(findings.record, min_insync_replicas)
    times = [(fault.start_ms, fault.end_ms) for fault in faults]
    spans = alerts.incident_spans(findings.incidents, findings.record)
    troubles = alerts.lasting(times, held) if faults else spans
    rows = []
    for alert, when in held.items():
        row = {"alert": alert}
        for seconds in for_s:
            did = alerts.judged(when, troubles, round(seconds * 1000), round(every_s * 1000))
            text = f"fires {style.counted(did.fired, 'time')}; misses {did.missed}"
            text += f"; {did.after_ms / 1000:.0f} s after the start" if did.noticed else ""
            text += f"; already firing at {did.still_on}" if did.still_on else ""
            for_ = f"{seconds:g}s" if seconds % 60 or not seconds else f"{seconds / 60:g}m"
            row[f"for: {for_}"] = text if did.fired else "never fires"
        rows.append(row)
    return table(rows)


def utc_axis(ax: Axes, start_ms: float) -> Axes:
    """The horizontal axis, in s since `start_ms`, labelled with UTC time instead."""
    ends = np.array(ax.get_xlim()) / 86_400 + start_ms / 86_400_000
    locator = mdates.AutoDateLocator(minticks=3, maxticks=8)
    ticks = np.asarray(locator.tick_values(*mdates.num2date(ends)))
    ticks = ticks[(ticks >= ends[0]) & (ticks <= ends[1])]
    formatter = mdates.ConciseDateFormatter(locator)
    ax.set_xticks((ticks * 86_400_000 - start_ms) / 1000, formatter.format_ticks(ticks))
    ax.set_xlabel(f"time (UTC) from {mdates.num2date(ends[0]):%Y-%m-%d %H:%M}")
    return ax
