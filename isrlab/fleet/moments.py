"""The moments at which leaders can move: what the settings say will happen to brokers.

The controller *decides*, and half of `isr_commit_ms` later all brokers *hear* of it together. A
broker that is taken down (`restart_s`, or a pause `down`) asks the controller first: brokers hear
of the removal when the outage begins, and the process and its session end `LEAVES_MS` later. A
pause `dead` ends the process immediately; the controller notices when the session ends. At the end
of either outage the broker has registered, and learns which leaders it follows. Preferred leaders
are elected on an operator's request (`elections`), and every `rebalance_every_s`. Left out: a
process that is back before its session has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.given import seconds_of

LEAVES_MS = 100  # from the removal of a broker that shuts down until its process is gone
CHECKPOINT_MS = 5_000  # replica.high.watermark.checkpoint.interval.ms
# The order of events within a millisecond.
GONE, STOP, EXPIRED, UP, REASSIGN, ELECT, REBALANCE, MOVED, CHECKPOINT = range(9)
ASKED, DECIDED, HEARD = range(3)


class Moment(NamedTuple):
    """An event that concerns one broker (0: all brokers)."""

    heard_ms: int
    kind: int
    broker: int
    is_clean: bool = True
    partition: int = -1  # that has moved


class Turn(NamedTuple):
    """A stage of a moment: a broker asks to stop, the controller decides, brokers hear of it."""

    at_ms: int
    stage: int
    moment: Moment


def order_ms(config: FleetConfig) -> int:
    """The time from the controller's decision until the brokers hear of it."""
    return config.isr_commit_ms // 2


def turns(config: FleetConfig) -> list[Turn]:
    """All events, in order.

    If leaders write ISRs into ZooKeeper themselves, a decision takes effect when it is made;
    otherwise when brokers hear of it, after earlier ISR changes. Raises ValueError for an
    outage that ends before all brokers have heard of it.
    """
    ahead = [turn for moment in _moments(config) for turn in turns_of(config, moment)]
    return in_order(turn for turn in ahead if turn.at_ms < config.duration_ms)


def in_order(turns: Iterable[Turn]) -> list[Turn]:
    """Sorted by time, and within a millisecond by kind."""
    return sorted(turns, key=lambda turn: (turn.at_ms, turn.moment.kind, *turn[1:]))


def turns_of(config: FleetConfig, moment: Moment) -> list[Turn]:
    """The stages of a moment: requested, decided, heard."""
    decided_ms = moment.heard_ms
    if config.kafka.writes_zookeeper:
        decided_ms = max(0, decided_ms - order_ms(config))
    turns = [Turn(moment.heard_ms, HEARD, moment)]
    if moment.kind == STOP:
        turns += [Turn(max(0, moment.heard_ms - order_ms(config)), ASKED, moment)]
    if moment.kind not in (GONE, CHECKPOINT):
        turns += [Turn(decided_ms, DECIDED, moment)]
    return turns


def _moments(config: FleetConfig) -> list[Moment]:
    moments = []
    for broker in range(1, config.brokers + 1):
        started_ms = 0
        for start, end, is_clean in _outages(config, broker):
            gone_ms = start + LEAVES_MS * is_clean
            silent_ms = 0 if is_clean else config.session_ms
            expired_ms = gone_ms + silent_ms + order_ms(config)
            if end - order_ms(config) <= expired_ms:
                raise ValueError(
                    f"broker {broker} starts at {end / 1000:g} s, {end - start:,} ms after it "
                    f"stopped; valid: outages above {expired_ms + order_ms(config) - start:,} ms, "
                    "so that the controller has noticed (session_timeout_ms)"
                )
            if is_clean:
                moments.append(Moment(start, STOP, broker))
            elif start - started_ms >= CHECKPOINT_MS:
                last = (start - started_ms) // CHECKPOINT_MS * CHECKPOINT_MS + started_ms
                moments.append(Moment(last, CHECKPOINT, broker))
            moments += [
                Moment(gone_ms, GONE, broker, is_clean),
                Moment(expired_ms, EXPIRED, broker),
                Moment(end, UP, broker, is_clean),
            ]
            started_ms = end - order_ms(config)
    if config.reassigned:
        moments.append(Moment(round(config.reassign_s * 1000), REASSIGN, 0))
    moments += [Moment(ms, ELECT, 0) for ms in seconds_of(config.elections)]
    every_ms = round(config.rebalance_every_s * 1000)
    if every_ms:
        moments += [
            Moment(ms, REBALANCE, 0) for ms in range(every_ms, config.duration_ms, every_ms)
        ]
    return moments


def _outages(config: FleetConfig, broker: int) -> list[tuple[int, int, bool]]:
    """Start, end, and whether the broker asked the controller first; ascending."""
    clean, dead = load.restarts(config, broker), load.deaths(config, broker)
    rows = [(int(a), int(b), True) for a, b in zip(*clean, strict=True)]
    rows += [(int(a), int(b), False) for a, b in zip(*dead, strict=True)]
    rows.sort()
    for before, after in pairwise(rows):
        if after[0] <= before[1]:
            raise ValueError(f"broker {broker} is down at {after[0] / 1000:g} s and cannot stop")
    return rows
