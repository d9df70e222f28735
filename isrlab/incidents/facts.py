"""What is seen of a party and its absences: named facts, each with the rows that show it.

The rules (rules.txt) speak of these names only. A fact that is not seen is not in the answer; that
says nothing if the log that would show it is not there, so `no_log` is a fact, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from isrlab.events.exact import Absence
from isrlab.incidents.parties import AT_ONCE_MS, BEFORE_MS, SOON_MS, Party, is_back_at_once
from isrlab.incidents.record import Record, Row, Span, about, key_of

FLAPS = 3  # as often must one replica leave one partition
REFUSALS = 3
PARTIES = ("broker", "link", "controller", "zookeeper", "cluster")
SIGNS = ("stop_asked", "session_lost", "out_of_resources")
FACTS: dict[str, Callable[[Case], list[Row]]] = {}


@dataclass(frozen=True)
class Case:
    """A party, its absences, and where to look for what explains them."""

    party: Party
    outs: list[Absence]
    troubles: list[Row]
    record: Record
    span: Span  # from some time before the first of them to some time after the last

    @property
    def brokers(self) -> tuple[int, ...]:
        return self.party.brokers

    @property
    def is_open(self) -> bool:
        """Somebody is still out, or the party's broker is gone."""
        gone = (row for row in self.record.gone if about(row) in self.brokers)
        is_gone = any(self.span[0] <= row["ts_ms"] <= self.span[1] for row in gone)
        return is_gone or any(out.end_ms is None for out in self.outs)

    @property
    def removed(self) -> list[Absence]:
        """The party's own."""
        return [out for out in self.outs if out.replica in self.brokers]

    @property
    def removes(self) -> list[Absence]:
        """Those of which the party is the leader."""
        return [out for out in self.outs if out.leader in self.brokers]

    def own(self, rows: list[Row]) -> list[Row]:
        """Rows within the span about the party's brokers, or about anybody if it has none."""
        near = [row for row in rows if self.span[0] <= row["ts_ms"] <= self.span[1]]
        return [row for row in near if not self.brokers or about(row) in self.brokers]

    def said(self, kinds: str, **detail: str) -> list[Row]:
        return self.own(self.record.said(kinds, self.span, None, **detail))

    def others_say(self, sign: str) -> list[Row]:
        """What others say that they met at the party."""
        rows = self.record.said("sign", self.span, sign=sign)
        return [row for row in rows if row["replica"] in self.brokers]

    def failed(self) -> list[Row]:
        """Replicas of the party that stopped for good."""
        return self.own([row for row in self.record.troubles if row["kind"] == "failed"])

    def left(self, outs: list[Absence] | None = None) -> list[Row]:
        return [out.left for out in (self.outs if outs is None else outs) if out.left]


def fact(function: Callable[[Case], list[Row]]) -> Callable[[Case], list[Row]]:
    FACTS[function.__name__] = function
    return function


def facts(case: Case) -> dict[str, list[Row]]:
    """Every fact that is seen, with its rows in order of time."""
    return {name: rows for name, look in FACTS.items() if (rows := look(case))}


# Who the party is, and what is said by a line alone


def _party(kind: str) -> Callable[[Case], list[Row]]:
    return lambda case: case.left() or case.troubles if case.party.kind == kind else []


def _sign(name: str) -> Callable[[Case], list[Row]]:
    return lambda case: case.said("sign", sign=name)


FACTS |= {kind: _party(kind) for kind in PARTIES}
FACTS |= {name: _sign(name) for name in SIGNS}


@fact
def no_log(case: Case) -> list[Row]:
    """There is no log of the party's broker, though of others; a fleet's events come from none."""
    logs = set(case.record.log_ends)
    is_missing = bool(logs) and not logs.issuperset(case.brokers)
    return (case.left() or case.troubles)[:1] if is_missing and case.party.kind == "broker" else []


# What the leaders and the controller did


@fact
def removed_by_leaders(case: Case) -> list[Row]:
    return case.left([out for out in case.removed if out.leader])


def removed_by_controller(case: Case) -> list[Row]:
    return case.left([out for out in case.removed if out.leader is None])


@fact
def removes_others(case: Case) -> list[Row]:
    return case.left(case.removes)


@fact
def removes_two(case: Case) -> list[Row]:
    """A leader removes more than one replica: hardly all of them are slow."""
    return case.left(case.removes) if len({out.replica for out in case.removes}) > 1 else []


@fact
def removed_by_two(case: Case) -> list[Row]:
    leaders = {out.leader for out in case.removed} - {None}
    return removed_by_leaders(case) if len(leaders) > 1 else []


@fact
def repeats(case: Case) -> list[Row]:
    """One replica leaves one partition again and again."""
    times = Counter((out.key, out.replica) for out in case.outs)
    often = [out for out in case.outs if times[out.key, out.replica] >= FLAPS]
    return case.left(often)


@fact
def short(case: Case) -> list[Row]:
    """Every absence ends at once."""
    return case.left() if all(map(is_back_at_once, case.outs)) else []


@fact
def still_out(case: Case) -> list[Row]:
    return case.left([out for out in case.outs if out.end_ms is None])


@fact
def out_from_the_start(case: Case) -> list[Row]:
    """Absence already when the log begins, so nothing says why."""
    first = {key: spans[0].start_ms for key, spans in case.record.spans.items() if spans}
    was = [out for out in case.outs if first.get(out.key) == out.start_ms]
    return case.left(was) if len(was) == len(case.outs) else []


@fact
def fences_the_living(case: Case) -> list[Row]:
    """A controller fences brokers that it hears again at once."""
    rows = case.record.said("crash", case.span, cause="fenced")
    is_controller = case.party.kind == "controller"
    return [row for row in rows if is_controller and row["broker"] in case.brokers]


@fact
def after_election(case: Case) -> list[Row]:
    """The leaders that removed others had just been elected."""
    rows: list[Row] = []
    for out in case.outs:
        times, brokers = case.record.leaders.get(out.key, ([], []))
        elected = [t for t, b in zip(times[1:], brokers[1:], strict=True) if b == out.leader]
        is_new = any(0 <= out.start_ms - ts_ms <= AT_ONCE_MS for ts_ms in elected)
        rows += [out.left] if is_new and out.left else []
    return rows if case.outs and len(rows) >= len(case.outs) / 2 else []


# What processes, sessions and controllers say


@fact
def started(case: Case) -> list[Row]:
    """A process started again: not the first thing of its log, nor before it was stopped."""
    stopped_ms = max((row["ts_ms"] for row in case.said("sign", sign="stop_asked")), default=0)
    return [row for row in case.own(case.record.starts) if row["ts_ms"] >= stopped_ms]


@fact
def came_back(case: Case) -> list[Row]:
    """It started again: a line says so, or it is back in all its ISRs."""
    is_back = case.outs and all(out.end_ms is not None for out in case.outs)
    return started(case) or (case.left() if is_back else [])


@fact
def unclean_start(case: Case) -> list[Row]:
    return [row for row in started(case) if row["detail"]["sign"] == "unclean_start"]


@fact
def halted(case: Case) -> list[Row]:
    """The process says that it gives up."""
    rows = [row for row in case.said("crash") if "said_by" not in row["detail"]]
    return [row for row in rows if row["detail"].get("cause") != "shut down"]


@fact
def fenced(case: Case) -> list[Row]:
    """The controller no longer hears of the broker, or ZooKeeper does not."""
    rows = [row for row in case.said("crash") if "said_by" in row["detail"]]
    return rows if case.party.kind == "broker" else []


@fact
def silent(case: Case) -> list[Row]:
    """The broker's log ends while those of others go on, and it is not back anywhere.

    That alone is no death: its clock may be behind.
    """
    if not case.is_open or any(out.end_ms is not None for out in case.outs):
        return []
    ends = {b: case.record.log_ends.get(b) for b in case.brokers}
    rows = [r for r in case.record.rows["log_end"] if ends.get(r["broker"]) == r["ts_ms"]]
    return [row for row in rows if row["ts_ms"] < case.record.end_ms - SOON_MS]


@fact
def unreachable(case: Case) -> list[Row]:
    """Others cannot fetch from the broker, or the controller has lost it."""
    failed = case.others_say("not_listening") or case.others_say("fetch_failed")
    return failed or fenced(case) or removed_by_controller(case)


@fact
def not_listening(case: Case) -> list[Row]:
    """Connections to the broker are refused: a process that is frozen would still get them."""
    return case.others_say("not_listening")


@fact
def spoke(case: Case) -> list[Row]:
    """The broker's log goes on after the first absence began."""
    first_ms = min((out.start_ms for out in case.outs), default=case.span[0])
    ends = [row for row in case.record.rows["log_end"] if row["broker"] in case.brokers]
    return [row for row in ends if row["ts_ms"] > first_ms]


@fact
def overslept(case: Case) -> list[Row]:
    """A process did not run, or had no processor."""
    return case.own(case.record.overslept(case.span))


@fact
def tried(case: Case) -> list[Row]:
    """The broker's heartbeats went unanswered before it was fenced: its process ran."""
    until_ms = min((row["ts_ms"] for row in fenced(case)), default=0)
    return [row for row in case.said("sign", sign="heartbeat_failed") if row["ts_ms"] < until_ms]


@fact
def controller_moved(case: Case) -> list[Row]:
    first = case.record.start_ms + SOON_MS
    rows = case.record.said("sign", case.span, sign="controller_elected")
    return [row for row in rows if row["ts_ms"] > first]


@fact
def refused_updates(case: Case) -> list[Row]:
    """A leader goes on to ask for changes on a state that is no longer stored."""
    rows = [r for r in case.said("isr_rejected") if r["detail"].get("error") == "BADVERSION"]
    return rows if len(rows) >= REFUSALS else []


# Disks, memory, replicas, settings


@fact
def disk_full(case: Case) -> list[Row]:
    rows = case.failed() + case.said("crash")
    told = case.said("sign", sign="disk_full")
    return told or [row for row in rows if "No space" in str(row["detail"])]


@fact
def dir_failed(case: Case) -> list[Row]:
    return [row for row in case.failed() if row["detail"].get("cause") != "fetcher gave up"]


@fact
def gave_up(case: Case) -> list[Row]:
    """A fetcher has marked partitions as failed, and fetches them no more."""
    return [row for row in case.failed() if row["detail"].get("cause") == "fetcher gave up"]


@fact
def offline(case: Case) -> list[Row]:
    """Partitions have no leader."""
    return [row for row in case.troubles if row["kind"] == "offline"]


@fact
def session_longer(case: Case) -> list[Row]:
    """Leaders removed the broker before the controller noticed that it was gone."""
    noticed = [row["ts_ms"] for row in fenced(case)]
    early = [row for row in removed_by_leaders(case) if noticed and row["ts_ms"] < min(noticed)]
    return early if removed_by_controller(case) else []


@fact
def under_min_isr(case: Case) -> list[Row]:
    return [row for row in case.left() if row["detail"].get("under_min_isr") == "true"]


@fact
def throttled(case: Case) -> list[Row]:
    """The topics of the absences have throttled replicas, by the last word on their settings."""
    before = (0, max(out.start_ms for out in case.outs) + BEFORE_MS) if case.outs else (0, 0)
    last: dict[str, Row] = {}
    for row in case.record.said("sign", before, sign="configured"):
        if row["topic"] is not None:
            last[row["topic"]] = row
    topics = {out.key.topic for out in case.outs}
    rows = [last[t] for t in sorted(topics & last.keys())]
    return rows if rows and all("throttled.replicas" in str(r["detail"]) for r in rows) else []


@fact
def assigned_anew(case: Case) -> list[Row]:
    """The replicas that are out are being added to their partitions."""
    keys = {out.key for out in case.outs}
    return [row for row in case.record.assigned if key_of(row) in keys]
