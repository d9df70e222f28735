"""Offset conventions, what may be read, and when a follower learns of it: rows 1 and 10."""

from __future__ import annotations

from isrlab.engine.log import Log
from isrlab.engine.messages import FetchResponse
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import Claim, Finding
from isrlab.world import scenario
from isrlab.world.script import Run

THEME = "offset conventions and visibility"


def _last_offset(log: Log) -> int:
    return log.log_start_offset + len(log.records) - 1


def _offsets() -> Finding:
    frame = runs.after_block(runs.library("three_replicas", "2.5"), 1)
    leader, end = frame.brokers[101].log, runs.high_watermark(frame)
    readable = end - 1 if leader.read(0, end) else -1
    logs = [
        (f"last offset of broker {n}", log.log_end_offset, _last_offset(log))
        for n, log in frame.disks.items()
    ]
    at_end = "readable" if readable >= end else "not readable"
    return Finding(
        (
            runs.situations("000", *logs, ("last readable offset", end, readable)),
            runs.situations(
                "003", (f"record {end}, at the high watermark", "not readable", at_end)
            ),
        ),
        f"The leader's log end offset is {leader.log_end_offset} and its last offset "
        f"{_last_offset(leader)}; with a high watermark of {end} a consumer reads up to "
        f"offset {readable}.",
    )


def _first_answer(run: Run) -> FetchResponse:
    """The answer to the follower's fetch at offset 1."""
    answers = (f.message for f in runs.messages(run, FetchResponse))
    return next(a for a in answers if isinstance(a, FetchResponse) and a.base_offset == 1)


def _carried(name: str) -> runs.Measure:
    """Whether that answer carries the high watermark that the fetch itself brought about."""

    def measure(version: KafkaVersion) -> str:
        answer = _first_answer(runs.library(name, version))
        return "the new one" if answer.high_watermark == 1 else "the old one"

    return measure


def _delay(version: KafkaVersion) -> int:
    """From the leader's high watermark to the follower's, with a producer that has stopped."""
    run = runs.library("sync_cycle", version)
    leader, follower = (
        runs.when(run, "high_watermark", broker=b, high_watermark=1) for b in (1, 2)
    )
    assert leader is not None and follower is not None
    return follower - leader


def _sync_cycle() -> Finding:
    quick = [v.name for v in runs.VERSIONS if _delay(v) == 0]
    slow = max(_delay(v) for v in runs.VERSIONS)
    return Finding(
        (
            runs.over("idle producer", "the new one", _carried("sync_cycle")),
            runs.over("busy producer", "the new one", _carried("sync_cycle_busy")),
        ),
        f"With an idle producer the fetch is parked, and its answer brings the new high watermark "
        f"after {slow} ms (at once only in {', '.join(quick)}); with a busy one the answer leaves "
        "at once, with the value from before.",
    )


CLAIMS = (
    Claim(
        1,
        THEME,
        "article 000, section 2; article 003, section 1",
        "The end offset is the largest offset of a log, and a user may read up to and with the "
        "high watermark; 003 says that the record at the high watermark is not readable.",
        "Three logs with offsets 0..6, 0..5 and 0..4; a consumer at the leader (Kafka 2.5).",
        _offsets,
        scenario.read("three_replicas"),
        "2.5",
    ),
    Claim(
        10,
        THEME,
        "article 003, section 3",
        "The fetch at offset 1 moves the leader's high watermark to 1, and the answer to that same "
        "fetch carries 1 to the follower.",
        "That fetch, with a producer that has stopped and with one that goes on, in every release.",
        _sync_cycle,
        scenario.read("sync_cycle_busy"),
        "0.10.2",
    ),
)
