"""What a leader does when it is elected, on produce, on fetch, and when a waiting request expires.

Theory of operation. A leader appends, and remembers for each follower the offset of its last fetch:
the follower has everything before it. From that follow the ISR (`isr.py`) and the high watermark
(`high_watermark.py`). A fetch that is answered at once carries the high watermark of before it was
handled: that is why a follower's high watermark runs one fetch behind. A fetch that finds nothing
is parked, and answered with what is true later.

Left out: quotas, reassignment, tiered storage; and up to 2.3 the reset of a follower's end offset
by a fetch that failed.

Source: Partition.scala and ReplicaManager.scala at the tags of `versions.py`.
"""

from __future__ import annotations

from dataclasses import replace

from isrlab.engine import rules
from isrlab.engine.choices import ClockReset, EpochEntry, IsrWrite
from isrlab.engine.high_watermark import Step, min_isr, settle
from isrlab.engine.isr import maybe_expand_isr
from isrlab.engine.log import Record
from isrlab.engine.messages import (
    ACKS_ALL,
    CLIENT,
    After,
    EpochEndOffset,
    ExpireFetch,
    ExpireProduce,
    Fetch,
    FetchResponse,
    LeaderAndIsr,
    ListOffsets,
    ListOffsetsResponse,
    OffsetsForLeaderEpoch,
    Output,
    Produce,
    ProduceResponse,
    Send,
)
from isrlab.engine.model import (
    Broker,
    CommittedIsr,
    DelayedProduce,
    Leader,
    ParkedFetch,
    RemoteReplica,
)
from isrlab.engine.reading import epoch_error, examine_fetch, leader_of, read, reread

NEVER_MS = 0  # the time of what has not happened


def become_leader(broker: Broker, order: LeaderAndIsr, now_ms: int) -> Step:
    """Take the leadership, or learn a new ISR in an epoch that is already led (makeLeader)."""
    former = broker.role if isinstance(broker.role, Leader) else None
    if former and order.leader_epoch == former.leader_epoch:
        role = replace(
            former,
            partition_epoch=order.partition_epoch,
            isr_state=CommittedIsr(order.isr),
            remotes=_known_remotes(former.remotes, order, broker.id),
        )
        return settle(replace(broker, role=role, replicas=order.replicas), now_ms)
    end = broker.log.log_end_offset
    log = broker.log
    if broker.version.epoch_entry >= EpochEntry.ON_BECOMING_LEADER:
        log = replace(log, epochs=log.epochs.assign(order.leader_epoch, end, broker.version))
    role = Leader(
        leader_epoch=order.leader_epoch,
        leader_epoch_start_offset=end,
        partition_epoch=order.partition_epoch,
        isr_state=CommittedIsr(order.isr),
        remotes=_reset_remotes(broker, order, now_ms),
        parked=former.parked if former else (),
        delayed=former.delayed if former else (),
    )
    return settle(replace(broker, role=role, log=log, replicas=order.replicas), now_ms)


def _known_remotes(
    remotes: tuple[RemoteReplica, ...], order: LeaderAndIsr, own_id: int
) -> tuple[RemoteReplica, ...]:
    known = {r.id: r for r in remotes}
    return tuple(known.get(i, RemoteReplica(i)) for i in order.replicas if i != own_id)


def _reset_remotes(broker: Broker, order: LeaderAndIsr, now_ms: int) -> tuple[RemoteReplica, ...]:
    """The followers' state when an epoch begins.

    Source: R 0.8.2.2:50, 0.10.2.2:80, 3.7.1:150-186.
    """
    former = broker.role if isinstance(broker.role, Leader) else None
    known = former.remotes if former else broker.remembered
    return tuple(
        _reset_remote(broker, r, r.id in order.isr, former is None, now_ms)
        for r in _known_remotes(known, order, broker.id)
    )


def _reset_remote(
    broker: Broker, remote: RemoteReplica, in_isr: bool, is_new_leader: bool, now_ms: int
) -> RemoteReplica:
    version, reset = broker.version, broker.version.clock_reset
    clock_ms = remote.last_caught_up_time_ms or now_ms
    caught_up = rules.lag_clock_in_new_epoch(
        reset, version.lag_clock, in_isr, clock_ms, now_ms, NEVER_MS
    )
    if rules.forgets_end_offset(version.lag_clock, is_new_leader):
        return RemoteReplica(
            remote.id,
            last_caught_up_time_ms=caught_up,
            last_fetch_leader_end_offset=rules.UNKNOWN_OFFSET,
            last_fetch_time_ms=NEVER_MS,
        )
    if reset == ClockReset.NEVER:
        return replace(remote, last_caught_up_time_ms=caught_up)
    fetched_ms = remote.last_fetch_time_ms
    return replace(
        remote,
        last_caught_up_time_ms=caught_up,
        last_fetch_leader_end_offset=broker.log.log_end_offset,
        last_fetch_time_ms=rules.last_fetch_time_in_new_epoch(
            reset, in_isr, fetched_ms, now_ms, NEVER_MS
        ),
    )


def on_produce(broker: Broker, produce: Produce, now_ms: int) -> Step:
    """Append, then answer: at once for acks=1, when the high watermark has passed for acks=all."""
    refusal = _produce_refusal(broker, produce)
    if refusal:
        answer = ProduceResponse(produce.request, error=refusal)
        return broker, (Send(CLIENT, answer),) if produce.acks else ()
    role = leader_of(broker)
    base = broker.log.log_end_offset
    records = [Record(i, role.leader_epoch) for i in produce.ids]
    log = broker.log.append(records, broker.version)
    outputs: tuple[Output, ...] = ()
    if produce.acks == 1:
        outputs = (Send(CLIENT, ProduceResponse(produce.request, base)),)
    elif produce.acks != 0:
        waiting = DelayedProduce(produce.request, produce.acks, base, log.log_end_offset)
        role = replace(role, delayed=(*role.delayed, waiting))
        expiry = ExpireProduce(produce.request)
        outputs = (After(broker.settings.request_timeout_ms, expiry),)
    return settle(replace(broker, log=log, role=role), now_ms, outputs)


def _produce_refusal(broker: Broker, produce: Produce) -> str | None:
    version = broker.version
    if produce.acks not in (0, 1, ACKS_ALL) and not version.accepts_any_acks:
        return "INVALID_REQUIRED_ACKS"
    if not isinstance(broker.role, Leader):
        return version.not_leader_error
    admitted = rules.admits_acks_all(len(broker.role.isr), min_isr(broker))
    return None if produce.acks != ACKS_ALL or admitted else "NOT_ENOUGH_REPLICAS"


def on_expire_produce(broker: Broker, expiry: ExpireProduce, now_ms: int) -> Step:
    role = leader_of(broker)
    if all(d.request != expiry.request for d in role.delayed):
        return broker, ()
    left = tuple(d for d in role.delayed if d.request != expiry.request)
    answer = ProduceResponse(expiry.request, error="REQUEST_TIMED_OUT")
    return replace(broker, role=replace(role, delayed=left)), (Send(CLIENT, answer),)


def on_fetch(broker: Broker, fetch: Fetch, now_ms: int) -> Step:
    """Read for a follower, note how far it is, and let that move the ISR and the high watermark."""
    error, diverging = examine_fetch(broker, fetch)
    if error or diverging:
        answer = FetchResponse(fetch.request, fetch.offset, diverging=diverging, error=error)
        return broker, (Send(fetch.replica, answer),)
    answer = read(broker, fetch)  # carries the high watermark of before this fetch
    role = leader_of(broker)
    before = role.remote(fetch.replica)
    assert before is not None
    is_news = broker.version.pushes_high_watermark and (
        before.last_sent_high_watermark < broker.log.high_watermark
    )
    after = _with_fetch(broker, before, fetch, now_ms)
    broker = _with_remote(broker, after)
    broker, asked = maybe_expand_isr(broker, after, now_ms)
    moved = after.log_end_offset != before.log_end_offset
    if answer.records or is_news or fetch.max_wait_ms <= 0:
        outputs: tuple[Output, ...] = (Send(fetch.replica, answer), *asked)
    else:
        parked = ParkedFetch(fetch, now_ms + fetch.max_wait_ms)
        role = leader_of(broker)
        others = tuple(p for p in role.parked if p.fetch.replica != fetch.replica)
        broker = replace(broker, role=replace(role, parked=(*others, parked)))
        expiry = ExpireFetch(fetch.replica, fetch.request)
        outputs = (After(fetch.max_wait_ms, expiry), *asked)
    looks = moved or not broker.version.high_watermark_only_if_follower_moved
    is_writing = bool(asked) and broker.version.isr_write <= IsrWrite.ZOOKEEPER_NOTIFY
    return settle(broker, now_ms, outputs, advance=looks and not is_writing)


def _with_fetch(broker: Broker, remote: RemoteReplica, fetch: Fetch, now_ms: int) -> RemoteReplica:
    """What this fetch tells about its follower (updateFetchState)."""
    end = broker.log.log_end_offset
    caught_up = rules.last_caught_up_time_ms(
        broker.version.lag_clock,
        fetch.offset,
        end,
        remote.last_fetch_leader_end_offset,
        remote.last_fetch_time_ms,
        remote.last_caught_up_time_ms,
        now_ms,
    )
    return replace(
        remote,
        log_end_offset=fetch.offset,
        last_caught_up_time_ms=caught_up,
        last_fetch_leader_end_offset=end,
        last_fetch_time_ms=now_ms,
        broker_epoch=fetch.broker_epoch,
        last_sent_high_watermark=broker.log.high_watermark,
    )


def _with_remote(broker: Broker, remote: RemoteReplica) -> Broker:
    role = leader_of(broker)
    remotes = tuple(remote if r.id == remote.id else r for r in role.remotes)
    return replace(broker, role=replace(role, remotes=remotes))


def on_expire_fetch(broker: Broker, expiry: ExpireFetch, now_ms: int) -> Step:
    """A parked fetch has waited long enough: it is read again and so carries the newest state."""
    role = leader_of(broker)
    due = [
        p.fetch
        for p in role.parked
        if p.fetch.replica == expiry.replica and p.fetch.request == expiry.request
    ]
    left = tuple(p for p in role.parked if p.fetch not in due)
    answers = tuple(Send(f.replica, reread(broker, f)) for f in due)
    return replace(broker, role=replace(role, parked=left)), answers


def on_offsets_for_leader_epoch(
    broker: Broker, question: OffsetsForLeaderEpoch, now_ms: int
) -> Step:
    """Where does that epoch end here? (KIP-101, KIP-279)"""
    error = epoch_error(broker, question.leader_epoch)
    epoch, end = broker.log.epochs.end_offset_for(
        question.epoch, broker.log.log_end_offset, broker.version
    )
    answer = EpochEndOffset(question.request, error=error)
    if not error:
        answer = replace(answer, epoch=epoch, end_offset=end)
    return broker, (Send(question.replica, answer),)


def on_list_offsets(broker: Broker, question: ListOffsets, now_ms: int) -> Step:
    error = epoch_error(broker, rules.UNKNOWN_EPOCH)
    answer = ListOffsetsResponse(question.request, error=error)
    if not error:
        log = broker.log
        answer = replace(
            answer, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
        )
    return broker, (Send(question.replica, answer),)


def on_losing_leadership(broker: Broker) -> tuple[Output, ...]:
    """Answer everyone who still waits: this broker no longer leads."""
    role, error = leader_of(broker), broker.version.not_leader_error
    fetches = tuple(
        Send(p.fetch.replica, FetchResponse(p.fetch.request, p.fetch.offset, error=error))
        for p in role.parked
    )
    produces = tuple(Send(CLIENT, ProduceResponse(d.request, error=error)) for d in role.delayed)
    return (*fetches, *produces)
