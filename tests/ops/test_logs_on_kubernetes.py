"""`isrlab logs` for operators on Kubernetes: one pod alone, all pods in one file, Strimzi's log.

The brokers' lines are those of a recording in the layout that Strimzi configures; the operator's
lines have the wording of KafkaRoller, PodOperator and KafkaAvailability (Strimzi 0.26 to 1.2).
"""

from __future__ import annotations

import gzip
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isrlab_ops.logs.incidents.answer import LogAnswer, answer_about
from isrlab_ops.logs.incidents.look import CALM, NOT_KNOWN, WRONG, Findings, look

RECORDED = Path(__file__).parents[2] / "data" / "recordings" / "incidents"
STOCK = re.compile(r"\[(\S+ \S+)\] (\w+) (.*) \((?:\w+\.)*(\w+)\)$")


def pods(name: str) -> dict[int, list[str]]:
    """What `kubectl logs` prints of each broker's container: all its logs in one, by time."""
    read: dict[int, list[str]] = {}
    for folder in sorted((RECORDED / name / "logs").glob("broker-*")):
        lines, at = [], ""
        for path in folder.iterdir():
            for text in gzip.decompress(path.read_bytes()).decode().splitlines():
                if head := STOCK.match(text):
                    at = head[1]
                    text = f"{at} {head[2]:<5} [main] {head[4]}:12 - {head[3]}"
                lines.append((at, text))
        lines.sort(key=lambda line: line[0])
        read[int(folder.name.removeprefix("broker-"))] = [text for _, text in lines]
    return read


def test_all_pods_with_their_prefix_are_read_like_their_own_logs(tmp_path):
    own = look(RECORDED / "b-412-follower-killed" / "logs")
    read = pods("b-412-follower-killed")
    named = [f"[pod/my-cluster-kafka-{n}/kafka] {line}\n" for n in read for line in read[n]]
    (tmp_path / "kafka.log").write_text("".join(named))
    found = look(tmp_path)
    assert (found.status, found.faults, found.doubts) == (WRONG, (), ())
    assert [each.what for each in found.incidents] == [each.what for each in own.incidents]
    assert set(found.record.log_ends) == {1, 2, 3}
    proof = next(row for row in answer_about(found).rows if row.label == "Proof")
    assert proof.quote.startswith("[main] ReplicaFetcherThread:12 - [ReplicaFetcher")


def test_one_pod_alone_says_what_it_cannot_know_and_how_to_get_the_rest(tmp_path):
    (tmp_path / "pod.log").write_text("\n".join(pods("k-412-quiet-control")[1]) + "\n")
    found = look(tmp_path)
    assert found.status == NOT_KNOWN
    lacks = "of brokers 2, 3, which lead partitions; on Kubernetes kubectl logs -l strimzi.io/name="
    assert any(lacks in doubt and "--prefix --tail=-1" in doubt for doubt in found.doubts)


def operator_lines(broker: int, ms: int) -> list[str]:
    at = f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    who = "Reconciliation #7(timer) Kafka(kafka/my-cluster):"
    return [
        f"{at} INFO  KafkaAvailability:139 - {who} orders/0 will be under-replicated (ISR={{1,2}}, "
        "replicas=[1,2,3], min.insync.replicas=2) if broker 1 is restarted.",
        f"{at} INFO  KafkaRoller:447 - {who} Rolling Pod my-cluster-kafka-{broker}/{broker} due to "
        "[Pod has old revision]",
        f"{at} INFO  PodOperator:73 - {who} Rolling pod my-cluster-kafka-{broker}",
        f"{at} INFO  PodOperator:73 - {who} Rolling pod my-cluster-zookeeper-{broker}",
    ]


def rolled(name: str, folder: Path, without: int | None = None) -> Findings:
    """A recording beside the log of an operator that restarts each broker that was asked to stop,
    without the logs of one broker and of the controllers."""
    own = look(RECORDED / name / "logs")
    stops = {row.broker: row.ts_ms for row in own.record.said_of("stop_asked") if row.is_own}
    shutil.copytree(RECORDED / name / "logs", folder / "logs")
    for path in (folder / "logs").rglob("*") if without is not None else ():
        if path.name.startswith("controller") or path.match(f"broker-{without}/*"):
            path.unlink()
    lines = [line for broker, ms in stops.items() if broker for line in operator_lines(broker, ms)]
    (folder / "logs" / "operator.log").write_text("\n".join(lines) + "\n")
    return look(folder / "logs")


def texts(answer: LogAnswer) -> str:
    return " ".join(note for story in answer.stories for note in story.incident.notes)


def test_the_operators_log_explains_restarts_as_planned(tmp_path):
    own = look(RECORDED / "d-392-rolling-restart" / "logs")
    found = rolled("d-392-rolling-restart", tmp_path)
    assert (found.status, found.faults) == (own.status, own.faults) == (CALM, ())
    assert {each.what for each in found.incidents} == {"restart"}
    assert "Strimzi's operator restarted its pod" in texts(answer_about(found))
    assert "puts off the restart" in texts(answer_about(found))
    assert found.record.log_ends == own.record.log_ends and found.record.end_ms == own.record.end_ms
    (row,) = (row for row in found.logs.file_rows if row["file"] == "operator.log")
    assert (row["status"], row["brokers"], row["last_ms"]) == ("read", "", None)


def test_without_the_brokers_own_log_only_the_operator_shows_its_restart(tmp_path):
    found = rolled("d-392-rolling-restart", tmp_path, without=2)
    assert "rolled" in {each.what for each in found.incidents if 2 in each.who}
    (tmp_path / "logs" / "operator.log").unlink()
    without = {each.what for each in look(tmp_path / "logs").incidents if 2 in each.who}
    assert without == {"not_known"}
    assert found.status == NOT_KNOWN  # only its own log shows that it is well


@pytest.mark.parametrize("name", ["operator.log", "syslog"])
def test_the_log_of_another_program_replaces_no_brokers_log(tmp_path, name):
    """It has lines until the end, and is in no broker's folder."""
    logs = shutil.copytree(RECORDED / "k-412-quiet-control" / "logs", tmp_path / "logs")
    shutil.rmtree(logs / "broker-1")
    before = look(logs)
    ends = f"{datetime.fromtimestamp(before.record.end_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    lines = operator_lines(3, before.record.end_ms) if name == "operator.log" else []
    (logs / name).write_text("\n".join([*lines, f"{ends} INFO all is well"] * 3) + "\n")
    found = look(logs)
    assert found.status == before.status == NOT_KNOWN
    assert found.doubts == before.doubts


def test_an_answer_with_open_partitions_names_lines_that_it_did_not_use(tmp_path):
    """No form reads the line about the key store, which has a control character."""
    logs = shutil.copytree(RECORDED / "b-412-follower-killed" / "logs", tmp_path / "logs")
    path = logs / "broker-3" / "server.log.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    (stamp,) = re.findall(r"(?m)^\[(\S+ \S+)\] ", text)[-1:]
    odd = "".join(f"[{stamp}] ERROR Cannot read key store {n}\x1b[31m (kafka.server.KafkaServer)\n"
                  for n in (1, 2))  # fmt: skip
    path.write_bytes(gzip.compress((text + odd).encode()))
    rows = [row for row in answer_about(look(logs)).rows if row.label == "Unused"]
    place = f"broker-3/server.log.gz:{len(text.splitlines()) + 1}"
    said = {row.quote: row.text for row in rows}
    like = f"in no proof, of the last minute: {place} (2 lines like it)"
    assert said["Cannot read key store 1\\x1b[31m"] == like
    assert not any("Error in response for fetch request" in row.quote for row in rows)
    whole = look(RECORDED / "k-412-quiet-control" / "logs")
    assert not [row for row in answer_about(whole).rows if row.label == "Unused"]
