"""The leader's high watermark, and the requests that wait for it.

Theory of operation. The high watermark is the minimum of the end offsets that count; which replicas
count is a rule of the version. A handler after which it may move ends in `settle`, which moves it
if possible, then answers the acks=all requests and parked fetches that the move, or new data,
completes.

Source: maybeIncrementLeaderHW, checkEnoughReplicasReachOffset (Partition.scala),
DelayedFetch.scala.
"""

from collections.abc import Iterable

from isrlab.engine import messages as m
from isrlab.engine import reading, rules
from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.frozen import replace
from isrlab.engine.model import Broker, DelayedProduce, Leader, ParkedFetch, RemoteReplica

Step = tuple[Broker, tuple[m.Output, ...]]


def is_eligible(broker: Broker, remote: RemoteReplica) -> bool:
    """Whether the replica's broker may be in the ISR, as far as this broker's metadata says."""
    known = broker.known(remote.id)
    return rules.is_isr_eligible(
        broker.version.eligibility,
        known is not None and known.is_active,
        remote.broker_epoch,
        known.broker_epoch if known else rules.UNKNOWN_EPOCH,
    )


def lag(broker: Broker, remote: RemoteReplica, now_ms: int) -> tuple[int, int, int, int, int]:
    """A follower's lag as arguments of the rules: end offsets, its clock, the time, the limit."""
    ends = remote.log_end_offset, broker.log.log_end_offset
    return *ends, remote.last_caught_up_time_ms, now_ms, broker.settings.replica_lag_time_max_ms


def holds_back(broker: Broker, remote: RemoteReplica, now_ms: int) -> bool:
    """Whether the leader's high watermark waits for this follower."""
    state = reading.leader_of(broker).isr_state
    counted = broker.version.high_watermark_set
    asks = counted == HighWatermarkSet.MAXIMAL_ISR_OR_CAUGHT_UP_AND_ELIGIBLE
    return rules.holds_back_high_watermark(
        counted,
        remote.id in state.isr,
        remote.id in state.maximal_isr,
        asks and is_eligible(broker, remote),
        *lag(broker, remote, now_ms),
    )


def min_isr(broker: Broker) -> int:
    """min.insync.replicas; from 3.7 never more than the partition has replicas."""
    wanted = broker.settings.min_insync_replicas
    is_capped = broker.version.high_watermark_held_under_min_isr
    return rules.effective_min_isr(wanted, len(broker.replicas)) if is_capped else wanted


def settle(
    broker: Broker, now_ms: int, outputs: tuple[m.Output, ...] = (), advance: bool = True
) -> Step:
    """Move the high watermark (if `advance`), then answer what waited for that or for data."""
    before = broker.log.high_watermark
    if advance:
        broker = _advance_high_watermark(broker, now_ms)
    role, moved = reading.leader_of(broker), broker.log.high_watermark > before
    produces = [d for d in role.delayed if _is_satisfied(broker, role, d)]
    fetches = [p for p in role.parked if _has_news(broker, role, p.fetch, moved)]
    if not produces and not fetches:
        return broker, outputs
    delayed = tuple(d for d in role.delayed if d not in produces)
    parked = tuple(p for p in role.parked if p not in fetches)
    answers = (*(_acknowledge(broker, d) for d in produces), *read_again(broker, fetches))
    role = replace(role, delayed=delayed, parked=parked)
    return replace(broker, role=role), (*outputs, *answers)


def _advance_high_watermark(broker: Broker, now_ms: int) -> Broker:
    """Raise the high watermark to the least end offset that counts (maybeIncrementLeaderHW)."""
    role, log = reading.leader_of(broker), broker.log
    end = log.log_end_offset  # a replica that has reached it holds nothing back
    behind = [r for r in role.remotes if r.log_end_offset < end and holds_back(broker, r, now_ms)]
    high_watermark = rules.next_high_watermark(
        log.high_watermark,
        min([end, *(r.log_end_offset for r in behind)]),
        broker.version.high_watermark_held_under_min_isr,
        len(role.isr),
        rules.effective_min_isr(broker.settings.min_insync_replicas, len(broker.replicas)),
    )
    if high_watermark == log.high_watermark:
        return broker
    return replace(broker, log=log.with_high_watermark(high_watermark))


def _is_satisfied(broker: Broker, role: Leader, delayed: DelayedProduce) -> bool:
    """Whether the records are committed; with acks=2 or more (0.8), whether enough copies exist."""
    if delayed.acks == m.ACKS_ALL:
        return broker.log.high_watermark >= delayed.required_offset
    ends = [r.log_end_offset for r in role.remotes if r.id in role.isr]
    copies = 1 + sum(end >= delayed.required_offset for end in ends)
    return copies >= delayed.acks


def _acknowledge(broker: Broker, delayed: DelayedProduce) -> m.Send:
    """Answer acks=all, with an error if the ISR has become too small by now; the records stay."""
    enough = rules.admits_acks_all(len(reading.leader_of(broker).maximal_isr), min_isr(broker))
    is_refused = delayed.acks == m.ACKS_ALL and not enough
    error = "NOT_ENOUGH_REPLICAS_AFTER_APPEND" if is_refused else None
    return m.Send(m.CLIENT, m.ProduceResponse(delayed.request, delayed.base_offset, error))


def _has_news(broker: Broker, role: Leader, fetch: m.Fetch, moved: bool) -> bool:
    """Whether a parked fetch completes: for data, an error, a divergence, or (2.4-2.5) a newer high
    watermark. Kafka checks this only after an append, or when the high watermark has moved: a new
    leader epoch alone leaves it parked. Source: tryCompleteDelayedRequests, P 2.4.1:551, 3.7.1:819.
    """
    if fetch.offset < broker.log.log_end_offset:
        return True
    remote = role.remote(fetch.replica)
    if not moved or remote is None:
        return moved
    is_news = remote.last_sent_high_watermark < broker.log.high_watermark
    pushes = is_news and broker.version.pushes_high_watermark
    return pushes or any(reading.examine_fetch(broker, fetch))


def read_again(broker: Broker, parked: Iterable[ParkedFetch]) -> tuple[m.Output, ...]:
    """The answers to parked fetches, read again: they carry the current state."""
    return tuple(m.Send(p.fetch.replica, reading.answer(broker, p.fetch)) for p in parked)
