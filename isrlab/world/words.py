"""How messages, events and brokers are put into words: one line each, the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

from isrlab.engine.log import Log, Record
from isrlab.engine.messages import CLIENT, CONTROLLER, FetchResponse, Message, OffsetsForLeaderEpoch
from isrlab.engine.model import NO_LEADER, Broker, Leader, PendingExpandIsr
from isrlab.world.cluster import START_MS, Cluster
from isrlab.world.frames import Event, Fault, Frame

MOST_NAMES = 12
_ADDRESSES = {CLIENT: "client", CONTROLLER: "controller"}
# Fields that every message of a kind has and that tell a reader nothing
_SILENT = {"request", "replica", "broker", "max_wait_ms", "broker_epoch", "broker_epochs"}
_SHORT = {
    "high_watermark": "hw",
    "log_end_offset": "leo",
    "base_offset": "base",
    "leader_epoch": "epoch",
    "last_fetched_epoch": "last_epoch",
    "log_start_offset": "start",
}


def address(machine: int) -> str:
    return _ADDRESSES.get(machine, str(machine))


def ids(values: tuple[int, ...] | list[int]) -> str:
    return ",".join(str(v) for v in values)


def names(records: tuple[Record, ...]) -> str:
    """Record names, the middle left out when there are many."""
    return _few([r.id for r in records])


def _few(words: list[str]) -> str:
    if len(words) <= MOST_NAMES:
        return " ".join(words)
    return f"{words[0]} {words[1]} .. {words[-1]} ({len(words)} records)"


def describe(message: Message | Fault) -> str:
    """A message as one line: its kind, then what of it is not obvious."""
    if isinstance(message, Fault):
        return message.text
    if isinstance(message, FetchResponse):
        return _describe_fetch_response(message)
    shown = []
    for part in message.__struct_fields__:
        value = getattr(message, part)
        if part in _SILENT or value in (None, -1, ()) or part in ("brokers", "replicas"):
            continue
        if part == "is_recovering" and not value:
            continue
        text = ids(value) if isinstance(value, tuple) else value
        name = _SHORT.get(part, part)
        if isinstance(message, OffsetsForLeaderEpoch) and name == "epoch" != part:
            name = "expects"  # the epoch it believes in, not the one it asks about
        shown.append(f"{name}={text}")
    return f"{type(message).__name__:<15} {' '.join(shown)}".rstrip()


def _describe_fetch_response(answer: FetchResponse) -> str:
    kind = f"{'FetchResponse':<15} "
    if answer.error:
        return f"{kind}error={answer.error}"
    if answer.diverging:
        return f"{kind}diverging epoch={answer.diverging[0]} end={answer.diverging[1]}"
    count = len(answer.records)
    return f"{kind}base={answer.base_offset} count={count} hw={answer.high_watermark}"


def message_line(frame: Frame) -> str:
    link = f"{address(frame.source)}>{address(frame.target)}"
    lost = "  LOST" if frame.was_lost else ""
    return f"{_clock(frame.now_ms)}  {link:<8}  {describe(frame.message)}{lost}"


def _clock(now_ms: int) -> str:
    return f"{now_ms - START_MS:>6}ms"


def _records(event: Event) -> str:
    return _few(event.detail["records"].split())


def _asks(event: Event) -> str:
    return f"asks for isr={ids(event.isr or ())} instead of {ids(event.isr_before or ())}"


def _violation(event: Event) -> str:
    return "{property} is broken: {text}".format(**event.detail)


def _acknowledged(event: Event) -> str:
    acks = event.detail["acks"]
    return f"{_records(event)} acknowledged (acks={'all' if acks == '-1' else acks})"


_SENTENCES: dict[str, Callable[[Event], str]] = {
    "isr_shrink": _asks,
    "isr_expand": _asks,
    "isr_commit": lambda e: f"isr={ids(e.isr or ())} is stored",
    "isr_rejected": lambda e: f"isr change refused: {e.detail['error']}",
    "leader": lambda e: (
        f"leads epoch {e.leader_epoch} from offset {e.log_end_offset} with isr={ids(e.isr or ())}"
    ),
    "follower": lambda e: "has no leader" if e.replica == NO_LEADER else f"follows {e.replica}",
    "truncate": lambda e: f"truncates its log to {e.log_end_offset}",
    "high_watermark": lambda e: f"hw={e.high_watermark}",
    "crash": lambda e: f"stops ({e.detail['by']})",
    "restart": lambda e: "starts",
    "produce_error": lambda e: f"{_records(e)} refused: {e.detail['error']}",
    "produce_ack": _acknowledged,
    "lost": _violation,
    "diverged": _violation,
    "notify": lambda e: "announces its isr changes to the controller",
    "metadata": lambda e: "learns which brokers are alive",
}
_SPEAKERS = {"produce_error": "client", "produce_ack": "client", "lost": "!", "diverged": "!"}


def is_halt(event: Event) -> bool:
    """The broker stopped itself."""
    return event.kind == "crash" and event.detail["by"].startswith("halt")


def event_line(event: Event) -> str:
    """An event as one line: when, who, what."""
    who = _SPEAKERS.get(event.kind, str(event.broker))
    return f"{_clock(event.ts_ms)}  {who:<8}  {_SENTENCES[event.kind](event)}"


def readers(broker: Broker) -> list[str]:
    """Who may read how much of a leader's log. Source: FetchParams and UnifiedLog.read, 3.7.1."""
    log = broker.log
    bounds = {
        "a follower": ("LEO", log.log_end_offset),
        "a consumer": ("HW", log.high_watermark),
        "a debugging consumer": ("LEO", log.log_end_offset),
    }
    return [
        f"  {who:<21} offsets {log.log_start_offset}..{end - 1}  (below the {name}, {end})"
        for who, (name, end) in bounds.items()
    ]


def status(cluster: Cluster) -> list[str]:
    """One line for each replica: role, offsets, ISR, records."""
    rows = [(n, cluster.brokers.get(n), cluster.disks[n]) for n in sorted(cluster.replicas)]
    width = max(len(_numbers(broker, disk)) for _, broker, disk in rows)
    return [
        f"  {_head(cluster, n, broker)}  {_numbers(broker, disk):<{width}}   "
        f"{names(disk.records)}".rstrip()
        for n, broker, disk in rows
    ]


def _head(cluster: Cluster, number: int, broker: Broker | None) -> str:
    role = "dead" if broker is None else type(broker.role).__name__
    if broker is not None and broker.role is None:
        role = "idle"
    if number in cluster.paused:
        role = "paused"
    return f"{number}  {role:<8}"


def _numbers(broker: Broker | None, disk: Log) -> str:
    if broker is None:
        return f"leo={disk.log_end_offset}"
    log = broker.log
    text = f"leo={log.log_end_offset} hw={log.high_watermark}"
    if isinstance(broker.role, Leader):
        text += f" isr={ids(broker.role.isr)}"
        if isinstance(broker.role.isr_state, PendingExpandIsr):
            text += f" maximal={ids(broker.role.maximal_isr)}"
    if broker.leader_epoch > 0:
        text += f" epoch={broker.leader_epoch}"
    if 0 < log.flushed_end_offset < log.log_end_offset:
        text += f" flushed={log.flushed_end_offset}"
    return text
