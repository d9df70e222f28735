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
from isrlab.incidents.record import Record, Row, Span, about

FLAPS = 3  # as often must one replica leave one partition
REFUSALS = 3
PARTIES = ("broker", "link", "controller", "zookeeper", "cluster")
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

    def signs(self, *names: str) -> list[Row]:
        """Signs of these names of the party's brokers, or of anybody if it has none."""
        named = (row for name in names for row in self.said("sign", sign=name))
        return sorted(named, key=lambda row: row["ts_ms"])

    def said(self, kinds: str, **detail: str) -> list[Row]:
        rows = self.record.said(kinds, self.span, None, **detail)
        return [row for row in rows if not self.brokers or about(row) in self.brokers]

    def failed(self) -> list[Row]:
        """Replicas of the party that stopped for good."""
        rows = [r for r in self.record.troubles if r["kind"] == "failed"]
        rows = [r for r in rows if self.span[0] <= r["ts_ms"] <= self.span[1]]
        return [r for r in rows if not self.brokers or r["broker"] in self.brokers]

    def left(self, outs: list[Absence] | None = None) -> list[Row]:
        return [out.left for out in (self.outs if outs is None else outs) if out.left]


def fact(function: Callable[[Case], list[Row]]) -> Callable[[Case], list[Row]]:
    FACTS[function.__name__] = function
    return function


def facts(case: Case) -> dict[str, list[Row]]:
    """Every fact that is seen, with its rows in order of time."""
    return {name: rows for name, look in FACTS.items() if (rows := look(case))}


# Who the party is


def _party(kind: str) -> None:
    def is_it(case: Case) -> list[Row]:
        return case.left() or case.troubles if case.party.kind == kind else []

    FACTS[kind] = is_it


for _kind in PARTIES:
    _party(_kind)


@fact
def no_log(case: Case) -> list[Row]:
    """There is no log of the party's broker, though of others; a fleet's events come from none."""
    logs = set(case.record.log_ends)
    is_missing = bool(logs) and not logs.issuperset(case.brokers)
    return (case.left() or case.troubles)[:1] if is_missing and case.party.kind == "broker" else []


# What the leaders and the controller did


@fact
def removed_by_leaders(case: Case) -> list[Row]:
    return case.left([o for o in case.outs if o.replica in case.brokers and o.leader])


@fact
def removed_by_controller(case: Case) -> list[Row]:
    own = [o for o in case.outs if o.replica in case.brokers]
    return case.left([o for o in own if o.leader is None])


@fact
def removes_others(case: Case) -> list[Row]:
    return case.left([o for o in case.outs if o.leader in case.brokers])


@fact
def removes_two(case: Case) -> list[Row]:
    """A leader removes more than one replica: hardly all of them are slow."""
    own = [o for o in case.outs if o.leader in case.brokers]
    return case.left(own) if len({o.replica for o in own}) > 1 else []


@fact
def removed_by_two(case: Case) -> list[Row]:
    own = [o for o in case.outs if o.replica in case.brokers and o.leader is not None]
    return case.left(own) if len({o.leader for o in own}) > 1 else []


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
    return (
        [r for r in rows if r["broker"] in case.brokers] if case.party.kind == "controller" else []
    )


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
def stop_asked(case: Case) -> list[Row]:
    return case.signs("stop_asked")


@fact
def started(case: Case) -> list[Row]:
    """A process started again: not the first thing of its log."""
    stops = [row["ts_ms"] for row in stop_asked(case)]
    from_ms = max([case.span[0], *stops])  # one that was started before it was stopped is down
    rows = [row for row in case.record.starts if from_ms <= row["ts_ms"] <= case.span[1]]
    return [row for row in rows if not case.brokers or row["broker"] in case.brokers]


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
    rows = case.record.said("sign", case.span, sign="fetch_failed")
    failed = [row for row in rows if row["replica"] in case.brokers]
    return not_listening(case) or failed or fenced(case) or removed_by_controller(case)


@fact
def not_listening(case: Case) -> list[Row]:
    """Connections to the broker are refused: a process that is frozen would still get them."""
    rows = case.record.said("sign", case.span, sign="not_listening")
    return [row for row in rows if row["replica"] in case.brokers]


@fact
def spoke(case: Case) -> list[Row]:
    """The broker's log goes on after the first absence began."""
    first_ms = min((out.start_ms for out in case.outs), default=case.span[0])
    ends = [row for row in case.record.rows["log_end"] if row["broker"] in case.brokers]
    return [row for row in ends if row["ts_ms"] > first_ms]


@fact
def session_lost(case: Case) -> list[Row]:
    return case.signs("session_lost")


@fact
def overslept(case: Case) -> list[Row]:
    """A process did not run, or had no processor."""
    rows = case.record.overslept(case.span)
    return [row for row in rows if not case.brokers or row["broker"] in case.brokers]


@fact
def tried(case: Case) -> list[Row]:
    """The broker's heartbeats went unanswered before it was fenced: its process ran."""
    until_ms = min((row["ts_ms"] for row in fenced(case)), default=0)
    return [row for row in case.signs("heartbeat_failed") if row["ts_ms"] < until_ms]


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
    return case.signs("disk_full") or [r for r in rows if "No space" in str(r["detail"])]


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
def out_of_memory(case: Case) -> list[Row]:
    return case.signs("out_of_memory", "too_many_files")


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
    rows = case.record.assigned
    return [row for row in rows if (row["run"], row["topic"], row["partition"]) in keys]
