"""What held when: rows of spans along a time axis. Every ISR over time is drawn by this.

A row is a replica of one partition, a partition of many, one schedule under several versions, or a
request that waits; what a span's state means is in the legend. An ISR is `isr_rows` of the spans of
`isrlab.events.exact`, so a scenario, a fleet and a real incident look the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from isrlab.events.exact import IsrSpan
from isrlab.show.style import (
    GREY,
    INK,
    ISR_SIZES,
    ORANGE,
    STATES,
    VERMILION,
    WHITE,
    axes,
    broker_colour,
    finish,
    legend_below,
    plain,
)

HATCHED = "not known"
_HEIGHT = 0.62


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when (s) something held: a state of `style.STATES`, or any colour's name."""

    start_s: float
    end_s: float
    state: str
    text: str = ""  # written into the span if it is long enough


@dataclass(frozen=True, slots=True)
class Event:
    """A moment (s) in a row: a mark of matplotlib, its colour, and a word beside it."""

    at_s: float
    marker: str = "|"
    colour: str = INK
    text: str = ""


def isr_rows(
    spans: Sequence[IsrSpan], replicas: Sequence[int], leads: Mapping[int, int] | None = None
) -> dict[str, list[Span]]:
    """A row for each replica of a partition: in the stored ISR in the broker's colour, else out.

    `leads` says by start (ms) of a span who led then; without it no leader is marked.
    """
    rows: dict[str, list[Span]] = {}
    for replica in replicas:
        row: list[Span] = []
        for span in spans:
            is_in = replica in span.isr
            state = f"broker {replica}" if is_in else "out"
            if is_in and leads and leads.get(span.start_ms) == replica:
                state = "leads"
            row.append(Span(span.start_ms / 1000, span.end_ms / 1000, state))
        rows[f"broker {replica}"] = _joined(row)
    return rows


def _joined(row: list[Span]) -> list[Span]:
    """Neighbouring spans of one state as one."""
    joined: list[Span] = []
    for span in row:
        if joined and joined[-1].state == span.state and joined[-1].end_s == span.start_s:
            joined[-1] = Span(joined[-1].start_s, span.end_s, span.state)
        else:
            joined.append(span)
    return joined


def state_colour(state: str) -> str:
    """Of a state, an ISR size, `broker N`, or a colour as it is."""
    if state.startswith("broker "):
        return broker_colour(int(state.removeprefix("broker ")))
    return STATES.get(state) or ISR_SIZES.get(state) or state


def plot_bands(
    rows: Mapping[str, Sequence[Span]],
    title: str,
    *,
    events: Mapping[str, Sequence[Event]] | None = None,
    notes: Mapping[str, str] | None = None,
    legend: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One row of spans for each name, in s. "out" is a thin line, "not known" hatched.

    `events` are marks in a row, `notes` stand at its right end, `legend` says state -> meaning
    (without it the states that are neither brokers nor colours name themselves).
    """
    ax = ax or axes(9.5, 1.1 + 0.36 * max(len(rows), 2))
    ends = [span.end_s for row in rows.values() for span in row]
    ends += [event.at_s for row in (events or {}).values() for event in row]
    last = max(ends, default=1.0) or 1.0
    for y, (name, row) in enumerate(rows.items()):
        for span in row:
            _draw_span(ax, y, span, last)
        for event in (events or {}).get(name, ()):
            ax.plot(event.at_s, y, marker=event.marker, color=event.colour, linestyle="")
            if event.text:
                ax.annotate(
                    plain(event.text), (event.at_s, y - 0.4), (2, 0), fontsize=7,
                    textcoords="offset points",
                )  # fmt: skip
        if notes and name in notes:
            ax.text(1.01, y, plain(notes[name]), fontsize=8, va="center",
                    transform=ax.get_yaxis_transform())  # fmt: skip
    ax.set_yticks(range(len(rows)), [plain(name, 60) for name in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    start = min((span.start_s for row in rows.values() for span in row), default=0.0)
    ax.set_xlim(min(start, 0.0) if start < last / 2 else start, last)
    ax.set_xlabel("time since the start (s)")
    _legend(ax, rows, legend)
    return finish(ax, title, spines=("bottom",))


def _draw_span(ax: Axes, y: int, span: Span, last: float) -> None:
    if span.state == "out":
        ax.plot([span.start_s, span.end_s], [y, y], color=STATES["out"], linewidth=1.2)
        return
    is_known = span.state != HATCHED
    ax.barh(
        y, max(span.end_s - span.start_s, 0), _HEIGHT, left=span.start_s,
        color=state_colour(span.state), edgecolor=None if is_known else GREY,
        hatch=None if is_known else "////", linewidth=0,
    )  # fmt: skip
    if span.text and span.end_s - span.start_s > last / 30:
        red, green, blue, _ = to_rgba(state_colour(span.state))
        is_dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.55
        ax.text(span.start_s, y, f" {plain(span.text)}", fontsize=7, va="center",
                color=WHITE if is_dark else INK, clip_on=True)  # fmt: skip


def shade(ax: Axes, spans: Iterable[Span]) -> Axes:
    """Spans behind whatever else is drawn on the axes; their texts are in its legend, once each."""
    named: set[str] = set()
    for span in spans:
        label = "" if span.text in named else plain(span.text)
        named.add(span.text)
        ax.axvspan(span.start_s, span.end_s, color=state_colour(span.state), alpha=0.2,
                   linewidth=0, label=label)  # fmt: skip
    return ax


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


def _legend(ax: Axes, rows: Mapping[str, Sequence[Span]], legend: Mapping[str, str] | None) -> None:
    """The states that occur, each with its meaning."""
    states = dict.fromkeys(span.state for row in rows.values() for span in row)
    known = {state: state for state in states if state in STATES or state in ISR_SIZES}
    for state, meaning in (known if legend is None else legend).items():
        if state not in states:
            continue
        if state == "out":
            ax.plot([], [], color=STATES["out"], linewidth=1.2, label=f"{meaning} of the ISR")
        elif state == HATCHED:
            ax.bar(0, 0, color=state_colour(state), edgecolor=GREY, hatch="////",
                   linewidth=0, label=meaning)  # fmt: skip
        else:
            ax.bar(0, 0, color=state_colour(state), label=meaning)
    legend_below(ax)


def plot_isr_sizes(
    partitions: Mapping[Any, Sequence[IsrSpan]],
    sizes: tuple[int, int, int],
    *,
    away: Sequence[tuple[str, float, float]] = (),
    ax: Axes | None = None,
) -> Axes:
    """How many partitions have a short ISR, over time (s), by its size; the title says the worst.

    `sizes`: partitions in all, replicas of each, and min.insync.replicas. `away`: (name, from, to)
    of brokers that were away, in s, drawn above.
    """
    total, replicas, min_isr = sizes
    spans = [span for several in partitions.values() for span in several]
    end_ms = max((span.end_ms for span in spans), default=0)
    times = sorted({0, end_ms, *(t for s in spans for t in (s.start_ms, s.end_ms))})
    place = {ms: index for index, ms in enumerate(times)}
    counts = np.zeros((replicas, len(times)), int)  # by size; 0: no ISR is known
    for span in spans:
        if len(span.isr) < replicas:
            counts[len(span.isr), place[span.start_ms] : place[span.end_ms]] += 1
    under_ms = sum(s.end_ms - s.start_ms for s in spans if len(s.isr) < min_isr)
    short = counts[1:]
    ax = ax or axes(6.8, 3.2)
    labels = ["leader alone", *[f"{size} in the ISR" for size in range(2, replicas)]]
    colours = [VERMILION, ORANGE, ISR_SIZES["one missing"]][: len(labels)]
    ax.stackplot(np.array(times) / 1000, short, colors=colours, labels=labels, step="post")
    top = max(5.0, 1.3 * float(short.sum(axis=0).max()))
    for name, start_s, end_s in away:
        ax.plot([start_s, end_s], [0.92 * top] * 2, color=INK, linewidth=5)
        ax.annotate(name, ((start_s + end_s) / 2, 0.92 * top), (0, 4), ha="center", fontsize=8,
                    textcoords="offset points")  # fmt: skip
    ax.set(xlim=(0, end_ms / 1000), ylim=(0, top), ylabel="partitions with a short ISR")
    ax.set_xlabel("time since the start (s); bar above: that broker is away")
    legend_below(ax)
    worst = f"{int(short.sum(axis=0).max())} of {total} partitions under-replicated"
    return finish(ax, f"{worst}; {under_ms / 60_000:.1f} partition-minutes under min ISR")
