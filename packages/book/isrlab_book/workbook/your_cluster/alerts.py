"""Which alerts would have fired: conditions on a cluster's gauges, with `for:`.

An alert is a condition and how long it must hold. It is evaluated at fixed times, so it may
miss a short time in between. The condition of a counter is that it grew within `WINDOW_MS`. Times
are ms on the clock of the record.
"""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from isrlab.events import exact
from isrlab.events.exact import Key
from isrlab.events.spans import merged
from isrlab.events.statements import BrokerIds
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents.find import Incident

Times: TypeAlias = list[tuple[int, int]]  # from and to (exclusive), ms, in order

UNDER_REPLICATED = "UnderReplicatedPartitions > 0"
AT_MIN_ISR = "AtMinIsrPartitionCount > 0"
UNDER_MIN_ISR = "UnderMinIsrPartitionCount > 0"
OFFLINE = "OfflinePartitionsCount > 0"
SHRINKS = "increase(IsrShrinksPerSec) > 0"
UNCLEAN = "increase(UncleanLeaderElectionsPerSec) > 0"
ELIGIBLE = "increase(ElectionFromEligibleLeaderReplicasPerSec) > 0"
REFUSED = "increase(ErrorsPerSec, NOT_ENOUGH_REPLICAS) > 0"
WINDOW_MS = 300_000  # in which `increase` of a counter looks back
SOON_MS = 10_000  # after a fault, in which its effects still begin


class AlertScore(NamedTuple):
    """The score of one alert over some faults.

    `fired`: how often. `noticed`: the faults during which (or at the next evaluation) it began to
    fire; `after_ms`: the median from their starts. `still_on`: others that began while it fired.
    """

    fired: int
    noticed: int
    still_on: int
    missed: int
    after_ms: float


def conditions(record: Record, min_insync_replicas: int) -> dict[str, Times]:
    """When the condition of each alert held, anywhere in the cluster.

    `IsrShrinksPerSec` counts the shrinks that a leader made.
    """
    held: dict[str, Times] = {}
    for key, spans in record.spans.items():
        for span in spans:
            size, full = len(span.isr), len(record.held(key, span))
            least = min(min_insync_replicas, full)
            states = (UNDER_REPLICATED, size < full), (AT_MIN_ISR, size == least)
            for alert, holds in (*states, (UNDER_MIN_ISR, size < least)):
                held.setdefault(alert, []).extend([(span.start_ms, span.end_ms)] * holds)
        held.setdefault(OFFLINE, []).extend(record.leaderless(key))
    counted = {SHRINKS: [each.start_ms for each in exact.evictions(record.events, record.end_ms)]}
    unclean = [row for row in record.rows["leader"] if row.detail.get("unclean")]
    counted[UNCLEAN] = [r.ts_ms for r in (*unclean, *record.said_of("unclean_election"))]
    counted[ELIGIBLE] = [*_elected_from_elr(record)]
    refusals = (
        r for r in record.rows["produce_error"] if "NOT_ENOUGH" in r.detail.get("error", "")
    )
    counted[REFUSED] = [row.ts_ms for row in refusals]
    held |= {alert: [(ms, ms + WINDOW_MS) for ms in times] for alert, times in counted.items()}
    return {alert: merged(times) for alert, times in held.items()}


def _elected_from_elr(record: Record) -> Iterator[int]:
    """When eligible leader replicas were elected, as the metadata log shows (TopicDelta 4.1.2)."""
    eligible: dict[Key, BrokerIds] = {}
    for row in record.rows["isr_commit"]:
        if row.leader in eligible.get(row.key, ()):
            yield row.ts_ms
        eligible[row.key] = row.ids("elr")


def firings(held: Times, for_ms: int, every_ms: int) -> Times:
    """From when to when an alert fires: a rule with `for:`, evaluated every `every_ms`.

    It fires once its condition was true at every evaluation for that time.
    """
    seen_ms = sorted(
        {ms for start, end in held for ms in range(-(-start // every_ms) * every_ms, end, every_ms)}
    )
    pending = merged((ms, ms + every_ms) for ms in seen_ms)
    wait_ms = -(-for_ms // every_ms) * every_ms
    return [(start + wait_ms, end) for start, end in pending if end - start > wait_ms]


def judged(held: Times, troubles: Times, for_ms: int, every_ms: int) -> AlertScore:
    """The score of an alert over these faults."""
    fires = firings(held, for_ms, every_ms)
    after, still_on = [], 0
    for start, end in troubles:
        begun = [on - start for on, _ in fires if start <= on <= end + every_ms]
        after += begun[:1]
        still_on += not begun and any(on < start < off for on, off in fires)
    missed = len(troubles) - len(after) - still_on
    return AlertScore(len(fires), len(after), still_on, missed, median(after) if after else 0)


def lasting(faults: Iterable[tuple[int, int]], held: dict[str, Times]) -> Times:
    """Known faults, each extended until the ISRs that were short soon after its end are full."""
    short = held.get(UNDER_REPLICATED, [])
    return [
        (start, max([end, *(off for on, off in short if on <= end + SOON_MS and off > end)]))
        for start, end in faults
    ]


def incident_spans(incidents: Sequence[Incident], record: Record) -> Times:
    """From when to when each incident lasted."""
    return [(e.start_ms, record.end_ms if e.end_ms is None else e.end_ms) for e in incidents]
