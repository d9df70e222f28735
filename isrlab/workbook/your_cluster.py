"""04 Your cluster: what broker logs say about their ISRs, in figures, tables and a sentence.

Data are the answers of `isrlab.churn` and `isrlab.brokerlogs` as pandas. Topic names and log lines
come from files that nobody here has written: figures and tables show them escaped.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from isrlab.show import style
from isrlab.show.bands import Span, plot_bands, utc_axis
from isrlab.show.controls import pick, redrawn
from isrlab.show.curves import Curve, Scale, plot_bars, plot_curves
from isrlab.show.style import counted, duration, printable
from isrlab.show.table import html_table, table

NO_ISR = "The logs tell no ISR of any partition"


def plot_isr_timeline(intervals: pd.DataFrame, most: int = 30) -> Axes:
    """The size of every ISR over time: a row for each partition, those with most changes on top.

    `intervals` is `churn.isr_intervals`. A partition's full size is its largest ISR there. At most
    `most` partitions are drawn; the title says how many there are.
    """
    full = intervals.groupby(["topic", "partition"])["isr_size"].transform("max")
    data = intervals.assign(state=[*map(_size_state, intervals["isr_size"], full)])
    is_short = data["is_certain"] & (data["state"] != "full ISR")
    touched = len(data[is_short].groupby(["topic", "partition"]))
    named = partitions(data)
    drawn = dict([*named.items()][:most])
    title = f"{touched:,} of {len(named):,} partitions were under-replicated at some time"
    title += "" if len(drawn) == len(named) else f"\nThe {most} with most changes"
    rows = {name: [*map(str, rows["state"])] for name, rows in drawn.items()}
    return _plot_spans(drawn, rows, title if named else NO_ISR)


def plot_members(intervals: pd.DataFrame, partition: str | None = None) -> Axes:
    """Who is in the ISR of one partition over time, and who leads: a row for each replica.

    Without a name it is the partition whose ISR changed most.
    """
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
            f"them ({data.loc[worst].sum():,}) at {pd.to_datetime(worst, unit='ms'):%F %H:%M} UTC"
        )
    low, high = -1.1 * max(1, data["shrinks"].max()), 1.1 * max(1, data["expands"].max())
    scales = Scale("", low=None), Scale(f"changes per {duration(bucket_ms)}", low=low, high=high)
    ax = plot_curves(curves, title, scales)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.thousands(abs(value))))
    return utc_axis(ax, start_ms)


def plot_time_out(absences: pd.DataFrame) -> Axes:
    """How long replicas were out of the ISR before they rejoined: `churn.slowest_expansions`."""
    left = pd.to_datetime(absences["left_ms"], unit="ms").dt.strftime("%m-%d %H:%M:%S")
    columns = absences["topic"], absences["partition"], absences["replica"], left
    rows = [f"{t}-{p}, replica {r}, left {at}" for t, p, r, at in zip(*columns, strict=True)]
    title = "No replica is seen to leave an ISR and come back"
    if rows:
        title = f"The slowest replica came back after {duration(absences['out_ms'].max())}"
    seconds = {"out": absences["out_ms"].to_numpy(float) / 1000}
    notes = [*map(duration, absences["out_ms"])]
    return plot_bars(rows, seconds, title, "time out of the ISR (s)", notes=notes)


def partitions(intervals: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each partition under its name, the partition with most changes first."""
    groups = sorted(intervals.groupby(["topic", "partition"]), key=lambda g: (-len(g[1]), g[0]))
    return {f"{topic}-{number}": rows for (topic, number), rows in groups}


def choose_partition(intervals: pd.DataFrame) -> widgets.VBox:
    """A control: `plot_members` for the partition that the reader picks from a list."""
    names = [*partitions(intervals)]
    options = [(printable(name, 80), name) for name in names]
    picker = pick("partition", options, names[0] if names else None)
    return redrawn([picker], lambda: plot_members(intervals, picker.value))


def files_table(files: pd.DataFrame, most: int = 20) -> HTML:
    """Which files were read, how much is in them, and which were not read and why."""
    read, rest = files[files["status"] == "read"], files[files["status"] != "read"]
    sums = f"{counted(len(read), 'file')} read: {read['lines'].sum():,} lines, "
    sums += f"{read['bytes'].sum():,} bytes"
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
    """How much churn there is, how much of it is flapping, what it cost; `unread`: lines.

    `changes`, `times` and `flaps` are `churn.changes_by_partition`, `under_replicated` and `flaps`.
    """
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


def _plot_spans(data: dict[str, pd.DataFrame], states: dict[str, list[str]], title: str) -> Axes:
    """A row for each name: the intervals of `data`, each in its state, on a UTC axis."""
    start_ms = min((rows["from_ms"].min() for rows in data.values()), default=0)
    rows = {}
    for name, intervals in data.items():
        from_s, to_s = ((intervals[end] - start_ms) / 1000 for end in ("from_ms", "to_ms"))
        known = np.where(intervals["is_certain"], states[name], "not known").tolist()
        rows[name] = [*map(Span, from_s, to_s, known)]
    legend = {name: name for name in ("leads", "in sync", "out", *style.ISR_SIZES)}
    legend["not known"] = "not known: lines missing"
    return utc_axis(plot_bands(rows, title, legend=legend), start_ms)


def _size_state(size: int, full: int) -> str:
    if size >= full:
        return "full ISR"
    if size <= 1:
        return "one copy left"
    return "one missing" if size == full - 1 else "more missing"
