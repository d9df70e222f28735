"""Notebook 06: the sparse index and the scan, and how far each reader may read.

The pictures are rows of spans, as in `show.bands`, along a file's bytes or a log's offsets.
"""

from collections.abc import Sequence

import ipywidgets as widgets
import pandas as pd
from matplotlib.axes import Axes

from isrlab.show import controls, style
from isrlab.show.bands import HATCHED, BandMark, Span, plot_bands
from isrlab_book.closeups import segment as seg

PAGE_BYTES = 4096  # of memory, the smallest on any machine that runs Kafka
READERS = {  # the name of each reader, and the bound that it may not pass
    seg.Reader.FOLLOWER: ("follower", "LEO"),
    seg.Reader.CONSUMER: ("consumer", "HW"),
    seg.Reader.READ_COMMITTED: ("read_committed", "LSO"),
    seg.Reader.DEBUGGING: ("debugging consumer", "LEO"),
}


def twenty_batches(
    release: str, index_interval_bytes: int = 400, together: int = 1
) -> seg.SegmentedLog:
    """Offsets 0 to 99 in batches of five, of different sizes; a write appends `together` batches.

    The index entries that this makes have been compared with those of Kafka 3.7.1 and 4.1.0.
    """
    log = seg.SegmentedLog.empty(release, index_interval_bytes=index_interval_bytes)
    batches = [seg.Batch(o, o + 4, size_bytes=90 + o * 37 % 110) for o in range(0, 100, 5)]
    for start in range(0, len(batches), together):
        log = log.append(*batches[start : start + together])
    return log


def plot_lookup(segment: seg.LogSegment, target: int) -> Axes:
    """The index above the file: the entry chosen for `target`, and the batches checked from there.

    The width of a batch shows its size in bytes; above it is its first offset. Offsets are 0-based.
    """
    lookup, size = segment.locate(target), segment.size_bytes
    entries, colours = list(segment.index), [style.PALE] * len(segment.batches)
    if lookup:
        entries = sorted({*entries, lookup.entry})
        checked = [style.ORANGE] * (lookup.batches_scanned - 1) + [style.BLUE]
        colours[lookup.first_scanned : lookup.found + 1] = checked
    file, texts, marks = list[Span](), list[BandMark](), list[BandMark]()
    for start, batch, colour in zip(segment.positions, segment.batches, colours, strict=True):
        texts.append(BandMark(start, "", style.INK, str(batch.base_offset)))
        file.append(Span(start, start + batch.size_bytes - size / 400, colour))
    for entry in entries:
        colour = style.GREEN if lookup and entry == lookup.entry else style.GREY
        text = str(entry.offset) if entry in segment.index else "none"
        marks.append(BandMark(entry.position, "v", colour, text))
    events = {"index": marks, "file": texts}
    legend = {style.ORANGE: "checked", style.BLUE: f"checked, and holds offset {target}"}
    rows, title = {"index": list[Span](), "file": file}, lookup_finding(segment, target)
    ax = plot_bands(rows, title, events=events, legend=legend, ax=style.axes(11, 2.4))
    ax.set(xlim=(-0.01 * size, size), xlabel="byte position in the file")
    return ax


def lookup_finding(segment: seg.LogSegment, target: int) -> str:
    """How an offset was found, in one sentence."""
    lookup = segment.locate(target)
    if lookup is None:
        return f"Offset {target}: nothing is at or behind it in this segment"
    start = f"entry {lookup.entry.offset} \N{RIGHTWARDS ARROW} byte {lookup.entry.position}"
    if lookup.entry not in segment.index:
        start = "no entry is that small: from the start of the file"
    batches = f"{lookup.batches_scanned} batch{'es' * (lookup.batches_scanned != 1)}"
    return f"Offset {target}: {start}, {batches} checked (without an index {lookup.found + 1})"


def lookup_slider(segment: seg.LogSegment) -> widgets.VBox:
    """A slider through a dozen offsets of a segment."""
    first, last = segment.base_offset, segment.next_offset - 1
    offsets = sorted({first + (last - first) * nth // 11 for nth in range(12)})
    slider = controls.choice("offset", offsets, first)
    return controls.LiveFigure((slider,), lambda offset: plot_lookup(segment, offset))


def plot_search(segment: seg.LogSegment, target: int) -> Axes:
    """The probes of a binary search in the index; grey is where the entry can be after each."""
    rows, events, notes = dict[str, list[Span]](), dict[str, list[BandMark]](), dict[str, str]()
    for nth, probe in enumerate(segment.search(target), start=1):
        offset, name = segment.index[probe.slot].offset, f"probe {nth}"
        rows[name] = [Span(probe.low, probe.high + 1, style.PALE)]
        events[name] = [BandMark(probe.slot + 0.5, "o", style.INK, str(offset))]
        notes[name] = "above it" if offset > target else "not above it"
    entry = segment.lookup(target)
    entry_text = f"entry {entry.offset}" if entry in segment.index else "none is that small"
    title = f"Offset {target}: {len(rows)} probes of an index of {len(segment.index)}, {entry_text}"
    legend = {style.PALE: "where the entry can be, after the probe"}
    ax = plot_bands(rows, title, events=events, notes=notes, legend=legend)
    slots = range(len(segment.index))
    ax.set_xticks([slot + 0.5 for slot in slots], [str(slot) for slot in slots])
    ax.set(xlim=(-0.1, len(slots)), xlabel="slot of the index")
    return ax


def search_costs(releases: Sequence[str], entries: int, targets: Sequence[int]) -> pd.DataFrame:
    """The cost of a binary search in an index of every offset: slots probed, and their pages."""
    index = tuple(seg.IndexEntry(number, 100 * number) for number in range(entries))
    rows = []
    for release in releases:
        segment = seg.LogSegment(0, rules=seg.ReadRules.of(release), index=index)
        for target in targets:
            slots = [probe.slot for probe in segment.search(target)]
            pages = {slot * seg.INDEX_ENTRY_BYTES // PAGE_BYTES for slot in slots}
            rows.append((release, target, len(slots), len(pages)))
    return pd.DataFrame(rows, columns=["release", "entry", "slots probed", "pages touched"])


def scan_lengths(segment: seg.LogSegment) -> list[int]:
    """For each offset of the segment, how many batches are checked to find it."""
    offsets = range(segment.base_offset, segment.next_offset)
    return [lookup.batches_scanned for o in offsets if (lookup := segment.locate(o))]


def plot_readers(log: seg.SegmentedLog, reads: Sequence[seg.LogRead]) -> Axes:
    """A bar for what each reader got, and the offset it may not pass. Offsets are exclusive ends.

    The log end offset is a solid line, the high watermark dashed, the last stable offset dotted.
    The title says how many records the same fetch brings each reader.
    """
    rows, events, notes = {"log": list[Span]()}, dict[str, list[BandMark]](), dict[str, str]()
    for batch in (batch for segment in log.segments for batch in segment.batches):
        state = HATCHED if batch.last_offset >= log.high_watermark else style.SKY
        rows["log"].append(Span(batch.base_offset, batch.last_offset + 0.8, state))
    readers: dict[int, list[str]] = {}
    for nth, read in enumerate(reads, start=1):
        (name, bound), end = READERS[read.reader], read.start
        if read.batches:
            first, end = read.batches[0].base_offset, read.batches[-1].last_offset + 1
            rows[name] = [Span(first, end, style.SERIES[nth % 6])]
            notes[name] = f"gets {first} to {end - 1}, may not pass the {bound}"
        else:
            rows[name], events[name] = [], [BandMark(read.start, "x", style.LOST)]
            notes[name] = read.error or f"gets nothing from offset {read.start} on"
        readers.setdefault(end - read.start, []).append(name)
    texts = [f"{' and '.join(names)} {count}" for count, names in readers.items()]
    title = f"Records for the same fetch at offset {reads[0].start}: {', '.join(texts)}"
    ax = plot_bands(rows, title, events=events, notes=notes, legend={HATCHED: "not committed"})
    bounds = {"LEO": (log.log_end_offset, "-"), "HW": (log.high_watermark, "--")}
    if log.rules.has_read_committed:
        bounds["LSO"] = (log.last_stable_offset, ":")
    for offset in {offset for offset, _ in bounds.values()}:
        names = [name for name in bounds if bounds[name][0] == offset]
        ax.axvline(offset, color=style.INK, linestyle=bounds[names[0]][1], ymax=0.9, zorder=0)
        ax.text(offset, -0.6, f"{' = '.join(names)} {offset}", ha="center", va="bottom", fontsize=9)
    ax.set(ylim=(len(reads) + 0.6, -1.1), xlabel="offset")
    return ax
