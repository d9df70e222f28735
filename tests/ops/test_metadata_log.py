"""Kafka's metadata log: five real ones compared with their truth, and damaged ones."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import struct
from collections import Counter, defaultdict
from pathlib import Path

import google_crc32c
import pytest

from isrlab.events import schema
from isrlab_ops.logs.reader.metadata.encoding import decoder, schemas
from isrlab_ops.logs.reader.metadata.files import recognise, rows
from isrlab_ops.logs.reader.metadata.log import MetadataCluster
from isrlab_ops.logs.reader.metadata.records import Damage, MetadataReader
from isrlab_ops.logs.reader.read import read_local

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases" / "metadata"
INCIDENTS = ROOT / "data" / "recordings" / "incidents"
TRUTH = json.loads(gzip.decompress((CASES / "truth.json.gz").read_bytes()))
PAUSED = "a-412-follower-paused"
SEGMENT = "00000000000000000000.log"


def segment(incident: str = PAUSED) -> bytes:
    return gzip.decompress((INCIDENTS / incident / "metadata" / f"{SEGMENT}.gz").read_bytes())


def read(folder: Path) -> dict[str, list[dict]]:
    """The rows of a folder by kind, without repeated events."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    sources = [recognise(str(folder / name), name) for name in names]
    kinds: dict[str, list[dict]] = {"event": [], "unread": [], "file": []}
    for row in rows([source for source in sources if source], "run"):
        kinds[row["row"]].append(row)
    kinds["event"].sort(key=lambda row: (row["ts_ms"], row["offset"], row["kind"]))
    return kinds


def ids(text: str | None) -> list[int]:
    return [int(each) for each in text.split(",")] if text else []


def history(events: list[dict]) -> dict[str, list[dict]]:
    changes = defaultdict(list)
    for event in events:
        if event["kind"] == "isr_commit":
            detail = event["detail"]
            change = {"t_ms": event["ts_ms"], "leader": int(detail["leader"])}
            change |= {name: event[name] for name in ("leader_epoch", "partition_epoch")}
            change |= {"isr": list(event["isr"]), "replicas": ids(detail["replicas"])}
            change |= {"metadata_offset": event["offset"]}
            change |= {"elr": ids(detail.get("elr")), "adding": ids(detail.get("adding"))}
            changes[f"{event['topic']}-{event['partition']}"].append(change)
    return changes


def as_event(change: dict) -> dict:
    """A change of truth.json as events have it; truth.json omits sets that are empty at first."""
    names = {"eligibleLeaderReplicas": "elr", "addingReplicas": "adding"}
    sets = {own: change.get(name, []) for name, own in names.items()}
    others = (*names, "lastKnownElr", "removingReplicas")
    return {name: value for name, value in change.items() if name not in others} | sets


@pytest.mark.parametrize("incident", sorted(TRUTH))
def test_the_history_of_every_partition_is_the_true_one(incident):
    logs = read(INCIDENTS / incident / "metadata")
    truth = {key: [*map(as_event, changes)] for key, changes in TRUTH[incident].items()}
    assert history(logs["event"]) == truth
    assert logs["unread"] == []
    for event in logs["event"]:
        assert set(event["detail"]) <= set(schema.DETAIL[event["kind"]])


def test_which_machine_wanted_a_change():
    rows = read(INCIDENTS / PAUSED / "metadata")["event"]
    commits = [e for e in rows if e["kind"] == "isr_commit"]
    wanted = Counter((e["detail"].get("asked_by"), e["detail"].get("cause")) for e in commits)
    # 16 shrinks and 16 expansions; at the end all three brokers were stopped
    assert wanted["leader", None] == 32
    assert wanted[None, "shut down"] == 32
    config = [e["detail"] for e in read(INCIDENTS / "i-392-throttle-left-behind")["event"]]
    names = {detail["name"] for detail in config if "name" in detail}
    assert "follower.replication.throttled.rate" in names


def test_a_folder_with_logs_and_metadata(tmp_path):
    shutil.copytree(INCIDENTS / PAUSED / "metadata", tmp_path / "one")
    shutil.copytree(INCIDENTS / PAUSED / "metadata", tmp_path / "two")
    (tmp_path / "server.log").write_text(
        "[2026-11-21 12:21:46,479] INFO [Partition orders-7 broker=3] Shrinking ISR from 3,2,1 to "
        "3,1. Leader: (highWatermark: 1, endOffset: 2). Out of sync replicas: (brokerId: 2, "
        "endOffset: 1, lastCaughtUpTimeMs: 1795263698205). (kafka.cluster.Partition)\n"
    )
    logs = read_local(tmp_path, "run")
    told = Counter(
        row["said_by"] for row in map(dict, logs.events["detail"].to_pylist()) if row.get("said_by")
    )
    assert told == {"metadata log": len(read(INCIDENTS / PAUSED / "metadata")["event"])}
    assert set(logs.events["kind"].to_pylist()) <= set(schema.KINDS)
    layouts = dict(
        zip(logs.files["file"].to_pylist(), logs.files["layout"].to_pylist(), strict=True)
    )
    assert layouts[f"one/{SEGMENT}.gz"] == "metadata log"
    assert "isr_shrink" in logs.events["kind"].to_pylist()


# Damage


def replay(data: bytes) -> tuple[list[dict], list[Damage]]:
    return follow(MetadataReader().segment(data))


def follow(items) -> tuple[list[dict], list[Damage]]:
    cluster, events, damages = MetadataCluster(), [], []
    for item in items:
        if isinstance(item, Damage):
            damages.append(item)
            if item.is_loss:
                cluster.forget()
        else:
            events += cluster.apply(item)
    return events, damages


def place(event: dict) -> tuple:
    names = ("ts_ms", "kind", "topic", "partition", "replica", "isr")
    return tuple(event.get(name) for name in names if name != "topic")


def check_damaged(data: bytes, whole: list[dict], records: int) -> None:
    """Fail if an event is reported that did not happen, or events are missing without a notice."""
    true = defaultdict(list)
    for event in whole:
        true[place(event)].append(event)
    events, damages = replay(data)
    for event in events:
        same = true[place(event)]
        for name in ("leader_epoch", "partition_epoch", "isr_before"):
            assert event.get(name) in [None, *(each.get(name) for each in same)]
        assert same, event
    assert damages or len(events) == len(whole)


def test_every_prefix_of_a_segment_is_read(request):
    data, step = segment(), 1 if request.config.getoption("--fuzz") else 41
    whole, _ = replay(data)
    ends = {0} | {end for end in range(len(data)) if batch_ends_at(data, end)}
    for end in range(0, len(data), step):
        events, damages = replay(data[:end])
        assert [place(e) for e in events] == [place(e) for e in whole][: len(events)]
        assert bool(damages) == (end not in ends)


def batch_ends_at(data: bytes, end: int) -> bool:
    position = 0
    while position < end:
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return position == end


def test_flipped_bits_are_noticed(request):
    data, seed = segment(), 11
    whole, _ = replay(data)
    chance = random.Random(seed)
    for _ in range(10_000 if request.config.getoption("--fuzz") else 300):
        at, bit = chance.randrange(len(data)), chance.randrange(8)
        damaged = bytearray(data)
        damaged[at] ^= 1 << bit
        check_damaged(bytes(damaged), whole, seed)


# Logs made here


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def signed(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def batch(base: int, values: list[bytes], ms: int = 1_000, attributes: int = 0) -> bytes:
    """A record batch; in a control batch the values are its types."""
    records = b""
    for number, value in enumerate(values):
        key = struct.pack(">hh", 0, value[0]) if attributes & 0x20 else b""
        head = b"\0\0" + signed(number) + (signed(len(key)) + key if key else signed(-1))
        body = head + signed(len(value)) + value + b"\0"
        records += signed(len(body)) + body
    fixed = (attributes, len(values) - 1, ms, ms, -1, -1, -1, len(values))
    covered = struct.pack(">hiqqqhii", *fixed) + records
    crc = google_crc32c.value(covered)
    return struct.pack(">qiibI", base, len(covered) + 9, 1, 2, crc) + covered


ID = bytes(range(16))


def topic(name: str = "t", of: bytes = ID) -> bytes:
    return bytes([1, 2, 0, len(name) + 1]) + name.encode() + of + b"\0"


def ints(*values: int) -> bytes:
    return uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def partition(isr: tuple[int, ...], leader=1, epochs=(0, 0), of: bytes = ID) -> bytes:
    sets = ints(1, 2, 3) + ints(*isr) + ints() + ints()
    return (
        bytes([1, 3, 0])
        + struct.pack(">i", 0)
        + of
        + sets
        + struct.pack(">iii", leader, *epochs)
        + b"\0"
    )


def change(isr: tuple[int, ...], version: int = 0, more: bytes = b"", of: bytes = ID) -> bytes:
    field = ints(*isr)
    tagged = bytes([1 + bool(more), 0, len(field)]) + field + more
    return bytes([1, 5, version]) + struct.pack(">i", 0) + of + tagged


def directories(tag: int, names: bytes) -> bytes:
    """A tagged field with the ids of log directories, one for each byte of `names`."""
    field = uvarint(len(names) + 1) + b"".join(bytes([name]) * 16 for name in names)
    return uvarint(tag) + uvarint(len(field)) + field


def registered(broker: int, names: bytes) -> bytes:
    fixed = struct.pack(">i?16sq", broker, False, ID, 1) + b"\1\1\0\0\0"
    return bytes([1, 0, 4]) + fixed + b"\1" + directories(0, names)


def cordoned(broker: int, names: bytes) -> bytes:
    return bytes([1, 17, 3]) + struct.pack(">iq", broker, 1) + b"\1" + directories(3, names)


def log(*batches: list[bytes], base: int = 0) -> bytes:
    out = b""
    for values in batches:
        out += batch(base, values, ms=1_000 + base)
        base += len(values)
    return out


def commits(logs: dict[str, list[dict]]) -> list[tuple]:
    events = [e for e in logs["event"] if e["kind"] == "isr_commit"]
    return [(e["topic"], list(e["isr"]), e["partition_epoch"]) for e in events]


def write(folder: Path, **contents: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in contents.items():
        (folder / name.replace("_", ".").replace("minus", "-")).write_bytes(data)
    return folder


BEGIN = [topic(), partition((1, 2, 3))]


def test_a_version_that_is_not_known_is_counted_and_what_follows_is_marked(tmp_path):
    data = log(BEGIN, [change((1, 2))], [change((1,), version=9)], [change((1, 2))])
    logs = read(write(tmp_path, a_log=data))
    assert commits(logs) == [("t", [1, 2, 3], 0), ("t", [1, 2], 1), ("t", [1, 2], None)]
    unread = [(row["reason"], row["lines"]) for row in logs["unread"]]
    assert unread == [("unknown version 9 of PartitionChangeRecord", 1)]


def test_tagged_fields_and_types_that_are_not_known_are_passed_over(tmp_path):
    more = bytes([77, 3]) + b"abc"
    data = log(BEGIN, [change((1, 2), more=more)], [bytes([1, 120, 0])], [change((1, 2, 3))])
    logs = read(write(tmp_path, a_log=data))
    assert [epoch for _, _, epoch in commits(logs)] == [0, 1, 2]
    assert [row["reason"] for row in logs["unread"]] == ["unknown type of record: 120"]


def test_an_aborted_transaction_did_not_happen(tmp_path):
    begin, end, abort = (bytes([1, key, 0, 0]) for key in (23, 24, 25))
    data = log(BEGIN, [begin, change((1,)), abort], [begin, change((1, 2)), end])
    logs = read(write(tmp_path, a_log=data))
    assert commits(logs) == [("t", [1, 2, 3], 0), ("t", [1, 2], 1)]


def test_a_deleted_topic(tmp_path):
    data = log(BEGIN, [bytes([1, 9, 0]) + ID + b"\0"])
    logs = read(write(tmp_path, a_log=data))
    assert [(e["kind"], e.get("topic")) for e in logs["event"]][-1] == ("deleted", "t")


def test_segments_go_on_where_the_last_one_ended(tmp_path):
    first = log(BEGIN, [change((1, 2))])
    logs = read(write(tmp_path, a_log=first, b_log=log([change((1, 2, 3))], base=3)))
    assert [epoch for _, _, epoch in commits(logs)] == [0, 1, 2]
    assert logs["unread"] == []


def checkpoint(isr: tuple[int, ...], epoch: int) -> bytes:
    head = batch(0, [bytes([3])], attributes=0x20)
    state = batch(1, [topic(), partition(isr, epochs=(0, epoch))], ms=1_006)
    return head + state + batch(3, [bytes([4])], attributes=0x20)


def test_a_log_whose_beginning_is_gone_starts_from_its_checkpoint(tmp_path):
    name = "00000000000000000007minus0000000001_checkpoint"
    data = log([change((1, 3))], [change((1, 2))], [change((1, 2, 3))], base=5)
    snapshot = checkpoint((1, 2), 40)
    logs = read(write(tmp_path, **{name: snapshot, "a_log": data}))
    unknown, stated, known = commits(logs)[:2], commits(logs)[2], commits(logs)[3]
    assert unknown == [("t", [1, 3], None), ("t", [1, 2], None)]
    assert (stated, known) == (("t", [1, 2], 40), ("t", [1, 2, 3], 41))
    alone = read(write(tmp_path / "alone", **{name: snapshot}))
    assert commits(alone) == [("t", [1, 2], 40)]
    cut = read(write(tmp_path / "cut", **{name: snapshot[:-10], "a_log": data}))
    assert [epoch for _, _, epoch in commits(cut)] == [None] * 3
    assert cut["event"][0]["topic"].startswith("topic id")


def test_the_copies_of_several_controllers_are_one_log(tmp_path):
    data = log(BEGIN, [change((1, 2))], [change((1, 2, 3))])
    for controller, size in ((1, len(data)), (2, len(data)), (3, len(data) - 20)):
        write(tmp_path / str(controller), a_log=data[:size])
    assert [epoch for _, _, epoch in commits(read(tmp_path))] == [0, 1, 2]


def test_records_that_are_missing_are_counted(tmp_path):
    data = log(BEGIN) + log([change((1, 2))], base=9) + log([change((1, 2, 3))], base=10)
    logs = read(write(tmp_path, a_log=data))
    assert [epoch for _, _, epoch in commits(logs)] == [0, None, None]
    assert [row["reason"] for row in logs["unread"]] == ["records are missing or out of order"]


def test_other_files_are_not_taken_for_a_metadata_log(tmp_path):
    other = batch(0, [b"a record of orders"]) + batch(1, [b"another"])
    write(tmp_path, a_log=other, b_log=b"[2024-07-01 08:00:00,123] INFO ...\n", c_log=b"\0" * 99)
    assert [recognise(str(path), path.name) for path in tmp_path.iterdir()] == [None] * 3


def test_a_copy_that_knows_the_epochs_counts(tmp_path):
    data = log(BEGIN, [change((1, 2))], [change((1, 2, 3))])
    write(tmp_path / "1", a_log=data[: len(log(BEGIN))] + data[len(log(BEGIN, [change((1, 2))])) :])
    write(tmp_path / "2", a_log=data)
    assert [epoch for _, _, epoch in commits(read(tmp_path))] == [0, 1, 2]


def test_a_broken_archive_gives_what_came_before(tmp_path):
    packed = (INCIDENTS / PAUSED / "metadata" / f"{SEGMENT}.gz").read_bytes()
    write(tmp_path, a_log=packed[:2000])
    logs = read(tmp_path)
    assert 0 < len(logs["event"]) < 150
    assert any("gzip" in row["reason"] for row in logs["unread"])


def test_holes_and_garbage_between_batches(tmp_path):
    data = (
        log(BEGIN) + bytes(5_000) + log([change((1, 2))], base=2) + random.Random(3).randbytes(999)
    )
    logs = read(write(tmp_path, a_log=data))
    assert [epoch for _, _, epoch in commits(logs)] == [0, 1]
    assert len(logs["unread"]) == 2


def test_every_schema_is_read_in_all_its_versions():
    for key, known in schemas().items():
        for version in range(known.last_version + 1):
            beginning = bytes([1, key, version])
            name, read = decoder(beginning)
            assert name == known.name
            assert known.is_skipped == (read is None)
            assert read is None or isinstance(read(beginning + bytes(300)), dict)
