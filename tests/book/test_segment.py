"""Segments, the sparse index and bounded reads: Kafka's own cases, then properties.

J1 to J17 are cases of LogSegmentTest and OffsetIndexTest with their numbers; the ids are ours.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import matplotlib.pyplot as plt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isrlab.engine.versions import KafkaVersion
from isrlab_book.closeups import segment as s
from isrlab_book.closeups.segment import Batch, Reader, ReadRules, SegmentedLog
from isrlab_book.workbook import reading_a_log

RELEASES = ("0.8.2", "0.9.0", "0.10.0", "0.10.1", "0.11", "1.1", "2.0", "2.3", "2.4", "3.7")


def segment(base: int = 0, *batches: tuple[int, int, int], interval: int = 10) -> s.LogSegment:
    made = s.LogSegment(base, interval)
    for batch in batches:
        made = made.append(Batch(*batch))
    return made


def log(version: str = "3.7", count: int = 20, size: int = 100, **options: int) -> SegmentedLog:
    """A log of `count` batches of 5 records, with an index entry about every third batch."""
    made = SegmentedLog.empty(version, index_interval_bytes=250, **options)
    for first in range(0, 5 * count, 5):
        made = made.append(Batch(first, first + 4, size))
    return made


# J: Kafka's own cases

READS = {  # batches of a segment of base 40, start, size -> first offset read, or None
    "J1": ((), 40, 300, None),
    "before-first": (((50, 53, 80),), 41, 300, 50),
    "J3": (((50, 51, 40),), 52, 200, None),
    "gap": (((50, 51, 40), (60, 61, 40)), 55, 200, 60),
}


@pytest.mark.parametrize(("batches", "start", "size", "first"), READS.values(), ids=READS)
def test_read_of_a_segment(batches, start, size, first):
    read = segment(40, *batches).read(start, size)
    assert (read and read.batches[0].base_offset) == first


def test_j5_truncate():
    made = segment(40)
    for first in range(40, 70):
        made = made.append(Batch(first, first, 30)).append(Batch(first + 1, first + 1, 30))
        assert [b.base_offset for b in made.read(first, 900).batches] == [first, first + 1]
        made = made.truncate_to(first + 1)
        assert [b.base_offset for b in made.read(first, 900).batches] == [first]


def test_j7_next_offset():
    assert segment(40).next_offset == 40
    assert segment(40, (50, 52, 60)).next_offset == 53
    with pytest.raises(ValueError, match="written already"):
        segment(0, (0, 4, 10)).append(Batch(4, 5, 10))


def test_j9_recovery_mends_a_corrupt_index():
    made = segment(0, *((i, i, 70) for i in range(100)))
    corrupt = replace(made, index=(s.IndexEntry(3, 5),))
    with pytest.raises(ValueError, match="corrupt index"):
        corrupt.read(50, 1, min_one_message=True)
    mended = corrupt.recover()
    assert mended.index == made.index
    reads = [mended.read(offset, 1, min_one_message=True) for offset in range(100)]
    assert [[b.base_offset for b in read.batches] for read in reads] == [[i] for i in range(100)]


@pytest.mark.parametrize(
    ("base", "last"),
    [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (-(2**31), 0), (2**31, 2**32)],
)
def test_j11_offset_overflow(base, last):
    with pytest.raises(ValueError, match="too far above"):
        segment(base).append(Batch(0, last, 50))


def test_j13_lookup_at_the_ends():
    assert segment(45).lookup(45) == (45, 0)
    full = segment(45, *((46 + i, 46 + i, 1) for i in range(30)), interval=-1)
    assert (full.lookup(45), full.lookup(75)) == ((45, 0), (75, 29))
    with pytest.raises(ValueError, match="full"):
        replace(full, max_index_entries=30).append(Batch(76, 76, 1))


def test_j15_truncate_the_index():
    made = segment(0, *((i, i, 1) for i in range(1, 10)), interval=-1)
    for cut, last in ((12, 9), (10, 9), (9, 8), (5, 4)):
        made = made.truncate_to(cut)
        assert made.lookup(10) == made.index[-1] == (last, last - 1)
        made = made.append(Batch(last + 1, last + 1, 1))
    assert made.truncate_to(0).index == ()


# Index entries


@pytest.mark.parametrize(("version", "place"), [("0.8.2", 0), ("1.1", 0), ("2.0", 4)])
def test_index_key(version, place):
    """An entry holds the batch's first offset, since 2.0 its last; 300 bytes first exceed 250."""
    expected = [(5 * n + place, 100 * n) for n in (3, 6, 9, 12, 15, 18)]
    assert [*log(version).segments[0].index] == expected


def test_interval_is_strictly_exceeded():
    exact = segment(0, (0, 0, 250), (1, 1, 250), (2, 2, 250), interval=250)
    assert exact.index == ((2, 500),)  # the first batch is never indexed


# The index entries of Kafka's own LogSegment for the batches of notebook 06, written by tens
INDEXES = {  # of the published classes of 3.7.1 and 4.1.0
    "leader": ((24, 480), (39, 885), (54, 1305), (69, 1740), (84, 2190), (99, 2655)),
    "follower, 3.7": ((99, 1305),),
}


@pytest.mark.parametrize("release", ["0.8.2", "3.7", "3.9.0", "3.9.1", "4.0.0", "4.0.1", "4.1"])
def test_entries_for_a_write_of_many_batches(release):
    """A follower appends a whole fetch response: until KAFKA-806 its index is sparser."""
    rules = ReadRules.of(release)
    batches = [Batch(o, o + 4, 90 + o * 37 % 110) for o in range(0, 100, 5)]
    leader = follower = s.LogSegment(0, 400, rules)
    for batch in batches:
        leader = leader.append(batch)
    for first in range(0, 20, 10):
        follower = follower.append(*batches[first : first + 10])
    assert (leader.batches, leader.positions) == (follower.batches, follower.positions)
    assert follower.recover().index == leader.index
    if rules.indexes_last_offset:
        assert leader.index == INDEXES["leader"]
        has_806 = release in ("3.9.1", "4.0.1", "4.1")
        assert follower.index == INDEXES["leader" if has_806 else "follower, 3.7"]


# The binary search


@pytest.mark.parametrize(
    ("release", "target", "slots"),
    [
        ("2.0", -1, [0]),
        ("2.0", 4000, [0, 2000, 3000, 3500, 3750, 3875, 3938, 3969, 3985, 3993, 3997, 3999, 4000]),
        ("2.1", -1, [2976, 0]),
        ("2.1", 1488, [2976, 0, 1488]),
        ("2.1", 744, [2976, 0, 1488, 744]),
        ("2.1", 4000, [2976, 3488, 3744, 3872, 3936, 3968, 3984, 3992, 3996, 3998, 3999, 4000]),
    ],
)  # fmt: skip
def test_slots_that_a_search_probes(release, target, slots):
    """Derived by hand from indexSlotRangeFor, 2.0.1 and 2.1.1; the last 1,024 entries are warm."""
    entries = tuple(s.IndexEntry(i, 100 * i) for i in range(4001))
    made = s.LogSegment(0, rules=ReadRules.of(release), index=entries)
    assert [probe.slot for probe in made.search(target)] == slots
    assert made.lookup(target).offset == max(0, target)


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 3000), max_size=60), st.booleans(), st.integers(1, 9), st.data())
def test_search_finds_the_greatest_entry_up_to_the_target(offsets, is_warm, warm, data):
    entries = tuple(s.IndexEntry(o, o) for o in sorted(offsets))
    made = s.LogSegment(0, rules=ReadRules(searches_warm_section=is_warm), index=entries)
    target = data.draw(st.sampled_from(sorted(offsets)) | st.integers(-1, 3001)) if offsets else 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s, "WARM_ENTRIES", warm)
        assert made.lookup(target).offset == max((o for o in offsets if o <= target), default=0)


# Sizes


SIZE_LIMITS = {  # limit -> (whole batches, bytes); 250 bytes cut the third batch
    "3.7": {0: (1, 100), 1: (1, 100), 250: (2, 250)},
    "0.10.0": {0: (0, 0), 1: (0, 1), 250: (2, 250)},  # with 1 byte the reader is stuck
}


@pytest.mark.parametrize("version", SIZE_LIMITS)
def test_size_limit(version):
    for size, expected in SIZE_LIMITS[version].items():
        read = log(version).read(Reader.FOLLOWER, 7, size)
        assert (len(read.batches), read.size_bytes) == expected


@pytest.mark.parametrize(
    ("version", "limits", "response", "sizes"),
    [
        ("3.7", (300, 300, 300), 500, (300, 200, 0)),
        ("3.7", (300, 300, 300), 50, (100, 0, 0)),  # the first batch may exceed the limit
        ("3.7", (300, 300, 300), 350, (300, 0, 0)),  # no batch fits into the last 50 bytes
        ("3.7", (1, 1, 1), 1000, (100, 0, 0)),
        ("0.10.0", (300, 300, 300), 500, (300, 300, 300)),  # no limit for the response
    ],
)
def test_partitions_share_the_bytes_of_a_response(version, limits, response, sizes):
    asked = [(log(version), Reader.FOLLOWER, 0, limit) for limit in limits]
    answers = s.read_partitions(asked, response)
    assert tuple(a.size_bytes for a in answers) == sizes


def test_an_empty_partition_does_not_use_up_the_first_batch():
    asked = [(log(), Reader.FOLLOWER, 100, 10), (log(), Reader.FOLLOWER, 0, 10)]
    assert [len(a.batches) for a in s.read_partitions(asked, 10)] == [0, 1]


# Bounds

BOUNDED = {"high_watermark": 70, "open_transaction": 40}


@pytest.mark.parametrize("version", RELEASES)
def test_readers_stop_at_their_bound(version):
    made = replace(log(version), **BOUNDED)
    bounds = dict(zip(Reader, (100, 70, 40, 100), strict=True))
    for reader in made.rules.readers:
        read = made.read(reader, 0, 10_000)
        assert read.bound == read.batches[-1].last_offset + 1 == bounds[reader]
    has_transactions = RELEASES.index(version) >= RELEASES.index("0.11")
    assert (Reader.READ_COMMITTED in made.rules.readers) is has_transactions
    assert replace(made, high_watermark=30).last_stable_offset == 30  # never above it


def test_wrong_reads():
    with pytest.raises(ValueError, match="invalid max size"):
        log().read(Reader.FOLLOWER, 0, -1)
    with pytest.raises(ValueError, match="READ_COMMITTED"):  # it came with transactions
        log("0.10.2").read(Reader.READ_COMMITTED, 0, 100)


@pytest.mark.parametrize("version", RELEASES)
def test_beyond_the_bound_and_out_of_range(version):
    made = replace(log(version), **BOUNDED)
    error, out = "UNKNOWN" if version in ("0.8.2", "0.9.0") else None, "OFFSET_OUT_OF_RANGE"
    reads = [made.read(Reader.CONSUMER, offset, 100) for offset in (-1, 70, 71, 99, 100, 101)]
    assert [r.error for r in reads] == [out, None, error, error, None, out]
    assert all(r.batches == () for r in reads)


def test_a_generation_is_not_a_release():
    """0.9.0-0.10.1 is one generation of the engine, but only 0.10.1 has KIP-74."""
    assert ReadRules.of("0.10.1") != ReadRules.of("0.10.0")
    with pytest.raises(ValueError, match=r"0\.9\.0-0\.10\.1 \(a generation\)"):
        ReadRules.of(KafkaVersion.of("0.10.1"))


# Segments


def test_rolling_by_size_and_reading_across():
    made = log(segment_bytes=300)
    assert [part.base_offset for part in made.segments] == list(range(0, 100, 15))
    for start in range(100):
        read = made.read(Reader.FOLLOWER, start, 10_000)
        assert read.batches[0].base_offset == start - start % 5
        last = min(start - start % 15 + 14, 99)  # a read never crosses a segment
        assert read.batches[-1].last_offset == last


def test_rolling_by_a_full_index_and_by_offset():
    made = SegmentedLog((s.LogSegment(0, 10, max_index_entries=1),))
    for offset in (0, 1, 2, 2**31 + 5):
        made = made.append(Batch(offset, offset, 100))
    assert [part.base_offset for part in made.segments] == [0, 2, 2**31 + 5]


def test_a_gap_at_the_end_of_a_segment_is_read_from_the_next():
    made = SegmentedLog((segment(0, (0, 4, 10)), segment(20, (20, 24, 10))))
    assert made.read(Reader.FOLLOWER, 10, 100).batches == ((20, 24, 10),)


# Properties

shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 90)), max_size=40)


def built(shape, version="3.7", interval=100, segment_bytes=10**9) -> SegmentedLog:
    """A log with a batch for each (records, gap in the offsets before it, bytes) of `shape`."""
    made = SegmentedLog.empty(version, interval, segment_bytes)
    offset = 0
    for records, gap, size in shape:
        made = made.append(Batch(offset + gap, offset + gap + records - 1, size))
        offset = made.log_end_offset
    return made


@settings(max_examples=60, deadline=None)
@given(shapes, st.sampled_from(RELEASES), st.integers(0, 300), st.integers(1, 400))
def test_index_and_scan_find_what_a_linear_scan_finds(shape, version, interval, segment_bytes):
    made = built(shape, version, interval, segment_bytes)
    batches = [b for part in made.segments for b in part.batches]
    for start in range(made.log_end_offset):
        read = made.read(Reader.FOLLOWER, start, 1 if made.rules.has_min_one_message else 10**6)
        assert read.batches[0] == next(b for b in batches if b.last_offset >= start)


@settings(max_examples=60, deadline=None)
@given(shapes, st.integers(0, 300))
def test_index_entries_are_sparse_and_grow(shape, interval):
    entries = built(shape, interval=interval).segments[0].index
    for before, after in pairwise(((-1, 0), *entries)):
        assert after[0] > before[0]
        assert after[1] - before[1] > interval


@settings(max_examples=60, deadline=None)
@given(shapes, st.data())
def test_no_reader_gets_anything_beyond_its_bound(shape, data):
    for version in RELEASES:
        made = built(shape, version, segment_bytes=200)
        offsets = st.integers(0, made.log_end_offset)
        high_watermark, transaction = data.draw(offsets), data.draw(st.none() | offsets)
        made = replace(made, high_watermark=high_watermark, open_transaction=transaction)
        start = data.draw(offsets)
        for reader in made.rules.readers:
            read = made.read(reader, start, data.draw(st.integers(0, 500)))
            assert all(b.last_offset < read.bound for b in read.batches)


@settings(max_examples=40, deadline=None)
@given(shapes, st.data())
def test_every_release_reads_the_same_bytes_with_room_enough(shape, data):
    """Reading by offset or position, and first or last offsets in the index, give the same."""
    high_watermark = data.draw(st.integers(0, built(shape).log_end_offset))
    start = data.draw(st.integers(0, high_watermark))
    reads = set()
    for version in RELEASES:
        made = replace(built(shape, version, segment_bytes=200), high_watermark=high_watermark)
        reads.add(made.read(Reader.CONSUMER, start, 10_000).batches)
    assert len(reads) == 1


# Figures


def test_figures_say_what_was_found():
    made = replace(log(), **BOUNDED)
    first = made.segments[0]
    ax = reading_a_log.plot_lookup(first, 47)
    title = ax.get_title(loc="left").replace("\N{NO-BREAK SPACE}", " ")
    assert title.startswith("Offset 47: entry 34 → byte 600, 4 batches checked")
    assert reading_a_log.plot_lookup(first, 3).get_title(loc="left").count("start of the file")
    assert reading_a_log.scan_lengths(first)[47] == 4
    reads = [made.read(reader, 0, 10_000) for reader in Reader]
    title = reading_a_log.plot_readers(made, reads).get_title(loc="left").replace("\n", " ")
    assert "consumer 70, read_committed 40" in title
    title = reading_a_log.plot_search(first, 47).get_title(loc="left")
    assert title == "Offset 47: 4 probes of an index of 6, entry 34"
    plt.close("all")


def test_the_warm_section_keeps_probes_near_the_end_on_few_pages():
    costs = reading_a_log.search_costs(("2.0", "2.1"), 100_000, (99_999,))
    assert costs["pages touched"].tolist() == [10, 3]
