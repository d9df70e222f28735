"""What broker logs prove: small logs that were once read wrongly, and nine recorded incidents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cases.logs import isrs, prove, story, under_replicated_ms, why_unknown, write
from isrlab.events import exact
from isrlab_ops.logs import reader
from isrlab_ops.logs.history import history_of
from isrlab_ops.logs.history.states import MISSING, NEWER, OPEN
from isrlab_ops.logs.incidents.look import look

CLASS = "(kafka.cluster.Partition)"
STATE = "(state.change.logger)"
CREATED = "INFO Created log for partition t-0 in /d/t-0 with properties {} (kafka.log.LogManager)"
GONE = "INFO [KafkaServer id=2] shut down completed (kafka.server.KafkaServer)"


def of(broker, partition=0):
    return f"[Partition t-{partition} broker={broker}]"


def shrink(broker, before, isr, partition=0):
    """The line with which a leader of 2.8 asks for a smaller ISR."""
    gone = next(r for r in before.split(",") if r not in isr.split(","))
    ends = f"Leader: (highWatermark: 90, endOffset: 95). Out of sync replicas: (brokerId: {gone}, "
    text = f"Shrinking ISR from {before} to {isr}. {ends}endOffset: 90)."
    return f"INFO {of(broker, partition)} {text} {CLASS}"


def commit(broker, isr, version, partition=0):
    """The line of a leader of 2.8 that has stored an ISR."""
    text = f"ISR updated to {isr} and version updated to [{version}]"
    return f"INFO {of(broker, partition)} {text} {CLASS}"


def stored(isr, version):
    """The DEBUG line of a controller of 2.8 that has stored what a leader asked for."""
    text = f"ISR for partition t-0 updated to [{isr}] and zkVersion updated to [{version}]"
    return f"DEBUG [Controller id=9] {text} (kafka.controller.KafkaController)"


def leads(broker, isr, epoch, partition=0):
    """The line of a broker of 2.8 that becomes leader."""
    tail = f"ISR [{isr}] addingReplicas [] removingReplicas []. Previous leader epoch was -1."
    text = f"starts at leader epoch {epoch} from offset 0 with high watermark 0 {tail}"
    return f"INFO [Broker id={broker}] Leader t-{partition} {text} {STATE}"


def follows(broker, epoch):
    text = f"Follower t-0 starts at leader epoch {epoch} from offset 0 with high watermark 0."
    return f"INFO [Broker id={broker}] {text} Previous leader epoch was -1. {STATE}"


def test_l1_a_shrink_without_a_return_is_under_replicated_to_the_end(tmp_path):
    logs = {
        "server.log": f"""
            08:00:00,000 {shrink(1, "1,2,3", "1,2")}
            08:00:00,020 {commit(1, "1,2", 5)}
            08:04:00,020 INFO [KafkaServer id=1] started (kafka.server.KafkaServer)
        """
    }
    history = prove(tmp_path, logs)
    assert isrs(history)[-2:] == ["1,2,3", "1,2"]
    assert under_replicated_ms(history) == 240_000


def test_l2_the_controller_who_stores_it_does_not_win_over_the_leader_who_asked(tmp_path):
    logs = {
        "b1/state-change.log": f"07:00:00,000 {leads(1, '1,2,3', 0)}",
        "b1/server.log": f"""
            08:00:00,000 {shrink(1, "1,2,3", "1,2")}
            08:00:00,020 {commit(1, "1,2", 1)}
            08:00:09,020 {commit(1, "1,2,3", 2)}
        """,
        "b9/controller.log": f"""
            08:00:00,010 {stored("1,2", 1)}
            08:00:09,010 {stored("1,2,3", 2)}
        """,
    }
    history = prove(tmp_path, logs)
    assert story(history) == [
        (25_200.0, ([1, 2, 3], "controller", 1)),
        (28_800.01, ([1, 2], "leader", 1)),
        (28_809.01, ([1, 2, 3], "leader", 1)),
    ]
    (eviction,) = exact.evictions(history.events)
    assert (eviction.leader, eviction.replica) == (1, 3)


def test_l3_the_replicas_are_those_of_the_time(tmp_path):
    """A partition has one replica, and three from 09:00 on; before, it lacks none."""
    logs = {
        "server.log": f"""
            08:00:00,000 {commit(1, "1", 1)}
            08:59:00,000 {CREATED}
            09:00:00,000 {commit(1, "1,2", 2)}
            09:00:01,000 {commit(1, "1,2,3", 3)}
            10:00:00,000 {shrink(1, "1,2,3", "1,2")}
            10:00:00,010 {commit(1, "1,2", 4)}
            10:01:00,010 {commit(1, "1,2,3", 5)}
        """
    }
    assert under_replicated_ms(prove(tmp_path, logs)) == 60_000


def test_l4_a_broker_that_has_loaded_the_log_is_a_replica(tmp_path):
    loaded = "Log loaded for partition t-0 with initial high watermark 0"
    logs = {
        f"b{broker}/server.log": f"07:00:00,000 INFO {of(broker)} {loaded} {CLASS}"
        for broker in (1, 2, 3)
    }
    logs["b1/server.log"] += f"""
        08:00:00,000 {commit(1, "1,2", 5)}
        08:00:30,000 {commit(1, "1,2", 5)}
    """
    history = prove(tmp_path, logs)
    spans = exact.isr_spans(history.events)[exact.Key("r", "t", 0)]
    assert [span.replicas for span in spans] == [(1, 2, 3)]
    assert under_replicated_ms(history) == 30_000
    assert not any(span.is_assigned for span in spans)
    assert why_unknown(history) == {"no line before tells its ISR"}  # from 07:00 on


def test_l6_versions_outrank_clocks(tmp_path):
    """The new leader's clock is 15 s behind; the earlier shrink is still true."""
    logs = {
        "b1/server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:10:00,000 {shrink(1, "1,2,3", "1,2")}
            08:10:00,010 {commit(1, "1,2", 6)}
        """,
        "b2/server.log": f"08:09:55,000 {commit(2, '2,1,3', 7)}",
    }
    history = prove(tmp_path, logs)
    assert isrs(history)[-3:] == ["1,2,3", "1,2", "1,2,3"]
    behind = {clock.broker: clock for clock in history.clocks}[2]
    assert behind.ahead_ms <= -5_000
    assert behind.is_bound


def test_l6_a_clock_that_was_set_back_makes_the_time_unknown(tmp_path):
    """Out for 40 minutes, but for 10 by the timestamps: the time between is reported as unknown."""
    logs = {
        "server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:30:00,000 {shrink(1, "1,2,3", "1,2")}
            08:30:00,010 {commit(1, "1,2", 6)}
            08:10:00,000 {commit(1, "1,2,3", 7)}
        """
    }
    history = prove(tmp_path, logs)
    assert isrs(history) == ["1,2,3", "1,2", "?", "1,2,3"]
    assert "a clock was set back by an unknown amount" in why_unknown(history)
    assert [clock.part for clock in history.clocks if clock.is_bound] == ["server.log:4"]


def test_l6_the_end_of_summer_time_is_found_with_another_broker(tmp_path):
    """Broker 1's clock goes back an hour at 09:00; broker 2's log shows by how much."""
    times = [f"08:{minute:02d}:00,000" for minute in range(10, 60, 10)]
    back = [f"08:{minute:02d}:30,000" for minute in range(10, 60, 10)]
    hour = [f"09:{minute:02d}:30,000" for minute in range(10, 60, 10)]
    isr = ["1,2", "1,2,3"]
    own = [commit(1, isr[n % 2], n + 1) for n in range(10)]
    told = [stored(isr[n % 2], n + 1) for n in range(10)]
    logs = {
        "b1/server.log": "\n".join(map(" ".join, zip(times + back, own, strict=True))),
        "b9/controller.log": "\n".join(map(" ".join, zip(times + hour, told, strict=True))),
    }
    history = prove(tmp_path, logs)
    ahead = {clock.part: clock.ahead_ms for clock in history.clocks}
    assert ahead == {"": 0, "b1/server.log:6": -3_600_000}
    assert "?" not in isrs(history)[1:]
    assert story(history)[-1][0] == 9 * 3600 + 50 * 60 + 30


def test_l9_a_broker_that_was_restarted_shortly_before_it_left_was_gone(tmp_path):
    name, log = "[KafkaServer id=3]", "[Log partition=t-0, dir=/d]"
    logs = {
        "b1/server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:00:20,000 {shrink(1, "1,2,3", "1,2")}
            08:00:20,010 {commit(1, "1,2", 6)}
            08:00:40,000 {commit(1, "1,2,3", 7)}
        """,
        "b3/server.log": f"""
            08:00:01,000 {follows(3, 5)}
            08:00:19,000 INFO {name} starting (kafka.server.KafkaServer)
            08:00:19,500 INFO {log} Recovering unflushed segment 0 (kafka.log.Log)
            08:00:22,000 INFO {name} started (kafka.server.KafkaServer)
        """,
    }
    (incident,) = look(write(tmp_path, logs)).incidents
    assert (incident.what, incident.blamed) == ("died_and_back", (3,))


def test_l19_the_end_of_the_log_is_its_last_line(tmp_path):
    logs = {
        "server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:00:10,000 {shrink(1, "1,2,3", "1,2")}
            08:00:10,010 {commit(1, "1,2", 6)}
            08:01:10,010 INFO [GroupCoordinator 1]: Something else. (kafka.coordinator.group)
        """
    }
    assert under_replicated_ms(prove(tmp_path, logs)) == 60_000


def test_l20_clocks_90_s_apart(tmp_path):
    """Leaders 1 and 2 remove broker 3 from their partitions at the same moment."""
    moments = [("08:00:00,000", "07:58:30,000"), ("08:00:20,000", "07:58:50,000"),
               ("08:00:30,000", "07:59:00,000")]  # fmt: skip
    own = [leads(2, "2,1,3", 0), commit(2, "2,1", 1), commit(2, "2,1,3", 2)]
    told = [leads(9, "", 0), stored("2,1", 1), stored("2,1,3", 2)]
    logs = {
        "b2/server.log": "\n".join(
            f"{b} {line}" for (_, b), line in zip(moments, own, strict=True)
        ),
        "b9/controller.log": "\n".join(
            f"{a} {line}" for (a, _), line in [*zip(moments, told, strict=True)][1:]
        ),
        "b1/server.log": f"""
            08:00:00,000 {follows(1, 0)}
            08:00:20,000 {commit(1, "1,2", 8, 1)}
            08:00:30,000 {commit(1, "1,2,3", 9, 1)}
        """,
    }
    history = prove(tmp_path, logs)
    ahead = {clock.broker: clock.ahead_ms for clock in history.clocks}
    assert ahead == {1: 0, 2: -90_000, 9: 0}
    moves = [(move.ts_ms, move.replica, move.joined) for move in exact.moves(history.events)]
    assert len({ts_ms for ts_ms, *_ in moves}) == 2
    assert len(moves) == 3


# Missing lines are reported


def test_a_gap_of_versions_is_not_known_from_when_the_old_state_was_last_seen(tmp_path):
    logs = {
        "server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:09:00,000 {commit(1, "1,2,3", 8)}
            08:09:00,000 {commit(1, "1,2,3", 8)}
        """
    }
    history = prove(tmp_path, logs)
    assert isrs(history) == ["1,2,3", "?", "1,2,3"]
    assert why_unknown(history) == {MISSING}
    assert under_replicated_ms(history) == 0


def test_a_request_of_which_nobody_says_what_came_of_it(tmp_path):
    logs = {
        "server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:00:10,000 {shrink(1, "1,2,3", "1,2")}
            08:01:00,000 INFO [KafkaServer id=1] started (kafka.server.KafkaServer)
        """
    }
    history = prove(tmp_path, logs)
    assert isrs(history) == ["1,2,3", "?"]
    assert why_unknown(history) == {OPEN}


def test_an_announced_shrink_that_was_refused_is_none(tmp_path):
    skip = "INFO [Partition t-0 broker=1] Cached zkVersion [5] not equal to that in zookeeper, skip"
    logs = {
        "server.log": f"""
            08:00:00,000 INFO {of(1)} ISR updated to [1,2,3] and zkVersion updated to [5] {CLASS}
            08:00:10,000 {shrink(1, "1,2,3", "1,2")}
            08:00:10,020 {skip} updating ISR {CLASS}
            08:01:00,000 INFO [KafkaServer id=1] started (kafka.server.KafkaServer)
        """
    }
    history = prove(tmp_path, logs)
    assert isrs(history) == ["1,2,3", "?"]
    assert why_unknown(history) == {NEWER}


def test_a_dead_member_of_whom_nobody_says_that_it_left(tmp_path):
    logs = {
        "b1/server.log": f"""
            08:00:00,000 {commit(1, "1,2,3", 5)}
            08:05:00,000 INFO [KafkaServer id=1] started (kafka.server.KafkaServer)
        """,
        "b2/server.log": f"08:01:00,000 {GONE}",
    }
    history = prove(tmp_path, logs)
    assert isrs(history) == ["1,2,3", "?"]
    assert why_unknown(history) == {"broker 2 was gone, and no line says that it left the ISR"}


def test_a_partition_that_is_only_hosted_is_wholly_unknown(tmp_path):
    loaded = "Log loaded for partition t-0 with initial high watermark 0"
    logs = {"server.log": f"07:00:00,000 INFO {of(1)} {loaded} {CLASS}\n08:00:00,000 INFO x (y)"}
    history = prove(tmp_path, logs)
    assert isrs(history) == ["?"]


def test_without_a_controllers_log_that_is_said(tmp_path):
    logs = {"server.log": f"08:00:00,000 {commit(1, '1,2,3', 5)}"}
    (why,) = why_unknown(prove(tmp_path, logs), partition=None)
    assert why.startswith("no log of a controller is here")


# Nine incidents of real clusters, and their true histories

INCIDENTS = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
MARKED = {"g-01022-follower-flapping", "s-0822-follower-paused"}  # whose lines have no versions
NEAR_MS = 1_000


def truth(name):
    """By partition: the ISRs from the first state on, as (ms, members), without repetitions."""
    told = json.loads((INCIDENTS / name / "truth.json").read_text(encoding="utf-8"))
    changes = {}
    for change in told["isr_changes"]:
        changes.setdefault(change["partition"], []).append(change)
    return told, {
        partition: [(None, {*rows[0]["isr_from"]}), *((r["t_ms"], {*r["isr_to"]}) for r in rows)]
        for partition, rows in changes.items()
    }


def proven_of(folder, end_ms):
    """The history, and by partition its ISRs as (ms, members, or None if unknown)."""
    logs = reader.read_local(folder, run="r")
    history = history_of(logs.events, logs.files)
    states = {}
    for row in history.events.to_pylist():
        if row["kind"] in ("isr_commit", "unknown") and row["ts_ms"] <= end_ms:
            isr = None if row["isr"] is None else {*row["isr"]}
            rows = states.setdefault(f"{row['topic']}-{row['partition']}", [])
            if not rows or rows[-1][1] != isr:
                rows.append((row["ts_ms"], isr))
    return history, states


def names():
    """The incidents whose true history is recorded."""
    return sorted(path.parent.name for path in INCIDENTS.glob("?-*/truth.json"))


@pytest.mark.parametrize("name", names())
def test_the_lines_of_an_incident_prove_the_true_history(name):
    told, expected = truth(name)
    history, states = proven_of(INCIDENTS / name / "logs", told["logs_end_ms"])
    states = {key: rows for key, rows in states.items() if len(rows) > 1}
    assert {k: [isr for _, isr in v] for k, v in states.items()} == {
        k: [isr for _, isr in v] for k, v in expected.items()
    }
    for key, rows in expected.items():
        for (ms, _), (true_ms, _) in zip(states[key][1:], rows[1:], strict=True):
            assert abs(ms - true_ms) <= NEAR_MS
    assert {gap.key for gap in history.gaps} <= {None}
    assert bool(history.gaps) == (name in MARKED)


@pytest.mark.parametrize("name", [n for n in names() if (INCIDENTS / n / "metadata").is_dir()])
def test_the_metadata_log_of_an_incident_proves_it_exactly(name):
    told, expected = truth(name)
    _, states = proven_of(INCIDENTS / name, told["logs_end_ms"])
    states = {key: rows for key, rows in states.items() if len(rows) > 1}
    assert {key: rows[1:] for key, rows in states.items()} == {
        key: rows[1:] for key, rows in expected.items()
    }


def test_the_clock_of_an_incident_that_is_90_s_behind():
    history, _ = proven_of(INCIDENTS / "j-282-clocks-apart" / "logs", 2**62)
    ahead = {clock.broker: clock.ahead_ms for clock in history.clocks}
    assert ahead == {1: 0, 2: pytest.approx(-90_000, abs=200), 3: 0}
