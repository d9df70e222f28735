"""Can Kafka have done this? No false alarm on any recording; planted faults are found."""

from __future__ import annotations

import random
import re
import tarfile
from collections import Counter, defaultdict
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from cases.printed import announced, summary
from isrlab.engine.versions import KafkaVersion
from isrlab.events import schema
from isrlab.events.exact import absences
from isrlab.events.statements import Statement, statement, statements
from isrlab_ops.logs.history import history_of
from isrlab_ops.logs.history.clocks import align_clocks
from isrlab_ops.logs.history.possible import Registration as State
from isrlab_ops.logs.history.possible import candidates, is_possible
from isrlab_ops.logs.history.scene import Scene
from isrlab_ops.logs.history.verdict import JUDGED, Verdict, judge
from isrlab_ops.logs.reader import Unread, read_line, read_local
from isrlab_ops.logs.reader.files import lines

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
FOLDERS = {
    **{path.name: path for path in sorted((RECORDINGS / "incidents").iterdir()) if path.is_dir()},
    **{name: RECORDINGS / name for name in ("kafka-3.9", "kafka-4.1", "moved-282", "moved-392")},
}
WITH_TRUTH = [name for name in FOLDERS if re.match(r"[a-z]-\d+-|kafka-", name)]
CHANGES = "isr", "isr_before", "replica", "leader_epoch", "partition_epoch"


logs_of = cache(lambda name: read_local(FOLDERS[name], "run"))


@cache
def recorded(name: str):
    """Rows of events on one clock, the files, and the text of each line."""
    logs = logs_of(name)
    rows, files = statements(logs.events), logs.files.to_pylist()
    align_clocks(rows)
    metadata = {file["file"] for file in files if "metadata" in (file["layout"] or "")}
    texts = {
        (file, line.number): line.text.decode("utf-8", "replace")
        for file in {row.file for row in rows} - metadata
        for line in lines(str(FOLDERS[name] / file))
    }
    return rows, files, texts


def judged_rows(rows: list[Statement], files: list[dict], release: str | None = None) -> Verdict:
    return judge(Scene(sorted(rows, key=lambda row: row.place), files), release)


def changed(row: Statement, **columns) -> Statement:
    """The row with other columns."""
    own = {name: getattr(row, name) for name in schema.COLUMNS}
    new = statement(**own | columns)
    new.printed_ms = row.printed_ms
    return new


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_no_false_alarm(name):
    logs = logs_of(name)
    (verdict,) = history_of(logs.rows, logs.file_rows).verdicts()
    assert verdict.faults == ()
    named = re.search(r"-(\d)(\d)(\d)-", name)
    assert not named or verdict.releases == ".".join(named.groups())
    assert verdict.partitions == len(
        {(row.topic, row.partition) for row in logs.rows if row.kind in JUDGED}
    )


@pytest.mark.parametrize("name", sorted(p.name for p in RECORDINGS.glob("eras/*[0-9].tar.xz")))
def test_no_false_alarm_where_brokers_start_and_log_late(name, tmp_path):
    """All brokers run on one machine: late lines of a start must not be taken for clock skew."""
    with tarfile.open(RECORDINGS / "eras" / name) as packed:
        packed.extractall(tmp_path, filter="data")
    logs = read_local(tmp_path, "run")
    assert {clock.ahead_ms for clock in history_of(logs.events).clocks} == {0}
    history = history_of(logs.events, logs.files)
    assert history.faults == []
    (scene,) = history.scenes
    for missing in ("state-change", *(file for file in scene.order if "state-change" in file)):
        rows = [row for row in scene.rows if missing not in row.file]
        assert judge(Scene(rows, scene.files, scene.clocks)).faults == (), missing


@pytest.mark.parametrize("name", ["372-cancelled", "moved-392"])
def test_no_false_alarm_where_only_brokers_report_a_reassignment_of_kraft(name):
    logs = logs_of(name)
    (scene,) = history_of(logs.events, logs.files).scenes
    rows = [row for row in scene.rows if "state-change" in row.file]
    assert judge(Scene(rows, scene.files, scene.clocks)).faults == ()


# Planted faults


def said(event: dict) -> list:
    replica = event.get("replica")
    if event["kind"] == "leader" and replica is None:
        replica = event.get("broker")
    values = [replica if name == "replica" else event.get(name) for name in CHANGES]
    return [*map(repr, values), dict(event["detail"]).get("leader")]


def altered(rows: list[Statement], texts: dict, share: float, chance: random.Random):
    """(index, row) for lines in which one number of an ISR, leader, version or epoch is changed."""
    for index, row in enumerate(rows):
        place = row.file, row.line
        if row.kind not in JUDGED or place not in texts:
            continue
        text, event = texts[place], read_line(texts[place])
        for number in re.finditer(r"(?<![\w.:,\[-])-?\d+(?![\w.:])|(?<=[\[,])\d+(?=[\],])", text):
            if number.start() < text.find("]"):
                continue  # part of the time
            value = int(number[0])
            for other in sorted({value + 1, value - 1, value % 3 + 1} - {value}):
                if chance.random() > share:
                    continue
                new = read_line(f"{text[: number.start()]}{other}{text[number.end() :]}")
                same = ("kind", "topic", "partition", "broker")
                if new is None or isinstance(new, Unread) or said(new) == said(event):
                    continue
                if any(new.get(name) != event.get(name) for name in same):
                    continue
                columns = {n: new.get(n) for n in CHANGES if n != "replica" or new.get(n)}
                yield index, changed(row, **columns, detail=row.detail | dict(new["detail"]))


def partitions(rows: list[Statement]):
    """For each partition its rows, and the rows that belong to no partition."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.topic, row.partition].append(row)
    general = [row for key, of_key in groups.items() if None in key for row in of_key]
    yield from ((of_key, general) for key, of_key in groups.items() if None not in key)


def test_altered_lines_are_found(request):
    share, seed = (1.0 if request.config.getoption("--fuzz") else 0.02), 7
    found, missed, chance = Counter(), Counter(), random.Random(seed)
    for name in WITH_TRUTH:
        rows, files, texts = recorded(name)
        for own, general in partitions(rows):
            for index, row in altered(own, texts, share, chance):
                planted = [*general, *own[:index], row, *own[index + 1 :]]
                is_found = bool(judged_rows(planted, files).faults)
                found[is_found] += 1
                if not is_found:
                    missed[name, row.kind, row.said_by] += 1
    print(f"{found[True]} of {found.total()} altered lines found; not: {dict(missed)}")
    assert found[True] >= 0.99 * found.total() > 100


def test_no_broker_knows_a_version_before_the_metadata_log_has_it():
    rows, files, _ = recorded("b-412-follower-killed")
    own, general = next(p for p in partitions(rows) if p[0][0].topic == "orders")
    index = next(n for n, row in enumerate(own) if row.kind == "follower")
    assert own[index].partition_epoch == 0
    early = [*own[:index], changed(own[index], partition_epoch=1), *own[index + 1 :]]
    assert judged_rows([*general, *own], files).faults == ()
    assert "early" in {fault.rule for fault in judged_rows([*general, *early], files).faults}


def moves(rows: list[Statement]) -> list[tuple[int, Statement]]:
    """(index, row) where the replicas change in these metadata rows of one partition."""
    of_states = [(i, row) for i, row in enumerate(rows) if row.kind in JUDGED]
    return [
        (index, row) for (_, before), (index, row) in pairwise(of_states)
        if before.detail["replicas"] != row.detail["replicas"]
    ]  # fmt: skip


def test_replicas_that_were_moved_away_are_not_missing():
    """Only broker 4, which was paused, was out of ISRs; at the end every replica is in sync."""
    outs = absences(history_of(logs_of("moved-392").events).events)
    assert {out.replica for out in outs} == {4}
    assert all(out.end_ms for out in outs)


def test_a_reassignment_in_the_metadata_log_is_explained_and_a_fault_in_it_is_found():
    """Only the metadata log is read, because a second line about a version would expose a fault."""
    rows, files, _ = recorded("moved-392")
    rows = [row for row in rows if row.is_exact]
    found = Counter()
    for own, general in partitions(rows):
        verdict = judged_rows([*general, *own], files, "3.9.2")
        assert verdict.faults == ()
        for index, row in moves(own):
            detail = row.detail
            replicas = detail["replicas"].split(",")
            adding = detail.get("adding", "")
            added = [int(i) for i in replicas if int(i) not in own[index - 1].isr]
            early = [i for i in row.isr if i not in added]
            others = {
                "another broker": {"detail": detail | {"replicas": ",".join([*replicas, "7"])}},
                "none is added": {"detail": detail | {"adding": "" if adding else "2"}},
                "another epoch": {"leader_epoch": row.leader_epoch + 1},
            }
            if not adding and added:
                others["not in sync yet"] = {"isr": early}
            for what, columns in others.items():
                same = [
                    changed(r, **columns) if r.partition_epoch == row.partition_epoch else r
                    for r in own
                ]
                altered = judged_rows([*general, *same], files, "3.9.2")
                found[what, bool(altered.faults)] += 1
    print(dict(found))
    assert not any(count for (_, is_found), count in found.items() if not is_found)
    assert len(found) == 4 and found.total() > 20


def answers(rows: list[Statement]) -> list[tuple]:
    """The proven history of a partition: its ISRs in order, or that none is known."""
    proven = statements(history_of([changed(row) for row in rows]).rows, "isr_commit", "unknown")
    return [(row.kind, row.isr and sorted(row.isr)) for row in proven]


def test_dropped_and_moved_lines_are_found_or_change_nothing(request):
    share, seed = (1.0 if request.config.getoption("--fuzz") else 0.1), 8
    found, chance = Counter(), random.Random(seed)
    for name in WITH_TRUTH:
        rows, files, texts = recorded(name)
        last = dict(texts.keys())  # line of each file
        for own, general in partitions(rows):
            whole = cache(partial(answers, [*general, *own]))
            for index, row in enumerate(own):
                place = row.file, row.line
                if row.kind not in JUDGED or place not in texts or chance.random() > share:
                    continue
                others = [*general, *own[:index], *own[index + 1 :]]
                if judged_rows(others, files).faults:
                    found["dropped", "found"] += 1
                else:
                    is_same = answers(others) == whole()
                    found["dropped", "same answer" if is_same else "other answer"] += 1
                moved = {"line": str(chance.randrange(1, last[row.file] + 1))}
                planted = [*others, changed(row, detail=row.detail | moved)]
                is_found = bool(judged_rows(planted, files).faults)
                found["moved", "found" if is_found else "same answer"] += 1
    print(dict(found))
    assert found["dropped", "other answer"] < 0.25 * found.total()
    assert found["dropped", "found"] > 0 < found["moved", "found"]


def test_what_was_printed_against_what_happened():
    names = "a-412-follower-paused", "b-412-follower-killed", "d-392-rolling-restart"
    paused, killed, restarted = numbers = [summary(logs_of(name).events) for name in names]
    assert (paused["announced shrinks"], paused["of them stored"]) == (16, 16)
    assert paused["stored, and confirmed by ISR updated"] == 10
    assert (killed["announced shrinks"], killed["shrinks that the controller made"]) == (2, 14)
    assert (restarted["expansions stored"], restarted["expansions without ISR updated"]) == (48, 17)
    assert all(each["changes that no line shows"] == 0 for each in numbers)
    without = summary(lines_of("d-392-rolling-restart", "server.log", "metadata"))
    assert without["expansions that no line shows"] == 14  # three follow the last event


def lines_of(name: str, *parts: str):
    events = logs_of(name).events
    files = [dict(detail).get("file", "") for detail in events["detail"].to_pylist()]
    return events.filter(pa.array([any(part in file for part in parts) for file in files]))


def test_an_announced_shrink_that_never_came_true(tmp_path):
    events = lines_of("a-412-follower-paused", "")
    rows = events.to_pylist()
    line = next(row for row in rows if row["kind"] == "isr_shrink")
    leaders = line["broker"]
    late = {**line, "ts_ms": line["ts_ms"] + 200, "isr": [leaders], "isr_before": line["isr"]}
    deposed = {**line, "broker": next(i for i in line["isr"] if i != leaders)}
    fates = [
        (each.line.ts_ms, each.fate)
        for extra in (late, deposed)
        for each in announced(pa.Table.from_pylist([*rows, extra], schema=events.schema))
        if each.line.broker == extra["broker"] and each.line.isr == tuple(extra["isr"])
    ]
    assert {fate for _, fate in fates} == {"something else was stored", "no leader any more"}


# Rules


@pytest.mark.parametrize(
    ("version", "before", "after", "expected"),
    [
        ("4.1", ((1, 2, 3), 1, 5), ((1, 2), 1, 5), True),  # by the leader or the controller
        ("4.1", ((1, 2, 3), 1, 5), ((1, 2), 1, 6), False),  # not since 3.6
        ("3.5", ((1, 2, 3), 1, 5), ((1, 2), 1, 6), True),  # KAFKA-15021
        ("3.5", ((1, 2, 3), 1, 5), ((1, 2), 1, 5), False),
        ("4.1", ((1, 2), 1, 5), ((1, 2, 3), 2, 6), False),  # a new leader and a new member
        ("4.1", ((1,), 1, 5), ((1, 2, 3), 1, 5), False),  # two replicas join in one step
        ("4.1", ((1, 2), 1, 5), ((), -1, 6), True),  # eligible leader replicas
        ("3.9", ((1, 2), 1, 5), ((), -1, 6), False),
        ("3.9", ((1, 2), 1, 5), ((2,), 2, 7), False),  # two leader epochs in one step
        ("3.9", ((1, 2), 1, 5), ((3,), 3, 6), True),  # an unclean election
    ],
)
def test_the_next_state(version, before, after, expected):
    kind = next(v for v in candidates(True, version))
    assert is_possible(kind, State(*before), State(*after), (1, 2, 3)) == expected


MOVING = State((1, 2), 1, 5, (1, 4, 3, 2), ((4,), (2,)))  # broker 3 stays, and is out of sync


@pytest.mark.parametrize(
    ("version", "before", "after", "expected"),
    [
        ("3.7", MOVING, State((1, 4), 1, 6, (1, 4, 3)), True),  # the new ones are in sync
        ("3.8", MOVING, State((1, 4), 1, 6, (1, 4, 3)), False),  # KAFKA-15665
        ("3.8", MOVING, State((1, 2, 4), 1, 5, *MOVING[3:]), True),
        ("3.8", MOVING, State((1, 2), 1, 6, (1, 3, 2)), True),  # cancelled
        ("3.8", MOVING, State((1, 2), 1, 5, (1, 3, 2)), False),  # it raises the leader epoch
        ("3.8", State((1, 2), 1, 5, (1, 2, 3)), State((1, 2), 1, 5, *MOVING[3:]), True),
        ("3.8", State((1, 2), 1, 5, (1, 2, 3)), State((1,), 1, 6, (1,)), True),  # in one step
        ("3.8", State((1, 2), 1, 5, (1, 2, 3)), State((1, 4), 1, 6, (1, 4)), False),
        ("3.8", State((1, 2), 1, 5, (1, 2, 3)), State((1, 2), 1, 5, (2, 1, 3)), True),
    ],
)
def test_the_next_state_of_a_partition_that_moves(version, before, after, expected):
    kind = KafkaVersion.of(version)
    assert is_possible(kind, before, after, (1, 2, 3, 4)) == expected


def test_a_zookeeper_controller_raises_the_epoch_and_its_leader_does_not():
    version = candidates(False, "2.6")[0]
    before = State((1, 2, 3), 1, 5)
    assert is_possible(version, before, State((1, 2), 1, 5), (1, 2, 3))
    assert is_possible(version, before, State((1, 2), 1, 6), (1, 2, 3))
    assert not is_possible(version, before, State((1, 2), 2, 5), (1, 2, 3))
    # ReplicaStateMachine.doRemoveReplicasFromIsr, 2.4.1: a new controller finds the leader dead
    assert is_possible(version, before, State((2, 3), -1, 6), (1, 2, 3))


def judged(tmp_path, *texts: str):
    (tmp_path / "server.log").write_text("\n".join(texts) + "\n")
    logs = read_local(tmp_path, "run")
    (verdict,) = history_of(logs.events, logs.files).verdicts()
    return [(fault.rule, fault.line) for fault in verdict.faults]


def shrink(second: int, before: str, after: str, out: str = "", leader: int = 1) -> str:
    named = f" Out of sync replicas: (brokerId: {out}, endOffset: 3)." if out else ""
    return (
        f"[2024-07-01 08:00:{second:02},000] INFO [Partition t-0 broker={leader}] Shrinking ISR "
        f"from {before} to {after}. Leader: (highWatermark: 3, endOffset: 4).{named} "
        "(kafka.cluster.Partition)"
    )


def commit(second: int, isr: str, version: int, leader: int = 1) -> str:
    return (
        f"[2024-07-01 08:00:{second:02},000] INFO [Partition t-0 broker={leader}] ISR updated to "
        f"{isr} and version updated to {version} (kafka.cluster.Partition)"
    )


def test_single_lines(tmp_path):
    assert judged(tmp_path, shrink(1, "1,2,3", "1,2", "3")) == []
    assert judged(tmp_path, shrink(1, "1,2,3", "1,2", "2")) == [("named", 1)]
    assert judged(tmp_path, shrink(1, "1,2,3", "2,3", "1")) == [("leads", 1)]
    assert judged(tmp_path, commit(1, "1,2,2", 4)) == [("twice", 1)]


def test_versions_rise_and_have_one_isr(tmp_path):
    first, second = commit(1, "1,2", 4), commit(2, "1,2,3", 5)
    assert judged(tmp_path, first, second) == []
    assert judged(tmp_path, first, commit(2, "1,2,3", 3)) == [("learns", 2)]
    assert judged(tmp_path, first, second, commit(3, "1,3", 5)) == [("version", 3)]
    assert judged(tmp_path, first, commit(2, "1,3", 5)) == [("next", 2)]


def starts(second: int, epoch: int, end: int, watermark: int) -> str:
    return (
        f"[2024-07-01 08:00:{second:02},000] INFO [Broker id=1] Leader t-0 starts at leader epoch "
        f"{epoch} from offset {end} with high watermark {watermark} ISR [1,2,3] addingReplicas [] "
        f"removingReplicas []. Previous leader epoch was {epoch - 1}. (state.change.logger)"
    )


def test_a_log_is_empty_when_it_is_made_and_grows_while_its_leader_stays(tmp_path):
    made = (
        "[2024-07-01 08:00:01,000] INFO Created log for partition t-0 in /d/t-0 with properties {} "
        "(kafka.log.LogManager)"
    )
    asks = shrink(20, "1,2,3", "1,2", "3")  # high watermark 3, end 4
    assert judged(tmp_path, made, starts(1, 0, 0, 0), asks) == []
    assert judged(tmp_path, made, starts(1, 0, 40, 0)) == [("counted", 2)]
    assert judged(tmp_path, starts(1, 0, 4, -1)) == [("counted", 1)]
    assert judged(tmp_path, starts(1, 0, 5, 2), asks) == [("grows", 2)]
    assert judged(tmp_path, starts(1, 0, 4, 4), asks) == [("grows", 2)]
    assert judged(tmp_path, starts(1, 0, 5, 4), starts(9, 1, 3, 3), asks) == []


def test_a_line_out_of_its_place(tmp_path):
    in_order = [commit(7 * n, "1,2" + ",3" * (n % 2), n) for n in range(1, 9)]
    assert judged(tmp_path, *in_order) == []
    moved = [*in_order[:1], in_order[6], *in_order[1:6], in_order[7]]
    assert {line for _, line in judged(tmp_path, *moved)} >= {2}
