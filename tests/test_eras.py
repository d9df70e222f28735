"""Real clusters of eight generations: lines read, the same ISR history and high watermarks.

The recordings are of `tools/record/eras.py`; what is done with them is in `tools/eras`.
"""

from __future__ import annotations

import csv
import re
from collections import Counter

import pytest
from eras import faults, kept, leader

from isrlab.engine.versions import KafkaVersion
from isrlab.logs.reader.formats import NO_NEWS

ALL, TRACED = kept.names(), kept.names("-trace")
PARTITIONS = range(len(faults.REPLICAS))
# Words of a line about replication, looked for by themselves
WORDS = re.compile(
    r"\bISRs?\b|[Tt]runcat(?:ing|ed) |[Hh]alting|Exiting because|[Ll]eader [Ee]poch|LeaderAndIsr"
    r"|become-(?:leader|follower)|[Nn]ew leader|[Hh]igh watermark (?:updated|for)|\(LEO\)"
)
# The same words of other things: the quorum, the offsets topic, a stack; and a truncation that the
# log answers with "has no effect", which makes two lines that cancel each other
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
    "and before StopReplica reaches the broker: the leader takes it back, and it leaves again.",
    "slow start": "A follower's first fetches came later than the lag limit: a busy machine.",
    "moment of the check": "A follower joins at the high watermark, short of the log end and with "
    "an old lag clock; the leader checks just then, and takes it out until its next fetch.",
    "late controller": "The controller handled the end of a session when the broker was back "
    "already: it takes it out, and the leader takes it back.",
    "session ends": "A broker wakes from a pause shorter than its session. ZooKeeper last heard "
    "of it up to a third of the session before, and its client takes a second to connect again.",
}
NEWS_MS = (0, 50, 200)  # so much later may a leader know what the controller has decided


@pytest.mark.parametrize("name", ALL)
def test_every_line_about_replication_is_read(name) -> None:
    rows, unread = kept.logs(name)
    assert unread == []
    read = {(row["detail"]["file"], row["detail"]["line"]) for row in rows}
    silent = Counter[str]()
    for path, data in kept.read(name).files.items():
        lines = data.decode().splitlines() if path.startswith("broker-") else []
        told = {text for n, text in enumerate(lines, 1) if (path, str(n)) in read}
        for line in lines:
            about = WORDS.search(line) and not ELSEWHERE.search(line) and not NO_NEWS.search(line)
            if about and line not in told:
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
    """Leaderships in which the engine differs, whenever its broker heard of the controller."""
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
    """In 2.7 a shrink moves no high watermark; up to 2.6 a follower holds it back by its clock."""
    assert disagreements("2.4.1-trace", "2.7")
    assert KafkaVersion.of("2.7") != KafkaVersion.of("2.4")
