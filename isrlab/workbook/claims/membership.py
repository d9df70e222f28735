"""Who is in sync: the limits, the lag clock, joining and leaving. Rows 2, 3, 6, 7 and 8."""

from __future__ import annotations

from functools import lru_cache

from isrlab.engine import rules
from isrlab.engine.messages import ExpireIsr
from isrlab.engine.model import Settings
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import Claim, Finding
from isrlab.world import scenario
from isrlab.world.cluster import START_MS

THEME = "lag clock and membership"
PHASES = 16  # at how many moments between two checks the follower stops


# Row 2: limits and periods


def lag_ms(version: KafkaVersion) -> int:
    return Settings.of(version).replica_lag_time_max_ms


def stalled(version: KafkaVersion, phase_ms: int) -> str:
    """A follower stops `phase_ms` after the start, just before a record arrives."""
    return (
        "partition replicas=1,2\nproduce 1 m1 acks=1\n"
        f"advance {phase_ms}ms\npause 2 fetcher\nproduce 1 m2 acks=1\n"
        f"advance {2 * lag_ms(version) + 1000}ms"
    )


@lru_cache(maxsize=64)
def removal_ages_ms(version: KafkaVersion) -> tuple[int, ...]:
    """How long the follower had not been caught up when it was dropped, stopped at any moment."""
    ages = []
    for phase in range(PHASES):
        at = lag_ms(version) + phase * lag_ms(version) // PHASES + 1
        run = runs.play(stalled(version, at), version)
        dropped = runs.when(run, "isr_shrink")
        assert dropped is not None
        clock = runs.remote(runs.after_block(run, 0), 2).last_caught_up_time_ms
        ages.append(dropped + START_MS - clock)
    return tuple(ages)


def period_ms(version: KafkaVersion) -> int:
    """The time between two looks at the ISR."""
    run = runs.play(stalled(version, lag_ms(version)), version)
    looks = sorted({f.now_ms for f in runs.messages(run, ExpireIsr) if f.target == 1})
    return looks[1] - looks[0]


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"


def _limits() -> Finding:
    worst = {
        v.name: f"{_seconds(max(removal_ages_ms(v)))} in {v.name}"
        for v in (KafkaVersion.of(n) for n in ("0.8.2", "0.9.0", "0.10.2", "2.5"))
    }
    return Finding(
        (
            runs.over(
                "000, limit 10 s, later 30 s",
                lambda v: 10_000 if runs.is_before(v, "2.5") else 30_000,
                lag_ms,
            ),
            runs.over(
                "000, looked at every 5 s, later 15 s",
                lambda v: 5_000 if runs.is_before(v, "2.5") else 15_000,
                period_ms,
            ),
            runs.over("001, 10 s and 5 s", (10_000, 5_000), lambda v: (lag_ms(v), period_ms(v))),
            runs.over("002, looked at every lag time", lag_ms, period_ms),
            runs.over("003, limit 10 s", 10_000, lag_ms),
        ),
        "A follower that stops is dropped, at the latest, after " + ", ".join(worst.values()) + ".",
    )


# Row 3: the lag clock

STEADY = (
    "# The follower is always one fetch behind: a record every 40 ms, a round of fetching 100 ms.\n"
    "partition replicas=1,2 latency=50ms replica.lag.time.max.ms=1000\n"
    + "produce 1 acks=1\nadvance 40ms\n"
    * 90
)


def clock_after(version: KafkaVersion, fetch_offset: int) -> int:
    """The clock after a fetch at 1000 ms: the leader's end is 10, and was 5 at 700 ms; it was set
    to 300 ms before."""
    return rules.last_caught_up_time_ms(version.lag_clock, fetch_offset, 10, 5, 700, 300, 1000)


def clocks(version: KafkaVersion) -> tuple[int, ...]:
    """The clock after fetches at the end, at the end of the previous fetch, and before both."""
    return tuple(clock_after(version, offset) for offset in (10, 5, 4))


def is_dropped_when_steady(version: KafkaVersion) -> bool:
    return runs.when(runs.play(STEADY, version), "isr_shrink") is not None


def _lag_clock() -> Finding:
    dropped = [v.releases for v in runs.VERSIONS if is_dropped_when_steady(v)]
    return Finding(
        (
            runs.over("002, set at the end only", (1000, 300, 300), clocks),
            runs.over("000 and 001, also at the previous end", (1000, 700, 300), clocks),
        ),
        "A follower that is always one fetch behind a steady producer is dropped in "
        f"{', '.join(dropped)} and stays everywhere else.",
    )


# Rows 6 and 7: joining and leaving


def _clock_age_at_joining(version: KafkaVersion) -> int:
    run = runs.library("claim_stale_clock", version)
    joined = runs.when(run, "isr_expand", replica=2)
    assert joined is not None
    clock = runs.remote(runs.after_block(run, 1), 2).last_caught_up_time_ms
    return joined + START_MS - clock


def _joins(version: KafkaVersion) -> str:
    run = runs.library("claim_stale_clock", version)
    return "joins" if runs.rows(run, "isr_expand", replica=2) else "stays out"


def _leaves(version: KafkaVersion) -> str:
    run = runs.library("claim_stale_clock", version)
    return "leaves" if runs.rows(run, "isr_shrink", replica=2) else "stays in"


def _joining() -> Finding:
    clocked = runs.releases("0.9.0")
    ages = {_clock_age_at_joining(v) for v in clocked}
    return Finding(
        (
            runs.over("it decides leaving", "leaves", _leaves, clocked),
            runs.over("it decides joining", "stays out", _joins, clocked),
        ),
        f"With a limit of 10 s the follower joins when its clock is {_seconds(min(ages))} to "
        f"{_seconds(max(ages))} old, as soon as its end offset has reached the high watermark.",
    )


def first_joining_offset(version: KafkaVersion, high_watermark: int) -> int:
    """The smallest end offset that lets a follower in."""
    offsets = range(2 * high_watermark)
    joins = (o for o in offsets if rules.can_join_isr(version.expand_rule, o, high_watermark, 0))
    return next(joins)


def _at_the_high_watermark() -> Finding:
    frame = runs.after_block(runs.library("claim_stale_clock", "0.10.2"), 1)
    end, mark = runs.remote(frame, 2).log_end_offset, runs.high_watermark(frame)
    return Finding(
        (runs.over("first offset that joins", 8, lambda v: first_joining_offset(v, 7)),),
        f"With a high watermark of 7 the first end offset that joins is "
        f"{first_joining_offset(KafkaVersion.of('0.10.2'), 7)}; in the run of row 6 a follower "
        f"joins at {end} with the high watermark at {mark}.",
    )


# Row 8: the follower that has everything


def _is_dropped_while_idle(version: KafkaVersion) -> bool:
    run = runs.library("claim_idle_follower", version)
    appended = runs.acknowledged_ms(run, "m2")
    dropped = runs.when(run, "isr_shrink")
    return dropped is not None and appended is not None and dropped < appended


def _idle_follower() -> Finding:
    old, new = (runs.library("claim_idle_follower", v) for v in ("2.0", "2.1"))
    return Finding(
        (runs.over("dropped for its time alone", True, _is_dropped_while_idle),),
        f"2.0 drops the idle follower at {runs.when(old, 'isr_shrink')} ms; 2.1 keeps it until a "
        f"record arrives (at {runs.acknowledged_ms(new, 'm2')} ms) and drops it at "
        f"{runs.when(new, 'isr_shrink')} ms.",
    )


CLAIMS = (
    Claim(
        2,
        THEME,
        "articles 000 (section 3), 001 (3), 002 and 003 (2)",
        "How long a follower may lag, and how often the leader looks: 10 s, then 30 s, and half of "
        "it (000); 10 s and 5 s (001); as often as the lag time (002); 10 s (003).",
        "The defaults, and a follower that stops at 16 moments between two looks, in each release.",
        _limits,
        stalled(KafkaVersion.of("2.5"), 45_000),
        "2.5",
    ),
    Claim(
        3,
        THEME,
        "article 002 against articles 000 and 001",
        "What sets a follower's clock: only a fetch at the leader's end (002), or also one at what "
        "was the end at the fetch before (000, 001).",
        "The rule for three fetches (clock in ms), and a steady producer, in every release.",
        _lag_clock,
        STEADY,
        "0.9.0",
    ),
    Claim(
        6,
        THEME,
        "article 000, section 3",
        "The time when a follower last caught up decides whether it may enter the ISR, and whether "
        "it must leave.",
        "A follower that was dropped long ago reaches the high watermark, but not the leader's "
        "end (0.9.0 and later).",
        _joining,
        scenario.read("claim_stale_clock"),
        "2.5",
    ),
    Claim(
        7,
        THEME,
        "article 001, section 3.2",
        "A follower joins when its end offset is greater than the leader's high watermark.",
        "The join rule for end offsets around a high watermark of 7, in every release.",
        _at_the_high_watermark,
        scenario.read("claim_stale_clock"),
        "0.10.2",
    ),
    Claim(
        8,
        THEME,
        "articles 000 to 004 (none makes an exception)",
        "A follower that has not caught up for the lag time is dropped, whatever it has.",
        "No writes; a follower with every record stops; then one record (every release).",
        _idle_follower,
        scenario.read("claim_idle_follower"),
        "2.1",
    ),
)
