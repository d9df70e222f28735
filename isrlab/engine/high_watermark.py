"""The leader's high watermark, and whoever waits for it.

Theory of operation. The high watermark is the minimum of the end offsets that count; who counts
is a rule of the version. Every handler of a leader ends in `settle`: it moves the high watermark
if it can, then answers the acks=all requests and the parked fetches that this, or new data,
completes.

Source: maybeIncrementLeaderHW, checkEnoughReplicasReachOffset (Partition.scala),
DelayedFetch.scala.
"""

from __future__ import annotations

from dataclasses import replace

from isrlab.engine import rules
from isrlab.engine.messages import ACKS_ALL, CLIENT, Fetch, Output, ProduceResponse, Send
from isrlab.engine.model import Broker, DelayedProduce, RemoteReplica
from isrlab.engine.reading import examine_fetch, leader_of, reread

Step = tuple[Broker, tuple[Output, ...]]


def is_eligible(broker: Broker, remote: RemoteReplica) -> bool:
    """The replica's broker may be in the ISR, as far as this broker's metadata says."""
    known = next((b for b in broker.metadata if b.id == remote.id), None)
    return rules.is_isr_eligible(
        broker.version.eligibility,
        known is not None and known.is_active,
        remote.broker_epoch,
        known.broker_epoch if known else rules.UNKNOWN_EPOCH,
    )


def holds_back(broker: Broker, remote: RemoteReplica, now_ms: int) -> bool:
    """The leader's high watermark waits for this follower."""
    role = leader_of(broker)
    return rules.holds_back_high_watermark(
        broker.version.high_watermark_set,
        remote.id in role.isr,
        remote.id in role.maximal_isr,
        is_eligible(broker, remote),
        remote.log_end_offset,
        broker.log.log_end_offset,
        remote.last_caught_up_time_ms,
        now_ms,
        broker.settings.replica_lag_time_max_ms,
    )


def min_isr(broker: Broker) -> int:
    """min.insync.replicas; from 3.7 never more than the partition has replicas."""
    wanted = broker.settings.min_insync_replicas
    if not broker.version.high_watermark_held_under_min_isr:
        return wanted
    return rules.effective_min_isr(wanted, len(broker.replicas))


def settle(
    broker: Broker, now_ms: int, outputs: tuple[Output, ...] = (), advance: bool = True
) -> Step:
    """Move the high watermark if it can, then answer whoever waited for that or for data."""
    if advance:
        broker = _advance_high_watermark(broker, now_ms)
    broker, produced = _complete_produces(broker)
    broker, fetched = _complete_fetches(broker)
    return broker, (*outputs, *produced, *fetched)


def _advance_high_watermark(broker: Broker, now_ms: int) -> Broker:
    """maybeIncrementLeaderHW: the minimum end offset over everyone who counts."""
    role, log = leader_of(broker), broker.log
    ends = [r.log_end_offset for r in role.remotes if holds_back(broker, r, now_ms)]
    high_watermark = rules.next_high_watermark(
        log.high_watermark,
        min([log.log_end_offset, *ends]),
        broker.version.high_watermark_held_under_min_isr,
        len(role.isr),
        rules.effective_min_isr(broker.settings.min_insync_replicas, len(broker.replicas)),
    )
    if high_watermark == log.high_watermark:
        return broker
    return replace(broker, log=log.with_high_watermark(high_watermark))


def _complete_produces(broker: Broker) -> Step:
    role = leader_of(broker)
    done = tuple(d for d in role.delayed if _is_satisfied(broker, d))
    if not done:
        return broker, ()
    left = tuple(d for d in role.delayed if d not in done)
    answers = tuple(
        Send(CLIENT, ProduceResponse(d.request, d.base_offset, _late_error(broker, d)))
        for d in done
    )
    return replace(broker, role=replace(role, delayed=left)), answers


def _late_error(broker: Broker, delayed: DelayedProduce) -> str | None:
    """What acks=all says when the ISR has become too small meanwhile; the records stay."""
    enough = rules.admits_acks_all(len(leader_of(broker).maximal_isr), min_isr(broker))
    return None if enough or delayed.acks != ACKS_ALL else "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


def _is_satisfied(broker: Broker, delayed: DelayedProduce) -> bool:
    """checkEnoughReplicasReachOffset; 0.8 also counts copies for acks=2 and more."""
    if delayed.acks == ACKS_ALL:
        return broker.log.high_watermark >= delayed.required_offset
    role = leader_of(broker)
    ends = [r.log_end_offset for r in role.remotes if r.id in role.isr]
    copies = 1 + sum(end >= delayed.required_offset for end in ends)
    return copies >= delayed.acks


def _complete_fetches(broker: Broker) -> Step:
    role = leader_of(broker)
    done = tuple(p for p in role.parked if _has_news(broker, p.fetch))
    if not done:
        return broker, ()
    left = tuple(p for p in role.parked if p not in done)
    answers = tuple(Send(p.fetch.replica, reread(broker, p.fetch)) for p in done)
    return replace(broker, role=replace(role, parked=left)), answers


def _has_news(broker: Broker, fetch: Fetch) -> bool:
    """A parked fetch completes: data, an error, or (2.4-2.5) a high watermark that is news."""
    if any(examine_fetch(broker, fetch)) or fetch.offset < broker.log.log_end_offset:
        return True
    remote = leader_of(broker).remote(fetch.replica)
    return (
        broker.version.pushes_high_watermark
        and remote is not None
        and remote.last_sent_high_watermark < broker.log.high_watermark
    )
