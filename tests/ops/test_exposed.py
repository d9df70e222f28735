"""Which partitions can lose records in a failure: the alarm, compared with real losses."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from isrlab.__main__ import main
from isrlab.events import schema
from isrlab.events.statements import statements
from isrlab_ops.check import risks, stored
from isrlab_ops.logs.incidents.exposed import Exposure, exposures
from isrlab_ops.logs.reader.read import read_local
from isrlab_ops.recordings.reassigned import FOLDER, ClusterRun, sessions
from tests.ops.test_metadata_log import ID, batch, log, partition, topic, uvarint

OTHER = bytes(range(1, 17))
LOGS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())  # for example 4.4.0-elr1-C
SESSIONS = {f"{s.release}-elr{s.elr}-{s.tries[0].variant[0]}": s for s in sessions()}


def exposed(session: ClusterRun, events: pa.Table, moment: str) -> dict[str, list[Exposure]]:
    """Exposures by topic, 1 s after its state was read at `moment`; brokers are killed later."""
    began_s = datetime.fromisoformat(session.began).timestamp()
    ends = defaultdict(set)
    for each in session.tries:
        for seen in each.moments:
            if seen.name == moment:
                ends[1000 * (began_s + seen.at_s + 1)].add(each.topic)
    known: dict[str, list[Exposure]] = {}
    for end_ms, topics in ends.items():
        for each in exposures(events.filter(pc.less(events["ts_ms"], end_ms))):
            if each.key.topic in topics:
                known.setdefault(each.key.topic, []).append(each)
    return known


@pytest.mark.parametrize("name", LOGS)
def test_what_is_one_failure_from_a_loss_is_lost_by_one_failure_and_nothing_else(name: str):
    session = SESSIONS[name]
    known = exposed(session, read_local(FOLDER / name).events, "copying")
    near = {topic for topic, found in known.items()
            if any(each.failures == 1 and each.why == "came back" for each in found)}  # fmt: skip
    assert near == {each.topic for each in session.tries if each.lost}


@pytest.mark.parametrize("name", LOGS)
def test_healthy_partitions_and_dead_followers_are_not_exposed(name: str):
    session, events = SESSIONS[name], read_local(FOLDER / name).events
    for moment in "healthy", "brokers 2 and 3 are dead", "all are back":
        known = exposed(session, events, moment)
        assert not known, f"{moment}: {next(iter(known.values()))}"


def test_the_schedule_is_the_rest_of_what_was_done():
    name = next(name for name in LOGS if name.endswith("elr1-C") and name > "4.3")
    known = exposed(SESSIONS[name], read_local(FOLDER / name).events, "moved")["C0"]
    assert [(each.why, each.replica, each.failures) for each in known] == [("no replica", 1, 1)]
    assert known[0].schedule == (
        "a reassignment makes broker 1 a replica again",
        "broker 4 fails before broker 1 is in sync again",
        "broker 1 is elected from the ELR, without the records that broker 4 has",
    )


def state(partition: int = 0, epoch: int = 0, **detail: str) -> dict:
    isr = [int(each) for each in detail.pop("isr").split(",")]
    detail = {"said_by": "metadata log", "leader": str(isr[0]), **detail}
    return {"run": "run", "ts_ms": epoch, "topic": "t", "partition": partition, "isr": isr,
            "partition_epoch": epoch, "kind": "isr_commit",
            "detail": [*detail.items()]}  # fmt: skip


def setting(name: str, value: str, of: str = "broker") -> dict:
    detail = {"said_by": "metadata log", "of": of, "name": name, "value": value}
    return {"run": "run", "ts_ms": 0, "kind": "config", "detail": [*detail.items()]}


ELR = setting("eligible.leader.replicas.version", "1", "cluster")
MIN_ISR = setting("min.insync.replicas", "2")


def reasons(*rows: dict) -> list[str]:
    return [each.why for each in exposures(pa.Table.from_pylist([*rows], schema=schema.SCHEMA))]


def test_an_eligible_replica_is_no_danger_until_it_was_away():
    shrunk = state(epoch=1, isr="1", elr="2", replicas="1,2")
    assert reasons(ELR, MIN_ISR, state(isr="1,2", replicas="1,2"), shrunk) == []
    gone = state(epoch=2, isr="1", elr="2", replicas="1")
    again = state(epoch=3, isr="1", elr="2", replicas="1,2", adding="2")
    assert reasons(ELR, MIN_ISR, shrunk, gone) == ["no replica"]
    assert reasons(ELR, MIN_ISR, shrunk, gone, again) == ["came back"]
    whole = state(epoch=4, isr="1,2", replicas="1,2")
    assert reasons(ELR, MIN_ISR, shrunk, gone, again, whole) == []
    later = state(epoch=5, isr="1", elr="2", replicas="1,2")
    assert reasons(ELR, MIN_ISR, shrunk, gone, again, whole, later) == []


def test_a_snapshot_alone_does_not_show_whether_a_replica_was_in_sync():
    added = state(epoch=9, isr="1", elr="2", replicas="1,2", adding="2")
    assert reasons(ELR, MIN_ISR, added) == ["being added"]


@pytest.mark.parametrize(
    ("of_first", "of_other", "min_isr", "expected"),
    [("1", "1,2,3", "2", 1), ("1,2,3", "1", "2", 1), ("1,2,3", "1,2", "2", 0),
     ("1,2,3", "1", "1", 0), ("1,2,3", "1,2", "3", 1)],
)  # fmt: skip
def test_partitions_of_a_topic_with_other_replica_counts(of_first, of_other, min_isr, expected):
    rows = state(0, isr="1", replicas=of_first), state(1, isr="1", replicas=of_other)
    least = setting("min.insync.replicas", min_isr)
    assert reasons(ELR, least, *rows) == ["partition 0"] * expected
    assert reasons(least, *rows) == []  # without eligible leader replicas


def test_the_last_in_sync_replica_under_unclean_elections():
    unclean = setting("unclean.leader.election.enable", "true")
    one, both = state(isr="1", replicas="1,2"), state(isr="1,2", replicas="1,2")
    assert reasons(unclean, one) == ["unclean"]
    assert reasons(unclean, both) == reasons(one) == reasons(unclean, MIN_ISR, one) == []


def test_the_command_says_exposed_with_the_schedule_and_exit_status_1():
    logs = str(FOLDER / "4.4.0-elr1-C")
    moved = SESSIONS["4.4.0-elr1-C"].tries[0].moments[2]
    began_s = datetime.fromisoformat(SESSIONS["4.4.0-elr1-C"].began).timestamp()
    until = datetime.fromtimestamp(began_s + moved.at_s + 1, UTC).strftime("%Y-%m-%d %H:%M:%S")
    done = CliRunner().invoke(main, ["logs", logs, "--until", until])
    assert done.exit_code == 1 and "EXPOSED" in done.output
    assert "1. a reassignment makes broker 1 a replica again; 2. broker 4 fails" in done.output
    done = CliRunner().invoke(main, ["logs", logs, "--json"])
    assert "EXPOSED" not in done.output and json.loads(done.output)["exposed"] == []


CREATED, DELETED = [topic(), partition((1, 2, 3))], [bytes([1, 9, 0]) + ID + b"\0"]
AGAIN = [topic(of=OTHER), partition((1, 2, 3), of=OTHER)]


def config(value: str | None, name: str = "retention.ms") -> bytes:
    texts = (b"".join(uvarint(len(each) + 1) + each.encode() for each in ("t", name)),
             uvarint(len(value) + 1) + value.encode() if value is not None else b"\0")  # fmt: skip
    return bytes([1, 4, 0, 2]) + b"".join(texts) + b"\0"


@pytest.mark.parametrize(
    ("batches", "left"),
    [([CREATED, [config("1000")], DELETED, AGAIN], "retention.ms=1000"),
     ([CREATED, [config("1000")], DELETED, AGAIN, [config("9000")]], None),  # it has its own
     ([CREATED, [config("1000")], [config(None)], DELETED, AGAIN], None),
     ([CREATED, [config("1000", "segment.ms")], DELETED, AGAIN], None),  # deletes no record
     ([CREATED, DELETED, AGAIN], None),
     ([CREATED, [config("1000")], DELETED], None),
     ([CREATED, [config("1000")], DELETED, AGAIN, [config("2", "min.insync.replicas")]],
      "retention.ms=1000")],
)  # fmt: skip
def test_settings_of_a_deleted_topic(tmp_path, batches, left):
    (tmp_path / "a.log").write_bytes(log(*batches))
    known = exposures(read_local(tmp_path).events)
    assert [left in each.says for each in known] == [True] * (left is not None)
    assert [each.why for each in known] == ["deleted topic"] * (left is not None)
    if batches[-1] is not DELETED:
        assert risks.exposures(stored.of_files(str(tmp_path))) == [
            each._replace(key=each.key._replace(run="")) for each in known
        ]


def test_a_snapshot_after_the_setting_ends_the_exposure(tmp_path):
    head, end = (batch(at, [bytes([kind])], attributes=0x20) for at, kind in ((0, 3), (4, 4)))
    snapshot = head + batch(1, [*CREATED, config("1000")], ms=1_006) + end
    data = log(CREATED, [config("1000")], DELETED, AGAIN)
    (tmp_path / "00000000000000000003-0000000001.checkpoint").write_bytes(snapshot)
    (tmp_path / "a.log").write_bytes(data)
    assert exposures(read_local(tmp_path).events) == []


def test_an_elr_that_snapshots_leave_out():
    off = setting("eligible.leader.replicas.version", "0", "cluster")
    shrunk = state(epoch=1, isr="1", elr="2", replicas="1,2")
    assert reasons(off, MIN_ISR, shrunk) == ["epochs"]
    assert reasons(off, MIN_ISR, state(epoch=1, isr="1", replicas="1,2")) == []
    assert reasons(off, MIN_ISR, shrunk, ELR) == []


def test_an_eligible_replica_whose_directory_is_offline():
    shrunk = state(epoch=1, isr="1", elr="2", replicas="1,2", no_log="2")
    assert reasons(ELR, MIN_ISR, shrunk) == ["no directory"]
    assert reasons(ELR, MIN_ISR, shrunk, state(epoch=2, isr="1,2", replicas="1,2")) == []


def test_a_switched_off_elr_on_a_real_broker():
    """Broker 2 is dead and eligible, the feature is off for a time, and then the ELR is cleared."""
    events = read_local(FOLDER.parent / "exposed" / "4.3.1-drift").events
    elrs = {row.ids("elr") for row in statements(events, "isr_commit")}
    assert (2,) in elrs  # with its directory online: not exposed before the feature is off
    switched = [row.ts_ms for row in statements(events, "config")
                if row.detail["name"] == "eligible.leader.replicas.version"]  # fmt: skip
    off_ms, on_ms = switched[-2:]
    assert [e.why for e in exposures(events, off_ms)] == ["epochs"]
    assert exposures(events, off_ms - 1) == exposures(events, on_ms) == exposures(events) == []
