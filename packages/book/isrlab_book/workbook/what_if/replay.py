"""A replay of logs: a fleet with the same replicas and faults.

A broker that left ISRs was stalled from the moment it had last caught up (logged since 3.6; else
the time that all evictions allow, given the lag limit) until it was back. From the moment at which
the controller removed it, it was *down*. A leader that evicts others while it is out itself, or as
it comes back, answered no fetches. The load is not in logs: it is a setting.

Left out: elections (leaders stay where they were at first, and what happened to their own replicas
does not count), partitions with another number of replicas than most, disks, throttles. `Cost` is
measured alike in the record and in a fleet, so that their difference shows how far to trust it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from isrlab.events import exact
from isrlab.events.exact import Absence, Key
from isrlab.events.measures import measures
from isrlab.events.spans import merged
from isrlab.fleet import FleetConfig, simulate_local
from isrlab.fleet.given import Pause, pauses_of, written
from isrlab.fleet.layout import assignment
from isrlab_ops.logs.history.record import Record, about

BEFORE_MS = 20_000  # how long the fleet runs before the first fault
QUIET_MS = 10_000  # absences within a tenth of it are one fault of a broker
MOST_PARTITIONS = 500


class Cost(NamedTuple):
    """The cost of faults; None if unknown. Minutes are partition-minutes."""

    evictions: float  # by leaders
    removals: float  # by the controller
    missing_minutes: float  # a copy fewer: a replica was out of the ISR
    waiting_minutes: float | None = None  # a member of the ISR was stalled, so acks=all waited
    longest_wait_s: float | None = None  # of 99 % of the produces with acks=all
    refused: float | None = None  # produces, for want of replicas
    timed_out: float | None = None


class ReplayOutcome(NamedTuple):
    """The absences, in ms since the start, and their cost."""

    absences: list[Absence]
    cost: Cost


class LogReplay(NamedTuple):
    """A fleet that replays a record, and the recorded outcome of the same partitions."""

    config: FleetConfig
    recorded: ReplayOutcome
    brokers: dict[int, int]  # of the record -> of the fleet
    left_out: int  # partitions that are not replayed


def replay_of(record: Record, base: FleetConfig) -> LogReplay:
    """The fleet with the replicas and faults of a record; everything else is from `base`.

    `base.lag_time_ms` is taken for the lag limit of the record. Raises ValueError if the record has
    no partition with several replicas, or no replica left any ISR.
    """
    placed = _placed(record)
    if not placed:
        raise ValueError("these logs show no partition with several replicas")
    numbers = {b: n for n, b in enumerate(sorted({b for r in placed.values() for b in r}), 1)}
    outs = [out for out in record.outs if out.key in placed]
    pauses = _pauses(outs, record, base.lag_time_ms)
    if not pauses:
        raise ValueError("no replica left an ISR: there is nothing to replay")
    start_ms = min(record.start_ms, min(p.from_ms for p in pauses) - BEFORE_MS)
    shifted = [
        Pause(p.role, numbers[p.broker], p.from_ms - start_ms, p.to_ms - start_ms)
        for p in pauses
        if p.broker in numbers
    ]
    assigned = [",".join(str(numbers[b]) for b in replicas) for replicas in placed.values()]
    config = base.with_(
        assigned=" ".join(assigned), partitions=len(placed), brokers=len(numbers),
        replication_factor=len(next(iter(placed.values()))), pauses=written(shifted),
        minutes=(record.end_ms - start_ms) / 60_000, stall_s=0,
    )  # fmt: skip
    followed = [out for out in outs if out.replica != placed[out.key][0]]
    absences = [
        a._replace(start_ms=a.start_ms - start_ms, end_ms=a.end_ms and a.end_ms - start_ms)
        for a in followed
    ]
    outcome = ReplayOutcome(absences, _cost_of(absences, config.duration_ms))
    return LogReplay(config, outcome, numbers, len(record.replicas) - len(placed))


def play(config: FleetConfig) -> ReplayOutcome:
    """Simulate a fleet in this process."""
    events = simulate_local(config)
    end_ms = config.duration_ms
    absences = exact.absences(events, end_ms)
    numbers = measures(events, config.replication_factor, config.min_insync_replicas, (0, end_ms))
    cost = _cost_of(absences, end_ms)._replace(
        waiting_minutes=_waiting_ms(config, absences) / 60_000,
        longest_wait_s=min(numbers["p99_ms"], config.request_timeout_ms) / 1000,
        refused=numbers["refused"],
        timed_out=numbers["timed_out"],
    )
    return ReplayOutcome(absences, cost)


def outcomes(config: FleetConfig, seeds: int) -> list[ReplayOutcome]:
    """The outcomes by seed, which draws the ISR check's phase, the load and followers' speed."""
    return [play(config.with_(seed=config.seed + n)) for n in range(seeds)]


def _cost_of(absences: Sequence[Absence], end_ms: int) -> Cost:
    out_ms = sum((end_ms if a.end_ms is None else a.end_ms) - a.start_ms for a in absences)
    evicted = sum(a.leader is not None for a in absences)
    return Cost(evicted, len(absences) - evicted, out_ms / 60_000)


def _waiting_ms(config: FleetConfig, absences: Iterable[Absence]) -> int:
    """How long a stalled replica was still in the ISR, summed over partitions."""
    out = defaultdict[tuple[int, int], list[tuple[int, int]]](list)
    for a in absences:
        end_ms = config.duration_ms if a.end_ms is None else a.end_ms
        out[a.key.partition, a.replica].append((a.start_ms, end_ms))
    still = defaultdict[int, list[tuple[int, int]]](list)
    for pause in pauses_of(config.pauses):
        if pause.role != "leader":
            still[pause.broker].append((pause.from_ms, min(pause.to_ms, config.duration_ms)))
    waiting = 0
    for partition, replicas in enumerate(assignment(config).tolist()):
        for replica in replicas[1:]:
            away = out[partition, replica]
            for start, end in merged(still[replica]):
                waiting += end - start - sum(max(0, min(end, b) - max(start, a)) for a, b in away)
    return waiting


# From the record


def _placed(record: Record) -> dict[Key, list[int]]:
    """The replicas of each partition that the fleet replays, the leader first."""
    known = {key: r for key, r in record.replicas.items() if len(r) > 1 and record.spans.get(key)}
    most = Counter(len(r) for r in known.values()).most_common(1)
    placed: dict[Key, list[int]] = {}
    for key in sorted(k for k, replicas in known.items() if len(replicas) == most[0][0]):
        _, leaders = record.leaders.get(key, ([], []))
        leader = next((b for b in leaders if b in known[key]), record.spans[key][0].isr[0])
        placed[key] = [leader, *sorted(known[key] - {leader})]
    return dict(list(placed.items())[:MOST_PARTITIONS])


def _pauses(outs: Sequence[Absence], record: Record, limit_ms: int) -> list[Pause]:
    """Which broker was stalled, in which role, and when."""
    ends = {r: [o.end_ms or record.end_ms for o in outs if o.replica == r]
            for r in {out.replica for out in outs}}  # fmt: skip
    starts = {r: [o.start_ms for o in outs if o.replica == r] for r in ends}

    def is_out(broker: int | None, ts_ms: int) -> bool:
        spans = zip(starts.get(broker or 0, ()), ends.get(broker or 0, ()), strict=True)
        return any(start < ts_ms <= end + 1_000 for start, end in spans)

    own = [out for out in outs if not is_out(out.leader, out.start_ms)]
    pauses: list[Pause] = []
    for broker in sorted({out.replica for out in own}):
        for group in _groups([out for out in own if out.replica == broker]):
            pauses += _of_broker(broker, group, record, limit_ms)
    blamed = [out for out in outs if out not in own]
    for broker in sorted({out.leader or 0 for out in blamed}):
        near = [p for p in pauses if p.broker == broker and p.role == "fetchers"]
        pauses += [p._replace(role="leader") for p in near]
    return pauses


def _groups(outs: Sequence[Absence]) -> list[list[Absence]]:
    """Absences of one broker in groups; between two groups it was in all ISRs for over a second."""
    groups: list[list[Absence]] = []
    for out in sorted(outs, key=lambda each: each.start_ms):
        ends = [o.end_ms for o in groups[-1]] if groups else []
        if groups and (None in ends or out.start_ms <= max(e or 0 for e in ends) + QUIET_MS // 10):
            groups[-1].append(out)
        else:
            groups.append([out])
    return groups


def _of_broker(broker: int, outs: list[Absence], record: Record, limit_ms: int) -> list[Pause]:
    """One fault of one broker: it stalled, and from some moment on it was down."""
    evicted = [out for out in outs if out.leader is not None]
    removed = [out.start_ms for out in outs if out.leader is None]
    ends = [out.end_ms for out in outs]
    end_ms = record.end_ms if None in ends else min(end for end in ends if end is not None)
    start_ms = _stalled_from(evicted, limit_ms) if evicted else min(removed)
    near = (start_ms, end_ms)
    gone = [r.ts_ms for r in record.said("crash", near) if about(r) == broker]
    down_ms = min([*gone, *(ms for ms in removed if ms < end_ms)], default=end_ms)
    times = (("fetchers", start_ms, down_ms), ("down", down_ms, end_ms))
    return [Pause(role, broker, a, b) for role, a, b in times if b > a]


def _stalled_from(evicted: Sequence[Absence], limit_ms: int) -> int:
    """When a follower had last caught up: as the lines show, else estimated from the limit."""
    reported = [
        int(number)
        for out in evicted
        if out.left
        for number in out.left.detail.get("last_caught_up_time_ms", "").split(",")
        if number.isdigit()
    ]
    if reported:
        return max(reported)
    times = [out.start_ms for out in evicted]
    earliest, latest = max(times) - 3 * limit_ms // 2, min(times) - limit_ms
    return (min(earliest, latest) + latest) // 2
