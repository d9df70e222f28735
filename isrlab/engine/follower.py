"""The follower: find the offset it shares with its leader, then copy from there.

Theory of operation. A follower has at most one request in flight. When it gets a leader it may
first have to shorten its log, by one of four rules (`Truncation`): to its own high watermark, by
asking where its last epoch ends (once, or again for each epoch the leader does not know), or by
fetching and letting the leader say where the logs diverge. Then it fetches at its log end offset;
the next fetch confirms what it appended. Its high watermark is the leader's as of the read, but at
most its own log end; so the value is out of date, and it may also go back.

A request that fails is sent again after a pause; a fenced follower waits for the controller. Up to
2.6.0 the answer to a question about an epoch without records may truncate nothing, and the follower
asks again forever (KAFKA-10706); here it pauses between questions.

Left out: throttling, and 0.8.2's habit of dropping its whole log on any offset out of range that is
not beyond the leader's end.

Source: Abstract/ReplicaFetcherThread.scala; makeFollower in Partition.scala.
"""

from isrlab.engine import messages as m
from isrlab.engine import rules
from isrlab.engine.choices import FollowAgain, Truncation
from isrlab.engine.frozen import replace
from isrlab.engine.high_watermark import Step
from isrlab.engine.leader import on_losing_leadership
from isrlab.engine.log import Log
from isrlab.engine.model import NO_LEADER, Broker, Follower, Leader, RemoteReplica


def follower_of(broker: Broker) -> Follower:
    """The broker's follower role; raises TypeError when it is not a follower."""
    if not isinstance(broker.role, Follower):
        raise TypeError(f"broker {broker.id} is not a follower")
    return broker.role


# Becoming follower


def become_follower(broker: Broker, order: m.LeaderAndIsr, now_ms: int) -> Step:
    """Follow `order.leader`, if any: compare logs if the rules require it, else note the epoch."""
    assert order.leader_epoch >= broker.leader_epoch, "the leader epoch falls"
    former = broker.role
    remotes = former.remotes if isinstance(former, Leader) else broker.remembered
    known = {r.id: r for r in remotes} if former else {}
    fresh = (RemoteReplica(i, last_caught_up_time_ms=now_ms) for i in order.replicas)
    broker = replace(broker, remembered=tuple(known.get(r.id, r) for r in fresh))
    role = Follower(order.leader, order.leader_epoch, order.partition_epoch)
    broker = replace(broker, role=role, replicas=order.replicas)
    outputs = on_losing_leadership(broker, former) if isinstance(former, Leader) else ()
    if order.leader == NO_LEADER:
        return _waiting(broker), outputs
    if isinstance(former, Follower) and not _starts_over(broker, former, order):
        new, version = order.leader_epoch, order.partition_epoch
        kept = replace(former, leader_epoch=new, partition_epoch=version)
        return replace(broker, role=kept), outputs
    if broker.is_shutting_down and not broker.version.kraft:
        if broker.version.truncation == Truncation.HIGH_WATERMARK:  # RM 0.10.2.2:854-875
            broker = replace(broker, log=broker.log.truncate_to(broker.log.high_watermark))
        return _waiting(broker), outputs
    broker, sent = _start(broker)
    return broker, (*outputs, *sent)


def on_stop_replica(broker: Broker, order: m.StopReplica, now_ms: int) -> Step:
    """Stop fetching; if the partition has moved away, also delete its log."""
    former = broker.role
    if order.deletes:
        broker = replace(broker, role=None, log=Log(), remembered=(), unanswered=None)
        return broker, on_losing_leadership(broker, former) if isinstance(former, Leader) else ()
    return _waiting(broker) if isinstance(former, Follower) else broker, ()


def _waiting(broker: Broker) -> Broker:
    """The broker as a follower that waits for the controller, with no request in flight."""
    return replace(broker, role=replace(follower_of(broker), is_waiting=True))


def _starts_over(broker: Broker, former: Follower, order: m.LeaderAndIsr) -> bool:
    """Whether to compare logs anew. Source: P 2.0.0:346, 2.0.1:366, 2.1.0:447."""
    rule = broker.version.follow_again
    if former.leader != order.leader:
        return True
    if rule == FollowAgain.AFTER_A_GAP:
        return order.leader_epoch > former.leader_epoch + 1
    return rule == FollowAgain.EVERY_EPOCH and order.leader_epoch > former.leader_epoch


def _start(broker: Broker) -> Step:
    """Find the offset shared with the leader; a log without epochs is truncated to its HW."""
    has_epochs = broker.log.epochs.latest_epoch != rules.UNKNOWN_EPOCH
    truncation = broker.version.truncation
    if truncation == Truncation.HIGH_WATERMARK or not has_epochs:
        return _fetch(replace(broker, log=broker.log.truncate_to(broker.log.high_watermark)))
    return _fetch(broker) if truncation == Truncation.ON_FETCH else _ask_epoch(broker)


# Requests


def _request(broker: Broker, is_truncating: bool = False) -> Broker:
    """The broker with a new request number, which makes every older answer stale."""
    number, role = broker.last_request + 1, follower_of(broker)
    role = replace(role, request=number, is_truncating=is_truncating, is_waiting=False)
    return replace(broker, role=role, last_request=number)


def _sent(broker: Broker, message: m.Message) -> tuple[m.Output, ...]:
    """Send `message` to the leader, and retry if no answer has come when the socket times out."""
    role = follower_of(broker)
    timeout = broker.settings.replica_socket_timeout_ms
    return m.Send(role.leader, message), m.After(timeout, m.RetryRequest(role.request))


def _expected_epoch(broker: Broker) -> int:
    fences = broker.version.fences_stale_leader_epoch
    return broker.leader_epoch if fences else rules.UNKNOWN_EPOCH


def _fetch(broker: Broker) -> Step:
    broker = _request(broker)
    on_fetch = broker.version.truncation == Truncation.ON_FETCH
    fetch = m.Fetch(
        replica=broker.id,
        request=broker.last_request,
        offset=broker.log.log_end_offset,
        leader_epoch=_expected_epoch(broker),
        last_fetched_epoch=broker.log.epochs.latest_epoch if on_fetch else rules.UNKNOWN_EPOCH,
        broker_epoch=broker.broker_epoch if broker.version.kraft else rules.UNKNOWN_EPOCH,
        max_wait_ms=broker.settings.replica_fetch_wait_max_ms,
    )
    return broker, _sent(broker, fetch)


def _ask_epoch(broker: Broker) -> Step:
    broker = _request(broker, is_truncating=True)
    epoch, number = broker.log.epochs.latest_epoch, broker.last_request
    question = m.OffsetsForLeaderEpoch(broker.id, number, epoch, _expected_epoch(broker))
    return broker, _sent(broker, question)


def on_retry_request(broker: Broker, retry: m.RetryRequest, now_ms: int) -> Step:
    if _is_stale(broker, retry.request):
        return broker, ()
    return _ask_epoch(broker) if follower_of(broker).is_truncating else _fetch(broker)


def on_disconnected(broker: Broker, event: m.Disconnected, now_ms: int) -> Step:
    role = follower_of(broker)
    is_ours = not role.is_waiting and role.leader == event.peer
    return _back_off(broker) if is_ours else (broker, ())


def _back_off(broker: Broker) -> Step:
    retry = m.RetryRequest(follower_of(broker).request)
    return broker, (m.After(broker.settings.replica_fetch_backoff_ms, retry),)


def _on_error(broker: Broker, error: str) -> Step:
    return (_waiting(broker), ()) if error == "FENCED_LEADER_EPOCH" else _back_off(broker)


def _is_stale(broker: Broker, request: int) -> bool:
    role = follower_of(broker)
    return role.is_waiting or role.request != request


# Answers


def on_fetch_response(broker: Broker, answer: m.FetchResponse, now_ms: int) -> Step:
    """Append and fetch on, or truncate the log where the leader says that the histories diverge."""
    if _is_stale(broker, answer.request):
        return broker, ()
    if answer.error == "OFFSET_OUT_OF_RANGE":
        broker = _request(broker)
        return broker, _sent(broker, m.ListOffsets(broker.id, broker.last_request))
    if answer.error:
        return _on_error(broker, answer.error)
    if answer.diverging:
        log, _ = truncated_by_epoch(broker, *answer.diverging)
        return _fetch(replace(broker, log=log))
    if answer.base_offset != broker.log.log_end_offset:
        at = f"fetched at {broker.log.log_end_offset} but got records at {answer.base_offset}"
        raise ValueError(f"broker {broker.id} {at}")
    log = broker.log.append(answer.records, broker.version)
    high_watermark = rules.follower_high_watermark(log.log_end_offset, answer.high_watermark)
    start = min(answer.log_start_offset, high_watermark)
    log = log.with_high_watermark(high_watermark).starting_at(start)
    return _fetch(replace(broker, log=log))


def on_epoch_end_offset(broker: Broker, answer: m.EpochEndOffset, now_ms: int) -> Step:
    """Truncate where the leader answers that the epoch ends, or ask about an earlier epoch."""
    if _is_stale(broker, answer.request):
        return broker, ()
    if answer.error:
        return _on_error(broker, answer.error)
    log, is_done = truncated_by_epoch(broker, answer.epoch, answer.end_offset)
    if not is_done and log == broker.log:
        return _back_off(broker)
    broker = replace(broker, log=log)
    return _fetch(broker) if is_done else _ask_epoch(broker)


def truncated_by_epoch(broker: Broker, epoch: int, end_offset: int) -> tuple[Log, bool]:
    """The log, truncated to the leader's (epoch, end offset), and whether that is final."""
    log = broker.log
    own = log.epochs.end_offset_for(epoch, log.log_end_offset, broker.version)
    cut = rules.truncation_offset(log.log_end_offset, log.high_watermark, epoch, end_offset, *own)
    is_done = not rules.needs_another_round(epoch, end_offset, *own)
    log = log.truncate_to(cut)
    return log.without_empty_epochs() if broker.version.cleans_epochs_at_log_end else log, is_done


def on_list_offsets_response(broker: Broker, answer: m.ListOffsetsResponse, now_ms: int) -> Step:
    """After an offset out of range: truncate to the leader's end, halt, or begin at its start."""
    if _is_stale(broker, answer.request):
        return broker, ()
    if answer.error:
        return _on_error(broker, answer.error)
    log = broker.log
    if answer.log_end_offset < log.log_end_offset:
        is_clean = not broker.settings.unclean_leader_election_enable
        if is_clean and broker.version.halts_on_log_end_past_leader:
            return broker, (m.Halt("log truncation is not allowed"),)
        return _fetch(replace(broker, log=log.truncate_to(answer.log_end_offset)))
    if answer.log_start_offset > log.log_end_offset:
        return _fetch(replace(broker, log=log.restart_at(answer.log_start_offset)))
    return _fetch(broker)
