"""States over time: rows of spans along a time axis.

A row is a replica of one partition, a partition of many, one schedule under several versions, or a
request that waits; what a span's state means is in the legend. An ISR is `isr_rows` of the spans of
`isrlab.events.exact`, so a scenario, a fleet and a real incident look the same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from isrlab.events.exact import IsrSpan
from isrlab.show import style

HATCHED = "not known"  # a hatched state
_THIN: dict[str, Any] = {"color": style.STATES["out"], "linewidth": 1.2}  # of a replica that is out


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time (s); its state is of `style.STATES` or `ISR_SIZES`, "broker 1" or a colour."""

    start_s: float
    end_s: float
    state: str
    text: str = ""  # drawn in the span if that is long enough


@dataclass(frozen=True, slots=True)
class BandMark:
    """A moment (s) in a row: a matplotlib marker, its colour, and a word next to it."""

    at_s: float
    marker: str = "|"
    colour: str = style.INK
    text: str = ""


def isr_rows(spans: Sequence[IsrSpan], replicas: Sequence[int]) -> dict[str, list[Span]]:
    """A row for each replica of a partition: the broker's colour in the stored ISR, else out."""
    rows: dict[str, list[Span]] = {}
    for replica in replicas:
        name = f"broker {replica}"
        states = ((span, name if replica in span.isr else "out") for span in spans)
        rows[name] = joined(Span(s.start_ms / 1000, s.end_ms / 1000, state) for s, state in states)
    return rows


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, with neighbours of the same state merged."""
    row: list[Span] = []
    for span in spans:
        if row and (row[-1].state, row[-1].end_s) == (span.state, span.start_s):
            span = replace(span, start_s=row.pop().start_s)
        row.append(span)
    return row


def state_colour(state: str) -> str:
    """The colour of a state, an ISR size or `broker N`; a colour itself is returned unchanged."""
    if state.startswith("broker "):
        return style.broker_colour(int(state.removeprefix("broker ")))
    return style.STATES.get(state) or style.ISR_SIZES.get(state) or state


def plot_bands(
    rows: Mapping[str, Sequence[Span]],
    title: str,
    *,
    events: Mapping[str, Sequence[BandMark]] | None = None,
    notes: Mapping[str, str] | None = None,
    legend: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One row of spans for each name, in s. "out" is a thin line, "not known" hatched.

    `events` are marks in a row, `notes` are at its right end, `legend` maps a state to its meaning
    (default: the names of states that are neither brokers nor colours).
    """
    ax = ax or style.axes(9.5, 1.1 + 0.36 * max(len(rows), 2))
    spans = [span for row in rows.values() for span in row]
    ends = [event.at_s for row in (events or {}).values() for event in row]
    start = min((span.start_s for span in spans), default=0.0)
    last = max([*ends, *(span.end_s for span in spans)], default=1.0) or 1.0
    for y, (name, row) in enumerate(rows.items()):
        for span in row:
            _draw_span(ax, y, span, last / 30)
        for event in (events or {}).get(name, ()):
            ax.plot(event.at_s, y, marker=event.marker, color=event.colour, linestyle="")
            if event.text:
                style.note(ax, event.at_s, y - 0.4, event.text, va="baseline")
    style.name_rows(ax, rows, notes)
    ax.set_xlim(min(start, 0.0) if start < last / 2 else start, last)
    ax.set_xlabel("time since the start (s)")
    _legend(ax, dict.fromkeys(span.state for span in spans), legend)
    return style.finish(ax, title, spines=("bottom",))


def _draw_span(ax: Axes, y: int, span: Span, least_s: float) -> None:
    """A span, with its text if it is longer than `least_s`."""
    length_s = span.end_s - span.start_s
    if span.state == "out":
        ax.plot([span.start_s, span.end_s], [y, y], **_THIN)
        return
    ax.barh(y, max(length_s, 0), 0.62, left=span.start_s, **_fill(span.state))
    if span.text and length_s > least_s:
        red, green, blue, _ = to_rgba(state_colour(span.state))
        is_dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.55
        ax.text(span.start_s, y, f" {style.plain(span.text)}", fontsize=8, va="center",
                color=style.WHITE if is_dark else style.INK, clip_on=True)  # fmt: skip


def _fill(state: str) -> dict[str, Any]:
    hatched = {"edgecolor": style.GREY, "hatch": "////"} if state == HATCHED else {}
    return {"color": state_colour(state), "linewidth": 0} | hatched


def _legend(ax: Axes, states: Collection[str], legend: Mapping[str, str] | None) -> None:
    """The states that occur, each with its meaning."""
    known = {s: s for s in states if s in style.STATES or s in style.ISR_SIZES}
    for state, meaning in (known if legend is None else legend).items():
        if state == "out" and state in states:
            ax.plot([], [], label=f"{meaning} of the ISR", **_THIN)
        elif state in states:
            ax.bar(0, 0, label=meaning, **_fill(state))
    style.legend_below(ax)


def shade(ax: Axes, spans: Iterable[Span]) -> Axes:
    """Draw spans in the background; each text appears once in the legend."""
    named: set[str] = set()
    for span in spans:
        label = "" if span.text in named else style.plain(span.text)
        named.add(span.text)
        ax.axvspan(span.start_s, span.end_s, color=state_colour(span.state), alpha=0.2,
                   linewidth=0, label=label)  # fmt: skip
    return ax


def size_state(size: int, full: int) -> str:
    """The state of an ISR by its size, one of `style.ISR_SIZES`."""
    missing = full - size
    names = [*style.ISR_SIZES]
    return names[0] if missing <= 0 else names[3] if size <= 1 else names[min(missing, 2)]


def stack(ax: Axes, spans: Iterable[Span]) -> np.ndarray:
    """Plot how many partitions have a short ISR, over time (s); returns int[moments]. Partitions in
    an unknown state are hatched above, and do not count."""
    ends: dict[str, list[tuple[float, float]]] = {name: [] for name in (*style.ISR_SIZES, HATCHED)}
    for span in spans:
        ends[span.state].append((span.start_s, span.end_s))
    del ends[next(iter(ends))]  # full ISRs are not drawn
    times = np.unique([0.0, *(at for pairs in ends.values() for pair in pairs for at in pair)])
    counts = np.array([_at_once(times, pairs) for pairs in ends.values()])
    colours = [state_colour(state) for state in ends]
    labels = [state if pairs else "" for state, pairs in ends.items()]
    areas = ax.stackplot(times, counts, colors=colours, labels=labels, step="post")
    areas[-1].set(hatch="////", edgecolor=style.GREY, linewidth=0)
    total = counts.sum(axis=0)  # the outline keeps short spans visible
    ax.plot(times, total, color=style.GREY, linewidth=0.8, drawstyle="steps-post", zorder=0)
    ax.set(ylabel="partitions", ylim=(0, max(1.0, 1.15 * float(total.max()))))
    style.legend_below(ax)
    return counts[:-1].sum(axis=0)


def _at_once(times: np.ndarray, spans: Sequence[tuple[float, float]]) -> np.ndarray:
    """The number of spans at each of these moments: int64[time]."""
    starts, ends = np.sort(np.array(spans).reshape(-1, 2), axis=0).T
    return np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")
