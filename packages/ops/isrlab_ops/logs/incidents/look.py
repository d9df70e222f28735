"""Answers an operator's questions from logs: is it over, what happened, what is uncertain.

The command `logs` and the notebooks share this evaluation.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isrlab.events.statements import Key, Statement
from isrlab_ops.logs.history.history import History, history_of
from isrlab_ops.logs.history.record import OF_REPLICAS, Record
from isrlab_ops.logs.history.rules import Fault
from isrlab_ops.logs.incidents.contact import lost
from isrlab_ops.logs.incidents.exposed import Exposure, exposures
from isrlab_ops.logs.incidents.find import Incident, find
from isrlab_ops.logs.incidents.settings import PrintedSettings, settings_of
from isrlab_ops.logs.incidents.window import Window, unmatched
from isrlab_ops.logs.reader.doubts import doubts
from isrlab_ops.logs.reader.files import PathName
from isrlab_ops.logs.reader.read import BrokerLogs, OnRead, read_local

NO_REPLICA = {"sign", "clock", "log_start", "log_end"}  # kinds of rows that show no replica
CALM, WRONG, NOT_KNOWN = 0, 1, 2
TORN, UNPRINTABLE = "lines are missing", "no broker prints this"
# Gaps that complete logs of some releases, or of a quiet broker, also have: no reason for doubt.
USUAL = ("leaders do not print the version", "nothing shows that the clock")


@dataclass(frozen=True)
class Findings:
    """The findings from some logs. `status`: CALM, WRONG or NOT_KNOWN at the end of the window;
    also WRONG after a loss or while a partition is exposed to one, NOT_KNOWN if it is possible."""

    logs: BrokerLogs
    history: History
    record: Record
    incidents: list[Incident]
    partitions: tuple[Key, ...]
    under_replicated: tuple[Key, ...]  # at the end
    under_min_isr: tuple[Key, ...]  # or with fewer replicas than min ISR, if that refuses writes
    leaderless: tuple[Key, ...]
    not_known: tuple[Key, ...]  # no line shows their ISR at the end
    faults: tuple[Fault, ...]  # lines that break a rule of Kafka, in order of time
    doubts: tuple[str, ...]  # why these logs may be incomplete
    caveats: tuple[str, ...]  # facts that such logs never show
    exposures: tuple[Exposure, ...]  # partitions in which a failure would lose records
    settings: PrintedSettings

    @property
    def losses(self) -> list[Incident]:
        """Incidents after which the status is never CALM."""
        return [each for each in self.incidents if each.is_grave]

    @property
    def status(self) -> int:
        still = [each for each in self.incidents if not each.is_over]
        open_ones = [
            each
            for each in still  # it may be over, if no line shows the end
            if not {*self.not_known} & ({*each.partitions} or {*self.not_known})
            or not lost(self.record).keys().isdisjoint(each.who)
        ]
        is_wrong = self.under_replicated or self.under_min_isr or self.leaderless or open_ones
        if is_wrong or self.exposures or any(each.is_proved for each in self.losses):
            return WRONG
        is_known = self.partitions and not self.not_known
        return CALM if is_known and not self.doubts and not self.losses else NOT_KNOWN


def look(
    log_dir: PathName,
    *,
    time_zone: str | None = None,
    min_isr: int | None = None,
    window: Window | None = None,
    step: OnRead = lambda size: None,
) -> Findings:
    """Read the logs of a folder and find what happened. Raises LogDirError as `read_local` does."""
    logs = read_local(log_dir, time_zone=time_zone, step=step)
    return found_in(logs, history_of(logs.rows, logs.file_rows), min_isr=min_isr, window=window)


def found_in(
    logs: BrokerLogs, history: History, *, min_isr: int | None = None, window: Window | None = None
) -> Findings:
    """The findings from logs as read and the history that they prove."""
    window = window or Window()
    alone = {c.broker for c in history.clocks if c.is_alone and c.broker is not None}
    whole = _of_the_whole(history)
    rows = [*history.rows, *_until(logs.operator, logs.rows[-1].ts_ms if logs.rows else 0)]
    is_torn = any(why.startswith(TORN) for why in whole)
    record = Record(_until(rows, window.until_ms), alone=alone, is_torn=is_torn)
    caveats = [why for why in whole if why.startswith(USUAL)]
    if record.stopped_ms is not None:
        caveats.insert(0, "all brokers were shut down cleanly at the end: that is left out")
        record = Record(_until(rows, record.stopped_ms - 1), alone=alone, is_torn=is_torn)
    gaps = [gap for gap in history.gaps if gap.from_ms <= record.end_ms <= gap.to_ms]
    dark = {gap.key for gap in gaps if gap.key} | _perhaps_back(logs, history, record)
    ends = {
        key: spans[-1].isr
        for key, spans in record.spans.items()  # others were deleted
        if window.has_key(key) and (key in dark or spans[-1].end_ms == record.end_ms)
    }
    incidents = find(record, min_isr)
    known = {key: isr for key, isr in ends.items() if key not in dark}

    def concerns(key: Key, missing: frozenset[int] = frozenset()) -> bool:
        return window.broker in missing | {None, record.leader_at(key, record.end_ms)}

    rows = [row for scene in history.scenes for row in scene.rows]
    faults = [each for each in history.faults if window.has_fault(each)]
    faults += _unprintable(logs)
    short = {key: record.held(key, record.spans[key][-1]) - {*isr} for key, isr in known.items()}
    settings = settings_of(record, logs.file_rows, min_isr)
    below = [key for key, isr in known.items() if len(isr) < (settings.least(key) or 0)]
    return Findings(
        logs,
        history,
        record,
        [incident for incident in incidents if window.has(incident)],
        tuple(sorted(ends)),
        tuple(sorted(key for key, missing in short.items() if missing and concerns(key, missing))),
        tuple(sorted(key for key in below if concerns(key))),
        _leaderless(set(ends), record, incidents),
        tuple(sorted(key for key in dark if window.has_key(key))),
        tuple(faults),
        (
            *unmatched(window, history.rows, record),
            *_contradicted(faults),
            *_doubts(logs, history, record, ends),
            *_unproved(record, incidents),
        ),
        tuple(caveats),
        tuple(each for each in exposures(rows, window.until_ms) if window.has_key(each.key)),
        settings,
    )


def _leaderless(keys: set[Key], record: Record, incidents: Sequence[Incident]) -> tuple[Key, ...]:
    """The partitions without a leader at the end: none is named, or no candidate is alive."""
    gone, at = lost(record).keys(), record.leader_at
    named = {k for k in keys if at(k, record.end_ms) == -1 or gone >= {*record.spans[k][-1].isr}}
    still = [i for i in incidents if i.leaderless_ms and not i.is_over and i.what == "no_leader"]
    return tuple(sorted(named | (keys & {key for each in still for key in each.partitions})))


def _until(rows: list[Statement], until_ms: int | None) -> list[Statement]:
    return rows if until_ms is None else [row for row in rows if row.ts_ms <= until_ms]


def _of_the_whole(history: History) -> list[str]:
    """The reasons why these logs can never show everything."""
    return list(dict.fromkeys(gap.why for gap in history.gaps if gap.key is None))


def _unprintable(logs: BrokerLogs) -> list[Fault]:
    """Lines in Kafka's form that no broker can have printed."""
    return [
        Fault(None, "printed", row["file"], row["line"], row["reason"], "")
        for row in logs.unread_rows
        if row["reason"].startswith(UNPRINTABLE)
    ]


def _contradicted(faults: Sequence[Fault]) -> list[str]:
    """The doubt that contradictory lines raise."""
    if not faults:
        return []
    lines = "1 line breaks" if len(faults) == 1 else f"{len(faults):,} lines break"
    first = faults[0]
    against = f" (against {first.against})" if first.against else ""
    return [f"{lines} a rule of Kafka: {first.file}:{first.line}: {first.says}{against}"]


def _perhaps_back(logs: BrokerLogs, history: History, record: Record) -> set[Key]:
    """Short partitions whose return only another log may show (in KRaft, a state-change.log), or
    whose deletion (a server.log); or, where moves are seen or no controller is, the replica's move
    (its server.log), unless it left in a leader epoch that goes on."""
    if not logs.file_rows or any(scene.has_metadata_log for scene in history.scenes):
        return set()
    servers = [row["brokers"] for row in logs.file_rows if "server" in (row["parts"] or "").split()]
    heard = {name for names in servers for name in (names or "?").split(",")}
    hears_all = heard and any(scene.hears_all for scene in history.scenes)
    is_kraft = any(scene.is_kraft for scene in history.scenes)
    rows = [row for scene in history.scenes for row in scene.rows]
    is_moved = any(record.added.values()) or all(row.is_own for row in rows)  # no controller's
    gone, kept = lost(record).keys(), _still_replicas(record)
    dark = set[Key]()
    for key, spans in record.spans.items():
        out, leader = record.replicas[key] - {*spans[-1].isr}, record.leader_at(key, record.end_ms)
        is_unheard = not hears_all and (is_kraft or heard.isdisjoint({str(leader), "?"}))
        is_left = is_moved and not gone & out and heard.isdisjoint({*map(str, out), "?"})
        if out and (is_unheard or (is_left and not out & kept[key])):
            dark.add(key)
    return dark


def _still_replicas(record: Record) -> dict[Key, set[int]]:
    """By partition: the brokers that were in the ISR in the last leader epoch. They are still
    replicas if every change is heard: Kafka raises the leader epoch to remove a replica.

    Source: PartitionChangeBuilder.triggerLeaderEpochBumpForReplicaReassignmentIfNeeded (KRaft)."""
    rows = [r for kind in OF_REPLICAS for r in record.rows[kind] if r.leader_epoch is not None]
    last, kept = defaultdict[Key, int](int), defaultdict[Key, set[int]](set)
    for row in sorted(rows, key=lambda row: row.leader_epoch or 0, reverse=True):
        if row.leader_epoch == last.setdefault(row.key, row.leader_epoch or 0):
            kept[row.key] |= {*(row.isr or ())}
    return kept


def _unproved(record: Record, incidents: Sequence[Incident]) -> list[str]:
    """The doubt that brokers raise that were away, and whose logs are missing."""
    left = {out.replica for out in record.outs} | {b for each in incidents for b in each.who}
    logs = record.log_ends.keys()
    missing = ", ".join(map(str, sorted(left - logs)))
    why = "is here: only that log shows what happened there, and whether it is over"
    return [f"no log of {missing} {why}"] if missing else []


def _doubts(logs: BrokerLogs, history: History, record: Record, keys: Iterable[Key]) -> list[str]:
    """Why these logs may miss something that happened."""
    known = (record.leader_at(key, record.end_ms) for key in keys)
    leaders = {leader for leader in known if leader is not None}
    kinds = {row.kind for row in history.rows}
    silent = ["no line tells of a replica"] if not kinds - NO_REPLICA else []
    silent = silent or ([] if "isr_commit" in kinds else ["no line tells who is in an ISR"])
    whole = [why for why in _of_the_whole(history) if not why.startswith(USUAL)]
    return [*doubts(logs, leaders), *silent, *whole]
