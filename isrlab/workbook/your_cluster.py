"""What broker logs say about their ISRs, in figures, tables and a sentence; and which alert fired.

Data are the answers of `isrlab.churn` and `isrlab.brokerlogs` as pandas. Topic names and log lines
come from files that nobody here has written: figures and tables show them escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import ipywidgets as widgets
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from isrlab.brokerlogs.recordings import TIMELINE, Outage
from isrlab.show import style
from isrlab.show.bands import Span, plot_bands, utc_axis
from isrlab.show.controls import pick, redrawn
from isrlab.show.curves import Curve, Scale, plot_bars, plot_curves
from isrlab.show.style import counted, duration, printable
from isrlab.show.table import html_table, table

Times: TypeAlias = list[tuple[int, int]]  # from and to (exclusive), ms, in order

NO_ISR = "The logs name no ISR of any partition"
DONE = {"SIGSTOP": "paused", "SIGKILL": "killed", "SIGTERM": "shut down"}
WHY = {  # of an absence, in words, and its colour
    "gone": ("broker was gone", style.STATES["away"]),
    "lag": ("lag", style.VERMILION),
    "controller": ("by the controller", style.SKY),
}
ALERTS = (
    "UnderReplicatedPartitions > 0",
    "AtMinIsrPartitionCount > 0",
    "UnderMinIsrPartitionCount > 0",
    "OfflinePartitionsCount > 0",
    "increase(IsrShrinksPerSec) > 0",
)


def plot_isr_timeline(
    intervals: pd.DataFrame, faults: Sequence[Outage] = (), most: int = 30
) -> Axes:
    """The size of every ISR over time: a row for each partition, those with most changes on top.

    `intervals` is `churn.isr_intervals`. A partition's full size is its largest ISR there. At most
    `most` partitions are drawn; the title says how many there are. `faults`: rows above them.
    """
    data = intervals.assign(state=[*map(_size_state, intervals["isr_size"], _full(intervals))])
    is_short = data["is_certain"] & (data["state"] != "full ISR")
    touched = len(data[is_short].groupby(["topic", "partition"]))
    named = partitions(data)
    drawn = dict([*named.items()][:most])
    title = f"{touched:,} of {len(named):,} partitions were under-replicated at some time"
    title += "" if len(drawn) == len(named) else f"\nThe {most} with most changes"
    rows = {name: [*map(str, rows["state"])] for name, rows in drawn.items()}
    return _plot_spans(drawn, rows, title if named else NO_ISR, faults)


def plot_members(intervals: pd.DataFrame, partition: str | None = None) -> Axes:
    """Who is in the ISR of one partition (else of the busiest) over time, and who leads."""
    named = partitions(intervals)
    name = partition or next(iter(named), "")
    data = named.get(name, intervals)
    replicas = sorted({replica for isr in data["isr"] for replica in isr})
    rows = {
        f"broker {replica}": [
            "leads" if replica == leader else "in sync" if replica in isr else "out"
            for isr, leader in zip(data["isr"], data["leader"], strict=True)
        ]
        for replica in replicas
    }
    title = f"{name}: {counted(len(data) - 1, 'change')}, "
    title += f"never fewer than {data['isr_size'].min()} in the ISR"
    return _plot_spans(dict.fromkeys(rows, data), rows, title if rows else NO_ISR)


def plot_changes_over_time(changes: pd.DataFrame, bucket_ms: int = 60_000) -> Axes:
    """Shrinks (down) and expands (up) in each interval; from `churn.changes_over_time`."""
    data = changes.groupby("from_ms")[["shrinks", "expands"]].sum()
    start_ms = data.index.min() if len(data) else 0
    moments = sorted({*data.index - bucket_ms, *data.index, *data.index + bucket_ms})
    steps = data.reindex(moments, fill_value=0)
    seconds = (steps.index.to_numpy(float) - start_ms) / 1000
    curves = {
        name: Curve(seconds, sign * steps[name], 0 * seconds, sign * steps[name],
                    look=(colour, ""), is_step=True, width=0.8)
        for name, sign, colour in (("expands", 1, style.BLUE), ("shrinks", -1, style.VERMILION))
    }  # fmt: skip
    title = "No ISR changed in these logs"
    if len(data):
        worst: Any = data.sum(axis=1).idxmax()
        title = (
            f"{data['shrinks'].sum():,} shrinks and {data['expands'].sum():,} expands, most of "
            f"them ({data.loc[worst].sum():,}) in the {duration(bucket_ms)} from "
            f"{pd.to_datetime(worst, unit='ms'):%F %H:%M:%S} UTC"
        )
    low, high = -1.1 * max(1, data["shrinks"].max()), 1.1 * max(1, data["expands"].max())
    scales = Scale("", low=None), Scale(f"changes per {duration(bucket_ms)}", low=low, high=high)
    ax = plot_curves(curves, title, scales)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.thousands(abs(value))))
    return utc_axis(ax, start_ms)


def incidents(absences: pd.DataFrame, quiet_ms: int = 10_000) -> pd.DataFrame:
    """Absences of one broker that begin within `quiet_ms` of each other, as one row each.

    `absences` is `churn.absences`. `left_ms` is the first, `back_ms` the last moment, `out_ms` the
    longest of them; `why` is "gone" if the broker was, else that of most. Earliest first.
    """
    rows = absences.sort_values(["replica", "left_ms"])
    starts = (rows["left_ms"].diff() > quiet_ms) | (rows["replica"].diff() != 0)
    groups = rows.groupby(starts.cumsum())
    columns = {"broker": ("replica", "first"), "left_ms": ("left_ms", "min"),
               "back_ms": ("back_ms", "max"), "replicas": ("out_ms", "size"),
               "out_ms": ("out_ms", "max"), "why": ("why", _worst)}  # fmt: skip
    return groups.agg(**columns).sort_values("left_ms", ignore_index=True)


def _worst(why: pd.Series) -> str:
    return "gone" if (why == "gone").any() else str(why.mode().iloc[0])


def plot_time_out(happened: pd.DataFrame, most: int = 30) -> Axes:
    """For each of `incidents`, the longest time that a replica was out; the slowest on top."""
    data = happened.sort_values("out_ms", ascending=False).head(most)
    slowest: Any = data.itertuples()
    rows = [
        f"broker {each.broker}, left {pd.to_datetime(each.left_ms, unit='ms'):%m-%d %H:%M:%S}: "
        f"{counted(each.replicas, 'replica')}, {WHY[each.why][0]}"
        for each in slowest
    ]
    title = "No replica is seen to leave an ISR and come back"
    if rows:
        title = f"Brokers fell out of their ISRs {_times(len(happened))}, for at most "
        title += f"{duration(data['out_ms'].max())} (broker {data['broker'].iloc[0]})"
    parts = {
        text: np.where(data["why"] == why, data["out_ms"] / 1000, 0.0)
        for why, (text, _) in WHY.items()
        if (data["why"] == why).any()
    }
    label, notes = "longest time out of the ISR (s)", [*map(duration, data["out_ms"])]
    return plot_bars(rows, parts, title, label, notes=notes, colours=dict(WHY.values()))


# Which alert would have fired


def conditions(
    intervals: pd.DataFrame,
    history: pd.DataFrame,
    processes: pd.DataFrame,
    min_insync_replicas: int,
) -> dict[str, Times]:
    """When the condition of each of `ALERTS` held, anywhere in the cluster.

    `intervals`, `history`: `churn.isr_intervals`, `churn.isr_history`; `processes`: the crash and
    restart events. A partition counts as offline while all of its ISR is gone. A shrink that a
    leader made counts for a minute: increase(IsrShrinksPerSec[1m]).
    """
    known = intervals[intervals["is_certain"]]
    full, size = _full(known), known["isr_size"]
    least = np.minimum(min_insync_replicas, full)
    gone = _gone(processes)
    offline: Times = []
    row: Any
    for row in known.itertuples():
        left = [(row.from_ms, row.to_ms)]
        for replica in row.isr:
            left = _both(left, gone[replica])
        offline += left
    is_counted = (history["change"] == "shrink") & (history["by"] == "leader")
    shrinks = history.loc[is_counted, "ts_ms"]
    held = [known[is_so] for is_so in (size < full, size == least, size < least)]
    times = [_union(zip(rows["from_ms"], rows["to_ms"], strict=True)) for rows in held]
    counted_ms = _union((ts_ms, ts_ms + 60_000) for ts_ms in shrinks)
    return dict(zip(ALERTS, [*times, _union(offline), counted_ms], strict=True))


def firings(held: Times, for_ms: int, every_ms: int) -> Times:
    """From when to when an alert fires: a rule with `for:`, evaluated every `every_ms`.

    It fires once its condition was true at every evaluation for so long.
    """
    seen_ms = sorted(
        {ms for start, end in held for ms in range(-(-start // every_ms) * every_ms, end, every_ms)}
    )
    pending: Times = _union((ms, ms + every_ms) for ms in seen_ms)
    wait_ms = -(-for_ms // every_ms) * every_ms
    return [(start + wait_ms, end) for start, end in pending if end - start > wait_ms]


def alerts(
    held: dict[str, Times], happened: Times, for_s: Iterable[float], every_s: float = 15
) -> pd.DataFrame:
    """What each alert would have done with each `for:`, how often it fired, and for what.

    `happened`: from when to when each incident lasted. Columns: alert, for_s, `fired`; incidents
    `noticed` (it began to fire before their end, or at the next evaluation), `still_on` (it fired
    already, for another), `missed`; `after_s`, the median from the start of those noticed.
    """
    rows = []
    for alert, times in held.items():
        for seconds in for_s:
            fires = firings(times, round(seconds * 1000), round(every_s * 1000))
            after, still_on = [], 0
            for start, end in happened:
                until = end + every_s * 1000
                begun = [on - start for on, _ in fires if start <= on <= until]
                after += begun[:1]
                still_on += not begun and any(on < start < off for on, off in fires)
            counts = len(fires), len(after), still_on, len(happened) - len(after) - still_on
            median = float(np.median(after)) / 1000 if after else None
            rows.append((alert, seconds, *counts, median))
    columns = ["alert", "for_s", "fired", "noticed", "still_on", "missed", "after_s"]
    return pd.DataFrame(rows, columns=columns)


def when(faults: Sequence[Outage], held: dict[str, Times], quiet_ms: int = 10_000) -> Times:
    """From when to when each incident lasted: the known faults, else what was under-replicated.

    A fault lasts until the ISRs are full again that were short within `quiet_ms` of its end.
    """
    short, happened = held[ALERTS[0]], []
    for fault in faults:
        last_ms = fault.end_ms + quiet_ms
        back_ms = [end for start, end in short if start <= last_ms and end > fault.end_ms]
        happened.append((fault.start_ms, max([fault.end_ms, *back_ms])))
    return happened if faults else short


def alerts_table(fired: pd.DataFrame) -> HTML:
    """A row for each alert, a column for each `for:`: how often it fired, what it missed."""
    cells = {}
    row: Any
    for row in fired.itertuples():
        text = f"fires {_times(row.fired)}; misses {row.missed}"
        text += f"; {row.after_s:.0f} s after the start" if row.noticed else ""
        text += f"; already firing at {row.still_on}" if row.still_on else ""
        wait = duration(1000 * row.for_s) if row.for_s else "0"
        cells[row.alert, f"for: {wait}"] = text if row.fired else "never fires"
    return table(pd.Series(cells).unstack(sort=False).rename_axis("alert").reset_index())


def _gone(processes: pd.DataFrame) -> defaultdict[int, Times]:
    """From when to when each broker was gone, as far as crashes and restarts say."""
    gone: defaultdict[int, Times] = defaultdict(list)
    rows = processes[processes["replica"].notna()].sort_values("ts_ms", kind="stable")
    for replica in rows["replica"].unique().tolist():
        each = rows[rows["replica"] == replica]
        points = [*zip(each["ts_ms"], each["kind"], strict=True), (2**62, "end")]
        spans = ((a, b) for (a, kind), (b, _) in pairwise(points) if kind == "crash" and a < b)
        gone[int(replica)] = _union(spans)
    return gone


def _union(spans: Iterable[tuple[int, int]]) -> Times:
    """The same times without overlaps."""
    joined: Times = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            start, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((start, end))
    return joined


def _both(first: Times, second: Times) -> Times:
    """The times that are in both."""
    both = ((max(a, c), min(b, d)) for a, b in first for c, d in second)
    return [(start, end) for start, end in both if start < end]


def partitions(intervals: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each partition under its name, the partition with most changes first."""
    groups = sorted(intervals.groupby(["topic", "partition"]), key=lambda g: (-len(g[1]), g[0]))
    return {f"{topic}-{number}": rows for (topic, number), rows in groups}


def choose_partition(intervals: pd.DataFrame) -> widgets.VBox:
    """A control: `plot_members` for the partition that the reader picks from a list."""
    names = [*partitions(intervals)]
    options = [(printable(name, 80), name) for name in names]
    picker = pick("partition", options, names[0] if names else None)
    return redrawn([picker], lambda name: plot_members(intervals, name))


def files_table(files: pd.DataFrame, most: int = 20) -> HTML:
    """Which files were read, how much is in them, and which were not read and why."""
    read, is_timeline = files[files["status"] == "read"], files["file"].str.endswith(TIMELINE)
    rest = files[(files["status"] != "read") & ~is_timeline]
    sums = f"{counted(len(read), 'file')} read: {read['lines'].sum():,} lines, "
    sums += f"{read['bytes'].sum():,} bytes"
    sums += f"; {TIMELINE} says what was done to the brokers" if is_timeline.any() else ""
    columns = {"files": ("file", "size"), "first": ("file", "first"), "bytes": ("bytes", "sum")}
    reasons = table(rest.groupby("status").agg(**columns).reset_index(), most).data
    return HTML(f"<p>{sums}.</p>{reasons if len(rest) else '<p>No file was left out.</p>'}")


def unread_table(unread: pd.DataFrame, shown: int = 5) -> HTML:
    """Why lines were not read (`BrokerLogs.unread`), how many, and the first `shown` of all."""
    if unread.empty:
        return HTML("<p>0 lines were not read.</p>")
    reasons = unread.groupby("reason").agg(lines=("lines", "sum"), files=("file", "nunique"))
    reasons = reasons.sort_values("lines", ascending=False).reset_index()
    first = unread.head(shown)[["file", "line", "reason", "text"]]
    first = first.assign(text=first["text"].str.slice(0, 160))
    return HTML(
        f"<p>Not read: {counted(int(unread['lines'].sum()), 'line')}.</p>{html_table(reasons)}"
        f"<p>The first of them:</p>{html_table(first)}"
    )


def finding(changes: pd.DataFrame, times: pd.DataFrame, flaps: pd.DataFrame, unread: int) -> str:
    """The sums of `churn.changes_by_partition`, `under_replicated`, `flaps`; `unread` are lines."""
    shrinks, expands = int(changes["shrinks"].sum()), int(changes["expands"].sum())
    rest = f"; {counted(unread, 'line')} could not be read" if unread else ""
    if shrinks + expands == 0:
        return f"No ISR of the {counted(len(changes), 'partition')} in these logs changed{rest}."
    out, alone, unknown = (
        duration(times[name].sum())
        for name in ("under_replicated_ms", "time_with_one_copy_ms", "uncertain_ms")
    )
    if times["uncertain_ms"].sum():
        rest = f"; for {unknown} the logs do not tell the ISR{rest}"
    busiest = changes.assign(all=changes["shrinks"] + changes["expands"]).nlargest(1, "all").iloc[0]
    return (
        f"The ISRs of {counted(len(changes), 'partition')} shrank {_times(shrinks)} and expanded "
        f"{_times(expands)} ({len(flaps):,} of these were flaps); partitions were under-replicated "
        f"for {out} in sum, {alone} of it with a single copy, and "
        f"{printable(busiest['topic'])}-{busiest['partition']} changed most "
        f"({_times(busiest['all'])}){rest}."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _plot_spans(
    data: dict[str, pd.DataFrame],
    states: dict[str, list[str]],
    title: str,
    faults: Sequence[Outage] = (),
) -> Axes:
    """A row for each fault and name: the intervals of `data`, each in its state, on a UTC axis."""
    start_ms = min((rows["from_ms"].min() for rows in data.values()), default=0)
    rows: dict[str, list[Span]] = {}
    for fault in faults:
        begin_s, end_s = ((ms - start_ms) / 1000 for ms in (fault.start_ms, fault.end_ms))
        name = f"broker {fault.broker} {DONE[fault.signal]}"
        rows.setdefault(name, []).append(Span(begin_s, end_s, "away"))
    for name, intervals in data.items():
        from_s, to_s = ((intervals[end] - start_ms) / 1000 for end in ("from_ms", "to_ms"))
        known = np.where(intervals["is_certain"], states[name], "not known").tolist()
        rows[name] = [*map(Span, from_s, to_s, known)]
    legend = {name: name for name in ("leads", "in sync", "out", *style.ISR_SIZES)}
    legend |= {"not known": "not known: lines missing", "away": "what was done"}
    return utc_axis(plot_bands(rows, title, legend=legend), start_ms)


def _full(intervals: pd.DataFrame) -> pd.Series:
    """Of each interval, the largest ISR of its partition."""
    return intervals.groupby(["topic", "partition"])["isr_size"].transform("max")


def _size_state(size: int, full: int) -> str:
    if size >= full:
        return "full ISR"
    if size <= 1:
        return "one copy left"
    return "one missing" if size == full - 1 else "more missing"
