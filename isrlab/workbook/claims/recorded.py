"""The engine on trial: what it says, and what our own Kafka brokers wrote. Rows 31 to 34.

The recordings are `data/recordings` (Kafka 3.9 and 4.1, KRaft, lag time 5 s): brokers were paused
and killed at known times. A resumed leader, which does not know yet that it was away, looks at
clocks that stood still as long as it did; such changes are counted apart.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from isrlab.brokerlogs.lines import Event, LineReader
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import Claim, Finding
from isrlab.world.cluster import START_MS

THEME = "our own brokers"
RECORDINGS = Path(__file__).resolve().parents[3] / "data" / "recordings"
KAFKA = {"3.9": "kafka-3.9", "4.1": "kafka-4.1"}
LAG_MS = 5_000
AWAKE_MS = 3_000  # after SIGCONT: until then a broker may act on what it knew before
JITTER_MS = 100  # a scheduled look comes a little late on a busy machine


@dataclass(frozen=True, slots=True)
class Absence:
    """A broker was away: from when to when, and how."""

    broker: int
    start_ms: int
    end_ms: int
    how: str

    def covers(self, ts_ms: int) -> bool:
        return self.start_ms <= ts_ms <= self.end_ms + AWAKE_MS


@lru_cache(maxsize=4)
def events(kafka: str) -> tuple[Event, ...]:
    """The replication events of a recording's server logs, in order."""
    found = [e for path in _server_logs(kafka) for e in _read(path)]
    return tuple(sorted(found, key=_ts_ms))


def _server_logs(kafka: str) -> list[Path]:
    return sorted((RECORDINGS / KAFKA[kafka]).glob("broker-*/server.log*"))


def _read(path: Path) -> Iterator[Event]:
    reader = LineReader()
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            event = reader.read(line.rstrip("\n")) if "ISR" in line else None
            if isinstance(event, dict):
                yield event


def _ts_ms(event: Event) -> int:
    stamp = event["ts_ms"]
    assert isinstance(stamp, int)
    return stamp


def _numbers(event: Event, key: str) -> list[int]:
    detail = event["detail"]
    assert isinstance(detail, dict)
    return [int(n) for n in detail[key].split(",")]


def absences(kafka: str) -> list[Absence]:
    """Who was stopped or killed, and until when."""
    ends = {"SIGSTOP": "SIGCONT", "SIGKILL": "start"}
    with (RECORDINGS / KAFKA[kafka] / "timeline.csv").open() as file:
        done = list(csv.DictReader(file))
    found = []
    for index, row in enumerate(done):
        if row["action"] in ends:
            back = next(
                r
                for r in done[index:]
                if (r["broker"], r["action"]) == (row["broker"], ends[row["action"]])
            )
            found.append(Absence(int(row["broker"]), _utc_ms(row), _utc_ms(back), row["action"]))
    return found


def _utc_ms(row: dict[str, str]) -> int:
    return round(datetime.fromisoformat(row["time_utc"]).timestamp() * 1000)


def shrinks(kafka: str) -> list[Event]:
    return [e for e in events(kafka) if e["kind"] == "isr_shrink"]


def is_by_one_who_was_away(event: Event, kafka: str) -> bool:
    return any(
        a.broker == event["broker"] and a.how == "SIGSTOP" and a.covers(_ts_ms(event))
        for a in absences(kafka)
    )


def proper_shrinks(kafka: str) -> list[Event]:
    """Those of leaders that were awake all the time."""
    return [e for e in shrinks(kafka) if not is_by_one_who_was_away(e, kafka)]


# Row 31: asked and stored


def _same_change(one: Event, other: Event) -> bool:
    same = all(one[k] == other[k] for k in ("broker", "topic", "partition"))
    return same and set(_ids(one)) == set(_ids(other))


def _ids(event: Event) -> list[int]:
    isr = event["isr"]
    assert isinstance(isr, list)
    return isr


def answered_ms(event: Event, kafka: str) -> int | None:
    """From "Shrinking ISR" to the "ISR updated to" of the same change, if that came."""
    for other in events(kafka):
        wait = _ts_ms(other) - _ts_ms(event)
        if other["kind"] == "isr_commit" and 0 <= wait <= LAG_MS and _same_change(event, other):
            return wait
    return None


def _asked_and_stored() -> Finding:
    asked = {k: len(shrinks(k)) for k in KAFKA}
    waits = {k: [w for e in shrinks(k) if (w := answered_ms(e, k)) is not None] for k in KAFKA}
    longest = max(w for found in waits.values() for w in found)
    run = runs.play(STOPPED.format(before=7_000), "3.9")
    first, then = (runs.when(run, kind) for kind in ("isr_shrink", "isr_commit"))
    return Finding(
        (
            runs.situations(
                "every request is followed by its answer",
                *((f"Kafka {k}", asked[k], len(waits[k])) for k in KAFKA),
            ),
        ),
        "Lines that ask, and lines that confirm: "
        + "; ".join(f"{asked[k]} and {len(waits[k])} in {k}" for k in KAFKA)
        + f", at most {longest} ms apart. The engine, too, has two events ({first} and {then} ms).",
    )


# Row 32: when a follower is dropped

STOPPED = (
    "# A follower stops, and its leader has records that it lacks.\n"
    f"partition replicas=1,2 replica.lag.time.max.ms={LAG_MS}\nproduce 1 m1 acks=1\n"
    "advance {before}ms\nproduce 1 m2 acks=1\nstabilize\npause 2 fetcher\n"
    "produce 1 m3 acks=1\nadvance 12s"
)


@lru_cache(maxsize=4)
def engine_ages_ms(kafka: str) -> tuple[int, int]:
    """The engine's range: a follower that stops at any moment between two looks."""
    ages = []
    for step in range(25):
        run = runs.play(STOPPED.format(before=5_000 + 100 * step + 1), KafkaVersion.of(kafka))
        dropped = runs.when(run, "isr_shrink")
        assert dropped is not None
        clock = runs.remote(run.frames[-1], 2).last_caught_up_time_ms
        ages.append(dropped + START_MS - clock)
    return min(ages), max(ages)


def recorded_ages_ms(kafka: str) -> list[int]:
    """Of each follower that an awake leader dropped: time since it last caught up."""
    return [
        _ts_ms(e) - clock
        for e in proper_shrinks(kafka)
        for clock in _numbers(e, "last_caught_up_time_ms")
    ]


def _in_range(kafka: str) -> int:
    latest = 3 * LAG_MS // 2 + JITTER_MS
    return sum(LAG_MS < age <= latest for age in recorded_ages_ms(kafka))


def _eviction() -> Finding:
    parts = []
    for kafka in KAFKA:
        ages, own = recorded_ages_ms(kafka), engine_ages_ms(kafka)
        parts.append(
            f"{kafka}: {min(ages)}-{max(ages)} ms recorded ({len(ages)} times), "
            f"{own[0]}-{own[1]} ms in the engine"
        )
    return Finding(
        (
            runs.situations(
                "dropped after 1.0 to 1.5 lag times",
                *((f"Kafka {k}", len(recorded_ages_ms(k)), _in_range(k)) for k in KAFKA),
            ),
        ),
        "Time since the dropped follower last caught up, with a limit of 5000 ms. "
        + "; ".join(parts)
        + ".",
    )


# Row 33: partitions without writes


def at_the_end(kafka: str) -> int:
    """Dropped followers that had every record of their leader."""
    return sum(
        end == event["log_end_offset"]
        for event in shrinks(kafka)
        for end in _numbers(event, "out_of_sync_end_offset")
    )


def dropped_during(absence: Absence, kafka: str) -> dict[str, int]:
    """By topic, how often leaders that were awake dropped the broker that was away."""
    counts = {"orders": 0, "payments": 0}
    for event in proper_shrinks(kafka):
        if absence.start_ms <= _ts_ms(event) <= absence.end_ms:
            counts[str(event["topic"])] += 1
    return counts


def _idle() -> Finding:
    last_flap = [a for a in absences("3.9") if a.how == "SIGSTOP"][-1]
    counts = dropped_during(last_flap, "3.9")
    lines = {k: len(shrinks(k)) for k in KAFKA}
    return Finding(
        (
            runs.situations(
                "no follower at the leader's end is dropped",
                *((f"Kafka {k}", 0, at_the_end(k)) for k in KAFKA),
            ),
            runs.situations("the idle topic stays whole", ("Kafka 3.9", 0, counts["payments"])),
        ),
        f"In {sum(lines.values())} lines no dropped follower had its leader's end offset; when "
        f"broker {last_flap.broker} was paused the third time, {counts['orders']} partitions of "
        f"the busy topic shrank and {counts['payments']} of the idle one.",
    )


# Row 34: the line that is gone


def _growth() -> Finding:
    counts = {
        k: {
            kind: sum(e["kind"] == kind for e in events(k)) for kind in ("isr_expand", "isr_commit")
        }
        for k in KAFKA
    }
    says = {k: KafkaVersion.of(k).logs_expanding_isr for k in KAFKA}
    return Finding(
        (
            runs.situations(
                "no line says that the ISR expands",
                *((f"Kafka {k}", says[k], counts[k]["isr_expand"] > 0) for k in KAFKA),
            ),
        ),
        "Lines with Expanding ISR and with ISR updated: "
        + "; ".join(f"{c['isr_expand']} and {c['isr_commit']} in {k}" for k, c in counts.items())
        + ".",
    )


CLAIMS = (
    Claim(
        31,
        THEME,
        "a common way to read broker logs",
        "Where a log says Shrinking ISR, the ISR has shrunk, and ISR updated follows.",
        "All lines of two recorded clusters: each request, and its answer within 5 s.",
        _asked_and_stored,
    ),
    Claim(
        32,
        THEME,
        "the engine (rules.is_out_of_sync, two looks in a lag time)",
        "A follower that lacks records is dropped between 1.0 and 1.5 lag times after it last "
        "caught up.",
        "lastCaughtUpTimeMs of every recorded shrink of a leader that was awake (lag time 5 s).",
        _eviction,
        STOPPED.format(before=7_000),
        "3.9",
    ),
    Claim(
        33,
        THEME,
        "the engine (KAFKA-7152)",
        "A follower with every record of its leader is not dropped by it, however long it is away.",
        "The end offsets in every recorded shrink; the topics that shrank in the third pause.",
        _idle,
    ),
    Claim(
        34,
        THEME,
        "the engine (KafkaVersion.logs_expanding_isr)",
        "Since 2.8 no line announces that the ISR grows.",
        "All lines of two recorded clusters.",
        _growth,
    ),
)
