"""Pictures of reading a log: the sparse index and the scan, who may read how far, shared bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from isrlab.closeups.segment import IndexEntry, LogRead, LogSegment, Lookup, Reader, SegmentedLog
from isrlab.show.style import INK, LOST, PALE, bare, broker_colour, plain

FOUND = broker_colour(1)
SCANNED = broker_colour(2)
CHOSEN = broker_colour(3)
MOST_LABELLED = 40  # batches in one picture that still have room for their offsets
_READERS = {
    Reader.FOLLOWER: ("follower", "LEO"),
    Reader.CONSUMER: ("consumer", "HW"),
    Reader.READ_COMMITTED: ("consumer,\nread_committed", "LSO"),
    Reader.DEBUGGING: ("debugging\nconsumer", "LEO"),
}


def plot_lookup(segment: LogSegment, target: int, *, ax: Axes | None = None) -> Axes:
    """The index above the file: the entry chosen for `target`, and the batches scanned from there.

    The width of a batch is its bytes; its text is the offsets in it. Offsets are 0-based.
    """
    ax = ax or plt.subplots(figsize=(11, 2.9))[1]
    lookup = segment.locate(target)
    _draw_file(ax, segment, lookup)
    _draw_index(ax, segment, lookup)
    if lookup:
        _draw_scan(ax, segment, lookup, target)
    ax.set_xlim(-0.085 * segment.size_bytes, segment.size_bytes * 1.015)
    ax.set_ylim(-0.75, 2.55)
    ax.set_yticks([])
    ax.set_xlabel("byte position in the file", fontsize=8)
    ax.tick_params(axis="x", labelsize=8)
    bare(ax, "bottom")
    ax.set_title(lookup_finding(segment, target), fontsize=11, loc="left", color=INK)
    return ax


def lookup_finding(segment: LogSegment, target: int) -> str:
    """How an offset was found, in one sentence."""
    lookup = segment.locate(target)
    if lookup is None:
        return f"Offset {target}: nothing is at or behind it in this segment"
    entry = lookup.entry
    start = f"entry {entry.offset} \N{RIGHTWARDS ARROW} byte {entry.position}"
    if not _is_entry(segment, entry):
        start = "no entry is that small: from the start of the file"
    count = lookup.batches_scanned
    batches = f"{count} batch{'es' if count > 1 else ''} looked at"
    return f"Offset {target}: {start}, {batches} (without an index {lookup.found + 1})"


def _is_entry(segment: LogSegment, entry: IndexEntry) -> bool:
    return entry in segment.index.entries


def _draw_file(ax: Axes, segment: LogSegment, lookup: Lookup | None) -> None:
    ax.text(-0.08 * segment.size_bytes, 0.4, "file", va="center", color=INK)
    for number, (position, batch) in enumerate(
        zip(segment.positions, segment.batches, strict=True)
    ):
        is_found = lookup is not None and number == lookup.found
        is_scanned = lookup is not None and lookup.first_scanned <= number < lookup.found
        colour = FOUND if is_found else SCANNED if is_scanned else "white"
        ax.add_patch(
            Rectangle(
                (position, 0),
                batch.size_bytes,
                0.8,
                facecolor=to_rgba(colour, 0.85 if is_found else 0.35),
                edgecolor=INK,
                linewidth=0.8,
            )
        )
        if len(segment.batches) <= MOST_LABELLED:
            one = batch.base_offset == batch.last_offset
            text = str(batch.last_offset) if one else f"{batch.base_offset}-{batch.last_offset}"
            ax.text(
                position + batch.size_bytes / 2,
                0.4,
                text,
                ha="center",
                va="center",
                rotation=90 if len(segment.batches) > 14 else 0,
                fontsize=8,
                color="white" if is_found else INK,
            )


def _draw_index(ax: Axes, segment: LogSegment, lookup: Lookup | None) -> None:
    """One box for each entry, over the byte it points at; and the start of the file."""
    ax.text(-0.08 * segment.size_bytes, 2.0, "index", va="center", color=INK)
    entries = segment.index.entries
    starts = [(e.position, str(e.offset), lookup and e == lookup.entry) for e in entries]
    if lookup and not _is_entry(segment, lookup.entry):
        starts.insert(0, (0, "none", True))
    for position, text, is_chosen in starts:
        colour = CHOSEN if is_chosen else PALE
        ax.annotate(
            "",
            (position, 0.82),
            (position, 1.75),
            arrowprops={
                "arrowstyle": "-|>",
                "color": CHOSEN if is_chosen else "#AAAAAA",
                "linewidth": 2.0 if is_chosen else 0.8,
            },
        )
        ax.text(
            position,
            2.0,
            text,
            ha="center",
            va="center",
            fontsize=9,
            fontweight="bold" if is_chosen else "normal",
            color="white" if is_chosen else INK,
            bbox={"facecolor": colour, "edgecolor": INK, "linewidth": 0.7, "pad": 3.5},
        )


def _draw_scan(ax: Axes, segment: LogSegment, lookup: Lookup, target: int) -> None:
    """An arrow under the batches that were looked at, up to the one with the target."""
    start = segment.positions[lookup.first_scanned]
    found = segment.batches[lookup.found]
    middle = segment.positions[lookup.found] + found.size_bytes / 2
    ax.annotate(
        "",
        (middle, -0.2),
        (start, -0.2),
        arrowprops={"arrowstyle": "-|>", "color": SCANNED, "linewidth": 2},
    )
    is_right = middle > 0.75 * segment.size_bytes
    ax.text(
        middle,
        -0.5,
        f"scan: {lookup.batches_scanned} of {len(segment.batches)} batches, offset {target} found",
        ha="right" if is_right else "left" if middle < 0.25 * segment.size_bytes else "center",
        va="center",
        fontsize=8,
        color=INK,
    )


def lookup_slider(segment: LogSegment) -> widgets.VBox:
    """A slider through the offsets of a segment, redrawn as the reader moves it."""
    picture = widgets.Image(format="png", layout=widgets.Layout(max_width="900px"))
    slider = widgets.IntSlider(
        value=segment.base_offset,
        min=segment.base_offset,
        max=segment.next_offset - 1,
        description="offset",
        layout=widgets.Layout(width="620px"),
    )
    cache: dict[int, bytes] = {}

    def draw(target: int) -> None:
        if target not in cache:
            figure = Figure(figsize=(11, 2.9), dpi=85)
            plot_lookup(segment, target, ax=figure.subplots())
            cache[target] = png(figure)
        picture.value = cache[target]

    slider.observe(lambda change: draw(change["new"]), names="value")
    draw(slider.value)
    return widgets.VBox([slider, picture])


def png(figure: Figure) -> bytes:
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def scan_lengths(segment: LogSegment) -> list[int]:
    """For each offset of the segment, how many batches are looked at to find it."""
    offsets = range(segment.base_offset, segment.next_offset)
    return [lookup.batches_scanned for o in offsets if (lookup := segment.locate(o))]


def plot_scans(segments: dict[str, LogSegment], *, ax: Axes | None = None) -> Axes:
    """Batches looked at for each offset, one line for each segment (its label is the key)."""
    ax = ax or plt.subplots(figsize=(9, 3.4))[1]
    styles = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
    means = {}
    for number, (label, segment) in enumerate(segments.items()):
        lengths = scan_lengths(segment)
        means[label] = sum(lengths) / len(lengths)
        ax.step(
            range(segment.base_offset, segment.next_offset),
            lengths,
            where="mid",
            color=broker_colour(number + 1),
            linestyle=styles[number % len(styles)],
            linewidth=1.8,
            label=plain(f"{label}  (mean {means[label]:.1f})"),
        )
    ax.set_xlabel("offset looked for")
    ax.set_ylabel("batches looked at")
    ax.set_ylim(0, None)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    bare(ax, "left", "bottom")
    least, most = min(means, key=lambda k: means[k]), max(means, key=lambda k: means[k])
    finding = f"{most}: {means[most]:.1f} batches for an offset; {least}: {means[least]:.1f}"
    ax.set_title(plain(finding), fontsize=11, loc="left", color=INK)
    return ax


# Who may read how far


def plot_readers(log: SegmentedLog, reads: Sequence[LogRead], *, ax: Axes | None = None) -> Axes:
    """A bar for what each reader got, and the offset it may not pass. Offsets are exclusive ends.

    The log end offset is a solid line, the high watermark dashed, the last stable offset dotted.
    """
    ax = ax or plt.subplots(figsize=(10, 1.5 + 0.55 * len(reads)))[1]
    batches = [batch for segment in log.segments for batch in segment.batches]
    for batch in batches:
        is_open = batch.last_offset >= log.high_watermark
        ax.add_patch(
            Rectangle(
                (batch.base_offset, -0.32),
                batch.last_offset + 1 - batch.base_offset,
                0.64,
                facecolor="white" if is_open else to_rgba(FOUND, 0.2),
                edgecolor=FOUND,
                linewidth=0.9,
                hatch="////" if is_open else None,
            )
        )
    for row, read in enumerate(reads, start=1):
        _draw_reader(ax, row, read, batches[-1].last_offset + 1)
    _draw_bounds(ax, log, len(reads))
    names = ["log"] + [_READERS[read.reader][0] for read in reads]
    ax.set_yticks(range(len(names)), names, fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(log.log_start_offset - 0.5, log.log_end_offset * 1.02 + 0.5)
    ax.set_ylim(len(reads) + 0.5, -1.15)
    ax.set_xlabel("offset", fontsize=9)
    bare(ax, "bottom")
    ax.set_title(plain(readers_finding(reads)), fontsize=11, loc="left", color=INK, pad=12)
    return ax


def _draw_reader(ax: Axes, row: int, read: LogRead, end: int) -> None:
    colour = broker_colour(row)
    if read.batches:
        first, last = read.batches[0].base_offset, read.batches[-1].last_offset + 1
        ax.barh(row, last - first, left=first, height=0.5, color=to_rgba(colour, 0.75))
        text = f"gets {first} to {last - 1}, may not pass the {_READERS[read.reader][1]}"
        is_beside = last - first < 0.45 * end < first
        x, side = (first - 0.008 * end, "right") if is_beside else (first + 0.008 * end, "left")
        box = {"facecolor": "white" if is_beside else "none", "edgecolor": "none", "pad": 1}
        ax.text(x, row, text, va="center", ha=side, fontsize=8.5, color="black", zorder=5, bbox=box)
    else:
        text = read.error or f"gets nothing from offset {read.start} on"
        ax.plot(read.start, row, marker="x", color=LOST, markersize=9, markeredgewidth=2)
        is_right = read.start > 0.6 * end
        ax.text(
            read.start + (-0.015 if is_right else 0.015) * end,
            row,
            text,
            va="center",
            ha="right" if is_right else "left",
            fontsize=8.5,
            color=LOST,
            zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )


def _draw_bounds(ax: Axes, log: SegmentedLog, rows: int) -> None:
    """Labels of bounds that coincide stand one above the other."""
    bounds = [
        ("LEO", log.log_end_offset, "-"),
        ("HW", log.high_watermark, (0, (4, 2))),
        ("LSO", log.last_stable_offset, (0, (1, 1.5))),
    ]
    if not log.rules.has_read_committed:
        bounds.pop()
    labels: dict[int, str] = {}
    for name, offset, style in bounds:
        ax.plot([offset] * 2, [-0.55, rows + 0.45], color=INK, linestyle=style, linewidth=1.6)
        labels[offset] = f"{labels[offset]} = {name}" if offset in labels else name
    for offset, name in labels.items():
        ax.text(offset, -0.65, f"{name} {offset}", ha="center", va="bottom", fontsize=9, color=INK)


def readers_finding(reads: Sequence[LogRead]) -> str:
    """How many records the same fetch brings each reader, in one sentence."""
    parts: dict[int, list[str]] = {}
    for read in reads:
        count = read.batches[-1].last_offset + 1 - read.start if read.batches else 0
        name = _READERS[read.reader][0].replace("\n", " ").removeprefix("consumer, ")
        parts.setdefault(count, []).append(name)
    texts = [f"{' and '.join(names)} {count}" for count, names in parts.items()]
    return f"Records for the same fetch at offset {reads[0].start}: {', '.join(texts)}"


# Bytes of a response


def plot_response(
    names: Sequence[str],
    reads: Sequence[LogRead],
    response_max_bytes: int,
    *,
    ax: Axes | None = None,
) -> Axes:
    """What each partition got of one response, one behind the other in the order of the request.

    Sizes are bytes. Hatched is a batch that was cut: it is sent, and thrown away. What goes beyond
    the limit has a red ground: at most one batch, and only for the first that has data.
    """
    ax = ax or plt.subplots(figsize=(9, 1.3 + 0.5 * len(names)))[1]
    filled = 0
    for row, read in enumerate(reads):
        filled += _draw_share(ax, row, read, filled)
    if filled > response_max_bytes:
        ax.axvspan(response_max_bytes, filled, color=to_rgba(LOST, 0.15), linewidth=0)
    ax.axvline(response_max_bytes, color=LOST, linewidth=1.5, linestyle=(0, (4, 2)))
    ax.text(response_max_bytes, -0.68, "limit of the response", fontsize=8, color=LOST, ha="center")
    ax.set_yticks(range(len(names)), [plain(n) for n in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(0, max(filled, response_max_bytes) * 1.5)
    ax.set_xlabel("bytes in the response")
    bare(ax, "left", "bottom")
    served = sum(bool(read.batches) for read in reads)
    useful = sum(b.size_bytes for read in reads for b in read.batches)
    finding = f"{served} of {len(names)} partitions get data; {filled} bytes sent, {useful} of use"
    ax.set_title(finding, fontsize=11, loc="left", color=INK, pad=20)
    return ax


def _draw_share(ax: Axes, row: int, read: LogRead, start: int) -> int:
    """One partition's bytes from `start` on; returns how many there are."""
    sizes = [b.size_bytes for b in read.batches]
    colour = to_rgba(broker_colour(row + 1), 0.6)
    left = start
    for size in sizes:
        ax.barh(row, size, left=left, color=colour, edgecolor="white")
        left += size
    total = read.found.size_bytes if read.found else 0
    cut = total - sum(sizes)
    if cut:
        ax.barh(row, cut, left=left, color="white", edgecolor=colour, hatch="////")
    text = f"{len(sizes)} batch{'es' if len(sizes) != 1 else ''}, {sum(sizes)} bytes"
    text += f"; {cut} bytes of a cut one" if cut else ""
    ax.annotate(
        text if total else "nothing",
        (start + total, row),
        (6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )
    return total
