"""A partition's recorded history as a scenario that the engine plays. Random runs can then continue
from each of its steps, which shows when a loss was decided.

Theory of operation. Logs show when a broker was gone and back, which ISR and leader were stored,
and where logs ended: when one was loaded or truncated, when a leader began or asked for an ISR.
These are taken in order. A broker that was gone is killed (shut down, if it logs so; paused, if it
is back without a start), and before that its log gets the records that it will load again.
One record stands for all offsets that no line tells apart. To reach a stored state the engine
delivers what is on its way, waits, or lets sessions expire: the first of these after which leader
and ISR are those of the log. If none does, that is an error.

Stored states must be the engine's. Ends of logs that it was not given are compared with its own.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import NamedTuple

from isrlab.engine.versions import KafkaVersion, release
from isrlab.events.statements import Key, Statement
from isrlab.events.wording import counted, printable
from isrlab.world.actions import play_line
from isrlab.world.cluster import NotSettledError
from isrlab.world.script import Run
from isrlab.world.words import ids
from isrlab_ops.logs.history.record import STOPPING_MS, Record, about, clock
from isrlab_ops.logs.incidents.contact import failures
from isrlab_ops.logs.incidents.leaderless import Downtime, downs
from isrlab_ops.logs.incidents.losses import losses

_ms = attrgetter("ts_ms")
AWAY = ("fetch_failed", "not_listening")  # signs that a broker cannot be reached
ENDS = ("isr_shrink", "leader", "truncate")
WAIT = "advance 45s"
WAYS = (  # to a stored state, the least first
    (), ("stabilize",), (WAIT,), ("elect", "stabilize"), ("stabilize", WAIT),
    ("elect preferred", "stabilize"),
)  # fmt: skip
LEFT_OUT = (
    "Left out, because no line shows it: which records were acknowledged and with which acks; each "
    "fetch and each message on its way (between two lines the engine delivers everything, but for "
    "what is shown not to have arrived); how long things took (the engine waits until it stores "
    "what the log shows).",
    "The engine has only this partition: its controller and brokers have nothing else to do.",
)


class Retold(NamedTuple):
    """A scenario with a comment at each step: when that was, and which line shows it."""

    text: str
    states: int  # stored states that the engine also has
    ends: int  # ends of logs that it has
    differs: tuple[str, ...]  # ends of logs that the engine does not have
    assumed: str

    @property
    def how(self) -> str:
        """The results of the comparison, the assumptions, and the limits, in words."""
        ends = counted(self.ends + len(self.differs), "end")
        held = f"Held against the logs: all {counted(self.states, 'stored state')} and {self.ends} "
        held += f"of {ends} of replicas' logs are the same in the engine."
        return "\n".join([held, *self.differs, f"Assumed: {self.assumed}.", *LEFT_OUT])


class _Moment(NamedTuple):
    ts_ms: int
    rank: int  # order within one moment: departures, returns, states, log ends
    kind: str  # gone, noticed, back, state, end
    row: Statement
    broker: int | None = None
    line: str = ""  # the command for the engine
    end: Statement | None = None  # shows where the log of `broker` ends


def retold(record: Record, key: Key, min_isr: int | None = None) -> Retold:
    """The history of one partition. Raises ValueError where logs show too little, or events
    that the engine does not have."""
    kinds = ("isr_commit", "offline", "hosted", *ENDS)
    rows = [row for kind in kinds for row in record.rows[kind] if row.key == key]
    stored = [r for r in rows if r.kind == "isr_commit" and r.isr and r.leader is not None]
    first = min(stored, key=_ms, default=None)
    if first is None or first.leader is None or first.leader < 0:
        raise ValueError(f"no line shows leader and ISR of {key.topic}-{key.partition}")
    releases = {row.detail["release"] for row in record.said_of("release")}
    if not releases:
        raise ValueError("no line names the release of these brokers")
    is_unclean = any(loss.kind == "unclean" and loss.key == key
                     for group in losses(record) for loss in group)  # fmt: skip
    settings = f"min.insync.replicas={min_isr or 1} unclean.leader.election.enable="
    settings += "true" if is_unclean else "false"
    replicas, isr = sorted(record.replicas[key]), sorted(first.isr or ())
    setup = f"partition leader={first.leader} replicas={ids(replicas)} isr={ids(isr)} {settings}"
    teller = _Teller(KafkaVersion.of(max(releases, key=release)), setup)
    moments = [*_of_brokers(record, key, replicas), *_of_rows(rows, first)]
    moments.sort(key=lambda each: each[:2])
    try:
        for place, moment in enumerate(moments):
            teller.tell(moment, moments[place:])
    except NotSettledError as error:
        raise ValueError(f"{clock(moment.ts_ms)}: {error}") from None
    return Retold("\n".join(teller.lines) + "\n", teller.states, teller.ends,
                  tuple(teller.differs), settings)  # fmt: skip


def _of_brokers(record: Record, key: Key, replicas: Sequence[int]) -> Iterator[_Moment]:
    """When each replica was gone, when the controller noticed, and when it was back."""
    for down in downs(record):
        b, until_ms = down.broker, down.to_ms
        if b not in replicas:
            continue
        asked = [r for r in record.said_of("stop_asked")
                 if r.broker == b and 0 <= down.from_ms - r.ts_ms <= STOPPING_MS]  # fmt: skip
        row = asked[-1] if asked else _first_sign(record, down)
        starts = [r for r in record.starts if r.broker == b and row.ts_ms < r.ts_ms <= until_ms]
        back = [r for r in record.rows["restart"] if about(r) == b and r.ts_ms == until_ms]
        is_over = until_ms <= record.end_ms
        loaded = [r for r in record.said_of("loaded") if r.key == key and r.broker == b
                  and starts and r.ts_ms >= starts[0].ts_ms]  # fmt: skip
        is_dead = starts or asked or not is_over
        how = "clean_shutdown" if asked else "kill" if is_dead else "pause"
        yield _Moment(row.ts_ms, 0, "gone", row, b, f"{how} {b}", loaded[0] if loaded else None)
        yield _Moment(down.from_ms, 1, "noticed", down.row, b, "elect")
        if is_over:
            row, how = (starts or back or [down.row])[0], "start" if is_dead else "resume"
            yield _Moment(starts[0].ts_ms if starts else until_ms, 1, "back", row, b, f"{how} {b}")


def _first_sign(record: Record, down: Downtime) -> Statement:
    """The first line that shows a broker down; the controller notices later."""
    own = (r.ts_ms for rows in record.rows.values() for r in rows if r.broker == down.broker)
    spoke = max((ms for ms in own if ms < down.from_ms), default=0)
    return next(iter(failures(record, down.broker, (spoke, down.from_ms), AWAY)), down.row)


def _of_rows(rows: Sequence[Statement], first: Statement) -> Iterator[_Moment]:
    """The states stored after the first one, and the ends of logs."""
    hosts = set[int | None]()
    for row in sorted(rows, key=_ms):
        if row.kind == "hosted" and row.detail.get("dir"):
            if row.broker in hosts:
                raise ValueError(f"broker {row.broker} came back without its log; no fault of the "
                                 "engine does that")  # fmt: skip
            hosts.add(row.broker)
        elif row.ts_ms <= first.ts_ms:
            continue
        elif row.kind == "isr_commit" or (row.kind == "offline" and not row.is_own):
            yield _Moment(row.ts_ms, 2, "state", row)  # a broker that starts reads old states
        elif row.kind in ENDS and row.is_own and row.log_end_offset is not None:
            yield _Moment(row.ts_ms, 3, "end", row, row.broker, end=row)


class _Teller:
    """The engine, led from one moment of the logs to the next."""

    def __init__(self, version: KafkaVersion, setup: str) -> None:
        self.run = Run([], version)
        play_line(self.run, setup)
        self.lines, self.differs = [f"version {version.name}", setup], list[str]()
        self.leader: int | None = self.run.cluster.controller.leader  # the last to report its end
        self.states = self.ends = 0

    def tell(self, moment: _Moment, rest: Sequence[_Moment]) -> None:
        cluster, broker, row = self.run.cluster, moment.broker, moment.row
        is_up = broker in cluster.brokers and cluster.paused.get(broker or 0) != "process"
        match moment.kind:
            case "gone" if is_up:
                self._fill(moment, rest)
                heals = [f"heal {a} {b}" for a, b in map(sorted, cluster.cuts)]
                self._play(row, moment.line, *heals)
            case "noticed" if cluster.out_of_reach:
                self._play(row, moment.line, "stabilize")
            case "back" if not is_up:
                self._play(row, moment.line)
            case "state":
                self._reach(row)
            case "end" if row.kind == "isr_shrink" or (row.kind, broker) == ("leader", self.leader):
                self._fill(moment, rest)
            case "end":
                self._compare(moment)
                self.leader = broker if row.kind == "leader" else self.leader

    def _play(self, row: Statement, *lines: str, proof: Statement | None = None) -> None:
        proof = proof or row
        where = f"  {proof.file}:{proof.line}" if proof.file else ""
        for line in lines:
            play_line(self.run, line)
            self.lines.append(f"{line}  # {clock(row.ts_ms)}{printable(where)}")

    def _end(self, broker: int | None) -> int:
        """Where a broker's log ends, in offsets of the logs."""
        live = self.run.cluster.brokers.get(broker or 0)
        records = (live.log if live else self.run.cluster.disks[broker or 0]).records
        return int(records[-1].id.partition("..")[2].rstrip("'")) + 1 if records else 0

    def _fill(self, moment: _Moment, rest: Sequence[_Moment]) -> None:
        """Let logs grow to the end shown, in steps if other logs are shown to end earlier."""
        cluster, end = self.run.cluster, moment.end.log_end_offset if moment.end else None
        if end is None or moment.end is None:
            return
        leader = cluster.controller.leader
        ends = {each.end.log_end_offset for each in rest if each.end} - {None}
        for until in sorted(int(each or 0) for each in ends if (each or 0) <= end):
            if leader not in cluster.brokers or self._end(leader) >= until:
                continue
            others = sorted({*cluster.brokers} - {leader, *cluster.paused})
            idle = (other for other in others if _next_end(other, rest) < until)
            cuts = [f"cut {leader} {b}" for b in idle if not cluster.is_cut(leader, b)]
            name = f"{self._end(leader)}..{until - 1}"
            while any(name in request.ids for request in cluster.requests):
                name += "'"
            self._play(moment.row, *cuts, f"produce {leader} {name}", "stabilize", proof=moment.end)
        if moment.broker != leader:
            self._compare(moment)

    def _reach(self, row: Statement) -> None:
        """Reach the stored leader and ISR, or for an offline partition a state without a leader."""
        for lines in WAYS:
            tried = deepcopy(self.run)
            try:
                for line in lines:
                    play_line(tried, line)
            except (ValueError, NotSettledError):
                continue
            state = tried.cluster.controller
            is_led = row.leader in (None, state.leader)
            if is_led and (not row.isr or {*state.isr} == {*row.isr}):
                self._play(row, *lines)
                self.states += 1
                return
        state = self.run.cluster.controller
        raise ValueError(f"{clock(row.ts_ms)}: the log shows leader {row.leader}, ISR "
                         f"{ids(row.isr or ())}, and the engine has leader {state.leader}, ISR "
                         f"{ids(state.isr)}")  # fmt: skip

    def _compare(self, moment: _Moment) -> None:
        """Compare a log's end with the engine's; before a truncation, messages are delivered."""
        end = moment.end.log_end_offset if moment.end else None
        if self._end(moment.broker) != end and moment.row.kind == "truncate":
            self._play(moment.row, "stabilize")
        here = self._end(moment.broker)
        self.ends += here == end
        if here != end:
            self.differs.append(f"{clock(moment.ts_ms)}: the log of broker {moment.broker} ends at "
                                f"{end}, and in the engine at {here}")  # fmt: skip


def _next_end(broker: int, rest: Sequence[_Moment]) -> float:
    """The end of a broker's log, by the next line that shows it."""
    ends = (m.end.log_end_offset for m in rest if m.broker == broker and m.end)
    return next((end for end in ends if end is not None), math.inf)
