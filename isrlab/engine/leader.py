"""The leader: taking and losing leadership, produce and fetch requests, and their timeouts.

Theory of operation. A leader appends, and remembers for each follower the offset of its last fetch:
the follower has everything before it. From that follow the ISR (`isr.py`) and the high watermark
(`high_watermark.py`). An immediate response carries the high watermark from before the fetch was
handled, which is why a follower's high watermark runs one fetch behind. A fetch that finds nothing
is parked, and answered later with the state at that time.

Left out: quotas, tiered storage.

Source: Partition.scala and ReplicaManager.scala at the tags of `versions.py`.
"""

from isrlab.engine import messages as m
from isrlab.engine import model, rules
from isrlab.engine.choices import ClockReset, EpochEntry, LagClock
from isrlab.engine.frozen import replace
from isrlab.engine.high_watermark import Step, min_isr, read_again, settle
from isrlab.engine.isr import maybe_expand_isr
from isrlab.engine.log import Record
from isrlab.engine.model import Broker, CommittedIsr, Leader, ParkedFetch, RemoteReplica
from isrlab.engine.reading import answer, epoch_error, is_stale, leader_of

NEVER_MS = 0  # the time of an event that has not happened


def become_leader(broker: Broker, order: m.LeaderAndIsr, now_ms: int) -> Step:
    """Take the leadership of a new epoch (makeLeader)."""
    assert broker.id in order.isr, f"leader {broker.id} is not in its ISR {order.isr}"
    assert order.leader_epoch >= broker.leader_epoch, "the leader epoch falls"
    former = broker.role if isinstance(broker.role, Leader) else None
    log, end = broker.log, broker.log.log_end_offset
    if broker.version.epoch_entry >= EpochEntry.ON_BECOMING_LEADER:
        log = replace(log, epochs=log.epochs.assign(order.leader_epoch, end, broker.version))
    known = _known_remotes(broker, order)
    role = Leader(
        leader_epoch=order.leader_epoch,
        leader_epoch_start_offset=end,
        partition_epoch=order.partition_epoch,
        isr_state=CommittedIsr(order.isr),
        remotes=tuple(_reset(broker, r, r.id in order.isr, now_ms) for r in known),
        parked=former.parked if former else (),
        delayed=former.delayed if former else (),
    )
    return settle(replace(broker, role=role, log=log, replicas=order.replicas), now_ms)


def on_new_isr(broker: Broker, order: m.LeaderAndIsr, now_ms: int) -> Step:
    """Learn the state stored in the current epoch (KRaft): it ends any ISR change in flight."""
    role = leader_of(broker)
    assert broker.id in order.isr, f"leader {broker.id} is not in its ISR {order.isr}"
    assert order.partition_epoch >= role.partition_epoch, "the partition epoch falls"
    role = replace(
        role,
        partition_epoch=order.partition_epoch,
        isr_state=CommittedIsr(order.isr),
        remotes=_known_remotes(broker, order),
    )
    return settle(replace(broker, role=role, replicas=order.replicas), now_ms)


def _known_remotes(broker: Broker, order: m.LeaderAndIsr) -> tuple[RemoteReplica, ...]:
    """The followers as this or an earlier leadership knows them."""
    role = broker.role
    remotes = role.remotes if isinstance(role, Leader) else broker.remembered
    known = {r.id: r for r in remotes}
    return tuple(known.get(i, RemoteReplica(i)) for i in order.replicas if i != broker.id)


def _reset(broker: Broker, remote: RemoteReplica, in_isr: bool, now_ms: int) -> RemoteReplica:
    """A follower's state when an epoch begins. Source: R 0.8.2.2:50, 0.10.2.2:80, 3.7.1:150-186."""
    version, reset = broker.version, broker.version.clock_reset
    clock_ms = remote.last_caught_up_time_ms or now_ms
    caught_up = rules.lag_clock_in_new_epoch(
        reset, version.lag_clock, in_isr, clock_ms, now_ms, NEVER_MS
    )
    if rules.forgets_end_offset(version.lag_clock, not isinstance(broker.role, Leader)):
        return RemoteReplica(
            remote.id,
            last_caught_up_time_ms=caught_up,
            last_fetch_leader_end_offset=rules.UNKNOWN_OFFSET,
            last_fetch_time_ms=NEVER_MS,
        )
    if reset == ClockReset.NEVER:
        return replace(remote, last_caught_up_time_ms=caught_up)
    fetched_ms = rules.last_fetch_time_in_new_epoch(
        reset, in_isr, remote.last_fetch_time_ms, now_ms, NEVER_MS
    )
    return replace(
        remote,
        last_caught_up_time_ms=caught_up,
        last_fetch_leader_end_offset=broker.log.log_end_offset,
        last_fetch_time_ms=fetched_ms,
    )


def on_produce(broker: Broker, produce: m.Produce, now_ms: int) -> Step:
    """Append, or refuse; answer acks=1 immediately, acks=all once the records are committed."""
    refusal = _produce_refusal(broker, produce)
    if refusal:
        refused = m.Send(m.CLIENT, m.ProduceResponse(produce.request, error=refusal))
        return broker, (refused,) if produce.acks else ()
    role = leader_of(broker)
    base = broker.log.log_end_offset
    records = [Record(i, role.leader_epoch) for i in produce.ids]
    log = broker.log.append(records, broker.version)
    outputs: tuple[m.Output, ...] = ()
    if produce.acks == 1:
        outputs = (m.Send(m.CLIENT, m.ProduceResponse(produce.request, base)),)
    elif produce.acks != 0:
        waiting = model.DelayedProduce(produce.request, produce.acks, base, log.log_end_offset)
        role = replace(role, delayed=(*role.delayed, waiting))
        timeout = broker.settings.request_timeout_ms
        outputs = (m.After(timeout, m.ExpireProduce(produce.request)),)
    return settle(replace(broker, log=log, role=role), now_ms, outputs)


def _produce_refusal(broker: Broker, produce: m.Produce) -> str | None:
    version = broker.version
    if produce.acks not in (0, 1, m.ACKS_ALL) and not version.accepts_any_acks:
        return "INVALID_REQUIRED_ACKS"
    if not isinstance(broker.role, Leader):
        return version.not_leader_error
    admitted = rules.admits_acks_all(len(broker.role.isr), min_isr(broker))
    return None if produce.acks != m.ACKS_ALL or admitted else "NOT_ENOUGH_REPLICAS"


def on_expire_produce(broker: Broker, expiry: m.ExpireProduce, now_ms: int) -> Step:
    role = leader_of(broker)
    left = tuple(d for d in role.delayed if d.request != expiry.request)
    if left == role.delayed:
        return broker, ()
    late = m.ProduceResponse(expiry.request, error="REQUEST_TIMED_OUT")
    return replace(broker, role=replace(role, delayed=left)), (m.Send(m.CLIENT, late),)


def on_fetch(broker: Broker, fetch: m.Fetch, now_ms: int) -> Step:
    """Read for a follower, note its position, and update the ISR and the high watermark."""
    response = answer(broker, fetch)  # carries the high watermark from before this fetch
    if response.error or response.diverging:
        return _failed(broker, fetch, now_ms), (m.Send(fetch.replica, response),)
    if is_stale(broker, fetch):  # an error about its offset comes first: P 3.7.1:1449-1461
        error = broker.version.not_leader_error
        refusal = m.FetchResponse(fetch.request, fetch.offset, error=error)
        return broker, (m.Send(fetch.replica, refusal),)
    role = leader_of(broker)
    before = role.remote(fetch.replica)
    assert before is not None
    is_news = before.last_sent_high_watermark < broker.log.high_watermark
    pushes = is_news and broker.version.pushes_high_watermark
    after = _fetched(broker, before, fetch, now_ms)
    parked = role.parked
    output: m.Output = m.Send(fetch.replica, response)
    if not (response.records or pushes or fetch.max_wait_ms <= 0):
        others = tuple(p for p in parked if p.fetch.replica != fetch.replica)
        parked = (*others, ParkedFetch(fetch, now_ms + fetch.max_wait_ms))
        output = m.After(fetch.max_wait_ms, m.ExpireFetch(fetch.replica, fetch.request))
    remotes = tuple(after if r is before else r for r in role.remotes)
    broker = replace(broker, role=replace(role, remotes=remotes, parked=parked))
    moved = after.log_end_offset != before.log_end_offset
    looks = moved or not broker.version.high_watermark_only_if_follower_moved
    broker, asked = maybe_expand_isr(broker, after, now_ms, looks)
    is_writing = bool(asked) and broker.version.writes_zookeeper
    return settle(broker, now_ms, (output, *asked), advance=looks and not is_writing)


def _failed(broker: Broker, fetch: m.Fetch, now_ms: int) -> Broker:
    """The broker after a refused fetch: up to 2.3 it no longer knows the follower's state.

    Kafka sets offset, log end and time to -1. Source: readFromLocalLog, RM 0.10.2.2:566-585; in 0.8
    the failed fetch still renews the follower's clock: R 0.8.2.2:50-59.
    """
    role = broker.role
    remote = role.remote(fetch.replica) if isinstance(role, Leader) else None
    if remote is None or not broker.version.failed_fetch_resets_follower:
        return broker
    is_alive = broker.version.lag_clock == LagClock.LAST_FETCH
    after = replace(
        remote,
        log_end_offset=rules.UNKNOWN_OFFSET,
        last_caught_up_time_ms=now_ms if is_alive else remote.last_caught_up_time_ms,
        last_fetch_leader_end_offset=rules.UNKNOWN_OFFSET,
        last_fetch_time_ms=NEVER_MS,
    )
    remotes = tuple(after if r is remote else r for r in leader_of(broker).remotes)
    return replace(broker, role=replace(leader_of(broker), remotes=remotes))


def _fetched(broker: Broker, remote: RemoteReplica, fetch: m.Fetch, now_ms: int) -> RemoteReplica:
    """The follower as this fetch shows it (updateFetchState)."""
    log = broker.log
    caught_up = rules.last_caught_up_time_ms(
        broker.version.lag_clock,
        fetch.offset,
        log.log_end_offset,
        remote.last_fetch_leader_end_offset,
        remote.last_fetch_time_ms,
        remote.last_caught_up_time_ms,
        now_ms,
    )
    end, hw = log.log_end_offset, log.high_watermark
    return RemoteReplica(remote.id, fetch.offset, caught_up, end, now_ms, fetch.broker_epoch, hw)


def on_expire_fetch(broker: Broker, expiry: m.ExpireFetch, now_ms: int) -> Step:
    """Answer a parked fetch that has waited long enough: read again, with the newest state."""
    role = leader_of(broker)
    wanted = expiry.replica, expiry.request
    due = [p for p in role.parked if (p.fetch.replica, p.fetch.request) == wanted]
    left = tuple(p for p in role.parked if p not in due)
    return replace(broker, role=replace(role, parked=left)), read_again(broker, due)


def on_offsets_for_leader_epoch(
    broker: Broker, question: m.OffsetsForLeaderEpoch, now_ms: int
) -> Step:
    """Answer where an epoch ends in this log (KIP-101, KIP-279)."""
    log, error = broker.log, epoch_error(broker, question.leader_epoch)
    end = log.epochs.end_offset_for(question.epoch, log.log_end_offset, broker.version)
    reply = m.EpochEndOffset(question.request, *end)
    if error:
        reply = m.EpochEndOffset(question.request, error=error)
    return broker, (m.Send(question.replica, reply),)


def on_list_offsets(broker: Broker, question: m.ListOffsets, now_ms: int) -> Step:
    log, error = broker.log, epoch_error(broker, rules.UNKNOWN_EPOCH)
    reply = m.ListOffsetsResponse(question.request, log.log_start_offset, log.log_end_offset)
    if error:
        reply = m.ListOffsetsResponse(question.request, error=error)
    return broker, (m.Send(question.replica, reply),)


def on_losing_leadership(broker: Broker, former: Leader) -> tuple[m.Output, ...]:
    """Answer all waiting requests: this broker no longer leads."""
    error = broker.version.not_leader_error
    produces = (m.ProduceResponse(d.request, error=error) for d in former.delayed)
    return (*read_again(broker, former.parked), *(m.Send(m.CLIENT, p) for p in produces))
