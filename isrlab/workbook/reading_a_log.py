"""06: the sparse index and the scan, who may read how far, and bytes that partitions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.ticker import MaxNLocator

from isrlab.closeups.segment import LogRead, LogSegment, Reader, SegmentedLog
from isrlab.show import controls, style
from isrlab.show.curves import Curve, Scale, plot_curves

MOST_LABELLED = 40  # batches in one picture that still have room for their offsets
READERS = {  # who reads, and the bound that it may not pass
    Reader.FOLLOWER: ("follower", "LEO"),
    Reader.CONSUMER: ("consumer", "HW"),
    Reader.READ_COMMITTED: ("read_committed", "LSO"),
    Reader.DEBUGGING: ("debugging consumer", "LEO"),
}
_ON_WHITE = {"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.8}


def plot_lookup(segment: LogSegment, target: int, *, ax: Axes | None = None) -> Axes:
    """The index above the file: the entry chosen for `target`, and the batches scanned from there.

    The width of a batch is its bytes; its text is the offsets in it. Offsets are 0-based.
    """
    ax, lookup = ax or style.axes(11, 2.9), segment.locate(target)
    first, last = (lookup.first_scanned, lookup.found) if lookup else (0, -1)
    for number, (start, batch) in enumerate(zip(segment.positions, segment.batches, strict=True)):
        is_found, is_scanned = number == last, first <= number < last
        colour = to_rgba(
            style.BLUE if is_found else style.ORANGE if is_scanned else style.WHITE,
            0.4 + 0.5 * is_found,
        )
        ax.barh(0.4, batch.size_bytes, 0.8, start, color=colour, edgecolor=style.INK, linewidth=0.8)
        if len(segment.batches) <= MOST_LABELLED:
            ends = dict.fromkeys([batch.base_offset, batch.last_offset])
            ax.text(start + batch.size_bytes / 2, 0.4, "-".join(map(str, ends)), ha="center",
                    va="center", rotation=90 if len(segment.batches) > 14 else 0, fontsize=8,
                    color=style.WHITE if is_found else style.INK)  # fmt: skip
    entries = [
        (e.position, str(e.offset), lookup and e == lookup.entry) for e in segment.index.entries
    ]
    if lookup and lookup.entry not in segment.index.entries:
        entries.insert(0, (0, "none", True))
    for position, text, is_chosen in entries:
        ax.annotate(
            text, (position, 0.8), (position, 2), ha="center", va="center", fontsize=9,
            color=style.WHITE if is_chosen else style.INK,
            bbox={"facecolor": style.GREEN if is_chosen else style.PALE, "linewidth": 0.7},
            arrowprops={"arrowstyle": "-|>", "color": style.GREEN if is_chosen else style.GREY,
                        "linewidth": 2 if is_chosen else 0.8},
        )  # fmt: skip
    if lookup:
        start, end = segment.positions[first], segment.positions[last]
        middle = end + segment.batches[last].size_bytes / 2
        arrow = {"arrowstyle": "-|>", "color": style.ORANGE, "linewidth": 2}
        ax.annotate("", (middle, -0.2), (start, -0.2), arrowprops=arrow)
        side = "right" if middle > 0.75 * segment.size_bytes else "left"
        ax.text(middle, -0.5, f"scan: {lookup.batches_scanned} of {len(segment.batches)} batches, "
                f"offset {target} found", ha=side, va="center", fontsize=8)  # fmt: skip
    ax.set_xlim(-0.03 * segment.size_bytes, segment.size_bytes * 1.015)
    ax.set_ylim(-0.75, 2.4)
    ax.set_yticks([0.4, 2], ["file", "index"])
    ax.set_xlabel("byte position in the file")
    return style.finish(ax, lookup_finding(segment, target), spines=("bottom",))


def lookup_finding(segment: LogSegment, target: int) -> str:
    """How an offset was found, in one sentence."""
    lookup = segment.locate(target)
    if lookup is None:
        return f"Offset {target}: nothing is at or behind it in this segment"
    start = f"entry {lookup.entry.offset} \N{RIGHTWARDS ARROW} byte {lookup.entry.position}"
    if lookup.entry not in segment.index.entries:
        start = "no entry is that small: from the start of the file"
    batches = "1 batch" if lookup.batches_scanned == 1 else f"{lookup.batches_scanned} batches"
    return f"Offset {target}: {start}, {batches} checked (without an index {lookup.found + 1})"


def lookup_slider(segment: LogSegment) -> widgets.VBox:
    """A slider through the offsets of a segment, redrawn as the reader moves it."""
    slider = widgets.IntSlider(
        value=segment.base_offset, min=segment.base_offset, max=segment.next_offset - 1,
        description="offset", layout=widgets.Layout(width="620px"),
    )  # fmt: skip
    return controls.redrawn((slider,), lambda: plot_lookup(segment, slider.value))


def scan_lengths(segment: LogSegment) -> list[int]:
    """For each offset of the segment, how many batches are checked to find it."""
    offsets = range(segment.base_offset, segment.next_offset)
    return [lookup.batches_scanned for o in offsets if (lookup := segment.locate(o))]


def plot_scans(segments: Mapping[str, LogSegment]) -> Axes:
    """Batches checked for each offset, one line for each segment (its label is the key)."""
    lengths = {label: scan_lengths(segment) for label, segment in segments.items()}
    means = {label: sum(counts) / len(counts) for label, counts in lengths.items()}
    curves = {
        f"{label}  (mean {means[label]:.1f})": Curve(
            range(segments[label].base_offset, segments[label].next_offset), counts,
            look=(style.SERIES[nth], "o"), style=("-", "--", ":")[nth % 3], is_step=True,
        )
        for nth, (label, counts) in enumerate(lengths.items())
    }  # fmt: skip
    most, least = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    finding = f"{most}: {means[most]:.1f} batches for an offset; {least}: {means[least]:.1f}"
    scales = Scale("offset looked for"), Scale("batches checked")
    ax = plot_curves(curves, finding, scales, ax=style.axes(9, 3.6))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def plot_readers(log: SegmentedLog, reads: Sequence[LogRead]) -> Axes:
    """A bar for what each reader got, and the offset it may not pass. Offsets are exclusive ends.

    The log end offset is a solid line, the high watermark dashed, the last stable offset dotted.
    """
    ax = style.axes(10, 1.5 + 0.55 * len(reads))
    for batch in (batch for segment in log.segments for batch in segment.batches):
        is_open = batch.last_offset >= log.high_watermark
        ax.barh(0, batch.last_offset + 1 - batch.base_offset, 0.64, batch.base_offset,
                color=to_rgba(style.BLUE, 0 if is_open else 0.2), edgecolor=style.BLUE,
                hatch="////" if is_open else None)  # fmt: skip
    for row, read in enumerate(reads, start=1):
        text, is_right = f"gets nothing from offset {read.start} on", read.start > 0.6 * read.bound
        if read.batches:
            first, last = read.batches[0].base_offset, read.batches[-1].last_offset
            ax.barh(row, last + 1 - first, 0.5, first, color=to_rgba(style.SERIES[row % 6], 0.6))
            text = f"gets {first} to {last}, may not pass the {READERS[read.reader][1]}"
        else:
            ax.plot(read.start, row, marker="x", color=style.LOST, markersize=9, markeredgewidth=2)
        ax.annotate(read.error or text, (read.start, row), (-9 if is_right else 9, 0), va="center",
                    textcoords="offset points", ha="right" if is_right else "left", fontsize=8.5,
                    bbox=_ON_WHITE if is_right or not read.batches else None, zorder=5)  # fmt: skip
    bounds = {"LEO": (log.log_end_offset, "-"), "HW": (log.high_watermark, "--")}
    if log.rules.has_read_committed:
        bounds["LSO"] = (log.last_stable_offset, ":")
    for offset in {offset for offset, _ in bounds.values()}:
        names = [name for name in bounds if bounds[name][0] == offset]
        ends, line = [-0.5, len(reads) + 0.45], bounds[names[0]][1]
        ax.plot([offset] * 2, ends, color=style.INK, linestyle=line, zorder=0)
        ax.text(offset, -0.6, f"{' = '.join(names)} {offset}", ha="center", va="bottom", fontsize=9)
    ax.set_yticks(range(len(reads) + 1), ["log", *(READERS[read.reader][0] for read in reads)])
    ax.set_ylim(len(reads) + 0.5, -1.1)
    ax.set_xlabel("offset")
    return style.finish(ax, readers_finding(reads), spines=("bottom",))


def readers_finding(reads: Sequence[LogRead]) -> str:
    """How many records the same fetch brings each reader, in one sentence."""
    names: dict[int, list[str]] = {}
    for read in reads:
        count = read.batches[-1].last_offset + 1 - read.start if read.batches else 0
        names.setdefault(count, []).append(READERS[read.reader][0])
    texts = [f"{' and '.join(readers)} {count}" for count, readers in names.items()]
    return f"Records for the same fetch at offset {reads[0].start}: {', '.join(texts)}"


def plot_response(names: Sequence[str], reads: Sequence[LogRead], response_max_bytes: int) -> Axes:
    """What each partition got of one response, one behind the other in the order of the request.

    Sizes are bytes. Hatched is a batch that was cut: it is sent, and thrown away. What goes beyond
    the limit has a red ground: at most one batch, and only for the first that has data.
    """
    ax, filled, useful = style.axes(9, 1.3 + 0.5 * len(names)), 0, 0
    for row, read in enumerate(reads):
        colour, whole = to_rgba(style.SERIES[row % 6], 0.6), sum(b.size_bytes for b in read.batches)
        total, useful = read.found.size_bytes if read.found else 0, useful + whole
        left = filled
        for batch in read.batches:
            ax.barh(row, batch.size_bytes, left=left, color=colour, edgecolor=style.WHITE)
            left += batch.size_bytes
        text = f"{len(read.batches)} batch{'es' * (len(read.batches) != 1)}, {whole} bytes"
        if total > whole:
            ax.barh(
                row, total - whole, left=left, color=style.WHITE, edgecolor=colour, hatch="////"
            )
            text += f"; {total - whole} bytes of a cut one"
        filled += total
        ax.annotate(text if total else "nothing", (filled, row), (6, 0), va="center", fontsize=9,
                    textcoords="offset points", bbox=_ON_WHITE)  # fmt: skip
    if filled > response_max_bytes:
        ax.axvspan(response_max_bytes, filled, color=to_rgba(style.LOST, 0.15), linewidth=0)
    style.mark(ax, response_max_bytes, "limit of the response")
    ax.set_yticks(range(len(names)), [style.plain(name) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.85)
    ax.set_xlim(0, max(filled, response_max_bytes) * 1.5)
    ax.set_xlabel("bytes in the response")
    served = (
        f"{sum(bool(read.batches) for read in reads)} of {style.counted(len(names), 'partition')}"
    )
    return style.finish(ax, f"{served} get data; {filled} bytes sent, {useful} of use")
