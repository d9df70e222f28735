"""Finds the incidents in a history: when, what, which brokers, how bad, whether over, the evidence.

Theory of operation. Absences from ISRs that are close in time form an episode, and are attributed
to parties (`parties`). Each party has named facts, with the rows that show them (`facts`); of
a table's rules, the first whose facts all hold names the incident (`rules`). Conclusions are drawn
only there. Repetitions within two minutes, and planned restarts in turn, are one incident.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from isrlab.events.exact import Absence, Key
from isrlab.events.spans import Interval, length_ms, within
from isrlab.events.statements import Statement
from isrlab.events.wording import counted
from isrlab_ops.logs.history.record import Record, clock
from isrlab_ops.logs.incidents.contact import lost
from isrlab_ops.logs.incidents.controllers import away, moments, strained
from isrlab_ops.logs.incidents.facts import OF_RECORDS, PARTIES, Facts, facts
from isrlab_ops.logs.incidents.losses import Loss, LostRange, losses
from isrlab_ops.logs.incidents.parties import (
    BEFORE_MS,
    QUIET_MS,
    SOON_MS,
    Episode,
    Party,
    episodes,
    parties,
    without,
)  # fmt: skip
from isrlab_ops.logs.incidents.rules import NOTES, RULES, Rule

NEAR = 5  # how many earlier incidents to check for one that this continues
SHOWN = 4  # lines of evidence of each fact
SAFE = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,248}")  # a topic's name, not an option
MOST_CHECKED = 3  # topics
OF_ACKS = ("uncommitted_records_cut", "emptied_log")  # what they truncate acks=all does not lose


@dataclass(frozen=True)
class IncidentLine:
    """A log line of the evidence: its place, and the fact that it shows."""

    fact: str
    ts_ms: int
    broker: int | None
    file: str
    line: int
    count: int = 1  # how many lines show this fact


@dataclass(frozen=True)
class Incident:
    """What happened to some partitions. Durations in ms count the time in which at least one
    partition was in that state; None if unknown."""

    what: str  # the name of the rule
    says: str  # its sentence
    who: tuple[int, ...]  # the brokers involved
    blamed: tuple[int, ...]  # the brokers to blame; empty if there is none, or it is unknown
    out: tuple[int, ...]  # replicas that were out
    start_ms: int
    end_ms: int | None  # None: not over when the logs end
    partitions: tuple[Key, ...]
    under_replicated_ms: int
    one_copy_ms: int
    leaderless_ms: int
    under_min_isr_ms: int | None
    refused: int  # produces, as far as lines show them
    notes: tuple[str, ...]
    instead: tuple[str, ...]
    checks: tuple[str, ...]
    learn: str
    evidence: tuple[IncidentLine, ...]
    lost: tuple[LostRange, ...] = ()  # in order of partition and offset
    is_grave: bool = False  # records are lost, or may be: never calm afterwards

    @property
    def is_over(self) -> bool:
        return self.end_ms is not None

    @property
    def is_proved(self) -> bool:
        """Whether records are lost, and not only perhaps: no log shows the acks of producers."""
        return self.is_grave and bool(self.lost) and self.what not in OF_ACKS


class _Story(NamedTuple):
    """A case, the rule that names it, the notes that apply, and the lines of evidence."""

    rule: Rule
    case: Facts
    notes: tuple[Rule, ...]
    evidence: tuple[IncidentLine, ...]


def find(record: Record, min_isr: int | None = None) -> list[Incident]:
    """The incidents in a record, in order.

    `min_isr` is min.insync.replicas of the topics; without it `under_min_isr_ms` is None.
    """
    stories: list[_Story] = []
    for episode in episodes(record):
        given = parties(episode, record)
        for broker in _troubled(episode) if not given else ():
            given[Party("broker", (broker,))] = []
        for party, outs in given.items():
            for part in _parts(party, outs, record):
                rows, own = episode.troubles if part is outs else [], party.brokers
                troubles = [r for r in rows if r.kind == "offline" or not own or r.broker in own]
                stories.append(_story(_case(party, part, troubles, record, episode)))
    stories += [_story(_of_losses(group, record)) for group in losses(record)]
    stories += _of_controllers(stories, record)
    stories += _of_strained(stories, record)
    stories += _of_topics(record)
    if moves := sorted(record.cancelled, key=lambda row: row.ts_ms):
        span = moves[0].ts_ms, moves[-1].ts_ms
        stories.append(_story(Facts(Party("cancelled"), [], moves, record, span)))
    if steps := record.said_of("migration"):
        span = steps[0].ts_ms, steps[-1].ts_ms
        stories.append(_story(Facts(Party("migration"), [], steps, record, span)))
    still = [each.case for each in stories if each.case.is_open]
    covered = {b for case in still for b in (*case.brokers, *(out.replica for out in case.outs))}
    for broker, rows in lost(record).items():
        if broker not in covered:
            party = Party("broker" if broker in record.hosts else "controller", (broker,))
            stories.append(_story(_case(party, [], rows, record, Episode([], rows))))
    joined = _joined(sorted(stories, key=lambda story: _times(story.case)[0]))
    return [_incident(story, min_isr) for story in joined]


def _story(case: Facts) -> _Story:
    by_fact = facts(case)
    rule = next(rule for rule in RULES if rule.fits(by_fact))  # the last one always does
    notes = tuple(note for note in NOTES if note.fits(by_fact))
    return _Story(rule, case, notes, tuple(_lines(rule, notes, by_fact)))


def _troubled(episode: Episode) -> list[int]:
    """Brokers in trouble although no replica left an ISR."""
    kinds = ("failed", "offline", "session_lost")
    rows = [r for r in episode.troubles if r.detail.get("sign", r.kind) in kinds]
    return sorted({row.broker for row in rows if row.broker is not None})


def _parts(party: Party, outs: list[Absence], record: Record) -> list[list[Absence]]:
    """Split a broker's absences of clean shutdowns from others, or, if there are more than two,
    those that ended from those that did not.

    Not if lines are missing: these may be the lines that show the return.
    """
    back = [out for out in outs if out.end_ms is not None]
    away = [out for out in outs if out.end_ms is None]
    stops = record.said_of("stop_asked") if len(outs) > 1 else []
    near = {(r.replica or r.broker, r.ts_ms // SOON_MS + n) for r in stops for n in (-1, 0, 1)}
    asked = [out for out in back if (out.replica, out.start_ms // SOON_MS) in near]
    if party.kind == "broker" and not away and 0 < len(asked) < len(outs):
        return [asked, without(outs, asked)]
    if party.kind == "broker" and back and away and len(outs) > 2 and not record.is_torn:
        return [back, away]
    return [outs]


def _case(
    party: Party, outs: list[Absence], troubles: list[Statement], record: Record, episode: Episode
) -> Facts:
    if outs:
        episode = Episode(outs, troubles)
    first, last = episode.span
    is_open = any(out.end_ms is None for out in outs)
    end = record.end_ms if is_open else last + SOON_MS
    apart_ms = record.apart_ms(*party.brokers)
    return Facts(party, outs, troubles, record, (first - BEFORE_MS - apart_ms, end + apart_ms))


def _of_losses(group: list[Loss], record: Record) -> Facts:
    """The losses of some partitions from one cause, as a case of its own."""
    lines = {id(row): row for loss in group for rows in loss.rows.values() for row in rows}
    rows = sorted(lines.values(), key=lambda row: row.ts_ms)
    span = (min(loss.start_ms for loss in group), max(row.ts_ms for row in rows))
    emptied = {r.broker for loss in group for r in loss.rows["emptied"] if r.broker is not None}
    return Facts(Party("loss", tuple(sorted(emptied))), [], rows, record, span, tuple(group))


def _of_controllers(stories: list[_Story], record: Record) -> Iterable[_Story]:
    """Times without a controller that no other story explains, and decisions of a deposed one."""
    known = [s.case.span for s in stories if s.case.party.kind in ("controller", "cluster")]
    for gone in away(record):
        start_ms, end_ms = gone.span
        if not any(first < end_ms and last > start_ms for first, last in known):
            party = Party("quorum", () if gone.controller is None else (gone.controller,))
            yield _story(Facts(party, [], gone.rows, record, (start_ms - BEFORE_MS, end_ms)))
    by = {row.broker for row in record.said_of("fenced_too_late") if row.broker is not None}
    for controller in sorted(by):
        rows = [row for row in record.said_of("fenced_too_late") if row.broker == controller]
        span = (rows[0].ts_ms - BEFORE_MS, rows[-1].ts_ms)
        if not any(
            controller in each.case.brokers and each.case.span[1] >= span[0] + BEFORE_MS - SOON_MS
            for each in stories
        ):
            yield _story(Facts(Party("controller", (controller,)), [], rows, record, span))


def _of_strained(stories: list[_Story], record: Record) -> Iterable[_Story]:
    """Brokers that failed alone to reach the controller, where no other story is about them."""
    for rows in strained(record):
        broker, span = rows[0].broker or 0, (rows[0].ts_ms, rows[-1].ts_ms)
        near = (c.case for c in stories if c.case.span[0] < span[1] and c.case.span[1] > span[0])
        known = ({*case.brokers, *(out.replica for out in case.outs)} for case in near)
        if all(brokers and broker not in brokers for brokers in known):
            yield _story(Facts(Party("strained", (broker,)), [], rows, record, span))


def _of_topics(record: Record) -> Iterable[_Story]:
    """Topics that were deleted and created again under their name."""
    created: dict[Key, list[Statement]] = defaultdict(list)
    for row in record.rows["isr_commit"]:
        created[row.key].append(row)
    made: dict[str, list[Statement]] = defaultdict(list)
    for row in record.rows["deleted"]:
        later = (each for each in created[row.key] if each.ts_ms > row.ts_ms)
        if row.topic is not None and (new := next(later, None)) is not None:
            made[row.topic] += [row, new]
    for rows in made.values():
        rows.sort(key=lambda row: row.ts_ms)
        span = rows[0].ts_ms, rows[-1].ts_ms
        yield _story(Facts(Party("topic"), [], rows, record, span))


def _times(case: Facts) -> tuple[int, int | None]:
    """The start of the first absence or trouble and the end of the last one; None: not over."""
    if case.losses:
        end_ms = max(loss.end_ms for loss in case.losses)
        is_over = all(loss.is_over for loss in case.losses)
        return min(loss.start_ms for loss in case.losses), end_ms if is_over else None
    starts = [out.start_ms for out in case.outs] or [row.ts_ms for row in case.troubles]
    ends = [out.end_ms for out in case.outs] or starts
    return min(starts), None if case.is_open else max(end for end in ends if end is not None)


def _incident(story: _Story, min_isr: int | None) -> Incident:
    rule, case = story.rule, story.case
    record, words = case.record, _words(case)
    start_ms, end_ms = _times(case)
    keys = tuple(sorted(_all_keys(case)))
    leaderless = [span for loss in case.losses for span in loss.leaderless]
    leaderless += [span for key in keys for span in record.leaderless(key)]
    window = (start_ms, record.end_ms if end_ms is None else end_ms)
    lost = tuple(loss.lost for loss in case.losses if loss.lost is not None)
    says = rule.several if rule.several and len(case.brokers) > 1 else rule.says
    return Incident(
        rule.name,
        says.format_map(words),
        case.brokers,
        case.brokers if rule.blames == "party" else (),
        tuple(sorted({out.replica for out in case.outs})),
        start_ms,
        end_ms,
        keys,
        length_ms((o.start_ms, record.end_ms if o.end_ms is None else o.end_ms) for o in case.outs),
        _shorter_than(2, keys, window, record),
        length_ms(within(leaderless, window)),
        None if min_isr is None else _shorter_than(min_isr, keys, window, record),
        len([r for r in record.said("produce_error", window) if r.key in keys]),
        tuple(note.says.format_map(words) for note in story.notes),
        tuple(text.format_map(words) for text in rule.instead),
        tuple(_checks(rule, words, case)),
        rule.learn,
        story.evidence,
        lost,
        rule.grave or bool(lost),
    )


def _all_keys(case: Facts) -> set[Key]:
    """The partitions that a case hit; for a strained broker, those that it led."""
    if case.party.kind == "strained":
        at = case.record.leader_at
        return {key for key in case.record.leaders if at(key, case.span[0]) in case.brokers}
    troubles = {row.key for row in case.troubles if row.topic is not None}
    return troubles.union((each.key for each in case.outs), (each.key for each in case.losses))


def _topics(case: Facts) -> list[str]:
    """The topics of its absences, or else of its troubles."""
    topics = {out.key.topic for out in case.outs}
    return sorted(topics or {row.topic for row in case.troubles if row.topic is not None})


def _words(case: Facts) -> dict[str, str]:
    """The values for the placeholders in the rules' sentences."""
    ends = case.record.log_ends
    named = [row for name in OF_RECORDS for row in case.signs(name)]
    keys = sorted({row.key for row in named if row.topic} or _all_keys(case))
    leaders = {row.replica for row in named} or {out.leader for out in case.outs}
    losing = next(filter(None, map(case.of_losses, ("emptied", "cut", "tail_cut"))), [])
    return {
        "who": _listed(case.brokers),
        "losers": _listed(sorted({row.broker for row in losing if row.broker is not None})),
        "out": _listed(sorted({out.replica for out in case.outs})),
        "removed": _listed(sorted({out.replica for out in case.removes})),
        "leaders": _listed(sorted(b for b in leaders if b is not None)),
        "topics": _listed(_topics(case)),
        "times": counted(len(moments(case.troubles)), "time"),
        "since": " and ".join(clock(ms) for b, ms in ends.items() if b in case.brokers)
        or clock(_times(case)[0]),
        "partitions": _listed([f"{key.topic}-{key.partition}" for key in keys]),
    }


def _checks(rule: Rule, words: dict[str, str], case: Facts) -> Iterator[str]:
    """The checks to make, one for each topic if a command names one, quoted; none for a topic name
    that Kafka does not allow and a shell might execute."""
    topics = _topics(case)
    words = words | {"who": ",".join(map(str, case.brokers))}
    for text in rule.check:
        for topic in filter(SAFE.fullmatch, topics[:MOST_CHECKED]) if "{topics}" in text else ("",):
            yield text.format_map(words | {"topics": f"'{topic}'"})


def _listed(names: Sequence[object]) -> str:
    """At most five names, joined."""
    shown = [str(name) for name in names[:5]] or ["(not named)"]  # by no line of its log
    if len(names) > 5:
        return ", ".join(shown) + f" and {len(names) - 5} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def _shorter_than(size: int, keys: Iterable[Key], window: Interval, record: Record) -> int:
    short = []
    for key in keys:
        spans = record.spans.get(key, [])
        first = bisect_left(spans, window[0], key=lambda span: span.end_ms)
        last = bisect_right(spans, window[1], key=lambda span: span.start_ms)
        short += [(s.start_ms, s.end_ms) for s in spans[first:last] if len(s.isr) < size]
    return length_ms(within(short, window))


def _lines(
    rule: Rule, notes: Iterable[Rule], by_fact: dict[str, list[Statement]]
) -> Iterable[IncidentLine]:
    """The lines of evidence: a few for each fact of the rule and of the notes that apply."""
    names = [*rule.seen, *(fact for note in notes for fact in note.seen)]
    names = [name for name in names if name not in PARTIES] or names
    shown = set()
    for name in dict.fromkeys(names):
        for row in by_fact.get(name, ())[:SHOWN]:
            detail = row.detail
            place = detail.get("file", ""), int(detail.get("line", 0))
            if place not in shown and detail.get("file"):
                shown.add(place)
                yield IncidentLine(name, row.ts_ms, row.broker, *place, len(by_fact[name]))


def _joined(stories: list[_Story]) -> list[_Story]:
    """The stories, with those that continue an earlier one, or soon recur, joined to it."""
    joined: list[_Story] = []
    for story in stories:
        near = range(max(0, len(joined) - NEAR), len(joined))
        place = next((n for n in near if _is_continued(joined[n], story)), None)
        if place is None:
            joined.append(story)
        else:
            joined[place] = _sum(joined[place], story)
    return joined


def _is_continued(last: _Story, story: _Story) -> bool:
    """Whether `story` is planned work of `last`, or trouble of the same brokers soon after."""
    if last.rule != story.rule or story.rule.guess or story.case.losses:
        return False
    if not story.rule.several and last.case.brokers != story.case.brokers:
        return False
    end_ms = _times(last.case)[1]
    return end_ms is None or _times(story.case)[0] - end_ms <= 4 * QUIET_MS


def _sum(first: _Story, second: _Story) -> _Story:
    earlier, later = first.case, second.case
    case = replace(
        later,
        party=Party(later.party.kind, tuple(dict.fromkeys((*earlier.brokers, *later.brokers)))),
        outs=earlier.outs + later.outs,
        troubles=earlier.troubles + later.troubles,
        span=(earlier.span[0], later.span[1]),
    )
    notes = first.notes + tuple(note for note in second.notes if note not in first.notes)
    return _Story(first.rule, case, notes, first.evidence + second.evidence)
