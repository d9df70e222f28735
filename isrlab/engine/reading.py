"""How a leader reads its log for a follower, and when it refuses.

Nothing here changes any state: a parked fetch is read again when it completes, to answer with the
newest state.

Source: fetchRecords and readRecords, Partition.scala 3.7.1:1425-1560; fetchMessages,
ReplicaManager.scala 0.10.2.2:542-570.
"""

from isrlab.engine import messages as m
from isrlab.engine import rules
from isrlab.engine.model import RECORD_BYTES, Broker, Leader


def leader_of(broker: Broker) -> Leader:
    """The broker's leader role; raises TypeError when it is not the leader."""
    if not isinstance(broker.role, Leader):
        raise TypeError(f"broker {broker.id} is not the leader")
    return broker.role


def epoch_error(broker: Broker, epoch: int) -> str | None:
    """Why this broker does not serve a request that expects `epoch` (KIP-320).

    The epochs are compared first. Source: getLocalLog, P 2.4.1:361, 3.7.1:519.
    """
    role = broker.role
    if role is not None and epoch not in (rules.UNKNOWN_EPOCH, role.leader_epoch):
        return "FENCED_LEADER_EPOCH" if epoch < role.leader_epoch else "UNKNOWN_LEADER_EPOCH"
    return None if isinstance(role, Leader) else broker.version.not_leader_error


def examine_fetch(broker: Broker, fetch: m.Fetch) -> tuple[str | None, tuple[int, int] | None]:
    """The error or the diverging epoch that answers this fetch; (None, None) lets it be read."""
    error = epoch_error(broker, fetch.leader_epoch)
    if error:
        return error, None
    if leader_of(broker).remote(fetch.replica) is None:
        is_fenced = fetch.leader_epoch != rules.UNKNOWN_EPOCH
        return "UNKNOWN_LEADER_EPOCH" if is_fenced else broker.version.not_leader_error, None
    log = broker.log
    start, end_offset = log.log_start_offset, log.log_end_offset
    if fetch.last_fetched_epoch != rules.UNKNOWN_EPOCH:  # checked from 2.7, sent from 2.8
        end = log.epochs.end_offset_for(fetch.last_fetched_epoch, end_offset, broker.version)
        if end[1] == rules.UNKNOWN_OFFSET or fetch.offset < start:
            return "OFFSET_OUT_OF_RANGE", None
        if rules.has_diverged(*end, fetch.last_fetched_epoch, fetch.offset):
            return None, end
    return (None if start <= fetch.offset <= end_offset else "OFFSET_OUT_OF_RANGE"), None


def is_stale(broker: Broker, fetch: m.Fetch) -> bool:
    """Whether this version refuses the fetch, as one from before its broker's last restart.

    Source: updateFetchStateOrThrow, R 3.7.1:108-125 (KAFKA-15221).
    """
    known = broker.known(fetch.replica) if broker.version.refuses_former_incarnation else None
    return known is not None and rules.UNKNOWN_EPOCH < fetch.broker_epoch < known.broker_epoch


def answer(broker: Broker, fetch: m.Fetch) -> m.FetchResponse:
    """The response to this fetch now: an error, a diverging epoch, or records.

    It holds as many records as fit into a response, and at least one if there is one.
    """
    error, diverging = examine_fetch(broker, fetch)
    if error or diverging:
        return m.FetchResponse(fetch.request, fetch.offset, diverging=diverging, error=error)
    log = broker.log
    most = max(1, broker.settings.replica_fetch_max_bytes // RECORD_BYTES)
    records = log.read(fetch.offset, min(log.log_end_offset, fetch.offset + most))
    ends = log.high_watermark, None, log.log_start_offset
    return m.FetchResponse(fetch.request, fetch.offset, records, *ends)
