"""Real clusters of eight generations: lines are read, ISRs and high watermarks are the engine's.

The recordings come from `packages/proof/record/eras.py`; `packages/proof/eras` replays them.
"""

from __future__ import annotations

import csv
import re
from collections import Counter

import pytest

from eras import faults, kept, leader
from isrlab.engine.versions import KafkaVersion
from isrlab_ops.logs.reader.formats import NO_NEWS

ALL, TRACED = kept.names(), kept.names("-trace")
PARTITIONS = range(len(faults.REPLICAS))
# Words that mark a line as one about replication
WORDS = re.compile(
    r"\bISRs?\b|[Tt]runcat(?:ing|ed) |[Hh]alting|Exiting because|[Ll]eader [Ee]poch|LeaderAndIsr"
    r"|become-(?:leader|follower)|[Nn]ew leader|[Hh]igh watermark (?:updated|for)|\(LEO\)"
)
# The same words in other lines: of the quorum, the offsets topic, stack traces; and a truncation
# that the log reports as having no effect
ELSEWHERE = re.compile(
    r"raft\.|RaftManager|ZookeeperLeaderElector|GroupCoordinator|^\s|\[ControlledShutdownLeader"
    r"|Truncating partition .* local high watermark"
)
KNOWN = {
    (row["recording"], int(row["partition"]), row["after_s"], row["isr"]): row["cause"]
    for row in csv.DictReader((kept.FOLDER / "differences.csv").read_text().splitlines())
}
CAUSES = {
    "taken back": "A broker shuts down. Its last fetch reaches the leader after the ISR without it "
    "and before StopReplica reaches the broker: the leader adds it again, and it leaves again.",
    "slow start": "A follower's first fetches came later than the lag limit: a busy machine.",
    "moment of the check": "A follower joins at the high watermark, short of the log end and with "
    "an old lag clock; the leader checks just then, and evicts it until its next fetch.",
    "late controller": "The controller handled the end of a session after the broker was back: it "
    "removes the broker, and the leader adds it again.",
    "session ends": "A broker resumes after a pause shorter than its session. ZooKeeper last heard "
    "of it up to a third of the session before, and its client takes a second to connect again.",
}
NEWS_MS = (0, 50, 200)  # how late a leader may learn of the controller's decision


@pytest.mark.parametrize("name", ALL)
def test_every_line_about_replication_is_read(name) -> None:
    rows, unread = kept.logs(name)
    assert unread == []
    read = {(row["detail"]["file"], row["detail"]["line"]) for row in rows}
    silent = Counter[str]()
    for path, data in kept.read(name).files.items():
        lines = data.decode().splitlines() if path.startswith("broker-") else []
        told = {text for n, text in enumerate(lines, 1) if (path, str(n)) in read}
        for line in (each for each in lines if each not in told):
            if WORDS.search(line) and not ELSEWHERE.search(line) and not NO_NEWS.search(line):
                silent[re.sub(r"\d+", "#", line)[:160]] += 1
    assert silent == {}


def key(name: str, partition: int, change: faults.Change) -> tuple[str, int, str, str]:
    after_s = (change.ts_ms - kept.read(name).begun_ms) / 1000
    return name, partition, f"{after_s:.1f}", change.name


@pytest.mark.parametrize("name", ALL)
def test_the_engine_makes_the_same_isr_history(name) -> None:
    recording = kept.read(name)
    for partition in PARTITIONS:
        all_real, ours = (
            faults.of_kafka(recording, partition),
            faults.of_engine(recording, partition),
        )
        real = faults.without_repetition(
            [c for c in all_real if key(name, partition, c) not in KNOWN]
        )
        assert [c.name for c in real] == [c.name for c in ours], f"partition {partition}"
        formers = [c.leader for c in real[:1] + real]
        for former, kafka, engine in zip(formers, real, ours, strict=False):
            early_ms, late_ms = faults.window(recording, former, kafka, engine)
            assert early_ms <= kafka.ts_ms <= late_ms, (partition, kafka, engine)


def test_every_known_difference_is_there() -> None:
    real = {
        key(name, partition, change)
        for name in ALL
        for partition in PARTITIONS
        for change in faults.of_kafka(kept.read(name), partition)
    }
    assert KNOWN.keys() <= real
    assert set(KNOWN.values()) <= CAUSES.keys()


def disagreements(name: str, version: str | None = None) -> set[int]:
    """Leaderships in which the engine differs from Kafka for every delay in `NEWS_MS`."""
    rows, recording = kept.logs(name)[0], kept.read(name)
    left: set[int] | None = None
    for news_ms in NEWS_MS:
        each = leader.leaderships(recording, rows, news_ms, version)
        differ = {number for number, one in enumerate(each) if not leader.agrees(one)}
        left = differ if left is None else left & differ
        if not left:
            break
    assert sum(len(one.of_kafka) for one in each) > 1000
    return left


@pytest.mark.parametrize("name", TRACED)
def test_a_traced_leader_has_the_engines_high_watermarks(name) -> None:
    assert disagreements(name) == set()


def test_the_rules_of_another_release_are_noticed() -> None:
    """In 2.7 the request to shrink does not move the high watermark."""
    assert disagreements("2.4.1-trace", "2.7")
    assert KafkaVersion.of("2.7") != KafkaVersion.of("2.4")
