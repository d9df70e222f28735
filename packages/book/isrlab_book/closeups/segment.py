"""A log as files: segments of batches, the sparse offset index, and how far each reader may read.

Theory of operation. A log is a sequence of segments, each named by its base offset. A segment's
file holds batches; its index has the byte position of only a few of them, one for every
`index.interval.bytes` written. A read finds the greatest index entry up to the offset it wants by
a binary search (`search`), scans forward from there to the batch that contains it (`locate`), and
takes bytes up to the smallest of three limits: the size asked for, the end of the segment, the
reader's bound. Sizes and positions are bytes, offsets are 0-based, bounds are exclusive.

Left out: the time and transaction indexes, rolling by time, compaction, retention, throttling,
reading from a follower (KIP-392).

Source: LogSegment and OffsetIndex, 0.8.2.2, 0.10.2.2, 2.0.1 (Scala), 3.7.1 (Java); for 3.9.1,
4.0.1 and 4.1.0 the published class LogSegment; AbstractIndex 2.1.1:108-400; Log.scala 2.3.1:1233;
LocalLog.scala 3.7.1:355-407; UnifiedLog.scala 3.7.1:1234-1245.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

from isrlab.engine import versions

MOST_RELATIVE_OFFSET = 2**31 - 1  # an index entry keeps offset - base offset in 4 bytes
INDEX_ENTRY_BYTES = 8
MOST_INDEX_ENTRIES = 10 * 1024 * 1024 // INDEX_ENTRY_BYTES  # segment.index.bytes
WARM_ENTRIES = 8192 // INDEX_ENTRY_BYTES  # the end of the index, which is searched first (2.1)


class Reader(IntEnum):
    """The kinds of readers, which may read up to different bounds."""

    FOLLOWER = 0  # up to the log end offset: else nothing would ever be committed
    CONSUMER = 1  # up to the high watermark
    READ_COMMITTED = 2  # up to the last stable offset: no open transaction before it
    DEBUGGING = 3  # up to the log end offset; replica id -2


@dataclass(frozen=True, slots=True)
class ReadRules:
    """The rules of index writes and of reads that depend on the release."""

    indexes_last_offset: bool = True  # of a write; up to 1.1 its first offset (KAFKA-6530)
    bounds_by_position: bool = True  # 2.4: the reader's bound is a byte position, not an offset
    refuses_start_beyond_bound: bool = False  # up to 0.9; since then such a read gets nothing
    has_min_one_message: bool = True  # 0.10.1: a first batch of any size is read (KIP-74)
    has_read_committed: bool = True  # 0.11 (KIP-98)
    searches_warm_section: bool = True  # 2.1 (KAFKA-6432)
    indexes_each_batch: bool = False  # of a write: from 3.9.1, 4.0.1 and 4.1 on (KAFKA-806)

    @classmethod
    def of(cls, release: str) -> ReadRules:
        """The rules of a release ("0.10.1", "3.7"). Raises ValueError for an unknown release."""
        at = versions.release(release)
        bounds = at >= (2, 4), at < (0, 10), at >= (0, 10, 1), at >= (0, 11)
        each = (3, 9, 1) <= at < (4, 0) or at >= (4, 0, 1)
        return cls(at >= (2, 0), *bounds, at >= (2, 1), each)

    @property
    def readers(self) -> tuple[Reader, ...]:
        return tuple(r for r in Reader if r != Reader.READ_COMMITTED or self.has_read_committed)


class Batch(NamedTuple):
    """Records written together: one of them cannot be read without the others."""

    base_offset: int
    last_offset: int
    size_bytes: int


class IndexEntry(NamedTuple):
    """An entry of the sparse index: the byte position of a batch, and its last or first offset."""

    offset: int
    position: int


class Probe(NamedTuple):
    """A slot of the index that a search reads, and the range of slots that is left after it."""

    slot: int
    low: int  # -1: before the first entry
    high: int


class Lookup(NamedTuple):
    """The result of a search for an offset: the index entry, and the batches that were scanned."""

    entry: IndexEntry
    first_scanned: int  # number of the batch that the scan began at
    found: int  # number of the first batch that ends at or behind the offset

    @property
    def batches_scanned(self) -> int:
        return self.found - self.first_scanned + 1


class SegmentRead(NamedTuple):
    """The bytes of one read of one segment."""

    size_bytes: int
    batches: tuple[Batch, ...]  # complete ones; the reader cannot use the bytes of a partial batch


@dataclass(frozen=True, slots=True)
class LogSegment:
    """One file of batches and its index. `positions`: the byte at which each batch begins."""

    base_offset: int
    index_interval_bytes: int = 4096
    rules: ReadRules = ReadRules()
    max_index_entries: int = MOST_INDEX_ENTRIES
    batches: tuple[Batch, ...] = ()
    positions: tuple[int, ...] = ()
    index: tuple[IndexEntry, ...] = ()
    unindexed_bytes: int = 0  # written since the last index entry

    @property
    def size_bytes(self) -> int:
        return self.positions[-1] + self.batches[-1].size_bytes if self.batches else 0

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset

    def append(self, *batches: Batch) -> LogSegment:
        """The segment with one more write, of one batch (a leader) or several (a follower).

        Each batch of a write gets an entry if more than the interval has been written since the
        last entry; in older releases only the whole write does, so followers' indexes are sparser.
        Raises ValueError for offsets that do not grow, or overflow the 4 bytes of an index entry,
        and if the index is full.
        Source: LogSegment.append 0.10.2.2:101-125, 2.0.1:124-150, 3.7.1 (Java):245-275; 4.1.0.
        """
        last = batches[-1].last_offset
        if not 0 <= last - self.base_offset <= MOST_RELATIVE_OFFSET:
            raise ValueError(f"offset {last} is too far above base offset {self.base_offset}")
        if batches[0].base_offset < self.next_offset:
            raise ValueError(f"offset {batches[0].base_offset} has been written already")
        index, since = self.index, self.unindexed_bytes
        *starts, _ = accumulate((b.size_bytes for b in batches), initial=self.size_bytes)
        each = self.rules.indexes_each_batch
        for place, part in enumerate((b,) for b in batches) if each else ((0, batches),):
            if since > self.index_interval_bytes:
                if len(index) == self.max_index_entries:
                    raise ValueError(f"the index is full ({len(index)} entries)")
                index, since = (*index, self._entry(starts[place], *part)), 0
            since += sum(batch.size_bytes for batch in part)
        written = replace(self, batches=self.batches + batches, unindexed_bytes=since)
        return replace(written, index=index, positions=(*self.positions, *starts))

    def _entry(self, position: int, *batches: Batch) -> IndexEntry:
        first, last = batches[0].base_offset, batches[-1].last_offset
        return IndexEntry(last if self.rules.indexes_last_offset else first, position)

    def search(self, target: int) -> list[Probe]:
        """The binary search for the greatest entry up to `target`, probe by probe.

        From 2.1 on it begins where the last `WARM_ENTRIES` do, and stays among them if it can.
        Source: indexSlotRangeFor, AbstractIndex 2.0.1:309-334, 2.1.1:356-400.
        """
        index, low, high, probes = self.index, -1, len(self.index) - 1, list[Probe]()
        if not index:
            return probes
        if self.rules.searches_warm_section:
            warm = max(0, high - WARM_ENTRIES)
            low, high = (warm, high) if index[warm].offset < target else (low, warm)
            probes.append(Probe(warm, low, high))
        if low < 0:
            low, high = (-1, -1) if index[0].offset > target else (0, high)
            probes.append(Probe(0, low, high))
        while low < high:
            middle = (low + high + 1) // 2
            offset = index[middle].offset
            low = middle if offset <= target else low
            high = high if offset < target else middle - (offset > target)
            probes.append(Probe(middle, low, high))
        return probes

    def lookup(self, target: int) -> IndexEntry:
        """The greatest index entry up to `target`; the start of the file if there is none."""
        probes = self.search(target)
        is_above = not probes or probes[-1].low < 0
        return IndexEntry(self.base_offset, 0) if is_above else self.index[probes[-1].low]

    def locate(self, offset: int) -> Lookup | None:
        """The first batch that ends at or behind `offset`, if any: index entry, then scan.

        Raises ValueError if the index points between two batches. Source: translateOffset.
        """
        entry = self.lookup(offset)
        if self.batches and entry.position not in self.positions:
            raise ValueError(f"corrupt index: no batch begins at byte {entry.position}")
        first = bisect.bisect_left(self.positions, entry.position)
        for number, batch in enumerate(self.batches[first:], start=first):
            if batch.last_offset >= offset:
                return Lookup(entry, first, number)
        return None

    def read(
        self, start: int, max_bytes: int, end: int | None = None, min_one_message: bool = False
    ) -> SegmentRead | None:
        """Bytes from the batch with `start` on, up to the byte `end`; the last batch may be cut.

        None: nothing is at or behind `start`. Raises ValueError for `max_bytes` below 0.
        """
        if max_bytes < 0:
            raise ValueError(f"invalid max size {max_bytes}")
        lookup = self.locate(start)
        if lookup is None:
            return None
        position, batches = self.positions[lookup.found], self.batches[lookup.found :]
        limit = max(max_bytes, batches[0].size_bytes) if min_one_message else max_bytes
        size = max(0, min((self.size_bytes if end is None else end) - position, limit))
        ends = accumulate(b.size_bytes for b in batches)
        whole = tuple(b for b, end in zip(batches, ends, strict=True) if end <= size)
        return SegmentRead(size, whole)

    def truncate_to(self, offset: int) -> LogSegment:
        """The segment without the batch that contains `offset`, and without all behind it.

        The interval of the index counts from 0 again. Source: truncateTo 3.7.1 (Java):556-590.
        """
        lookup = self.locate(offset)
        kept = len(self.batches) if lookup is None else lookup.found
        index = tuple(entry for entry in self.index if entry.offset < offset)
        batches, positions = self.batches[:kept], self.positions[:kept]
        return replace(self, batches=batches, positions=positions, index=index, unindexed_bytes=0)

    def recover(self) -> LogSegment:
        """The segment with its index rebuilt from the file, with entries for single batches.

        Source: LogSegment.recover 0.10.2.2:215-255, 3.7.1 (Java):480-540.
        """
        index, indexed = list[IndexEntry](), 0
        for position, batch in zip(self.positions, self.batches, strict=True):
            if position - indexed > self.index_interval_bytes:
                index, indexed = [*index, self._entry(position, batch)], position
        return replace(self, index=tuple(index))


class LogRead(NamedTuple):
    """The result of a read: bytes and batches, or an error."""

    reader: Reader
    start: int
    bound: int  # exclusive
    error: str | None = None
    size_bytes: int = 0
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentedLog:
    """A sequence of segments, and the offsets that bound its readers."""

    segments: tuple[LogSegment, ...]
    rules: ReadRules = ReadRules()
    segment_bytes: int = 1024**3
    log_start_offset: int = 0
    high_watermark: int = 0
    open_transaction: int | None = None  # the first offset of the oldest one

    @classmethod
    def empty(
        cls, release: str = "3.7", index_interval_bytes: int = 4096, segment_bytes: int = 1024**3
    ) -> SegmentedLog:
        rules = ReadRules.of(release)
        first = LogSegment(0, index_interval_bytes, rules)
        return cls((first,), rules, segment_bytes)

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].next_offset

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, but never above the high watermark."""
        opened = self.open_transaction
        return self.high_watermark if opened is None else min(opened, self.high_watermark)

    def bound(self, reader: Reader) -> int:
        """The offset that `reader` may read up to; raises ValueError if there is no such reader."""
        if reader not in self.rules.readers:
            raise ValueError(f"this release has no reader {reader.name}")
        if reader == Reader.READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if reader == Reader.CONSUMER else self.log_end_offset

    def append(self, *batches: Batch) -> SegmentedLog:
        """The log with one more write, in a new segment if the last one has no room for it.

        Source: shouldRoll, LogSegment 2.0.1:65-73, 3.7.1 (Java):172-178 (size, index full, offset).
        """
        *older, active = self.segments
        is_far = batches[-1].last_offset - active.base_offset > MOST_RELATIVE_OFFSET
        is_large = active.size_bytes + sum(b.size_bytes for b in batches) > self.segment_bytes
        is_full = len(active.index) == active.max_index_entries
        if active.batches and (is_far or is_large or is_full):
            options = active.index_interval_bytes, active.rules
            older.append(active)
            active = LogSegment(batches[0].base_offset, *options, active.max_index_entries)
        return replace(self, segments=(*older, active.append(*batches)))

    def place_of(self, offset: int) -> tuple[int, int]:
        """(base offset of the segment, byte position) of an offset of the log or of its end."""
        for segment in self._from(offset):
            if lookup := segment.locate(offset):
                return segment.base_offset, segment.positions[lookup.found]
        return self.segments[-1].base_offset, self.segments[-1].size_bytes

    def _from(self, offset: int) -> Sequence[LogSegment]:
        """The segment that `offset` belongs to, and those after it."""
        later = bisect.bisect_right(self.segments, offset, key=lambda s: s.base_offset)
        return self.segments[max(0, later - 1) :]

    def read(
        self, reader: Reader, start: int, max_bytes: int, *, min_one_message: bool = True
    ) -> LogRead:
        """Read for `reader` from `start` on; `min_one_message` has no effect before KIP-74.

        Errors: OFFSET_OUT_OF_RANGE outside the log; up to 0.9 UNKNOWN for a start beyond the bound.
        """
        rules, bound = self.rules, self.bound(reader)
        answer = LogRead(reader, start, bound)
        if not self.log_start_offset <= start <= self.log_end_offset:
            return answer._replace(error="OFFSET_OUT_OF_RANGE")
        if rules.refuses_start_beyond_bound and bound < start < self.log_end_offset:
            return answer._replace(error="UNKNOWN")
        if start >= bound:
            return answer
        base, position = self.place_of(bound)
        may_exceed = min_one_message and rules.has_min_one_message
        for segment in self._from(start):
            end = position if base == segment.base_offset else None
            if not rules.bounds_by_position:
                last = segment.locate(bound)
                end = segment.positions[last.found] if last else None
            if read := segment.read(start, max_bytes, end, may_exceed):
                return answer._replace(size_bytes=read.size_bytes, batches=read.batches)
        return answer


def read_partitions(
    asked: Sequence[tuple[SegmentedLog, Reader, int, int]], response_max_bytes: int
) -> tuple[LogRead, ...]:
    """Read (log, reader, start, max bytes) one after the other; they share the response's bytes.

    Only the first that finds anything may exceed the limits, to return one batch; one whose first
    batch does not fit gets nothing. Before KIP-74 there was no limit for the response.
    Source: readFromLocalLog, RM 0.10.2.2:598-610.
    """
    answers, left = list[LogRead](), response_max_bytes
    for log, reader, start, max_bytes in asked:
        is_shared, is_first = log.rules.has_min_one_message, not any(a.size_bytes for a in answers)
        limit = min(max_bytes, left) if is_shared else max_bytes
        answer = log.read(reader, start, limit, min_one_message=is_first)
        if is_shared and not answer.batches:
            answer = answer._replace(size_bytes=0)
        left = max(0, left - answer.size_bytes)
        answers.append(answer)
    return tuple(answers)
