"""What a check says, in some ten lines, and as values for a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import isinf
from operator import attrgetter
from typing import Any

from isrlab.check import restart, risks, what_if
from isrlab.check.cluster import ClusterState
from isrlab.check.outcome import Shapes
from isrlab.check.restart import BlockingPartition
from isrlab.events.exact import Key
from isrlab.events.wording import counted, duration, printable
from isrlab.logs.incidents import exposed
from isrlab.logs.incidents.answer import AnswerRow, LogAnswer
from isrlab.logs.incidents.exposed import Exposure, StoredPartition
from isrlab.placement.pace import catch_up_s

ALL_WELL, WRONG, NOT_KNOWN = 0, 1, 2  # exit status, as of `logs`
DOWN_S, LOADS = (30.0, 120.0), (0.3, 0.8)  # for which the wait is given if nothing is said
first = attrgetter("first")
MOST = 3  # brokers or partitions that are named


@dataclass(frozen=True)
class CheckQuestion:
    """What is asked: brokers that shall go down together (none: each alone), brokers that fail, a
    plan, patterns of topics that may be unavailable, and what the wait depends on."""

    restart: frozenset[int] = frozenset()
    down: frozenset[int] = frozenset()
    move: what_if.PlannedMove | None = None
    ignored: tuple[str, ...] = ()
    down_s: float | None = None
    load: float | None = None


@dataclass(frozen=True)
class ClusterCheck:
    """What was worked out: what blocks the restart that was asked for, each broker that is up, and
    each zone; which partitions refuse acks=all now, and who leads them."""

    state: ClusterState
    question: CheckQuestion
    asked: list[BlockingPartition]
    brokers: dict[int, list[BlockingPartition]]
    zones: dict[str, list[BlockingPartition]]
    refusing: dict[str, int]
    exposures: list[Exposure]

    @property
    def status(self) -> int:
        wrong = bool(self.asked)
        if not self.question.restart:
            blocked = any(self.brokers.values()) or not self.brokers
            wrong = bool(blocked or self.refusing or self.exposures)
        return WRONG if wrong else NOT_KNOWN if self.state.unsure else ALL_WELL

    @property
    def title(self) -> str:
        if self.status != WRONG:
            return "NOT KNOWN" if self.status else "SAFE"
        if self.asked or any(self.brokers.values()):
            return "BLOCKED"
        return "EXPOSED" if self.exposures else "WRONG NOW"

    @property
    def says(self) -> str:
        """Who may go down."""
        free, total = [b for b, blocks in self.brokers.items() if not blocks], len(self.brokers)
        doubt = " as far as is shown" if self.state.unsure else ""
        if self.question.restart:
            may = "may not" if self.asked else "may"
            return f"{_named(self.question.restart)} {may} go down now{doubt}."
        if total and len(free) == total:
            return f"Each of {counted(total, 'broker')} may go down now{doubt}, one at a time."
        which = f" ({_ids(free)}{doubt})" if free else ""
        of = f"Of {counted(total, 'broker')} {len(free) or 'none'} may go down now{which}."
        return of if total else "No broker is up."


def check_of(
    state: ClusterState,
    question: CheckQuestion,
    history: Mapping[Key, StoredPartition] | None = None,
) -> ClusterCheck:
    """All that is asked of a state."""
    ignored = question.ignored
    kept = [p for p in state.partitions if not any(fnmatchcase(p.topic, name) for name in ignored)]
    state = replace(state, partitions=kept)
    known, up, zones = risks.exposures(state, history), sorted(state.alive), state.zones
    groups = [question.restart, *({b} for b in up), *zones.values()]
    shapes = Shapes(state)
    asked, *others = restart.blocks_of(shapes, map(frozenset, groups), known)
    of_brokers, of_zones = others[: len(up)], others[len(up) :]
    return ClusterCheck(
        state, question, asked, dict(zip(up, of_brokers, strict=True)),
        dict(zip(zones, of_zones, strict=True)), restart.refusing(shapes), known,
    )  # fmt: skip


def answer_of(check: ClusterCheck) -> LogAnswer:
    """The check in words."""
    rows = tuple(AnswerRow(label, printable(text)) for label, text in _rows(check) if text)
    return LogAnswer(check.status, check.title, check.says, 0, rows, (), (), ())


def _rows(check: ClusterCheck) -> Iterator[tuple[str, str]]:
    state = check.state
    yield "Unsure", ". ".join(state.unsure)
    if down := sorted(state.racks.keys() - state.alive):
        yield "Not up", _named(down)
    if check.refusing:
        leaderless = sum(leader < 0 for leader in check.refusing.values())
        yield "Now", f"{_refusing([*check.refusing])} already; {leaderless:,} have no leader"
    blocked = [f"broker {b}: {_why(blocks)}" for b, blocks in check.brokers.items() if blocks]
    rest = [f"{counted(len(blocked) - MOST, 'more broker')}: --json"] * (len(blocked) > MOST)
    every = ". ".join([*blocked[:MOST], *rest])
    yield "Blocks", _why(check.asked) if check.question.restart else every
    if len(check.zones) > 1:
        yield "Zones", "; ".join(f"{zone} {'blocks: ' + _why(b) if b else 'may go down whole'}"
                                 for zone, b in check.zones.items())  # fmt: skip
    yield "Roll", _roll(check)
    yield "Wait", _wait(check.question)
    for text in exposed.shown(check.exposures):
        label, _, says = text.partition(": ")
        yield label, says
    yield "Risks", risks.shown(risks.risks(state))
    if check.question.down:
        yield "If down", "; ".join(_lost(state, check.question.down))
    if check.question.move:
        yield "If moved", "; ".join(_moved(state, check.question.move))
    yield "Unseen", state.unseen
    ends = min(state.versions, key=first), max(state.versions, key=first)
    rules = " to ".join(dict.fromkeys(end.name.partition(" ")[0] for end in ends)) + _mode(state)
    counts = len({p.topic for p in state.partitions}), len(state.partitions), len(state.racks)
    nouns = zip(counts, ("topic", "partition", "broker"), strict=True)
    yield "Read", f"{state.source}: {', '.join(counted(*each) for each in nouns)}; Kafka {rules}"


def _mode(state: ClusterState) -> str:
    """Where a release can be run both ways, by whose rules it was judged."""
    modes = {v.kraft for v in state.versions if (3, 3) <= v.first < (4, 0)}
    both = " by the rules of KRaft and of ZooKeeper (--zookeeper or --kraft decides)"
    return both if len(modes) > 1 else "" if modes != {False} else " with ZooKeeper"


def _why(blocks: Sequence[BlockingPartition]) -> str:
    if not blocks:
        return ""
    p, why, _ = blocks[0]
    text = f"{p.name}, {why} (ISR {_ids(p.isr) or 'empty'} of {_ids(p.replicas)}, min {p.min_isr})"
    return f"{text} and {len(blocks) - 1:,} more" if blocks[1:] else text


def _roll(check: ClusterCheck) -> str:
    roll = restart.roll(check.state)
    best = "no order has fewer" if len(roll.steps) == roll.least_steps else "the shorter of two"
    steps = "; ".join(map(_ids, roll.steps[:8])) + "; ..." * (len(roll.steps) > 8)
    text = f"{counted(len(roll.steps), 'step')} ({best}): {steps}"
    always = f"{counted(roll.refusing, 'partition')} can spare no replica in any step"
    return f"{text}. {always}" if roll.refusing else text


def _wait(question: CheckQuestion) -> str:
    downs = (question.down_s,) if question.down_s else DOWN_S
    loads = (question.load,) if question.load else LOADS
    times = [duration(1000 * catch_up_s(loads[n], downs[n])) for n in (0, -1)]
    down, load = (
        " to ".join(f"{v:g}" for v in values) for values in (downs, [100 * s for s in loads])
    )
    return (f"between steps until every ISR is full: {' to '.join(dict.fromkeys(times))} after a "
            f"broker is back that was down for {down} s, if {load} % of what its fetchers can copy "
            "is produced")  # fmt: skip


def _lost(state: ClusterState, down: frozenset[int]) -> Iterator[str]:
    after = what_if.loss(state, down)
    leads = ", ".join(f"{count:,} by broker {b}" for b, count in after.elected.most_common(4))
    yield f"{_named(down)}: {_refusing(after.refuse)}"
    yield f"{counted(after.elected.total(), 'partition')} led anew" + f" ({leads})" * bool(leads)
    for what, names in (("no leader in", after.leaderless), ("records lost in", after.lose)):
        if names:
            yield f"{what} {_listed(names)}"


def _moved(state: ClusterState, move: what_if.PlannedMove) -> Iterator[str]:
    result = what_if.moved(state, move)
    yield f"{counted(result.copies, 'new replica')}, most to carry for broker {result.busiest}"
    if move.produced:
        yield f"the throttle must exceed {result.least_throttle / 1e6:g} MB/s"
    if move.throttle and move.size:
        took = (
            "it never ends"
            if isinf(result.took_s)
            else f"all took {duration(1000 * result.took_s)}"
        )
        yield f"at {move.throttle / 1e6:g} MB/s {took}"
    else:
        yield "--throttle, --size and --produced give the time"
    if refuse := [n for n in restart.refusing(Shapes(result.after)) if n in move.plan]:
        yield f"afterwards {_refusing(refuse)}"
    yield from (f"afterwards {text}" for text in exposed.shown(risks.exposures(result.after)))
    yield from filter(None, [risks.shown(risks.risks(result.after))])


def _refusing(names: Sequence[str]) -> str:
    verb = "refuses" if len(names) == 1 else "refuse"
    which = f" ({_listed(names)})" if names else ""
    return f"{counted(len(names), 'partition')}{which} {verb} acks=all"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST]) + f" and {len(names) - MOST:,} more" * (len(names) > MOST)


def _named(brokers: Iterable[int]) -> str:
    return exposed.named(brokers).capitalize()


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def as_dict(check: ClusterCheck) -> dict[str, Any]:
    """For a program: numbers and names as they were worked out, and the rows of the answer."""

    def listed(blocks: Iterable[BlockingPartition]) -> list[dict[str, Any]]:
        return [{"partition": b.partition.name, "why": b.why, "refuses": b.refuses} for b in blocks]

    state, question, rows = check.state, check.question, answer_of(check).rows
    return {
        "status": check.status, "title": check.title, "says": check.says,
        "rows": {row.label: row.text for row in rows}, "unsure": state.unsure,
        "restart": {"brokers": sorted(question.restart), "blocks": listed(check.asked)},
        "brokers": {b: listed(blocks) for b, blocks in check.brokers.items()},
        "zones": {zone: listed(blocks) for zone, blocks in check.zones.items()},
        "roll": restart.roll(state)._asdict(), "refusing": check.refusing,
        "exposed": [{"partition": f"{e.key.topic}-{e.key.partition}", "why": e.why, "says": e.says,
                     "schedule": e.schedule} for e in check.exposures],
        "risks": risks.risks(state),
        "down": what_if.loss(state, question.down)._asdict() if question.down else None,
    }  # fmt: skip
