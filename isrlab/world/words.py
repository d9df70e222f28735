"""How messages, events and brokers are put into words: one line each, the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

from isrlab.engine.log import Log, Record
from isrlab.engine.messages import CLIENT, CONTROLLER, FetchResponse, Message, OffsetsForLeaderEpoch
from isrlab.engine.model import Broker, Leader, PendingExpandIsr
from isrlab.world.cluster import START_MS, Cluster
from isrlab.world.frames import Fault, Frame
from isrlab.world.observer import Row

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


def describe(message: Message) -> str:
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


def _detail(row: Row, key: str) -> str:
    detail = row.get("detail")
    return str(detail.get(key, "")) if isinstance(detail, dict) else ""


def _records(row: Row) -> str:
    return _few(_detail(row, "records").split())


def _isr(row: Row, key: str = "isr") -> str:
    value = row.get(key)
    return ids(value) if isinstance(value, list) else ""


def _violation(row: Row) -> str:
    return f"{_detail(row, 'property')} is broken: {_detail(row, 'text')}"


def _acks(row: Row) -> str:
    acks = _detail(row, "acks")
    return "all" if acks == "-1" else acks


_SENTENCES: dict[str, Callable[[Row], str]] = {
    "isr_shrink": lambda r: f"asks for isr={_isr(r)} instead of {_isr(r, 'isr_before')}",
    "isr_expand": lambda r: f"asks for isr={_isr(r)} instead of {_isr(r, 'isr_before')}",
    "isr_commit": lambda r: f"isr={_isr(r)} is stored",
    "isr_rejected": lambda r: f"isr change refused: {_detail(r, 'error')}",
    "leader": lambda r: (
        f"leads epoch {r['leader_epoch']} from offset {r['log_end_offset']} with isr={_isr(r)}"
    ),
    "follower": lambda r: f"follows {r['replica']}" if r["replica"] != -1 else "has no leader",
    "truncate": lambda r: f"truncates its log to {r['log_end_offset']}",
    "high_watermark": lambda r: f"hw={r['high_watermark']}",
    "crash": lambda r: f"stops ({_detail(r, 'by')})",
    "restart": lambda r: "starts",
    "produce_error": lambda r: f"{_records(r)} refused: {_detail(r, 'error')}",
    "produce_ack": lambda r: f"{_records(r)} acknowledged (acks={_acks(r)})",
    "lost": _violation,
    "diverged": _violation,
    "notify": lambda r: "announces its isr changes to the controller",
    "metadata": lambda r: "learns which brokers are alive",
}


def is_halt(row: Row) -> bool:
    """The broker stopped itself."""
    return row["kind"] == "crash" and _detail(row, "by").startswith("halt")


def event_line(row: Row) -> str:
    """An event as one line: when, who, what."""
    kind = str(row["kind"])
    who = str(row.get("broker"))
    if kind.startswith("produce_"):
        who = "client"
    elif kind in ("lost", "diverged"):
        who = "!"
    stamp = row["ts_ms"]
    assert isinstance(stamp, int)
    return f"{_clock(stamp)}  {who:<8}  {_SENTENCES[kind](row)}"


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
