"""Pictures and short tables of ISR churn: the same for real logs and for simulations.

Each `plot_` function draws on one Axes and returns it; the title is what the picture shows. Topic
names and log lines come from files nobody here has written, so they are drawn as they are: nothing
in them is taken for mathematics, and `unread_table` escapes them for HTML.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.patches import Patch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FULL, ONE_MISSING, FEWER, ONE_LEFT = "#d4d4d4", "#f0b94d", "#d9783f", "#9b2d58"
UNCERTAIN = "#ffffff"
LEADS, IN_ISR = "#3b75af", "#a9c4e0"
SHRINK, EXPAND = "#d9783f", "#3b75af"
MOST_PARTITIONS = 30
_LABEL_CHARACTERS = 40
_UNCERTAIN_STYLE: dict[str, Any] = {
    "facecolor": UNCERTAIN,
    "edgecolor": "0.75",
    "hatch": "////",
    "linewidth": 0,
}


def plain(text: object, most: int = _LABEL_CHARACTERS) -> str:
    """Text that matplotlib draws as it is: no formulas, no control characters, not too long."""
    printable = _printable(text)
    if len(printable) > most:
        printable = printable[: most // 2] + "…" + printable[-(most // 2) :]
    return printable.replace("\\", "\\\\").replace("$", r"\$")


def _printable(text: object) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def partition_label(row: pd.Series) -> str:
    """ "orders-3", as Kafka writes a partition."""
    return plain(f"{row['topic']}-{row['partition']}")


def plot_isr_timeline(
    intervals: pd.DataFrame, *, most: int = MOST_PARTITIONS, ax: Axes | None = None
) -> Axes:
    """The size of every ISR over time: one row for each partition, those with most changes on top.

    `intervals` is `churn.isr_intervals` as pandas. A partition's full size is its largest ISR
    there. Hatched is the time in which the logs miss changes. At most `most` partitions are drawn;
    the title says how many there are.
    """
    ax = ax or _axes(intervals, most)
    if intervals.empty:
        return _nothing(ax, "The logs tell no ISR of any partition")
    data = _with_time(intervals, "from_ms", "to_ms")
    data["full"] = data.groupby(["topic", "partition"])["isr_size"].transform("max")
    chosen = _most_changing(data, most)
    for y, (_, rows) in enumerate(chosen):
        certain = rows[rows.is_certain]
        colours = [_shade(*sizes) for sizes in zip(certain.isr_size, certain.full, strict=True)]
        ax.broken_barh(_spans(certain), (y - 0.4, 0.8), facecolors=colours, linewidth=0)
        ax.broken_barh(_spans(rows[~rows.is_certain]), (y - 0.4, 0.8), **_UNCERTAIN_STYLE)
    ax.set_yticks(range(len(chosen)), [partition_label(rows.iloc[0]) for _, rows in chosen])
    ax.set_ylim(len(chosen) - 0.4, -0.6)
    ax.set_title(_timeline_title(data, len(chosen)), loc="left")
    _legend(ax)
    return _time_axis(ax, data["from"].min(), data["to"].max())


def plot_changes_over_time(
    changes: pd.DataFrame, *, bucket_ms: int = 60_000, ax: Axes | None = None
) -> Axes:
    """Shrinks (down) and expands (up) in each interval of `bucket_ms`.

    `changes` is `churn.changes_over_time` as pandas, made with the same `bucket_ms`.
    """
    ax = ax or plt.subplots(figsize=(9, 3), layout="constrained")[1]
    if changes.empty:
        return _nothing(ax, "No ISR changed in these logs")
    data = _with_time(changes.groupby("from_ms", as_index=False).sum(numeric_only=True), "from_ms")
    seconds = (data.from_ms.max() - data.from_ms.min()) / 1000 + bucket_ms / 1000
    width_days = max(bucket_ms / 1000, seconds / 300) / 86_400
    at = data["from"]
    ax.bar(at, data.expands, width_days, align="edge", color=EXPAND, label="expands")
    ax.bar(at, -data.shrinks, width_days, align="edge", color=SHRINK, label="shrinks")
    ax.axhline(0, color="0.4", linewidth=0.8)
    ax.yaxis.set_major_locator(plt.MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    ax.set_ylabel(f"changes per {_duration(bucket_ms)}")
    worst = data.iloc[int((data.shrinks + data.expands).to_numpy().argmax())]
    ax.set_title(
        f"{data.shrinks.sum():,} shrinks and {data.expands.sum():,} expands, most of them "
        f"({worst.shrinks + worst.expands:,}) at {worst['from']:%Y-%m-%d %H:%M} UTC",
        loc="left",
    )
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    width = pd.Timedelta(days=width_days)
    return _time_axis(ax, at.min() - width, at.max() + 2 * width)


def plot_time_out(absences: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """How long replicas were out of the ISR before they rejoined, longest first.

    `absences` is `churn.slowest_expansions` as pandas.
    """
    ax = (
        ax or plt.subplots(figsize=(9, 1.2 + 0.32 * max(1, len(absences))), layout="constrained")[1]
    )
    if absences.empty:
        return _nothing(ax, "No replica is seen to leave an ISR and come back")
    seconds = absences.out_ms / 1000
    places = range(len(absences))
    ax.barh(places, seconds, color=EXPAND)
    labels = [
        f"{partition_label(row)}, replica {row['replica']}, left "
        f"{pd.to_datetime(row['left_ms'], unit='ms'):%m-%d %H:%M:%S}"
        for _, row in absences.iterrows()
    ]
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    ax.set_xlabel("time out of the ISR (s)")
    ax.set_xlim(0, seconds.max() * 1.12 or 1)
    for y, out_ms in zip(places, absences.out_ms, strict=True):
        ax.annotate(
            _duration(out_ms),
            (out_ms / 1000, y),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    ax.set_title(
        f"The slowest replica came back after {_duration(seconds.max() * 1000)}", loc="left"
    )
    return _tidy(ax)


def plot_members(intervals: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Who is in the ISR of one partition over time: a band for each replica, darker while it leads.

    `intervals` are the rows of one partition from `churn.isr_intervals` as pandas.
    """
    replicas = sorted({replica for isr in intervals.isr for replica in isr})
    ax = ax or plt.subplots(figsize=(9, 1.3 + 0.35 * len(replicas)), layout="constrained")[1]
    if intervals.empty:
        return _nothing(ax, "The logs tell no ISR of any partition")
    data = _with_time(intervals, "from_ms", "to_ms")
    for y, replica in enumerate(replicas):
        rows = data[[replica in isr for isr in data.isr]]
        colours = [LEADS if leader == replica else IN_ISR for leader in rows.leader]
        ax.broken_barh(_spans(rows), (y - 0.35, 0.7), facecolors=colours, linewidth=0)
    ax.set_yticks(range(len(replicas)), [f"broker {replica}" for replica in replicas])
    ax.set_ylim(len(replicas) - 0.5, -0.5)
    least = int(data.isr_size.min())
    times = f"{len(data) - 1:,} change{'' if len(data) == 2 else 's'}"
    label = partition_label(data.iloc[0])
    ax.set_title(f"{label}: {times}, never fewer than {least} in the ISR", loc="left")
    handles = [Patch(color=LEADS, label="leads"), Patch(color=IN_ISR, label="in the ISR")]
    ax.legend(handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return _time_axis(ax, data["from"].min(), data["to"].max())


def partitions(intervals: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each partition under its name, the partition with most changes first."""
    groups = _most_changing(intervals, len(intervals)) if len(intervals) else []
    return {f"{topic}-{number}": rows for (topic, number), rows in groups}


def busiest_partition(intervals: pd.DataFrame) -> pd.DataFrame:
    """The rows of the partition whose ISR changed most; no rows if there is no partition."""
    return next(iter(partitions(intervals).values()), intervals)


def choose_partition(intervals: pd.DataFrame) -> object:
    """A control: `plot_members` for the partition that the reader picks from a list."""
    from ipywidgets import Dropdown, interactive

    choices = partitions(intervals)
    names = [(plain(name, 80), name) for name in choices]
    picker = Dropdown(options=names, description="partition", disabled=not names)

    def draw(partition: str | None) -> None:
        plot_members(choices.get(partition or "", intervals))
        plt.show()

    return interactive(draw, partition=picker)


# Tables and sentences


def table(data: pd.DataFrame, most: int = 50) -> HTML:
    """The first `most` rows, every cell escaped; a `..._ms` that is a moment as UTC time."""
    if data.empty:
        return HTML("<p>None.</p>")
    rest = len(data) - most
    note = f"<p>and {rest:,} more rows</p>" if rest > 0 else ""
    shown = data.head(most).drop(columns=[name for name in ("run",) if name in data])
    return HTML(_html_table(shown.apply(_readable)) + note)


def _readable(column: pd.Series) -> pd.Series:
    name = str(column.name)
    if name in ("ts_ms", "from_ms", "to_ms", "left_ms", "back_ms", "asked_ms", "committed_ms"):
        times = pd.to_datetime(column, unit="ms")
        return times.dt.strftime("%Y-%m-%d %H:%M:%S.").str.cat(times.dt.strftime("%f").str[:3])
    if name in ("isr", "isr_before"):
        return column.map(lambda isr: "" if isr is None else ", ".join(map(str, isr)))
    if pd.api.types.is_integer_dtype(column) and name not in ("partition", "replica", "broker"):
        return column.map("{:,}".format)
    return column


def files_table(files: pd.DataFrame, most: int = 20) -> HTML:
    """Which files were read, how much is in them, and which were not read and why."""
    read = files[files.status == "read"]
    sums = f"{len(read):,} files read: {read.lines.sum():,} lines, {read.bytes.sum():,} bytes"
    rest = (
        files[files.status != "read"]
        .groupby("status")
        .agg(files=("file", "size"), first=("file", "first"), bytes=("bytes", "sum"))
    )
    listed = table(rest.reset_index(), most).data if len(rest) else "<p>No file was left out.</p>"
    return HTML(f"<p>{sums}.</p>{listed}")


def unread_table(unread: pd.DataFrame, shown: int = 5) -> HTML:
    """Each reason for which lines were not read, how many, and the first `shown` of all.

    `unread` is `BrokerLogs.unread` as pandas. Everything from the files is escaped.
    """
    if unread.empty:
        return HTML("<p>0 lines were not read.</p>")
    reasons = unread.groupby("reason").agg(lines=("lines", "sum"), files=("file", "nunique"))
    reasons = reasons.sort_values("lines", ascending=False).reset_index()
    first = unread.head(shown)[["file", "line", "reason", "text"]].copy()
    first["text"] = first["text"].str.slice(0, 160)
    count = f"{unread['lines'].sum():,} line{'' if unread['lines'].sum() == 1 else 's'}"
    return HTML(
        f"<p>Not read: {count}.</p>"
        + _html_table(reasons)
        + f"<p>The first {len(first)} of them:</p>"
        + _html_table(first)
    )


def finding(changes: pd.DataFrame, times: pd.DataFrame, flaps: pd.DataFrame, unread: int) -> str:
    """One sentence: how much churn there is, how much of it is flapping, and what it cost.

    `changes`, `times` and `flaps` are `churn.changes_by_partition`, `under_replicated` and `flaps`
    as pandas; `unread` is the number of lines that could not be read.
    """
    shrinks, expands = int(changes.shrinks.sum()), int(changes.expands.sum())
    lines = "1 line" if unread == 1 else f"{unread:,} lines"
    rest = f"; {lines} could not be read" if unread else ""
    if shrinks + expands == 0:
        return f"No ISR of the {len(changes):,} partitions in these logs changed{rest}."
    out_ms, alone_ms = times.under_replicated_ms.sum(), times.time_with_one_copy_ms.sum()
    if times.uncertain_ms.sum():
        rest = f"; for {_duration(times.uncertain_ms.sum())} the logs do not tell the ISR{rest}"
    busiest = changes.assign(all=changes.shrinks + changes.expands).nlargest(1, "all").iloc[0]
    return (
        f"The ISRs of {len(changes):,} partitions shrank {_times(shrinks)} and expanded "
        f"{_times(expands)} "
        f"({len(flaps):,} of these were flaps); partitions were under-replicated for "
        f"{_duration(out_ms)} in sum, {_duration(alone_ms)} of it with a single copy, and "
        f"{_printable(busiest['topic'])}-{busiest['partition']} changed most "
        f"({_times(busiest['all'])}){rest}."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _html_table(data: pd.DataFrame) -> str:
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in data.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>"
        for row in data.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


# What the pictures share


def _axes(intervals: pd.DataFrame, most: int) -> Axes:
    count = min(most, len(intervals.groupby(["topic", "partition"])) if len(intervals) else 1)
    return plt.subplots(figsize=(9, 1.4 + 0.26 * max(2, count)), layout="constrained")[1]


def _with_time(data: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """A copy with a UTC time for each column of milliseconds: `from_ms` gives `from`."""
    times = {name.removesuffix("_ms"): pd.to_datetime(data[name], unit="ms") for name in columns}
    return data.assign(**times)


def _most_changing(data: pd.DataFrame, most: int) -> list[tuple[Any, pd.DataFrame]]:
    groups = list(data.groupby(["topic", "partition"]))
    return sorted(groups, key=lambda group: (-len(group[1]), group[0]))[:most]


def _spans(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Start and width of each interval on matplotlib's time axis."""
    starts = mdates.date2num(rows["from"])
    widths = np.maximum(mdates.date2num(rows["to"]) - starts, 0)
    return list(zip(starts, widths, strict=True))


def _shade(size: int, full: int) -> str:
    if size >= full:
        return FULL
    if size <= 1:
        return ONE_LEFT
    return ONE_MISSING if size == full - 1 else FEWER


def _timeline_title(data: pd.DataFrame, drawn: int) -> str:
    count = len(data.groupby(["topic", "partition"]))
    is_under = (data.isr_size < data.full) & data.is_certain
    touched = len(data.loc[is_under, ["topic", "partition"]].drop_duplicates())
    shown = "" if drawn == count else f"\nThe {drawn} with most changes"
    return f"{touched:,} of {count:,} partitions were under-replicated at some time{shown}"


def _legend(ax: Axes) -> None:
    names = {
        "full ISR": FULL,
        "one missing": ONE_MISSING,
        "more missing": FEWER,
        "one copy left": ONE_LEFT,
    }
    handles = [Patch(color=colour, label=name) for name, colour in names.items()]
    handles.append(Patch(label="not known: lines missing", **_UNCERTAIN_STYLE))
    ax.legend(handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _nothing(ax: Axes, why: str) -> Axes:
    ax.set_title(why, loc="left")
    ax.set_axis_off()
    return ax


def _time_axis(ax: Axes, start: pd.Timestamp, end: pd.Timestamp) -> Axes:
    if end <= start:
        end = start + pd.Timedelta(seconds=1)
    ax.set_xlim(mdates.date2num(start), mdates.date2num(end))
    locator = mdates.AutoDateLocator(minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
    ax.set_xlabel("time (UTC)")
    return _tidy(ax)


def _tidy(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _duration(ms: float) -> str:
    """ "340 ms", "12.4 s", "3 min 5 s", "2 h 10 min", "3 d 4 h"."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    for size, unit, smaller, small in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = int(seconds // size), int(seconds % size // smaller)
            return f"{whole} {unit} {rest} {small}" if rest else f"{whole} {unit}"
    raise AssertionError(ms)
