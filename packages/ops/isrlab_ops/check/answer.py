"""The answer of a check: about ten lines of text, and values for a program."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from math import isinf
from operator import attrgetter
from typing import Any

from isrlab.events import wording
from isrlab.events.wording import counted, duration, printable
from isrlab.pace import catch_up_s
from isrlab.world import words
from isrlab_ops.check import risks, what_if
from isrlab_ops.check.cluster import ClusterState
from isrlab_ops.check.outcome import FAILURES, FEW, NO_MAJORITY, Effect, Shapes
from isrlab_ops.check.outcome import BlockingPartition as Blocks
from isrlab_ops.logs.incidents import exposed
from isrlab_ops.logs.incidents.answer import AnswerRow, LogAnswer

ALL_WELL, WRONG, NOT_KNOWN = 0, 1, 2  # exit status, as of `logs`
first = attrgetter("first")
MOST = 3  # brokers or partitions named in a line
_listed = partial(wording.listed, most=MOST)
LEAST_COPIES = 2  # in sync that a common restart leaves


@dataclass(frozen=True)
class CheckQuestion:
    """The question: brokers to restart together (if none, each is checked alone), brokers that
    fail, a plan, patterns of topics that may be unavailable, and the inputs of the wait."""

    restart: frozenset[int] = frozenset()
    down: frozenset[int] = frozenset()
    move: what_if.PlannedMove | None = None
    change: str = ""  # of min.insync.replicas
    ignored: tuple[str, ...] = ()
    down_s: float | None = None
    load: float | None = None


class ClusterCheck:
    """The results: what blocks a restart of the given brokers, of each live broker, of each zone;
    partitions that refuse acks=all, with leaders; exposures, risks, a roll, a failure's effect."""

    def __init__(self, state: ClusterState, question: CheckQuestion) -> None:
        def is_ignored(topic: str) -> bool:
            return any(fnmatchcase(topic, name) for name in question.ignored)

        ignored = {topic for topic in {p.topic for p in state.partitions} if is_ignored(topic)}
        kept = [p for p in state.partitions if p.topic not in ignored]
        self.state, self.question = replace(state, partitions=kept), question
        self.exposures, self.risks = risks.exposures(self.state), risks.risks(self.state)
        doubtful = {e.key[1:] for e in self.exposures if e.why in ("came back", "being added")}
        shapes, up, zones = Shapes(self.state, doubtful), sorted(state.alive), state.zones
        groups = [question.restart, *(frozenset({b}) for b in up), *zones.values()]
        self.asked, *blocks = shapes.blocks(groups)
        for p in kept if not self.asked else ():
            left = {*p.isr} - question.restart
            if len(left) < min(LEAST_COPIES, len(p.isr) - 1):
                self.asked.append(Blocks(p, FEW, False))
        self.brokers = dict(zip(up, blocks, strict=False))
        self.zones = dict(zip(zones, blocks[len(up) :], strict=True))
        self.refusing, free = shapes.effect().refuse, [b for b in up if not self.brokers[b]]
        stops = groups[:1] if question.restart else [frozenset({b}) for b in free]
        self.later = [] if state.unsure else shapes.later(stops)
        self.down = shapes.effect(question.down, False) if question.down else None
        is_safe = self.status == ALL_WELL and not question.restart
        self.roll = roll(self.state) if is_safe else []

    @property
    def status(self) -> int:
        blocked = any(self.brokers.values()) or not self.brokers
        is_bad = blocked or self.refusing or self.exposures
        wrong = self.asked or self.later or (is_bad and not self.question.restart)
        return WRONG if wrong else NOT_KNOWN if self.state.unsure else ALL_WELL

    @property
    def title(self) -> str:
        if self.status != WRONG:
            return "NOT KNOWN" if self.status else "SAFE"
        if self.asked or (any(self.brokers.values()) and not self.question.restart):
            return "BLOCKED"
        return "EXPOSED" if self.exposures or self.later else "WRONG NOW"

    @property
    def says(self) -> str:
        """Which brokers may go down."""
        free, total = [b for b, blocks in self.brokers.items() if not blocks], len(self.brokers)
        restart, is_free = self.question.restart, len(free) == total > 0
        if self.state.unsure and not self.asked and (restart or is_free):
            who = exposed.named(restart) if restart else counted(total, "broker")
            return f"What is shown keeps none of {who} from going down; what is missing may."
        but = ", but two more failures would lose records" * bool(self.later)
        if restart or is_free:
            may = "may not" if self.asked else "may"
            who = _named(restart) if restart else f"Each of {counted(total, 'broker')}"
            return f"{who} {may} go down now{', one at a time' * (not restart)}{but}."
        which = f": {words.ids(free)}" * bool(free)
        if len(free) > total / 2:
            which = f": all but {words.ids(b for b in self.brokers if b not in free)}"
        may = "may go down now" + ", as far as the source shows" * bool(self.state.unsure)
        of = f"Of {counted(total, 'broker')} {len(free) or 'none'} {may}{which}."
        return of if total else "No broker is up."


def roll(state: ClusterState) -> list[list[int]]:
    """The node of each step of a rolling restart: voters go down after all other brokers, and the
    active controller at the very end, because its stop makes the others elect a new one."""
    voters, last = ({*q.replicas}, q.leader) if (q := state.quorum) else (set(), -1)
    order = sorted(state.nodes, key=lambda b: (b == last, b in voters, state.racks.get(b, ""), b))
    return [[node] for node in order]


def answer_of(check: ClusterCheck) -> LogAnswer:
    """The check in words."""
    rows = tuple(AnswerRow(label, printable(text)) for label, text in _rows(check).items() if text)
    return LogAnswer(check.status, check.title, check.says, 0, rows, (), (), ())


def _rows(check: ClusterCheck) -> dict[str, str]:
    state, question, blocked = check.state, check.question, []
    for b, blocks in check.brokers.items():
        blocked += [f"broker {b}: {_why(blocks)}"] * bool(blocks)
    more = [f"{counted(len(blocked) - MOST, 'more broker')}: --json"] * (len(blocked) > MOST)
    copying = {b for p in state.partitions for b in p.adding} & state.racks.keys() - state.alive
    not_up = state.racks.keys() - state.alive - copying
    leaderless = sum(leader < 0 for leader in check.refusing.values())
    counts = [len({p.topic for p in state.partitions}), len(state.partitions), len(state.racks)]
    read = ", ".join(map(counted, counts, ("topic", "partition", "broker")))
    return {
        "Unsure": ". ".join(state.unsure),
        "Do": _do(check),
        "Not up": _named(not_up) * bool(not_up),
        "Copying": f"{_named(copying)}, in no ISR yet" * bool(copying),
        "Now": f"{_refusing([*check.refusing])} already; {leaderless:,} have no leader"
               * bool(check.refusing),
        "Blocks": _why(check.asked) if question.restart else ". ".join(blocked[:MOST] + more),
        "Zones": "; ".join(f"{zone} {'blocks: ' + _why(b) if b else 'may go down whole'}"
                           for zone, b in check.zones.items()) * (len(check.zones) > 1),
        "Strimzi": "; ".join(f"it keeps broker {b} up because of {name} (acks=all)"
                             for b, name in state.held.items()),
        "Voters": _voters(state), "Then": _then(check), "Roll": _roll(check),
        "Wait": _wait(question),
        **dict(text.split(": ", 1) for text in exposed.shown(check.exposures)),
        "Risks": risks.shown(check.risks),
        "Undo": risks.removal(state),
        "If down": _lost(check, question.down, check.down) if check.down else "",
        "If moved": _moved(state, question.move) if question.move else "",
        "If changed": _changed(state, question.change) if question.change else "",
        "Unseen": state.unseen,
        "Read": f"{state.source}: {read}; Kafka {_releases(state)}",
    }  # fmt: skip


def _releases(state: ClusterState) -> str:
    """The oldest and newest release; for 3.3 to 3.9 also the mode, unless it is KRaft."""
    ends = (choose(state.versions, key=first).name.partition(" ")[0] for choose in (min, max))
    modes = {v.kraft for v in state.versions if (3, 3) <= v.first < (4, 0)}
    both = " by the rules of KRaft and of ZooKeeper (--zookeeper or --kraft decides)"
    mode = both if len(modes) > 1 else " with ZooKeeper" if modes == {False} else ""
    return " to ".join(dict.fromkeys(ends)) + mode


def _why(blocks: Sequence[Blocks]) -> str:
    if not blocks:
        return ""
    p, why, _ = blocks[0]
    what, capped = "up" if why == NO_MAJORITY else "ISR", (p.min_isr or 0) > len(p.replicas)
    text = f"{p.name}, {why} ({what} {words.ids(p.isr) or 'empty'} of {words.ids(p.replicas)}, min "
    text += f"{p.min_isr}{' capped' * capped})"
    return text + f" and {len(blocks) - 1:,} more" * (len(blocks) > 1)


def _do(check: ClusterCheck) -> str:
    """Which broker to start, or to wait for, before one may go down."""
    blocks = [check.asked] if check.asked else check.brokers.values()
    parts = [block.partition for each in blocks for block in each]
    out = {b for p in parts for b in p.replicas if b not in p.isr}
    dead, behind = out - check.state.alive, out & check.state.alive
    lines = [f"start {exposed.named(dead)}"] * bool(dead)
    lines += [f"wait until every ISR has {exposed.named(behind)}"] * bool(behind)
    return "; ".join(lines) * (check.title == "BLOCKED")


def _voters(state: ClusterState) -> str:
    """The voters, if some of them are brokers."""
    voters = state.quorum
    if not voters or state.racks.keys().isdisjoint(voters.replicas):
        return ""
    active = voters.leader if voters.leader >= 0 else "not known"
    spare = max(0, len(voters.isr) - (voters.min_isr or 0))
    up = f"{words.ids(voters.replicas)} (up: {words.ids(voters.isr)}; active controller: {active})"
    return f"{up}; {spare or 'none'} of those up may be down at a time"


def _then(check: ClusterCheck) -> str:
    """What was tried on the stops that are called safe, and what is assumed."""
    if not check.later:
        tried = f"no order of {FAILURES} more failures and a return loses a record. Assumed: "
        tried += "acks=all, disks keep what is written, ISRs and voters are as shown at the stop"
        return tried * (check.status == ALL_WELL)
    _, stopped, then = check.later[0]
    steps = [f"after {exposed.named(stopped)} went down", *(f"broker {b} fails" for b in then[:-1])]
    steps += [f"broker {then[-1]} comes back and leads"] * (then[-1] >= 0)
    return f"{_listed([each[0] for each in check.later])}: records are lost if, {', '.join(steps)}"


def _roll(check: ClusterCheck) -> str:
    """The steps; a voter that is the active controller is last."""
    steps = "; ".join(map(words.ids, check.roll[:8])) + "; ..." * (len(check.roll) > 8)
    text = f"{counted(len(check.roll), 'step')}: {steps}. Before each, all ISRs of the partitions "
    return (text + "on its brokers are full again (--restart, --watch)") * bool(check.roll)


def _wait(question: CheckQuestion) -> str:
    if not (question.down_s and question.load):
        return ""
    time = duration(1000 * catch_up_s(question.load, question.down_s))
    return f"{time} after a broker is back, until every ISR is full"


def _lost(check: ClusterCheck, down: frozenset[int], after: Effect) -> str:
    if not Shapes(check.state).has_majority(down):
        text = "no majority of the voters is up, so no leader is elected and no ISR changes"
        return f"{_named(down)}: {text}; {_refusing([*after.refuse])}"
    leads = ", ".join(f"{count:,} by broker {b}" for b, count in after.elected.most_common(4))
    lines = [f"{_named(down)}: {_refusing([*after.refuse])}"]
    lines += [f"{counted(after.elected.total(), 'new leader')}" + f" ({leads})" * bool(leads)]
    for what, names in (("no leader in", after.leaderless), ("records lost in", after.lose)):
        lines += [f"{what} {_listed(names)}"] * bool(names)
    return "; ".join(lines)


def _moved(state: ClusterState, move: what_if.PlannedMove) -> str:
    result, rate = what_if.moved(state, move), f"at {move.throttle / 1e6:g} MB/s"
    lines = [counted(result.copies, "new replica")]
    lines += [f"broker {result.busiest} carries most"] * bool(result.copies)
    if state.cordoned is None and any(v.last >= (4, 3) for v in state.versions):
        lines += ["whether a broker's log directories are all cordoned is not shown"]
    closed = {b for ids in move.plan.values() for b in ids if b in (state.cordoned or ())}
    if refused := [name for name, ids in move.plan.items() if not closed.isdisjoint(ids)]:
        lines += [
            f"{exposed.named(closed)} has only cordoned log directories: 4.4 refuses "
            f"{_listed(refused)}, also for a replica that stays; 4.3 copies into one of them"
        ]
    if move.produced:
        lines += [f"the throttle must exceed {result.least_throttle / 1e6:.3g} MB/s"]
    if not (move.throttle and move.size):
        lines += ["--throttle, --size and --produced give the time"]
    elif isinf(result.took_s):
        lines += [f"{rate} the move never ends"]
    else:
        lines += [f"{rate} the move takes {duration(1000 * result.took_s)}"]
    if refuse := [n for n in Shapes(result.after).effect().refuse if n in move.plan]:
        lines += [f"afterwards {_refusing(refuse)}"]
    lines += [f"afterwards {text}" for text in exposed.shown(risks.exposures(result.after))]
    return "; ".join(filter(None, [*lines, risks.shown(risks.risks(result.after))]))


def _changed(state: ClusterState, change: str) -> str:
    cleared, after = what_if.changed(state, change)
    if not any(v.eligible_leader_replicas for v in state.versions):
        lines = ["no ELR is cleared: this release has none"]
    elif not (state.has_elr or cleared):
        lines = ["whether ELR is on is not shown; it clears every ELR, even if the value stays"]
    else:
        lines = [f"it clears the ELR of {counted(len(cleared), 'partition')}, even if the value "
                 "stays; a broker's own value is fixed, the cluster's must stay set"]  # fmt: skip
        for many, what in enumerate(("no replica", "one replica")):
            names = [p.name for p in cleared if len({*p.isr} & state.alive) == many]
            lines += [f"then {what} may be elected in {_listed(names)}"] * bool(names)
    if refuse := [*Shapes(after).effect().refuse]:
        lines += [f"afterwards {_refusing(refuse)}"]
    return "; ".join(lines)


def _refusing(names: Sequence[str]) -> str:
    verb = "refuses" if len(names) == 1 else "refuse"
    which = f" ({_listed(names)})" if names else ""
    return f"{counted(len(names), 'partition')}{which} {verb} acks=all"


def _named(brokers: Iterable[int]) -> str:
    return exposed.named(brokers).capitalize()


def as_dict(check: ClusterCheck) -> dict[str, Any]:
    """For a program: the numbers and names of the results, and the rows of the answer."""

    def listed(blocks: Iterable[Blocks]) -> list[dict[str, Any]]:
        return [{"partition": b.partition.name, "why": b.why, "refuses": b.refuses} for b in blocks]

    return {
        "status": check.status, "title": check.title, "says": check.says,
        "rows": {row.label: row.text for row in answer_of(check).rows},
        "unsure": check.state.unsure,
        "restart": {"brokers": sorted(check.question.restart), "blocks": listed(check.asked)},
        "brokers": {b: listed(blocks) for b, blocks in check.brokers.items()},
        "zones": {zone: listed(blocks) for zone, blocks in check.zones.items()},
        "roll": check.roll, "refusing": check.refusing,
        "cancel": {"version": 1, "partitions": [
            {"topic": p.topic, "partition": p.number, "replicas": p.replicas}
            for p in risks.moving(check.state)]},
        "exposed": [{"partition": f"{e.key.topic}-{e.key.partition}", "why": e.why, "says": e.says,
                     "schedule": e.schedule} for e in check.exposures],
        "risks": check.risks, "down": check.down and check.down._asdict(),
    }  # fmt: skip
