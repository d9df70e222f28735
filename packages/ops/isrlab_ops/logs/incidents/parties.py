"""Which absences belong together, and which party caused them.

Theory of operation. Absences whose beginnings or ends follow each other within `QUIET_MS` are one
*episode*. It may have several causes: each absence is attributed to one *party*, in this order.

1. Brokers that die and restart together, most brokers losing ZooKeeper, or a controller that fences
   several brokers at one moment: these explain the absences they caused.
2. A broker whose process stopped or died, whose session was lost, whose disk failed: its own
   absences.
3. The rest are pairs (leader, removed replica). A frozen follower is removed by all its leaders, a
   slow leader removes all its followers: the broker with most pairs in *one* role, with more than
   one other broker, gets these pairs; and so on. A broker that is already a party needs no second
   witness: a leader that was paused or disconnected removes healthy followers.
4. If no role decides, the broker paired with several others gets them. If there are only two, and a
   third leader reaches the removed one, which runs, it is the link between them; without further
   evidence it is the removed one.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from isrlab.events.exact import Absence
from isrlab.events.spans import Interval
from isrlab.events.statements import Statement
from isrlab_ops.logs.history.record import Record, about, covers, in_span, teller
from isrlab_ops.logs.history.scene import is_within
from isrlab_ops.logs.incidents.contact import failures, lost
from isrlab_ops.logs.incidents.controllers import elections

QUIET_MS = 30_000
BEFORE_MS = 60_000  # a cause shows at most this long before its first effect
OPEN = 20  # episodes that may be open at one time
SAME_EVENT_MS = 2_000  # lines this close together are about one event
BLINK_MS = 500
KEPT_MS = 5_000  # leaders check for out-of-sync replicas every half lag limit, not at the same time
SOON_MS = 10_000  # the longest that a restarted broker takes to return
GONE_SIGNS = ("stop_asked", "session_lost", "disk_full", "out_of_resources")


class Party(NamedTuple):
    """The cause of absences or losses, such as a broker, a link between two, or the cluster."""

    kind: str  # one of `facts.PARTIES`
    brokers: tuple[int, ...] = ()


@dataclass
class Episode:
    """Absences, and rows of other troubles (replicas that failed, no leader)."""

    outs: list[Absence]
    troubles: list[Statement] = field(default_factory=list)

    @property
    def span(self) -> Interval:
        """From the first absence or trouble to the last return or beginning."""
        times = [out.start_ms for out in self.outs] + [row.ts_ms for row in self.troubles]
        ends = [out.end_ms for out in self.outs if out.end_ms is not None]
        return min(times), max([*times, *ends])


def episodes(record: Record) -> list[Episode]:
    """Absences and troubles grouped by time, in order."""
    things: list[tuple[int, Absence | Statement]] = [(out.start_ms, out) for out in record.outs]
    things += [(row.ts_ms, row) for row in record.troubles]
    grouped: list[tuple[Episode, list[int]]] = []  # each with its moments, in order
    for ts_ms, each in sorted(things, key=lambda thing: thing[0]):
        apart_ms = record.apart_ms(teller(each) if isinstance(each, Absence) else each.broker)
        reach = range(ts_ms - apart_ms, ts_ms + apart_ms + 1, QUIET_MS)
        near = (h for h in reversed(grouped[-OPEN:]) if any(_is_close(ms, h[1]) for ms in reach))
        home = next(near, None)
        if home is None:
            home = Episode([]), []
            grouped.append(home)
        episode, moments = home
        insort(moments, ts_ms)
        if not isinstance(each, Absence):
            episode.troubles.append(each)
            insort(moments, ts_ms + QUIET_MS)  # its effect comes up to the lag limit later
            continue
        episode.outs.append(each)
        if each.end_ms is not None:
            insort(moments, each.end_ms)
    return [episode for episode, _ in grouped]


def _is_close(ts_ms: int, moments: list[int]) -> bool:
    place = bisect_left(moments, ts_ms)
    return any(abs(ts_ms - moment) <= QUIET_MS for moment in moments[max(0, place - 1) : place + 1])


def parties(episode: Episode, record: Record) -> dict[Party, list[Absence]]:
    """The parties of an episode's absences, the largest first."""
    given: dict[Party, list[Absence]] = defaultdict(list)
    rest = episode.outs
    first, last = episode.span
    apart_ms = record.apart_ms(*record.alone)
    span = (first - BEFORE_MS - apart_ms, last + SOON_MS + apart_ms)
    of_one = [(Party("broker", (b,)), frozenset({b})) for b in sorted({o.replica for o in rest})]
    for party, brokers in (*_of_all(rest, span, record), *of_one):
        taken = [out for out in rest if _is_explained(out, party, brokers, record)]
        given[party] += taken
        rest = without(rest, taken)
    while rest:
        known = {b for p, outs in given.items() if outs and p.kind == "broker" for b in p.brokers}
        party, taken = _largest(rest, known, record)
        given[party] += taken
        rest = without(rest, taken)
    most_first = sorted(given.items(), key=lambda each: -len(each[1]))
    return {p: outs for p, outs in most_first if outs or p.kind in ("cluster", "zookeeper")}


def without(outs: list[Absence], taken: list[Absence]) -> list[Absence]:
    places = set(map(id, taken))  # comparing rows is slow
    return [out for out in outs if id(out) not in places]


def _of_all(
    outs: list[Absence], span: Interval, record: Record
) -> list[tuple[Party, frozenset[int]]]:
    """Causes that affect many brokers, and which brokers."""
    parties = []
    stops = record.said("sign", span, sign="stop_asked")
    near = [row for row in in_span(record.starts, span) if row.detail["sign"] == "starting"]
    started = {row.broker: row.ts_ms for row in near if row.broker is not None}
    in_order = {about(row) for row in stops}
    missed = [out.start_ms for out in outs if covers(out, started.get(out.replica, 0))]
    first_ms = min([*started.values(), *missed], default=0)
    died = {
        broker: ts
        for broker, ts in started.items()
        if broker not in in_order and not _spoke(broker, (first_ms, ts - 1), record)
    }
    at_once_ms = BEFORE_MS + record.apart_ms(*died)
    if len(died) > 1 and max(died.values()) - min(died.values()) <= at_once_ms:
        silent = record.hosts - record.log_ends.keys()  # likely dead if all others are
        down = record.hosts if record.hosts - silent <= died.keys() else frozenset(died)
        parties.append((Party("cluster", tuple(sorted(died))), down))
    lost = {about(r) for r in record.said("sign", span, sign="session_lost")}
    gone = {about(r) for r in record.said("sign", span, sign="zookeeper_gone")}
    if len(lost | gone) > max(1, len(record.brokers) // 2):
        parties.append((Party("zookeeper"), frozenset(b for b in lost | gone if b is not None)))
    return parties + _of_a_controller(span, record)


def _spoke(broker: int, span: Interval, record: Record) -> bool:
    """Whether a broker ran while another was missed, so that they did not stop together."""
    rows = record.said("isr_shrink isr_commit", span, broker)
    before = (span[0] - BEFORE_MS, span[1])
    missed = record.said("sign", before, broker, sign="not_listening")  # another one
    is_alone = bool(missed) and missed[-1].ts_ms - missed[0].ts_ms > SAME_EVENT_MS
    return is_alone or any(row.broker == broker for row in rows)


def _of_a_controller(span: Interval, record: Record) -> list[tuple[Party, frozenset[int]]]:
    """A controller that fences itself, or fences brokers that soon return (several together, or
    while several get no answer). A new one does not count: its predecessor failed to answer."""
    fenced = [r for r in record.said("crash", span, cause="fenced") if not _is_replay(r, record)]
    by: dict[int, set[int]] = defaultdict(set)
    for row in fenced:
        if row.broker is None or row.replica is None:
            continue
        near = (row.ts_ms - BEFORE_MS, row.ts_ms + SAME_EVENT_MS)
        unheard = {r.broker for r in record.said("sign", near, sign="heartbeat_failed")}
        at_once = {r.replica for r in in_span(fenced, (row.ts_ms - SAME_EVENT_MS, near[1]))}
        back = record.said("restart", (row.ts_ms, near[1] + SOON_MS), row.replica)
        is_back = any(r.detail.get("cause") == "unfenced" for r in back)
        is_back &= not _went(row.replica, near, record)
        is_back &= not elections(record, near)
        is_back &= not record.said("sign", near, sign="controller_lost")
        is_all = is_back and (len(unheard) > 1 or len(at_once) > 1)
        if (is_all or _fences_itself(row, fenced, record)) and row.broker != row.replica:
            by[row.broker].add(row.replica)
    return [(Party("controller", (who,)), frozenset(whom)) for who, whom in by.items() if who]


def _fences_itself(row: Statement, fenced: list[Statement], record: Record) -> bool:
    """Whether a controller fenced itself by decision (a replay names the epoch), not at a start."""
    who, near = row.broker, (row.ts_ms - SAME_EVENT_MS, row.ts_ms + SAME_EVENT_MS)
    own = (r for r in fenced if r.broker == who == r.replica and near[0] <= r.ts_ms)
    decided = any(r.ts_ms <= near[1] and "broker_epoch" not in r.detail for r in own)
    return decided and not _went(who, (row.ts_ms - BEFORE_MS, near[1]), record)


def _is_replay(fenced: Statement, record: Record) -> bool:
    """Whether a new controller replays the past: it has just unfenced the broker it fences."""
    before = (fenced.ts_ms - SAME_EVENT_MS, fenced.ts_ms)
    rows = record.said("restart", before, fenced.replica, cause="unfenced")
    return any(row.broker == fenced.broker for row in rows)


def _went(broker: int | None, span: Interval, record: Record) -> bool:
    """Whether a broker's process was stopped or restarted within a span."""
    near = in_span(record.starts, (span[0], span[1] + SOON_MS))
    is_started = any(row.broker == broker for row in near)
    return is_started or bool(record.said("sign", span, broker, sign="stop_asked"))


def _is_explained(out: Absence, party: Party, brokers: frozenset[int], record: Record) -> bool:
    """Whether a cause shows near the beginning of an absence of these brokers, before it ends."""
    if out.replica not in brokers:
        return False
    end_ms = record.end_ms if out.end_ms is None else out.end_ms
    apart_ms = record.apart_ms(out.replica, teller(out))
    until_ms = min(out.start_ms + BEFORE_MS, end_ms + SAME_EVENT_MS)
    near = (out.start_ms - BEFORE_MS - apart_ms, until_ms + apart_ms)
    own = is_within(record.restless_ms.get(out.replica, ()), *near)
    is_gone = any(record.said("sign", near, out.replica, sign=name) for name in GONE_SIGNS)
    is_lost = out.end_ms is None and out.replica in lost(record)
    return own or is_gone or is_lost or bool(record.said("crash", near, out.replica))


def _largest(outs: list[Absence], known: set[int], record: Record) -> tuple[Party, list[Absence]]:
    """The broker or link with most of these absences, and those absences."""
    sides: dict[tuple[str, int], list[Absence]] = defaultdict(list)
    for out in outs:
        roles = (("replica", out.replica), ("leader", _evictor(out, record)))
        for role, broker in roles:
            if broker is not None:
                sides[role, broker].append(out)
                sides["either", broker].append(out)

    def strength(side: tuple[str, int]) -> tuple[bool, bool, int, bool]:
        role, broker = side
        others = {b for out in sides[side] for b in (out.replica, _evictor(out, record))} - {broker}
        is_sure = broker in known or len(others - {None}) > 1 or others == {None}
        return is_sure and role != "either", is_sure, len(sides[side]), role != "leader"

    best = max(sides, key=strength)
    if strength(best)[1]:
        return Party("broker", (best[1],)), sides[best]
    pair = sides["either", best[1]]
    return _of_a_pair(pair, record), pair


def _evictor(out: Absence, record: Record) -> int | None:
    """The leader that evicted the replica; if no line shows one, the leader at that time."""
    leader = out.leader or record.leader_at(out.key, out.start_ms)
    return None if leader in (-1, out.replica) else leader


def _of_a_pair(outs: list[Absence], record: Record) -> Party:
    """For one leader and one replica: the one that did not run, if a line shows it; the one that
    immediately readmits all it removed, because its clock had jumped; the link if both remove each
    other or another leader keeps the replica; else the replica."""
    is_told = any(out.leader for out in outs)  # else a controller may have taken them
    replica, leader = outs[0].replica, _evictor(outs[0], record) if is_told else None
    is_both_ways = any(out.replica != replica for out in outs)
    near = (outs[0].start_ms - BEFORE_MS, max(out.start_ms for out in outs) + SOON_MS)
    slept = {row.broker for row in record.overslept(near)} & {replica, leader}
    removed: dict[int, list[Absence]] = defaultdict(list)
    for out in outs:
        removed[_evictor(out, record) or 0].append(out)
    jumped = {who for who, its in removed.items() if leader and all(map(is_back_at_once, its))}
    for brokers in (slept, jumped):
        if len(brokers) == 1:
            return Party("broker", tuple(who for who in brokers if who))
    if leader and (is_both_ways or all(_is_reached_by_others(out, record) for out in outs[:20])):
        return Party("link", tuple(sorted((replica, leader))))
    return Party("broker", (replica,))


def is_back_at_once(out: Absence) -> bool:
    """Whether the replica rejoined so soon that it must have been running all the time."""
    end_ms = out.end_ms
    return end_ms is not None and end_ms - out.start_ms < BLINK_MS


def _is_reached_by_others(out: Absence, record: Record) -> bool:
    """Whether another leader keeps this replica in its ISR for the whole, long enough absence, no
    other broker fails to reach it, and its own log goes on, or it is back."""
    span = out.start_ms, record.end_ms if out.end_ms is None else out.end_ms
    last_ms = record.log_ends.get(out.replica, 0)
    runs = last_ms > out.start_ms + KEPT_MS or (last_ms and out.end_ms is not None)
    failed = failures(record, out.replica, span)
    if span[1] - span[0] < KEPT_MS or not runs or {r.broker for r in failed} - {out.leader}:
        return False
    for key, spans in record.spans.items():
        leader = record.leader_at(key, out.start_ms)
        if leader in (None, -1, out.replica, out.leader):
            continue
        during = [s for s in spans if s.start_ms < span[1] and s.end_ms > span[0]]
        if during and all(out.replica in each.isr for each in during):
            return True
    return False
