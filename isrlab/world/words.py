"""Messages, events and brokers as text: one line each, the same in every output."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from isrlab.engine import messages as m
from isrlab.engine.log import Log, Record
from isrlab.engine.model import NO_LEADER, Broker, Leader, PendingExpandIsr
from isrlab.engine.versions import KafkaVersion
from isrlab.world.cluster import START_MS, Cluster
from isrlab.world.frames import Event, Fault, Frame
from isrlab.world.script import MOST_CAPTION, Block, Run

MOST_NAMES = 12
_ADDRESSES = {m.CLIENT: "client", m.CONTROLLER: "controller"}
# Fields that are in every message of a kind and mean nothing to a reader
_SILENT = {"request", "max_wait_ms", "broker_epoch", "broker_epochs"}
_SILENT |= {"min_isr", "replica", "replicas", "broker", "brokers"}  # the link names the machines
_SHORT = {"high_watermark": "hw", "log_end_offset": "leo", "base_offset": "base"}
_SHORT |= {"leader_epoch": "epoch", "last_fetched_epoch": "last_epoch", "log_start_offset": "start"}
# Names for the model's messages in releases that have no message of that name
_BY_ZOOKEEPER = {"AlterPartition": "write of the state", "AlterPartitionResponse": "answer"}
_BY_METADATA_LOG = {"LeaderAndIsr": "metadata record", "UpdateMetadata": "metadata cache"}
_BOUNDS = {"a follower": "LEO", "a consumer": "HW", "a debugging consumer": "LEO"}


def address(machine: int) -> str:
    return _ADDRESSES.get(machine, str(machine))


def link(source: int, target: int) -> str:
    return f"{address(source)}>{address(target)}"


def ids(values: Iterable[int]) -> str:
    return ",".join(str(v) for v in values)


def names(records: tuple[Record, ...]) -> str:
    """Record names; with many of them the middle is left out."""
    return _few([r.id for r in records])


def _few(words: list[str]) -> str:
    if len(words) <= MOST_NAMES:
        return " ".join(words)
    return f"{words[0]} {words[1]} .. {words[-1]} ({len(words)} records)"


def describe(message: m.Message | Fault, version: KafkaVersion) -> str:
    """A message as one line, in its release's terms: its kind, then the fields that matter.

    Leaders up to 2.6 write the state into ZooKeeper, and a KRaft controller sends no LeaderAndIsr:
    brokers read its metadata log.
    """
    if isinstance(message, Fault):
        return message.text
    if isinstance(message, m.FetchResponse):
        return _describe_fetch_response(message)
    shown = []
    kind = type(message).__name__
    if version.kraft:
        kind = _BY_METADATA_LOG.get(kind, kind)
    elif isinstance(message, m.RegisterBroker):
        return kind  # ZooKeeper does not record clean shutdowns
    if version.writes_zookeeper:
        kind = _BY_ZOOKEEPER.get(kind, kind)
    for part in message.__struct_fields__:
        value = getattr(message, part)
        is_usual = value in (None, -1, ()) or (part.startswith("is_") and not value)
        if is_usual or part in _SILENT:
            continue
        text = ids(value) if isinstance(value, tuple) else value
        name = _SHORT.get(part, part)
        name = "version" if name == "partition_epoch" and version.writes_zookeeper else name
        if isinstance(message, m.OffsetsForLeaderEpoch) and name == "epoch" != part:
            name = "expects"  # the epoch it expects, not the one it asks about
        shown.append(f"{name}={text}")
    return f"{kind:<15} {' '.join(shown)}".rstrip()


def _describe_fetch_response(answer: m.FetchResponse) -> str:
    count = len(answer.records)
    text = f"base={answer.base_offset} count={count} hw={answer.high_watermark}"
    if answer.diverging:
        text = "diverging epoch={} end={}".format(*answer.diverging)
    return f"{'FetchResponse':<15} {f'error={answer.error}' if answer.error else text}"


def message_line(frame: Frame) -> str:
    lost = "  LOST" if frame.was_lost else ""
    text = describe(frame.message, frame.controller.version)
    return f"{_clock(frame.now_ms)}  {link(frame.source, frame.target):<8}  {text}{lost}"


def _clock(now_ms: int) -> str:
    return f"{now_ms - START_MS:>6}ms"


_ASKS = "asks for isr={isr} instead of {isr_before}"
_BROKEN = "{property} is broken: {text}"
_SENTENCES = {  # by kind of event, of its columns and its detail
    "isr_shrink": _ASKS,
    "isr_expand": _ASKS,
    "isr_commit": "isr={isr} is stored",
    "isr_rejected": "isr change refused: {error}",
    "leader": "leads epoch {leader_epoch} from offset {log_end_offset} with isr={isr}",
    "follower": "follows {replica}",
    "truncate": "truncates its log to {log_end_offset}",
    "high_watermark": "hw={high_watermark}",
    "failed": "loses the directory of its replica",
    "crash": "stops ({by})",
    "restart": "starts",
    "produce_error": "{records} refused: {error}",
    "produce_ack": "{records} acknowledged (acks={acks})",
    "lost": _BROKEN,
    "diverged": _BROKEN,
    "notify": "announces its isr changes to the controller",
    "metadata": "learns which brokers are alive",
}
_SPEAKERS = {"produce_error": "client", "produce_ack": "client", "lost": "!", "diverged": "!"}


def event_line(event: Event) -> str:
    """An event as one line: time, machine, event."""
    speaker = _SPEAKERS.get(event.kind, str(event.broker))
    values = event.row | dict(event.detail)
    values |= {"isr": ids(event.isr or ()), "isr_before": ids(event.isr_before or ())}
    values["records"] = _few(event.detail.get("records", "").split())
    if values.get("acks") == str(m.ACKS_ALL):
        values["acks"] = "all"
    sentence = _SENTENCES[event.kind].format(**values)
    if event.kind == "follower" and event.replica == NO_LEADER:
        sentence = "has no leader"
    elif event.kind == "truncate" and event.leader_epoch is None:
        sentence = "deletes its replica"
    elif event.is_stored_state:
        moved = [f"{name}={values[name]}" for name in ("replicas", "adding", "removing")]
        speaker, sentence = "stored", " ".join(text for text in moved if not text.endswith("="))
    return f"{_clock(event.ts_ms)}  {speaker:<8}  {sentence}"


# What happened in a block, in one sentence


NOTHING = "Nothing changes."
_WHERE = re.compile("Where `(.+?)`: (.+)")
_LINK = re.compile(r"(is cut off from|reaches) (?:the )?(\w+)(?: again)?")


class Clause(NamedTuple):
    """An action of a machine. If a summary has no room for all, those of lowest `rank` stay."""

    rank: int
    subject: str  # "" if the predicate is a sentence of its own
    predicate: str


_DEEDS = {  # by kind of event: rank, and the broker's action
    "leader": (1, "leads epoch {leader_epoch}"),
    "restart": (2, "starts"),
    "isr_rejected": (3, "may not change the ISR ({error})"),
}
_ENDS = {"hard_shutdown": "dies", "power_loss": "loses power", "clean_shutdown": "shuts down"}


def caption(run: Run, block: Block) -> str:
    """The sentence above a block, where it is true: where the block printed what the file stores
    or, if the file stores no output, in the script's own version. Otherwise the sentence of the
    first comment "Where `text`: sentence" whose text the block printed, or else a summary."""
    is_own = run.forced_version in (None, run.version)
    is_stored = block.printed.rstrip() == block.expected.rstrip()
    is_true = is_stored if block.expected else is_own
    if block.comment and len(block.comment) <= MOST_CAPTION and is_true:
        return block.comment
    printed = " ".join(block.printed.split())
    for text in block.comments:  # written for where another release prints something else
        if (match := _WHERE.fullmatch(text)) and match[1] in printed:
            return match[2]
    return summary(run, block)


def summary(run: Run, block: Block) -> str:
    """A summary of a block in one sentence of at most `MOST_CAPTION` characters."""
    clauses = list(dict.fromkeys(_clauses(run, block)))
    kept: list[Clause] = []
    for clause in sorted(clauses, key=lambda clause: clause.rank):
        more = [c for c in clauses if c in kept or c == clause]
        kept = more if len(_sentence(more)) <= MOST_CAPTION else kept
    return _sentence(kept) or NOTHING


def _sentence(clauses: list[Clause]) -> str:
    parts = []
    for subject, group in groupby(clauses, lambda clause: clause.subject):
        deeds = [clause.predicate for clause in group]
        joined = f"{subject} {', '.join(deeds)}".replace("dies, starts", "restarts")
        parts += [joined] if subject else deeds
    text = "; ".join(parts)
    return text and f"{text[0].upper()}{text[1:]}."


def _clauses(run: Run, block: Block) -> Iterator[Clause]:
    """The clauses of a block in order, without the set-up."""
    setup, frames = run.frames[run.first_frame], run.frames[: block.frames[1]]
    start, end = max(block.entries[0], setup.place + 1), block.entries[1]
    answers: dict[str, list[str]] = {}  # to the client -> records
    before = frame = max((f for f in frames if f.place < start), key=lambda f: f.place)
    first = frame
    for entry in run.cluster.observer.entries[start:end]:
        if isinstance(entry, Frame):
            before, frame = frame, entry
            yield from _of_fault(frame)
        elif entry.kind in ("produce_ack", "produce_error"):
            error, records = entry.detail.get("error", ""), entry.detail["records"].split()
            answers.setdefault(error, []).extend(records)
        else:
            yield from _of_event(entry, before, frame)
    for error, records in answers.items():
        answer = f"refused ({error})" if error else "acknowledged"
        yield Clause(3, "", f"{_records(records, 'is', 'are')} {answer}")
    settled = {name for records in answers.values() for name in records}
    settled |= {r.id for log in first.disks.values() for r in log.records}
    leader = frame.brokers.get(frame.controller.leader)
    waiting = [r.id for r in (leader.log.records if leader else ()) if r.id not in settled]
    if waiting:
        yield Clause(3, "", f"{_records(waiting, 'waits', 'wait')} to be acknowledged")
    yield from _of_ends(first, frame)


def _of_fault(frame: Frame) -> Iterator[Clause]:
    """Faults of a machine that are not events: pauses, partitions, controller failovers."""
    text = frame.message.text if isinstance(frame.message, Fault) else "starts"
    part, _, verb = text.partition(" ")
    if part in ("process", "fetcher"):
        yield Clause(3, f"the {part} of {_broker(frame.source)}", verb)
    elif link := _LINK.fullmatch(text):  # whether or not the broker is alive
        ends = f"{_broker(frame.source)} and {link[2] if link[2].isdigit() else 'the controller'}"
        yield Clause(3, f"the link between {ends}", "heals" if link[1] == "reaches" else "is cut")
    elif part not in ("starts", "stops"):  # those are events
        yield Clause(3, _broker(frame.source), text)


def _of_event(event: Event, before: Frame, after: Frame) -> Iterator[Clause]:
    broker, by = _broker(event.broker), event.detail.get("by", "")
    if event.kind in ("lost", "diverged"):
        text, promise = event.detail["text"].partition(" not in ")[0], event.detail["property"]
        lost = f"{text} is lost" if promise.endswith("records_survive") else text
        rank = 4 if promise.startswith("acknowledged") else 0
        yield Clause(rank, "", lost if event.kind == "lost" else "the logs diverge")
    elif event.kind == "truncate" and event.broker in before.disks:
        old, new = before.disks[event.broker].records, after.disks[event.broker].records
        cut = f"truncates {names(tuple(r for r in old if r not in new))}"
        yield Clause(1, broker, "deletes its replica" if event.leader_epoch is None else cut)
    elif event.kind == "follower" and event.replica == NO_LEADER:
        yield Clause(1, "", "no broker leads")
    elif event.kind == "crash":
        yield Clause(2, broker, _ENDS.get(by) or by.replace("halt:", "halts:"))
    elif event.kind in _DEEDS:
        rank, deed = _DEEDS[event.kind]
        yield Clause(rank, broker, deed.format(**event.row | dict(event.detail)))


def _of_ends(first: Frame, last: Frame) -> Iterator[Clause]:
    """The changes across a block: the ISR, the high watermark, and the time."""
    old, new = (f.brokers.get(f.controller.leader) for f in (first, last))
    if set(first.controller.isr) != set(last.controller.isr):
        yield Clause(2, "", f"the ISR is now {ids(last.controller.isr) or 'empty'}")
    if first.controller.replicas != last.controller.replicas:
        state = last.controller.state
        verb = "is on its way to" if state.adding or state.removing else "is on"
        yield Clause(1, "", f"the partition {verb} {ids(state.target)}")
    if not old or not new:
        return
    was, now = old.log.high_watermark, new.log.high_watermark
    if was != now:
        verb = "goes" if now > was else "falls"
        yield Clause(3, "", f"the high watermark {verb} {was:,} → {now:,}")
    did_not_know = [b for b in first.brokers.values() if b.log.high_watermark < now]
    if did_not_know and all(b.log.high_watermark == now for b in last.brokers.values()):
        yield Clause(4, "", f"every live replica knows HW {now:,}")


def _records(names: list[str], does: str, do: str) -> str:
    return f"records {_few(names)} {do}" if len(names) > 1 else f"record {names[0]} {does}"


def _broker(number: int | None) -> str:
    return f"broker {number}" if number else "the controller"


def readers(broker: Broker) -> list[str]:
    """How much of a leader's log each kind of reader may read. Source: FetchParams and
    UnifiedLog.read, 3.7.1."""
    start, ends = broker.log.log_start_offset, {"LEO": broker.log.log_end_offset}
    ends["HW"] = broker.log.high_watermark
    return [
        f"  {who:<21} offsets {start}..{ends[bound] - 1}  (below the {bound}, {ends[bound]})"
        for who, bound in _BOUNDS.items()
    ]


def status(cluster: Cluster) -> list[str]:
    """One line for each replica: role, offsets, ISR, records."""
    rows = []
    for number in sorted(cluster.replicas):
        broker, disk = cluster.brokers.get(number), cluster.disks[number]
        role = ("offline" if broker.is_offline else "no role") if broker else "dead"
        if number in cluster.paused:
            role = "paused"
        elif broker and broker.role:
            role = type(broker.role).__name__
        rows.append((f"  {number}  {role:<8}", _numbers(broker, disk), names(disk.records)))
    width = max(len(numbers) for _, numbers, _ in rows)
    return [f"{head}  {numbers:<{width}}   {records}".rstrip() for head, numbers, records in rows]


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
