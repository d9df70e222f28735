"""The facts about a party and its absences, by name, each with the rows that show it.

The rules (rules.toml) use only these names. A fact that no row shows is not in the answer; its
absence means nothing if the log that would show it is missing, so `no_log` is also a fact.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from isrlab.events.exact import Absence
from isrlab.events.spans import Interval
from isrlab.events.statements import Statement
from isrlab_ops.logs.history.record import STOPPING_MS, Record, about, in_span
from isrlab_ops.logs.incidents import contact
from isrlab_ops.logs.incidents.controllers import STILL_MS, elections, moments
from isrlab_ops.logs.incidents.losses import Loss
from isrlab_ops.logs.incidents.parties import (
    BEFORE_MS,
    SAME_EVENT_MS,
    SOON_MS,
    Party,
    is_back_at_once,
)

OFTEN = 3
PARTIES = (
    "broker", "link", "controller", "zookeeper", "cluster", "loss", "quorum", "strained", "topic",
    "cancelled", "migration",
)  # fmt: skip
OF_RECORDS = ("damaged", "too_large", "refuses_large")  # that cannot be copied
SIGNS = ("session_lost", "disk_full", "out_of_resources", "start_failed", *OF_RECORDS, "rolled")
MIGRATION = ("PRE_MIGRATION", "MIGRATION", "POST_MIGRATION")  # states that KRaft stores
LOSSES = ("unclean", "emptied", "leads", "cut", "tail_cut", "leaderless")  # Loss.rows


@dataclass(frozen=True)
class Case:
    """A party, its absences, and the rows in which to look for an explanation."""

    party: Party
    outs: list[Absence]
    troubles: list[Statement]
    record: Record
    span: Interval  # from shortly before the first absence to shortly after the last
    losses: tuple[Loss, ...] = ()

    @property
    def brokers(self) -> tuple[int, ...]:
        return self.party.brokers

    @property
    def is_open(self) -> bool:
        """A replica is out, a broker or disk is gone, or heartbeats fail until the logs end and no
        controller is elected after the last candidate."""
        is_gone = any(in_span(self.lost, self.span))
        if self.party.kind in ("quorum", "strained"):
            is_known = self.record.log_ends.keys() >= {*self.brokers}
            last = self.span[1] - STILL_MS, self.record.end_ms
            tries = self.record.said("sign", last, sign="controller_lost")
            last = max([last[0], *(row.ts_ms for row in tries)]), last[1]
            return (
                is_known and last[1] - self.span[1] < STILL_MS and not elections(self.record, last)
            )
        return is_gone or self._is_broken or any(out.end_ms is None for out in self.outs)

    @property
    def lost(self) -> list[Statement]:
        """The lines since which nothing is heard of the party, if it is one broker."""
        is_one = self.party.kind in ("broker", "controller") and len(self.brokers) == 1
        return contact.lost(self.record).get(self.brokers[0], []) if is_one else []

    @property
    def _is_broken(self) -> bool:
        """Whether a log directory failed, which lasts until the process is restarted."""
        rows = [row for row in self.troubles if row.kind == "failed" and not self.outs]
        failed = [row for row in rows if row.detail.get("cause") != "fetcher gave up"]
        return any(
            all(start.broker != row.broker or start.ts_ms < row.ts_ms
                for start in self.record.starts)
            for row in failed
        )  # fmt: skip

    @property
    def _back_ms(self) -> int:
        """When a broker was back from earlier absences, which stops and starts before explain."""
        first_ms = min((out.start_ms for out in self.outs), default=0)
        ends = self.record.back_ms[self.brokers[0]] if self.party.kind == "broker" else []
        return max([0, *ends[: bisect_left(ends, first_ms)][-1:]])

    @property
    def removed(self) -> list[Absence]:
        """Absences of the party's own replicas."""
        return [out for out in self.outs if out.replica in self.brokers]

    @property
    def removes(self) -> list[Absence]:
        """Absences that the party caused as leader."""
        return [out for out in self.outs if out.leader in self.brokers]

    def own(self, rows: Sequence[Statement]) -> list[Statement]:
        """Rows about the party's brokers, or about any broker if it has none."""
        return [row for row in rows if not self.brokers or about(row) in self.brokers]

    def said(self, kinds: str, **detail: str) -> list[Statement]:
        return self.own(self.record.said(kinds, self.span, None, **detail))

    def signs(self, name: str) -> list[Statement]:
        """Rows of a sign; those about a partition only if it is one of the case. What cannot be
        copied its followers log, also where the party is the leader that removes them."""
        keys = {out.key for out in self.outs}
        rows = self.said("sign", sign=name)
        if name in OF_RECORDS:
            out = {out.replica for out in self.outs} or {*self.brokers}
            rows = [r for r in self.record.said("sign", self.span, sign=name) if r.broker in out]
        return [row for row in rows if row.topic is None or not keys or row.key in keys]

    def failed(self) -> list[Statement]:
        """Replicas of the party that failed permanently."""
        troubles = self.own(in_span(self.record.troubles, self.span))
        return [row for row in troubles if row.kind == "failed"]

    def left(self, outs: list[Absence] | None = None) -> list[Statement]:
        return [out.left for out in (self.outs if outs is None else outs) if out.left]

    def of_losses(self, kind: str) -> list[Statement]:
        return [row for loss in self.losses for row in loss.rows.get(kind, ())]


class Facts(Case):
    """Each method is a fact: the rows that show it, or none."""

    def no_log(self) -> list[Statement]:
        """There is no log of this broker, but of others; a simulated fleet has none at all."""
        logs = set(self.record.log_ends)
        is_missing = bool(logs) and not logs.issuperset(self.brokers)
        is_missing &= self.party.kind == "broker"
        return (self.left() or self.troubles)[:1] if is_missing else []

    # Actions of the leaders and the controller

    def removed_by_leaders(self) -> list[Statement]:
        return self.left([out for out in self.removed if out.leader])

    def removes_others(self) -> list[Statement]:
        return self.left(self.removes)

    def removes_two(self) -> list[Statement]:
        """A leader removes more than one replica: it is unlikely that all are slow."""
        return self.left(self.removes) if len({out.replica for out in self.removes}) > 1 else []

    def removed_by_two(self) -> list[Statement]:
        leaders = {out.leader for out in self.removed} - {None}
        return self.removed_by_leaders() if len(leaders) > 1 else []

    def repeats(self) -> list[Statement]:
        """One replica leaves one partition repeatedly."""
        times = Counter((out.key, out.replica) for out in self.outs)
        often = [out for out in self.outs if times[out.key, out.replica] >= OFTEN]
        return self.left(often)

    def short(self) -> list[Statement]:
        """Every absence is very short."""
        return self.left() if all(map(is_back_at_once, self.outs)) else []

    def still_out(self) -> list[Statement]:
        return self.left([out for out in self.outs if out.end_ms is None])

    def out_from_the_start(self) -> list[Statement]:
        """All were already out when the ISRs became known, so no line shows why."""
        spans = self.record.spans
        is_so = all(o.key in spans and o.start_ms == spans[o.key][0].start_ms for o in self.outs)
        return self.left() if is_so else []

    def fences_the_living(self) -> list[Statement]:
        """A controller fences brokers that it hears from again immediately."""
        rows = self.record.said("crash", self.span, cause="fenced")
        is_controller = self.party.kind == "controller" and self.outs
        return [row for row in rows if is_controller and row.broker in self.brokers]

    # Lines of processes, sessions and controllers

    def stop_asked(self) -> list[Statement]:
        """A process was asked to stop: not one that stops because its start failed."""
        failed = [row.ts_ms for row in self.said("sign", sign="start_failed")]
        rows = [r for r in self.said("sign", sign="stop_asked") if r.ts_ms > self._back_ms]
        return [r for r in rows if not any(0 <= r.ts_ms - ms <= SOON_MS for ms in failed)]

    def started(self) -> list[Statement]:
        """A process restarted, after its stop and successfully, and its log did not begin there."""
        stopped_ms = max((row.ts_ms for row in self.stop_asked()), default=self._back_ms)
        failed = [row.ts_ms for row in self.said("sign", sign="start_failed")]
        starts = self.own(in_span(self.record.starts, self.span))
        rows = [row for row in starts if row.ts_ms >= stopped_ms]
        return [r for r in rows if not any(0 <= ms - r.ts_ms <= BEFORE_MS for ms in failed)]

    def came_back(self) -> list[Statement]:
        """The broker is back: a line shows a start, all absences are over, or its log continues."""
        is_back = self.outs and all(out.end_ms is not None for out in self.outs)
        stopped_ms = max((row.ts_ms for row in self.stop_asked()), default=0)
        later = [row for row in self.spoke() if row.ts_ms > stopped_ms + STOPPING_MS]
        return self.started() or (self.left() if is_back else later)

    def unclean_start(self) -> list[Statement]:
        return [row for row in self.started() if row.detail["sign"] == "unclean_start"]

    def halted(self) -> list[Statement]:
        """The process logs that it gives up."""
        rows = [row for row in self.said("crash") if "said_by" not in row.detail]
        return [row for row in rows if row.detail.get("cause") != "shut down"]

    def fenced(self) -> list[Statement]:
        """The controller, or ZooKeeper, no longer hears from the broker."""
        rows = [row for row in self.said("crash") if "said_by" in row.detail]
        return rows if self.party.kind == "broker" else []

    def silent(self) -> list[Statement]:
        """Contact with the broker is lost until the logs end. That alone does not prove a crash."""
        return [*in_span(self.lost, self.span)]

    def unreached(self) -> list[Statement]:
        """The others can't connect to the broker, and the controller still hears from it."""
        by = contact.not_heard(self.record)[1]
        return [row for b in self.brokers for row in in_span(by.get(b, ()), self.span)]

    def not_listening(self) -> list[Statement]:
        """Connections to the broker are refused: a process that is frozen would still get them."""
        span = max(self.span[0], *(row.ts_ms for row in self.lost[:1]), 0), self.span[1]
        rows = (contact.failures(self.record, b, span, contact.REFUSED) for b in self.brokers)
        return [row for of_broker in rows for row in of_broker]

    def spoke(self) -> list[Statement]:
        """The broker's log continues after the first absence began."""
        first_ms = min((out.start_ms for out in self.outs), default=self.span[0])
        return [r for r in self.own(self.record.rows["log_end"]) if r.ts_ms > first_ms]

    def overslept(self) -> list[Statement]:
        """A process did not run, or got no CPU, while another did."""
        return [] if self.all_overslept() else self.own(self.record.overslept(self.span))

    def late_news(self) -> list[Statement]:
        """A process ran, and logged several changes long after others did."""
        late = self.record.late
        rows = [row for b in self.brokers for row in in_span(late.get(b, ()), self.span)]
        return rows if len(moments(rows)) >= OFTEN else []

    def all_overslept(self) -> list[Statement]:
        """No broker with a log here ran for some time, as if they shared a host."""
        rows = self.record.overslept(self.span)
        last = {row.broker: row.ts_ms for row in rows}
        hosts = self.record.log_ends.keys() & self.record.hosts
        is_all = len(hosts) > 1 and hosts <= last.keys()
        return rows if is_all and max(last.values()) - min(last.values()) <= SAME_EVENT_MS else []

    def tried(self) -> list[Statement]:
        """The broker's heartbeats went unanswered before it was fenced: its process ran."""
        until_ms = min((row.ts_ms for row in self.fenced()), default=0)
        return [row for row in self.said("sign", sign="heartbeat_failed") if row.ts_ms < until_ms]

    def others_tried(self) -> list[Statement]:
        """Heartbeats of all other brokers with a log failed then, too: the controller was away."""
        rows = self.record.said("sign", self.span, sign="heartbeat_failed")
        others = (self.record.log_ends.keys() & self.record.hosts) - {*self.brokers}
        return rows if others and others <= {row.broker for row in rows} else []

    def votes_missing(self) -> list[Statement]:
        """A controller becomes a candidate again and again."""
        tries = self.record.said("sign", self.span, sign="controller_lost")
        often = Counter(row.broker for row in tries)
        return [row for row in tries if often[row.broker] >= OFTEN]

    def fences_too_late(self) -> list[Statement]:
        """A controller fences brokers after another was elected."""
        span = (self.span[0], self.span[1] + SOON_MS)
        rows = self.record.said("sign", span, sign="fenced_too_late")
        return [row for row in rows if row.broker in self.brokers]

    def refused_updates(self) -> list[Statement]:
        """A leader keeps requesting changes from a state that is no longer stored."""
        rows = [r for r in self.said("isr_rejected") if r.detail.get("error") == "BADVERSION"]
        return rows if len(rows) >= OFTEN else []

    # Disks, memory, replicas, settings

    def dir_failed(self) -> list[Statement]:
        return [row for row in self.failed() if row.detail.get("cause") != "fetcher gave up"]

    def gave_up(self) -> list[Statement]:
        """A fetcher marked partitions as failed, and stopped fetching them."""
        return [row for row in self.failed() if row.detail.get("cause") == "fetcher gave up"]

    def offline(self) -> list[Statement]:
        """Partitions have no leader."""
        return [row for row in self.troubles if row.kind == "offline"]

    def served(self) -> list[Statement]:
        """Another broker led just before this one left the ISR."""
        brokers = (None, -1, *self.brokers)
        at = self.record.leader_at
        return self.left([o for o in self.removed if at(o.key, o.start_ms - 1) not in brokers])

    def under_min_isr(self) -> list[Statement]:
        return [row for row in self.left() if row.detail.get("under_min_isr") == "true"]

    def throttled(self) -> list[Statement]:
        """The topics have throttled replicas, by their last known settings."""
        before = (0, max(out.start_ms for out in self.outs) + BEFORE_MS) if self.outs else (0, 0)
        last: dict[str, Statement] = {}
        for row in self.record.said("sign", before, sign="configured"):
            if row.topic is not None:
                last[row.topic] = row
        topics = {out.key.topic for out in self.outs}
        rows = [last[t] for t in sorted(topics & last.keys())]
        return rows if rows and all("throttled.replicas" in str(r.detail) for r in rows) else []

    def reassigned(self) -> list[Statement]:
        """A reassignment adds replicas to partitions in which one is out."""
        keys = {out.key for out in self.outs}
        return [row for row in self.record.assigned if row.key in keys]


_LOOKED_FOR = tuple(name for name in vars(Facts) if not name.startswith("_"))
FACTS = (*PARTIES, *SIGNS, *LOSSES, *MIGRATION, "held_back", *_LOOKED_FOR)


def facts(case: Facts) -> dict[str, list[Statement]]:
    """Every fact that is seen, with its rows in order of time."""
    by_fact = {case.party.kind: case.left() or case.troubles}
    by_fact |= {name: case.signs(name) for name in SIGNS}
    by_fact |= {name: case.of_losses(name) for name in LOSSES}
    by_fact["held_back"] = case.record.said("sign", case.span, sign="held_back")
    rows = case.troubles if case.party.kind == "migration" else []
    by_fact |= {n: [r for r in rows if r.detail["to_state"] == n][:1] for n in MIGRATION}
    by_fact |= {name: getattr(case, name)() for name in _LOOKED_FOR}
    return {name: rows for name, rows in by_fact.items() if rows}
