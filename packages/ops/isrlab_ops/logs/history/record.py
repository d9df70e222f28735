"""Queries on the events of a history: which replicas were out, which led, which lines show it.

Everything here is a lookup; no conclusions are drawn. Times are milliseconds on the one clock of
the events (`history_of`).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import attrgetter, itemgetter

from isrlab.events.exact import Absence, IsrSpan, Key, absences, isr_spans
from isrlab.events.spans import Interval
from isrlab.events.statements import Events, Statement, statements

_ms = attrgetter("ts_ms")
STARTS = ("starting", "unclean_start")
STOPPING_MS = 60_000  # the longest time that a stop of all brokers takes
BIRTH_MS = 10_000  # a start within this time belongs to the beginning of a log
LATE_BIRTH_MS = 60_000  # likewise, if the broker has reported no partition yet
ZOOKEEPER_SIGNS = ("session_lost", "zookeeper_gone")
METADATA_TOPIC = "__cluster_metadata"
SELDOM = (  # kinds of which a log has few
    "crash", "restart", "failed", "offline", "sign", "isr_rejected", "produce_error", "isr_shrink",
    "log_start", "log_end", "unknown",
)  # fmt: skip
OF_REPLICAS = (
    "leader", "follower", "hosted", "unhosted", "deleted", "truncate", "isr_commit", "metadata",
)  # fmt: skip
OVERDUE, OVERDUE_MS = 1.5, 3_000  # a timeout noticed within 1.5 times its limit plus 3 s is on time
WAITING = ("waited", "heartbeat_failed", "starting")
LATE_MS = 2_000  # news is this late only where a broker does not keep up
RESUMED_MS = 10_000  # a fetcher that gave up a partition resumes with a new leader within this time
APART_MS = 100_000  # the most that an unconfirmed clock may be off


class Record:
    """The events of one run. `end_ms`: the last known moment (default: the last row). `start_ms`:
    nothing happened between then and the first row, as in a simulation. `alone`: brokers whose
    clock nothing confirms. `is_torn`: lines are missing."""

    def __init__(
        self,
        events: Events,
        end_ms: int | None = None,
        start_ms: int | None = None,
        alone: Collection[int] = (),
        is_torn: bool = False,
    ) -> None:
        self.events, self.is_torn = statements(events), is_torn
        self.alone = frozenset(alone)
        self._whole_from_ms = start_ms
        times = [row.ts_ms for row in self.events]
        self.start_ms = min(times, default=0)
        self.end_ms = max(times, default=0) if end_ms is None else end_ms
        self.rows = _by_kind(self.events, (*SELDOM, *OF_REPLICAS))

    @cached_property
    def spans(self) -> dict[Key, list[IsrSpan]]:
        spans = isr_spans(self.events, self.end_ms, self._whole_from_ms)
        return {key: of_key for key, of_key in spans.items() if of_key}

    @cached_property
    def replicas(self) -> dict[Key, frozenset[int]]:
        """The replicas of each partition, as lines name them: the last full list, or all named."""
        listed: dict[Key, frozenset[int]] = {}
        members: dict[Key, set[int]] = defaultdict(set)
        for row in sorted(self.rows["isr_commit"] + self.rows["leader"], key=_ms):
            if row.topic is not None:
                members[row.key] |= {*(row.isr or ()), *(row.isr_before or ())}
                if named := row.ids("replicas"):
                    listed[row.key] = frozenset(named)
        return {key: listed.get(key, frozenset(brokers)) for key, brokers in members.items()}

    @cached_property
    def hosts(self) -> frozenset[int]:
        """Every broker that has a replica."""
        return frozenset[int]().union(*self.replicas.values())

    @cached_property
    def added(self) -> dict[Key, set[int]]:
        """By partition: the brokers on which a reassignment adds a replica."""
        added: dict[Key, set[int]] = defaultdict(set)
        for row in self.assigned + self.rows["metadata"]:
            added[row.key] |= set(row.ids("adding"))
        return added

    def held(self, key: Key, span: IsrSpan) -> frozenset[int]:
        """The replicas of a partition in this span, as far as lines name them; without those that
        are added and never joined the ISR: Kafka does not call it under-replicated either."""
        if not span.is_assigned:
            return self.replicas[key] - self.added[key]
        joined = (each.isr for each in self.spans[key] if self.added[key])
        return frozenset(span.replicas) - self.added[key].difference(*joined)

    @cached_property
    def outs(self) -> list[Absence]:
        """Each absence from an ISR, by start; including replicas that are already out when an ISR
        becomes known, at the start or after a gap in the logs."""
        outs = absences(self.events, self.end_ms)
        places: dict[tuple[Key, int], list[Absence]] = defaultdict(list)
        for each in outs:
            places[each.key, each.replica].append(each)
        stored: dict[tuple[Key, int], Statement] = {}
        for row in self.rows["isr_commit"]:
            stored.setdefault((row.key, row.ts_ms), row)
        for key, spans in self.spans.items():
            for nth, span in enumerate(spans):
                if nth and spans[nth - 1].end_ms == span.start_ms:
                    continue
                for replica in sorted(self.held(key, span) - set(span.isr)):
                    if not any(covers(each, span.start_ms) for each in places[key, replica]):
                        ends = (  # it is in the ISR, or no longer a replica
                            s.start_ms
                            for s in spans[nth:]
                            if replica in s.isr or (s.is_assigned and replica not in s.replicas)
                        )
                        end_ms = next(ends, None)
                        left = stored.get((key, span.start_ms))
                        outs.append(Absence(key, replica, span.start_ms, end_ms, left=left))
                        places[key, replica].append(outs[-1])
        return sorted(outs, key=lambda out: out.start_ms)

    @cached_property
    def back_ms(self) -> dict[int, list[int]]:
        """When replicas of each broker came back to their ISRs, in order."""
        ends: dict[int, list[int]] = defaultdict(list)
        for end_ms, replica in sorted((o.end_ms, o.replica) for o in self.outs if o.end_ms):
            ends[replica].append(end_ms)
        return ends

    @cached_property
    def troubles(self) -> list[Statement]:
        """Partitions without a leader, replicas that stopped for good, restarts, lost ZooKeeper.

        A fetcher with an old leader epoch also gives up a partition ("marked as failed"), and
        resumes as soon as the broker learns of the new leader. It also gives up partitions that
        leave its broker. Neither counts.
        """

        def is_resumed(row: Statement) -> bool:
            soon = (row.ts_ms, row.ts_ms + RESUMED_MS)
            later = self.said("follower leader hosted", soon, row.broker)
            return row.topic is not None and row.key in (each.key for each in later)

        def is_moved(row: Statement) -> bool:
            return any(
                span.is_assigned and row.broker not in span.replicas
                for span in self.spans.get(row.key, ())
                if span.start_ms <= row.ts_ms + RESUMED_MS and row.ts_ms <= span.end_ms
            )

        failed = [r for r in self.rows["failed"] if not is_resumed(r) and not is_moved(r)]
        started = [row for row in self.starts if row.detail["sign"] == "starting"]
        lost = [r for r in self.rows["sign"] if r.detail["sign"] in ZOOKEEPER_SIGNS]
        return sorted(failed + self.rows["offline"] + started + lost, key=lambda r: r.ts_ms)

    def apart_ms(self, *tellers: int | None) -> int:
        """How far apart the timestamps of one moment may be, for these brokers."""
        return 0 if self.alone.isdisjoint(tellers) else APART_MS

    def _naming(self, *kinds: str) -> dict[Key, list[tuple[int, int]]]:
        """By partition: when rows of these kinds name a leader, and which one, in order."""
        named: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        for row in (row for kind in kinds for row in self.rows[kind]):
            if row.topic and row.leader is not None:
                named[row.key].append((row.ts_ms, row.leader))
        return {key: sorted(times) for key, times in sorted(named.items())}

    @cached_property
    def leaders(self) -> dict[Key, tuple[list[int], list[int]]]:
        """By partition: when a different leader is named, and which one (-1: none)."""
        led: dict[Key, tuple[list[int], list[int]]] = {}
        for key, named in self._naming("leader", "offline", "isr_commit").items():
            first = [next(same) for _, same in groupby(named, itemgetter(1))]
            led[key] = [ts_ms for ts_ms, _ in first], [leader for _, leader in first]
        return led

    @cached_property
    def first_led_ms(self) -> int:
        """When the first partition gets a leader; if none does, when all have had time to start."""
        first = (times[0] for times, _ in self.leaders.values() if times)
        return min(first, default=self.start_ms + BIRTH_MS)

    @cached_property
    def named(self) -> dict[Key, list[int]]:
        """By partition: when a line names a leader (not -1: none), including lines of followers."""
        of_key = self._naming("leader", "follower", "isr_commit")
        return {key: [ms for ms, leader in named if leader >= 0] for key, named in of_key.items()}

    def leader_at(self, key: Key, ts_ms: int) -> int | None:
        """The leader of a partition, -1 if it has none; None if no line shows it."""
        times, brokers = self.leaders.get(key, ([], []))
        place = bisect_right(times, ts_ms)
        return brokers[place - 1] if place else None

    def leaderless(self, key: Key) -> list[Interval]:
        """When a partition had no leader."""
        times, leaders = self.leaders.get(key, ([], []))
        ends = [*times[1:], self.end_ms]
        return [(t, e) for t, b, e in zip(times, leaders, ends, strict=False) if b == -1]

    @cached_property
    def brokers(self) -> frozenset[int]:
        """Every broker that reports something or has a replica."""
        speakers = {row.broker for rows in self.rows.values() for row in rows}
        return frozenset(b for b in speakers | self.hosts if b is not None and b != -1)

    @cached_property
    def assigned(self) -> list[Statement]:
        """Rows that show a partition being given new replicas."""
        rows = (row for row in self.rows["leader"] + self.rows["sign"] if row.topic is not None)
        details = ((row, row.detail) for row in rows)
        return [row for row, d in details if d.get("adding") or d.get("sign") == "assigned"]

    @cached_property
    def cancelled(self) -> list[Statement]:
        """Cancelled reassignments: the last line in which replicas are being added, and the first
        newer line. No added replica was ever in the ISR, and none is a replica at the end."""
        rows = [row for kind in ("metadata", "leader", "isr_commit") for row in self.rows[kind]]
        of: dict[Key, list[Statement]] = defaultdict(list)
        for row in sorted(rows, key=_ms):
            if row.topic is not None and row.partition_epoch is not None:
                of[row.key].append(row)
        cancellations: list[Statement] = []
        for key in {row.key for row in rows if row.detail.get("adding")} & of.keys():
            last = max((n for n, row in enumerate(of[key]) if row.detail.get("adding")), default=-1)
            asked, added = of[key][last], set(of[key][last].ids("adding"))
            later = [r for r in of[key][last:]
                     if (r.partition_epoch or 0) > (asked.partition_epoch or 0)]  # fmt: skip
            lists = [set(ids) for row in later if (ids := row.ids("replicas"))]
            joined = any(added & {*(row.isr or ())} for row in of[key])
            if later and lists and not joined and not added & lists[-1]:
                cancellations += [asked, later[0]]
        return cancellations

    @cached_property
    def starts(self) -> list[Statement]:
        """Restarts of processes. A start at the beginning of a broker's log does not count; a busy
        machine may log it late, but before anything else.

        `__cluster_metadata` is left out: its last segment is recovered after every stop.
        """
        births = {row.broker: row.ts_ms for row in self.rows["log_start"]}
        for row in self._signs["starting"]:
            broker, ts_ms = row.broker, row.ts_ms
            born_ms = births.get(broker, self.start_ms)
            if ts_ms < born_ms + LATE_BIRTH_MS:
                reports = self.said("leader follower hosted isr_commit", (born_ms, ts_ms))
                if all(each.broker != broker for each in reports):
                    births[broker] = ts_ms
        return [
            row
            for row in self.rows["sign"]
            if row.detail["sign"] in STARTS
            and row.topic != METADATA_TOPIC
            and row.ts_ms > births.get(row.broker, self.start_ms) + BIRTH_MS
        ]

    @cached_property
    def restless_ms(self) -> dict[int | None, list[int]]:
        """When each broker had trouble or was restarted, in order."""
        times: dict[int | None, list[int]] = defaultdict(list)
        for row in sorted(self.troubles + self.starts, key=_ms):
            times[row.broker].append(row.ts_ms)
        return times

    @cached_property
    def stopped_ms(self) -> int | None:
        """When the first broker was asked to stop, if all brokers stopped at the end within a
        minute, most of them cleanly, and none was restarted.

        A start that names no broker may be that of any broker."""
        asked: dict[int, int] = {}
        died: set[int] = set()
        rows = self.said("crash restart sign", (self.end_ms - STOPPING_MS, self.end_ms))
        for row in sorted(rows, key=_ms):
            sign, broker = row.detail.get("sign"), about(row)
            if sign in STARTS or row.kind == "restart":
                asked = {} if broker is None else {b: ms for b, ms in asked.items() if b != broker}
                died.discard(broker or -1)
            elif broker is not None and sign == "stop_asked":
                asked.setdefault(broker, row.ts_ms)
            elif broker is not None and row.kind == "crash":
                died.add(broker)
        is_all = self.hosts and self.hosts <= died | asked.keys()
        is_all = is_all and len(self.hosts) < 2 * len(asked)
        return min(asked.values()) if is_all else None

    @cached_property
    def log_ends(self) -> dict[int, int]:
        """When the log of each broker ends, if it is known."""
        return {r.broker: r.ts_ms for r in self.rows["log_end"] if r.broker is not None}

    def overslept(self, span: Interval) -> list[Statement]:
        """Timeouts noticed long after they were due: the broker itself was not running."""
        late = []
        for row in self.said("sign", span, sign="waited"):
            waited, limit = (int(row.detail.get(n, 0)) for n in ("elapsed_ms", "limit_ms"))
            if limit and waited > OVERDUE * limit + OVERDUE_MS:
                late.append(row)
        return late

    @cached_property
    def late(self) -> dict[int | None, list[Statement]]:
        """By broker, in order of time: lines that report a version long after others did, although
        the broker waited for nothing in between: its process ran, and was slow."""
        first: dict[tuple[Key, int | None], dict[int | None, Statement]] = defaultdict(dict)
        for row in self.rows["metadata"]:
            if row.topic is not None and row.is_own and row.partition_epoch is not None:
                first[row.key, row.partition_epoch].setdefault(row.broker, row)
        late: dict[int | None, list[Statement]] = defaultdict(list)
        for rows in first.values():
            for broker, row in rows.items():
                others = [each.ts_ms for who, each in rows.items() if who != broker]
                since_ms = min(others, default=row.ts_ms)
                if row.ts_ms - since_ms >= LATE_MS:
                    waited = self.said("sign", (since_ms, row.ts_ms + LATE_MS), broker)
                    if not any(each.detail["sign"] in WAITING for each in waited):
                        late[broker].append(row)
        return {broker: sorted(rows, key=_ms) for broker, rows in late.items()}

    def said_of(self, sign: str) -> list[Statement]:
        """All rows of one sign, in order of time."""
        return self._signs.get(sign, [])

    def said(
        self, kinds: str, span: Interval, broker: int | None = None, **detail: str
    ) -> list[Statement]:
        """Rows of these kinds (separated by blanks) within a span whose `detail` has the given
        values; with `broker`, only those that are `about` it."""
        of_sign = self._signs.get(detail.get("sign", ""), [])
        return [
            row
            for kind in kinds.split()
            for row in in_span(of_sign if "sign" in detail else self.rows[kind], span)
            if (broker is None or about(row) == broker)
            and all(row.detail.get(name) == value for name, value in detail.items())
        ]

    @cached_property
    def _signs(self) -> dict[str, list[Statement]]:
        """Rows of the kind `sign`, by name."""
        named: dict[str, list[Statement]] = defaultdict(list)
        for row in self.rows["sign"]:
            named[row.detail["sign"]].append(row)
        return named


def in_span(rows: Sequence[Statement], span: Interval) -> Sequence[Statement]:
    """The rows within a span, its end included; `rows` are in order of time."""
    return rows[bisect_left(rows, span[0], key=_ms) : bisect_right(rows, span[1], key=_ms)]


def teller(out: Absence) -> int | None:
    """The broker whose log reports that a replica left."""
    return out.left.broker if out.left else None


def about(row: Statement) -> int | None:
    """The `replica` of a crash, a restart or a row that another source reports; else the author."""
    of_others = row.kind in ("crash", "restart") or "said_by" in row.detail
    return row.replica if of_others and row.replica is not None else row.broker


def covers(absence: Absence, ts_ms: int) -> bool:
    """Whether the absence includes this moment."""
    return absence.start_ms <= ts_ms and (absence.end_ms is None or ts_ms < absence.end_ms)


def clock(ts_ms: int | None) -> str:
    """A moment in UTC, with milliseconds; "not over" for None."""
    if ts_ms is None:
        return "not over"
    moment = datetime.fromtimestamp(ts_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ts_ms % 1000:03d}"


def _by_kind(events: list[Statement], kinds: tuple[str, ...]) -> dict[str, list[Statement]]:
    rows: dict[str, list[Statement]] = {kind: [] for kind in kinds}
    for row in sorted(events, key=_ms):
        if row.kind in rows:
            rows[row.kind].append(row)
    return rows
