"""From a folder of logs to what an operator wants to know: is it over, what was it, what is unsure.

The one evaluator: the command `logs` and the notebook ask it alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from isrlab.brokerlogs import read_local
from isrlab.brokerlogs.files import PathName
from isrlab.brokerlogs.read import BrokerLogs
from isrlab.brokerlogs.stamps import given_ms
from isrlab.events.exact import Key
from isrlab.evidence.reconcile import Evidence, reconcile
from isrlab.incidents.find import Incident, find
from isrlab.incidents.record import Record, about

NO_REPLICA = {"sign", "clock", "log_start", "log_end"}  # kinds that tell of none
CALM, WRONG, NOT_KNOWN = 0, 1, 2
TOGETHER_MS = 60_000  # two logs of one broker that overlap for longer are of two clusters
FEW_HEADS = 0.5  # with a smaller share of lines with a time, a layout is not understood
# So it is in the best of logs of some releases, or of a quiet broker: no reason for doubt.
TORN = "lines are missing"
USUAL = ("leaders do not print the version", "nothing shows that the clock")


class Window(NamedTuple):
    """What to look at: incidents that touch this time, these topics, this broker."""

    since_ms: int | None = None
    until_ms: int | None = None
    topic: str | None = None  # a name, or a pattern with * and ?
    broker: int | None = None

    def has(self, incident: Incident) -> bool:
        end_ms = incident.end_ms
        return (
            (self.since_ms is None or end_ms is None or end_ms >= self.since_ms)
            and (self.until_ms is None or incident.start_ms <= self.until_ms)
            and (not incident.partitions or any(map(self.has_key, incident.partitions)))
            and (self.broker is None or self.broker in (*incident.out, *incident.who))
        )

    def has_key(self, key: Key) -> bool:
        return self.topic is None or fnmatchcase(key.topic, self.topic)


def window(since: str | None, until: str | None, topic: str | None, broker: int | None) -> Window:
    """The same in words, times in UTC if they name no zone; what is empty, None or 0 is all.

    Raises ValueError for a time that is none.
    """
    since_ms, until_ms = (given_ms(text) if text else None for text in (since, until))
    return Window(since_ms, until_ms, topic or None, broker or None)


@dataclass(frozen=True)
class Findings:
    """What the logs say. `status`: CALM, WRONG or NOT_KNOWN at the end of the window."""

    logs: BrokerLogs
    evidence: Evidence
    record: Record
    incidents: list[Incident]
    partitions: tuple[Key, ...]
    under_replicated: tuple[Key, ...]  # at the end
    under_min_isr: tuple[Key, ...]
    leaderless: tuple[Key, ...]
    not_known: tuple[Key, ...]  # whose ISR at the end nobody says
    doubts: tuple[str, ...]  # why the whole may not be seen
    caveats: tuple[str, ...]  # what logs like these never show

    @property
    def status(self) -> int:
        gone, still = self.record.gone, [each for each in self.incidents if not each.is_over]
        open_ones = [
            each
            for each in still  # where nobody says how it ended, it may be over
            if set(self.not_known).isdisjoint(each.partitions)
            or any(about(row) in each.who for row in gone)
        ]
        if self.under_replicated or self.under_min_isr or self.leaderless or open_ones:
            return WRONG
        return NOT_KNOWN if self.not_known or self.doubts else CALM


def look(
    log_dir: PathName,
    *,
    time_zone: str | None = None,
    min_isr: int | None = None,
    window: Window | None = None,
) -> Findings:
    """Read the logs of a folder, find what happened. Raises LogDirError as `read_local` does."""
    logs = read_local(log_dir, time_zone=time_zone)
    return found_in(logs, reconcile(logs.events, logs.files), min_isr=min_isr, window=window)


def found_in(
    logs: BrokerLogs,
    evidence: Evidence,
    *,
    min_isr: int | None = None,
    window: Window | None = None,
) -> Findings:
    """What happened by the logs as read and the evidence in them."""
    window = window or Window()
    alone = {c.broker for c in evidence.clocks if c.is_alone and c.broker is not None}
    whole = _of_the_whole(evidence)
    is_torn = any(why.startswith(TORN) for why in whole)
    record = Record(_until(evidence.events, window.until_ms), alone=alone, is_torn=is_torn)
    caveats = [why for why in whole if why.startswith(USUAL)]
    if record.stopped_ms is not None:
        caveats.insert(0, "all brokers were stopped in order at the end: that is left out")
        until_ms = record.stopped_ms - 1
        record = Record(_until(evidence.events, until_ms), alone=alone, is_torn=is_torn)
    dark = {
        gap.key for gap in evidence.unknown if gap.key and gap.from_ms <= record.end_ms <= gap.to_ms
    }
    ends = {
        key: spans[-1].isr
        for key, spans in record.spans.items()  # others were deleted
        if window.has_key(key) and (key in dark or spans[-1].end_ms == record.end_ms)
    }
    incidents = find(record, min_isr)
    known = {key: isr for key, isr in ends.items() if key not in dark}
    broker = window.broker

    def concerns(key: Key, missing: frozenset[int] = frozenset()) -> bool:
        return broker is None or broker in missing or broker == record.leader_at(key, record.end_ms)

    short = {key: record.replicas[key] - set(isr) for key, isr in known.items()}
    below = [key for key, isr in known.items() if min_isr is not None and len(isr) < min_isr]
    return Findings(
        logs,
        evidence,
        record,
        [incident for incident in incidents if window.has(incident)],
        tuple(sorted(ends)),
        tuple(sorted(key for key, missing in short.items() if missing and concerns(key, missing))),
        tuple(sorted(key for key in below if concerns(key))),
        tuple(sorted(key for key in ends if record.leader_at(key, record.end_ms) == -1)),
        tuple(sorted(key for key in dark if window.has_key(key))),
        tuple(_doubts(logs, evidence)),
        tuple(caveats),
    )


def _until(events: pa.Table, until_ms: int | None) -> pa.Table:
    return events if until_ms is None else events.filter(pc.less_equal(events["ts_ms"], until_ms))


def _of_the_whole(evidence: Evidence) -> list[str]:
    """What these logs can never show."""
    return list(dict.fromkeys(gap.why for gap in evidence.unknown if gap.key is None))


def _doubts(logs: BrokerLogs, evidence: Evidence) -> list[str]:
    """Why something may have happened that these logs do not show."""
    doubts = []
    for row in logs.files.to_pylist():
        looked = (row["heads"] or 0) + (row["headless"] or 0)
        if row["status"].startswith(("broken off", "not read")):
            doubts.append(f"{row['file']}: {row['status']}")
        elif looked and row["heads"] < FEW_HEADS * looked:
            share = f"{row['heads']:,} of {looked:,} lines begin with a time"
            doubts.append(f"{row['file']}: only {share}; its layout is not understood")
    if not logs.files.num_rows or not any(logs.files["lines"].to_pylist()):
        doubts.append("there is not one line to read")
    elif not set(evidence.events["kind"].unique().to_pylist()) - NO_REPLICA:
        doubts.append("no line tells of a replica")
    whole = _of_the_whole(evidence)
    return doubts + [why for why in whole if not why.startswith(USUAL)] + _two_clusters(logs.events)


def _two_clusters(events: pa.Table) -> list[str]:
    """Logs of one name in which one broker tells different things at the same time.

    Lines that are equal have been read once: a copy of a log has none left.
    """
    told = events.select(["broker", "ts_ms"])
    told = told.append_column("file", pc.map_lookup(events["detail"], "file", "first"))
    told = told.drop_null().group_by(["broker", "file"])
    logs = told.aggregate([("ts_ms", "min"), ("ts_ms", "max")]).sort_by("file").to_pylist()
    for one, other in combinations(logs, 2):
        until_ms = min(one["ts_ms_max"], other["ts_ms_max"])
        is_together = until_ms - max(one["ts_ms_min"], other["ts_ms_min"]) > TOGETHER_MS
        is_alike = one["broker"] == other["broker"] and one["file"] != other["file"]
        if is_together and is_alike and Path(one["file"]).name == Path(other["file"]).name:
            pair = f"a {one['file']} and another {other['file']} of the same hours"
            return [f"broker {one['broker']} has {pair}: read two clusters one by one"]
    return []
