"""The load of a fleet: hot partitions, days, producers, stops, and traces, valid and broken."""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isrlab import fleet
from isrlab.fleet import load, recorded
from isrlab.fleet.cell import cell, leaders, setup
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.batches import batched
from isrlab.fleet.recorded import file
from isrlab.fleet.recorded.file import TraceError
from isrlab.fleet.recorded.partitioner import partition_of_keys

HOUR_MS = 3_600_000
SMALL = FleetConfig(partitions=6, minutes=20, burst_every_s=60, seed=5)
DAY = FleetConfig(partitions=4, minutes=1440, load="steady", records_per_s=20, seed=5)

# Hot partitions


def test_hot_partitions_get_so_many_times_the_records_and_the_others_the_same():
    plain = load.arrivals(SMALL.with_(load="steady"), np.arange(6))
    hot = load.arrivals(SMALL.with_(load="steady", hot_partitions=2, hot_times=30), np.arange(6))
    before, after = (np.bincount(a.partition, weights=a.records) for a in (plain, hot))
    assert after[:2] / before[:2] == pytest.approx(30, rel=0.1)
    assert after[2:].tolist() == before[2:].tolist()


def test_bursts_stay_as_they_are_in_hot_partitions():
    still = SMALL.with_(records_per_s=0)
    plain, hot = (load.arrivals(still.with_(hot_partitions=n), np.arange(6)) for n in (0, 6))
    assert len(plain.ts_ms) > 0
    assert all(np.array_equal(a, b) for a, b in zip(plain, hot, strict=True))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hot_partitions": 7}, "hot_partitions=7 is out of range; valid: 0 to partitions=6"),
        (
            {"hot_partitions": 1, "hot_times": 1e6, "records_per_s": 1e6},
            "batches of 1,000,000,000,000 records (records_per_s, batch_every_ms, hot_times)",
        ),
        ({"load": "trace"}, "load='trace' with trace_file=''; valid: load='trace' with a file"),
        ({"linger_ms": 5}, "linger_ms=5 and batch_size=0 with load='bursts'; valid: linger_ms"),
        (
            {"load": "trace", "trace_file": "a.csv", "batch_size": 9},
            "batch_size=9 with load='trace'; valid: linger_ms with a batch_size, and both with a",
        ),
        ({"trace_file": "a.csv"}, "load='bursts' with trace_file='a.csv'"),
    ],
)
def test_loads_that_cannot_be_are_refused(settings, said):
    with pytest.raises(ValueError) as error:
        SMALL.with_(**settings)
    assert said in str(error.value)


# Batches


def plain_batches(ts_ms, records, most, linger_ms, run_ms):
    """The batches that a producer sends, computed record by record: (ms, records)."""
    opened_ms = held = 0
    for now_ms, count in zip([*ts_ms, run_ms], [*records, 0], strict=True):
        if held and opened_ms + linger_ms < now_ms:
            yield opened_ms + linger_ms, held
            held = 0
        for _ in range(count):
            if held == most:
                yield now_ms, held
                held = 0
            opened_ms = opened_ms if held else now_ms
            held += 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=30).map(sorted),
    st.tuples(st.integers(1, 20), st.integers(0, 15)),
    st.integers(1, 60),
)
def test_a_producer_makes_batches_by_size_and_linger(handed, limits, middle_ms):
    held, sent = np.zeros(2, np.int64), []
    rows = np.array(handed, np.int64).reshape(-1, 2)
    for from_ms, until_ms in ((0, middle_ms), (middle_ms, 61)):
        ts_ms, counts = rows[(rows[:, 0] >= from_ms) & (rows[:, 0] < until_ms)].T
        pieces = batched(ts_ms.copy(), counts.astype(np.int32), until_ms, limits, held)
        sent += zip(*(column.tolist() for column in pieces), strict=True)
    assert sent == list(plain_batches(*rows.T.tolist(), *limits, run_ms=61))


def test_a_burst_has_as_many_batches_as_its_records_fill():
    one = SMALL.with_(records_per_s=0, batch_size=16_384, linger_ms=20, burst_records=30_000)
    for changes, most in (({}, 32), ({"record_bytes": 100}, 163), ({"batch_size": 1}, 1)):
        config = one.with_(burst_every_s=600, **changes)
        starts = sum(len(load.burst_starts_ms(config, p)) for p in range(6))
        drawn = load.arrivals(config, np.arange(6))
        assert drawn.records.max() == most
        assert len(drawn.ts_ms) == pytest.approx(starts * 30_000 / most, rel=0.01)


def test_windows_do_not_change_the_batches_of_a_producer():
    config = SMALL.with_(batch_size=2_000, linger_ms=300, batch_every_ms=40, records_per_s=30)
    whole, place = load.arrivals(config, np.arange(6)), 0
    for _, piece in load.windows(config, np.arange(6), batches=5_000):
        for mine, all_of_them in zip(piece, whole, strict=True):
            assert np.array_equal(mine, all_of_them[place : place + len(mine)])
        place += len(piece.ts_ms)
    assert place == len(whole.ts_ms)


# The day


def test_a_day_has_its_peak_in_the_afternoon_and_the_same_total():
    def by_hour(swing):
        drawn = load.arrivals(DAY.with_(daily_swing=swing), np.arange(4))
        return np.bincount(drawn.ts_ms // HOUR_MS, weights=drawn.records)

    flat, swinging = by_hour(0), by_hour(0.8)
    assert flat.max() / flat.min() < 1.1
    assert (swinging[:6].argmin(), swinging.argmax()) in [(2, 14), (2, 15), (3, 14), (3, 15)]
    assert swinging[14:16].sum() / flat[14:16].sum() == pytest.approx(1.8, rel=0.03)
    assert swinging[2:4].sum() / flat[2:4].sum() == pytest.approx(0.2, rel=0.1)
    assert swinging.sum() / flat.sum() == pytest.approx(1, rel=0.01)


def test_bursts_follow_the_day():
    bursts = DAY.with_(load="bursts", records_per_s=0, burst_every_s=600, burst_s=0, daily_swing=1)
    drawn = load.arrivals(bursts, np.arange(4))
    highest = drawn.ts_ms[drawn.records.argmax()] / HOUR_MS
    assert highest == pytest.approx(15, abs=1)
    assert drawn.records.max() == pytest.approx(2 * bursts.burst_records, rel=0.01)
    near_three = drawn.records[abs(drawn.ts_ms / HOUR_MS - 3) < 1]
    assert near_three.max() < 0.1 * bursts.burst_records


# Producers, stalls of leaders, restarts


def test_a_larger_share_of_acks_all_keeps_who_had_it():
    sizes, all_of_them = (0, 0.3, 0.6, 1), np.arange(2_000)
    shares = [load.acks_all(SMALL.with_(acks_all_share=size), all_of_them) for size in sizes]
    assert [round(float(is_all.mean()), 1) for is_all in shares] == [*sizes]
    assert all((less <= more).all() for less, more in itertools.pairwise(shares))
    some = np.array([3, 700])
    assert load.acks_all(SMALL.with_(acks_all_share=0.3), some).tolist() == shares[1][some].tolist()


def test_leaders_stall_on_their_own():
    config = SMALL.with_(leader_stall_s=4, leader_stall_every_s=60, stall_s=4, stall_every_s=60)
    starts, ends = load.leader_stalls(config, 1)
    assert set(ends - starts) == {4_000}
    assert (starts[1:] > ends[:-1]).all()
    assert len(starts) == pytest.approx(20 * 60 / 64, rel=0.6)
    assert not np.array_equal(starts, load.stalls(config, 1)[0])
    assert len(load.leader_stalls(SMALL, 1)[0]) == 0


def test_brokers_restart_one_after_another():
    rolling = SMALL.with_(restart_s=30, restart_every_s=500)
    times = [[t.tolist() for t in load.restarts(rolling, broker)] for broker in (1, 2, 3)]
    assert times == [[[500_000], [530_000]], [[1_000_000], [1_030_000]], [[], []]]
    assert load.restarts(rolling.with_(restart_s=0), 1)[0].tolist() == []


# Keys


def test_keys_go_where_kafka_sends_them():
    hashes = {  # of Kafka's own UtilsTest.testMurmur2
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        "abc": 479470107,
    }
    positive = [value & 0x7FFFFFFF for value in hashes.values()]
    keys = pa.array(["nobody", *hashes])[1:]  # a slice has an offset
    assert partition_of_keys(keys, 2**31).tolist() == positive
    assert partition_of_keys(keys, 12).tolist() == [value % 12 for value in positive]
    assert partition_of_keys(pa.array(["", None, "abc"]), 5).tolist() == [-1, -1, positive[-1] % 5]


# Good traces


def written(folder, text, name="trace.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def config_of(path, **settings):
    return FleetConfig(load="trace", trace_file=str(path), **{"partitions": 6, **settings})


@pytest.mark.parametrize(
    "text",
    [
        "time,partition,records\n5,1,10\n5.25,0,20\n7.5,5,30\n",
        "TS_MS,Partition,Count\n7500,5,30\n5000,1,10\n5250,0,20\n",
        "timestamp,partition,records\n2024-02-29T10:00:05Z,1,10\n"
        "2024-02-29T10:00:05.2500000Z,0,20\n2024-02-29T11:00:07.5+01:00,5,30\n",
        "note,records,partition,ts\n,10,1.0,1700000005\n\n,30,5,1700000007.5\n"
        '"a\nb",20,0,1700000005.25\n\n',
        "\ufefftime,partition,records\r\n2024-02-29 23:59:59,1,10\r\n"
        "2024-03-01 00:00:01.5,5,30\r\n2024-02-29 23:59:59.25,0, 20\r\n",
    ],
    ids=["seconds", "ms", "zones", "blank lines and other columns", "windows"],
)
def test_one_trace_written_in_many_ways(tmp_path, text):
    rows = file.read(written(tmp_path, text), partitions=6)
    order = np.argsort(rows.ts_ms)
    assert rows.ts_ms[order].tolist() == [0, 250, 2_500]
    assert rows.partition[order].tolist() == [1, 0, 5]
    assert rows.records[order].tolist() == [10, 20, 30]
    assert rows.bytes is None


def test_csv_gzip_and_parquet_hold_the_same(tmp_path):
    text = "time,key,records,bytes\n" + "".join(
        f"2024-01-01 00:00:{i % 60:02}.{i:03}4567,user-{i % 37},{1 + i % 9},{100 * i}\n"
        for i in range(500)
    )
    plain = written(tmp_path, text)
    packed = written(tmp_path, gzip.compress(text.encode()), "trace.csv.gz")
    table = pacsv.read_csv(plain)
    table = table.set_column(1, "key", table["key"].dictionary_encode())
    pq.write_table(table, tmp_path / "trace.parquet")
    paths = plain, packed, f"{plain[:-3]}parquet"
    first, *others = (file.read(path, partitions=6) for path in paths)
    assert set(first.partition.tolist()) == set(range(6))
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_columns_can_be_named(tmp_path):
    path = written(tmp_path, "When sent,Tokens,time,Pod\n3000,7,x,2\n1000,5,y,1\n")
    columns = "time_ms='When sent' records=Tokens partition=pod"
    rows = file.read(path, columns, partitions=6)
    assert [column.tolist() for column in rows[:3]] == [[2_000, 0], [2, 1], [7, 5]]


def test_a_cell_gets_its_partitions_by_time_and_their_mean_sizes(tmp_path):
    text = "time,partition,records,bytes\n2,3,1,100\n0,0,4,40\n1,3,3,900\n60,3,1,5\n"
    config = config_of(written(tmp_path, text), minutes=1, record_bytes=77)
    mine = recorded.of_cell(config, 1)  # of three brokers: partitions 0 and 3
    arrivals = [[0, 1_000, 2_000], [0, 1, 1], [4, 3, 1]]
    assert [column.tolist() for column in mine.arrivals] == arrivals
    assert mine.record_bytes.tolist() == [10, 250]
    assert recorded.of_cell(config, 2).record_bytes.tolist() == [77, 77]
    assert recorded.summary(config)["left_out"] == 1
    assert setup(config, cell(config, 1)).record_bytes.tolist() == [10, 250]
    assert recorded.unpacked(recorded.packed(mine)).arrivals.records.tolist() == [4, 3, 1]


def test_rows_without_partition_are_spread_by_the_seed(tmp_path):
    path = written(tmp_path, "time\n" + "".join(f"{i}\n" for i in range(3_000)))

    def counts(**settings):
        config = config_of(path, **settings)
        return [len(recorded.of_cell(config, b).arrivals.ts_ms) for b in leaders(config)]

    assert counts() == counts()
    assert counts() != counts(seed=2)
    assert min(counts()) > 900


def test_a_changed_file_is_read_again(tmp_path):
    config = config_of(written(tmp_path, "time,partition\n0,0\n"))
    assert recorded.recording(config).rows == 1
    written(tmp_path, "time,partition\n0,0\n1,0\n")
    assert recorded.recording(config).rows == 2


def test_a_trace_in_few_numbers(tmp_path):
    steady = "time,records\n" + "".join(f"{i},4\n" for i in range(11))
    found = recorded.describe(written(tmp_path, steady))
    assert (found.rows, found.span_s, found.records, found.records_per_s) == (11, 10, 44, 4.4)
    assert (found.peak_to_mean, found.gap_variation) == (pytest.approx(1 / 1.1), 0)
    bursty = written(tmp_path, "At,N\n0,1\n9,1\n9.1,7\n10,1\n")
    found = recorded.describe(bursty, "time=At records=N")
    assert found.peak_to_mean == 8
    assert found.gap_variation == pytest.approx(np.std([9, 0.1, 0.9]) / np.mean([9, 0.1, 0.9]))
    assert recorded.describe(written(tmp_path, "time\n5\n")).span_s == 0


def test_a_run_can_be_as_long_as_its_trace(tmp_path):
    path = written(tmp_path, "ts_ms\n5\n7\n123462\n")
    config = config_of(path, minutes=recorded.describe(path).minutes)
    assert config.duration_ms == 123_458
    assert recorded.recording(config).left_out == 0
    assert recorded.recording(config.with_(minutes=123_457 / 60_000)).left_out == 1


# Broken traces

BROKEN = {
    "empty": ("", "is empty; valid: a header line"),
    "header only": ("time,partition\n", "has no rows"),
    "blank lines only": ("time,partition\n\n\n", "has no rows"),
    "no header": ("1,2\n3,4\n", "has the columns 1, 2, 0 of them with a name for the time"),
    "two times": ("time,ts_ms\n1,2\n", "2 of them with a name for the time"),
    "two of a kind": ("time,records,count\n1,2,3\n", "2 of them with a name for the records"),
    "semicolons": ("time;partition\n1;2\n", "has the columns time;partition, 0 of them"),
    "no time": ("time,partition\n1,2\n,3\n", "line 3: column 'time' is missing; valid: s from 0"),
    "text": (
        "time,partition,records\n1,2,3\n\n1,2,many\n1,2,more\n",
        "line 4: column 'records' has 'many'; valid: whole numbers from 1 to 1,000,000,000 "
        "(more bad lines: 1)",
    ),
    "nan time": ("time,records\n1,1\nNaN,1\n", "line 3: column 'time' has 'NaN'"),
    **{  # records
        value: (f'time,records\n1,"{value}"\n', f"column 'records' has '{value}'")
        for value in ("nan", "inf", "-4", "0", "2.5", "1,000", "5e9")
    },
    "negative bytes": ("time,bytes\n1,-1\n", "valid: whole numbers from 0 to 100,000,000,000"),
    "partition": (
        "time,partition\n1,6\n1,5\n1,-1\n",
        "'6'; valid: whole numbers from 0 to 5 (more bad lines: 1)",
    ),
    "negative time": ("ts_ms\n-1\n", "column 'ts_ms' has '-1'; valid: ms from 0"),
    "ms called s": (
        "time\n1700000000000\n1700000000001\n",
        "valid: s from 0 to 100,000,000,000 (a column of ms has a name that ends in _ms) (more bad",
    ),
    "s among ms": (
        "ts_ms\n1700000000000\n\n\n1700000001\n",
        "begins at 1970-01-20T16:13:20.001000 (line 5)",
    ),
    "s called ms": ("ts_ms\n1700000002\n1700000001\n", "(line 3): these are s, not ms"),
    "a year off": ("time\n2024-01-01\n2026-01-01\n", "valid: up to 366 days"),
    "no date": ("time\n2024-01-01\n2024-02-30\n", "line 3: column 'time' has '2024-02-30'"),
    "far year": ("time\n2024-01-01\n9999-12-31\n", "line 3: column 'time' has '9999-12-31'"),
    "time only": ("time\n2024-01-01\n10:15:00\n", "'10:15:00'; valid: timestamps such as 2023-"),
    "number among dates": ("time\n2024-01-01\n2024-01-01\n20240101\n", "line 4: column 'time'"),
    "short line": (
        "time,partition\n1,2\n\n3\n1,9\n4\n",
        "line 4: 1 values instead of 2: '3' (more bad lines: 2)",
    ),
    "bad before short": ("time,partition\n\n1,9\n4\n", "line 3: column 'partition' has '9'"),
    "bad after short": (
        "time,partition\n4\n\n1,9\n",
        "line 2: 1 values instead of 2: '4' (more bad lines: 1)",
    ),
    "not utf-8": (b"time,key\n1,a\n2,caf\xe9\n", "line 3: column 'key' has b'caf\\xe9'"),
    "not utf-8 header": (b"time,k\xe9y\n1,a\n", "is not text in UTF-8"),
    "utf-16": ("time,key\n1,a\n".encode("utf-16"), "is not text in UTF-8"),
    "bad number bytes": (b"time,records\n1,\xff\n", "column 'records' has b'\\xff'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_says_what_and_where(tmp_path, case):
    text, said = BROKEN[case]
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as error:
        file.read(path, partitions=6)
    assert path in str(error.value)
    assert said in str(error.value)


def test_every_bad_row_is_counted_also_beyond_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "BLOCK_BYTES", 1_000)
    lines = [f"{i},{-1 if i >= 900 and i % 10 == 0 else 1}" for i in range(3_000)]
    lines[500] = lines[2_500] = "1,2,3"
    lines[400] = ""
    for line, said in {
        "1,2,3": r"line 502: 3 values instead of 2: '1,2,3' \(more bad lines: 210",
        "1,1": r"line 902: column 'records' has '-1'.*\(more bad lines: 209",
    }.items():
        lines[500] = line
        with pytest.raises(TraceError, match=said):
            file.read(written(tmp_path, "time,records\n" + "\n".join(lines)))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("when=TIMESTAMP", "'when=TIMESTAMP' is not known; valid: NAME=COLUMN, where NAME is one"),
        ("time", "'time' is not known"),
        ("time='x", 'trace_columns="time=\'x" is not known: No closing quotation'),
        ("records=Tokens", "trace_columns asks for 'Tokens'; "),
    ],
)
def test_a_wrong_mapping_is_named(tmp_path, columns, said):
    with pytest.raises(TraceError) as error:
        file.read(written(tmp_path, "time,records\n1,2\n"), columns)
    assert said in str(error.value)


def test_files_that_are_none_or_only_half(tmp_path):
    whole = gzip.compress(b"time\n" + b"".join(b"%d\n" % (i * i) for i in range(9_000)))
    half = written(tmp_path, whole[: len(whole) // 2], "half.csv.gz")
    plain = written(tmp_path, "time\n1\n", "plain.csv.gz")
    parquet = written(tmp_path, "time\n1\n", "text.parquet")
    other = written(tmp_path, "time\n1\n", "trace.txt")
    for path, said in [
        (half, "cannot be read: Truncated compressed stream"),
        (plain, "cannot be read"),
        (parquet, "cannot be read"),
        (other, "has no known ending; valid: .csv, .csv.gz, .parquet"),
        (str(tmp_path), "is a folder; valid: a file"),
        (str(tmp_path / "no.csv"), "does not exist; valid: a file"),
    ]:
        with pytest.raises(TraceError) as error:
            fleet.simulate_local(config_of(path))
        assert path in str(error.value)
        assert said in str(error.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"time": [True]}, "column 'time' has the type bool; valid: timestamps, numbers or text"),
        ({"time": [1.0], "partition": [[1]]}, "column 'partition' has the type list<"),
        ({"time": [1.0], "key": [17]}, "the type int64; valid: text, or the bytes that the"),
        ({"time": [1.0, None]}, "row 2: column 'time' is missing"),
        ({"time": [1.0, 2.0], "records": [1, None]}, "row 2: column 'records' is missing"),
        ({"time": [1, 2], "bytes": [1.0, float("nan")]}, "row 2: column 'bytes' has 'nan'"),
        ({"time": [1, 2], "records": ["1", "one"]}, "row 2: column 'records' has 'one'"),
        ({"TIME": [1], "Partition": [6]}, "row 1: column 'Partition' has '6'"),
    ],
)
def test_wrong_parquet(tmp_path, columns, said):
    pq.write_table(pa.table(columns), tmp_path / "trace.parquet")
    with pytest.raises(TraceError) as error:
        file.read(str(tmp_path / "trace.parquet"), partitions=6)
    assert said in str(error.value)


# From a trace to events


@pytest.fixture(scope="module")
def bursty(tmp_path_factory):
    """A trace of 15 minutes with bursts that are too fast for a slow follower."""
    draws = np.random.default_rng(3)
    times = np.sort(draws.integers(0, 900_000, 4_000))
    records = np.where(draws.random(4_000) < 0.01, 9_000, 3)
    lines = [f"{t},{t % 41},{r}\n" for t, r in zip(times.tolist(), records.tolist(), strict=True)]
    draws.shuffle(lines)
    path = tmp_path_factory.mktemp("trace") / "bursty.csv"
    path.write_text("ts_ms,key,records\n" + "".join(lines))
    return config_of(path, minutes=20, brokers=4, stall_every_s=300, follower_bytes_per_s=300_000)


def test_a_trace_gives_the_same_rows_however_it_is_divided(bursty, spark, monkeypatch):
    local = fleet.simulate_local(bursty)
    assert local.num_rows > 20
    order = [(name, "ascending") for name in ("ts_ms", "partition", "kind", "broker")]
    for tasks in (1, 4):
        rows = fleet.simulate(spark, bursty, tasks).toArrow().sort_by(order)
        assert rows.to_pylist() == local.sort_by(order).to_pylist()
    monkeypatch.setattr(load, "windows", functools.partial(load.windows, batches=100))
    assert fleet.simulate_local(bursty).equals(local)


def test_windows_of_a_trace_keep_every_batch_and_never_part_a_millisecond(bursty):
    share = recorded.of_cell(bursty, 1).arrivals
    pieces = list(load.windows(bursty, np.arange(2), 100, share))
    assert pieces[-1][0] == bursty.duration_ms
    assert [end for end, _ in pieces] == sorted({end for end, _ in pieces})
    assert all((piece.ts_ms < end).all() for end, piece in pieces)
    assert np.concatenate([piece.records for _, piece in pieces]).tolist() == share.records.tolist()
    crowded = share._replace(ts_ms=np.zeros_like(share.ts_ms))
    pieces = load.windows(bursty, np.arange(2), 100, crowded)
    assert sum(len(piece.ts_ms) for _, piece in pieces) == len(share.ts_ms)


def test_all_records_of_a_trace_are_appended_and_a_partition_can_be_watched(bursty):
    shares = [recorded.of_cell(bursty, leader).arrivals.records for leader in leaders(bursty)]
    assert sum(map(sum, shares)) == recorded.describe(bursty.trace_file).records
    watched = fleet.trace(bursty, partition=2)
    rows = file.read(bursty.trace_file, partitions=6)
    assert watched.log_end_offset[-1] == rows.records[rows.partition == 2].sum()


def test_a_trace_cannot_be_drawn(bursty):
    with pytest.raises(ValueError, match="a trace is not drawn"):
        load.arrivals(bursty, np.arange(2))


def test_the_settings_of_a_trace_survive_json(bursty):
    config = bursty.with_(trace_columns="time=ts_ms", trace_file=Path(bursty.trace_file))
    assert FleetConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json())["trace_file"] == bursty.trace_file


# Random load does not change


@pytest.mark.parametrize(
    ("settings", "digest"),
    [
        ({}, "f754ac529306eec7"),
        ({"daily_swing": 0.5, "hot_partitions": 2}, "7e31818066c2fb96"),
        ({"load": "heavy", "records_per_s": 40}, "0e4a6d9d8afe8add"),
        ({"load": "together", "batch_every_ms": 50, "minutes": 60}, "a056701211b6f75f"),
    ],
)
def test_the_same_seed_draws_what_it_always_did(settings, digest):
    drawn = load.arrivals(SMALL.with_(**settings), np.arange(6))
    columns = b"".join(column.astype("<i8").tobytes() for column in drawn)
    assert hashlib.sha256(columns).hexdigest()[:16] == digest
