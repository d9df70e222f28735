"""The answer in words: the same for a terminal, a page, a program and a notebook.

Theory of operation. The first lines are what a person on call needs: is it over, what happened, to
which partitions, since when, what is at risk, what to do, when it is done, what was read. They
describe the main incident (`chief`): an open one before others, then a grave one, then the one with
most losses. All incidents follow, with their evidence. The conclusions are those of `find`, `look`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from isrlab.events.wording import counted, duration
from isrlab_ops.logs.history.record import Record, clock
from isrlab_ops.logs.incidents import exposed
from isrlab_ops.logs.incidents.find import Incident
from isrlab_ops.logs.incidents.find import IncidentLine as Place
from isrlab_ops.logs.incidents.look import CALM, NOT_KNOWN, Findings
from isrlab_ops.logs.incidents.quote import Quote, Raw, message, quotes_of
from isrlab_ops.logs.incidents.rules import TABLE
from isrlab_ops.logs.incidents.state import chief, grouped, loss_of, state, title

MOST_TOPICS, MOST_LOST = 4, 12  # named in a line
FAR_MS = 1_000  # a clock that is off by more is named
TO_ASK = "kafka-topics.sh --bootstrap-server HOST:9092 --describe --under-replicated-partitions"
LAST_MS, MOST_UNUSED, ALIKE = 60_000, 3, 60  # ms, lines, characters
_CONTEXT, _NUMBERS = re.compile(r"^\[[^\]]*\][,:]? ?"), re.compile(r"\d+")
_HOST = re.compile(r"\bHOST:9092\b")
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]{1,200}")  # safe to paste into a shell


class AnswerRow(NamedTuple):
    """A row of the answer: its label, its text, and a quoted log line if there is one."""

    label: str
    text: str
    quote: Raw = Raw("")


class Proof(NamedTuple):
    """A fact, how many lines show it, the place and message of the first, and a few in full."""

    shows: str
    lines_in_all: int
    place: str
    text: Raw
    lines: tuple[tuple[str, Raw], ...]


@dataclass(frozen=True)
class Story:
    """One incident in words."""

    number: int
    incident: Incident
    when: str
    address: str  # of a broker that is likely to respond
    who: str
    hit: str
    times: tuple[str, ...]
    lost: tuple[str, ...]
    proofs: tuple[Proof, ...]
    then: str
    done: str
    checks: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class LogAnswer:
    """`rows` come first; `doubts`, `more` (caveats, clocks) and the stories follow."""

    status: int
    title: str
    state: str
    chief: int  # the number of the incident in the rows, 0 without one
    rows: tuple[AnswerRow, ...]
    doubts: tuple[str, ...]
    more: tuple[str, ...]
    stories: tuple[Story, ...]  # of all incidents, in order


def answer_about(findings: Findings) -> LogAnswer:
    """The answer that findings give, with their lines quoted."""
    quotes = quotes_of(findings.incidents, findings.logs.rows)
    stories = [_story(n, each, findings, quotes) for n, each in enumerate(findings.incidents, 1)]
    rows: list[AnswerRow] = []
    where = grouped(findings.not_known, 3)
    dark = [f"no line shows which replicas of {where} are in sync at the end"] if where else []
    if findings.status == NOT_KNOWN and (findings.doubts or dark):
        rows.append(AnswerRow("Unsure", _first_of(findings.doubts or dark)))
    for text in exposed.shown(findings.exposures):
        label, _, says = text.partition(": ")
        rows.append(AnswerRow(label, says))
    if stories:
        rows += _rows(chief(findings), stories, findings, quotes)
    else:
        rows.append(AnswerRow("What", "These lines show no replica that left an ISR."))
    if findings.status != NOT_KNOWN and findings.doubts:
        rows.append(AnswerRow("Unsure", _first_of(findings.doubts)))
    rows.append(AnswerRow("Read", _read(findings)))
    if stories:
        proofs = next(each.proofs for each in stories if each.incident is chief(findings))
        rows += [AnswerRow("Proof", proof.place, proof.text) for proof in proofs[:1]]
    if len(stories) > 1:
        rows.append(AnswerRow("Also", _others(chief(findings), findings)))
    rows += _unused(findings, quotes)
    return LogAnswer(
        findings.status,
        title(findings),
        state(findings),
        findings.incidents.index(chief(findings)) + 1 if stories else 0,
        tuple(rows),
        findings.doubts,
        tuple(_more(findings)),
        tuple(stories),
    )


# The rows


def _rows(
    first: Incident, stories: list[Story], findings: Findings, quotes: dict[Place, Quote]
) -> Iterator[AnswerRow]:
    story = next(each for each in stories if each.incident is first)
    folder = next((q.folder for p in first.evidence if (q := quotes.get(p)) and q.folder), "")
    folder = folder if first.what in ("disk_full", "log_dir_failed") else ""
    yield AnswerRow("What", first.says + (f" Log directory: {folder}." if folder else ""))
    yield AnswerRow("Since", story.when)
    yield AnswerRow("Who", f"{story.who}; hit: {story.hit}.")
    if story.lost:
        others = counted(len(story.lost) - 1, "more range")
        rest = f" (and {others}, below)" if len(story.lost) > 1 else ""
        text = f"{loss_of(first)}, such as {story.lost[0]}{rest}"
        perhaps = f"Perhaps {text}: not if all their producers use acks=all."
        yield AnswerRow("Lost", f"{text}." if first.is_proved else perhaps)
    if story.checks:
        is_safe = _FOLDER.fullmatch(folder)
        yield AnswerRow("Now", story.checks[0].replace("LOG_DIR", folder if is_safe else "LOG_DIR"))
    if story.then:
        yield AnswerRow("Then", story.then)
    yield AnswerRow("Done", _done(first, story, findings))


def _unused(findings: Findings, quotes: dict[Place, Quote]) -> Iterator[AnswerRow]:
    """Unless all is well: lines of the last minute like which no proof has one."""
    known = {_alike(text) for quote in quotes.values() for text in (quote.text, quote.head)}
    like: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for ts_ms, file, line, text in findings.logs.warnings:
        if 0 <= findings.record.end_ms - ts_ms <= LAST_MS and _alike(text) not in known:
            like[_alike(text)].append((text, f"{file}:{line}"))
    most_first = sorted(like.values(), key=lambda lines: (" WARN" in lines[0][0], -len(lines)))
    for (text, place), *more in most_first[:MOST_UNUSED] if findings.status != CALM else ():
        count = f" ({counted(len(more) + 1, 'line')} like it)" * bool(more)
        where = f"in no proof, of the last minute: {place}{count}"
        yield AnswerRow("Unused", where, message(text.strip()))


def _alike(text: str) -> str:
    """The beginning of a message without its context and numbers: equal for repetitions."""
    return _NUMBERS.sub("#", _CONTEXT.sub("", message(text.strip())))[:ALIKE]


def _done(first: Incident, story: Story, findings: Findings) -> str:
    command = story.done
    if first.is_grave and first.is_over and not findings.under_replicated:
        return f"when {command}."
    if findings.status == CALM or (first.is_over and not findings.under_replicated):
        if findings.status == NOT_KNOWN:
            return "It is over; these logs do not show whether anything is left to repair."
        return "It is over: nothing is left to repair, only a cause to remove."
    ask = _HOST.sub(story.address, TO_ASK)
    return f"when {command}." if command else f"when {ask} prints nothing."


def _others(first: Incident, findings: Findings) -> str:
    others = [each for each in findings.incidents if each is not first]
    still = sum(not each.is_over for each in others)
    text = counted(len(others), "more incident")
    text += f", {still} not over" if still else ", all over" if len(others) > 1 else ", over"
    last = max(others, key=lambda each: (not each.is_over, each.start_ms))
    return f"{text} (below), {clock(last.start_ms)} UTC: {last.says}"


def _first_of(doubts: Iterable[str]) -> str:
    shown = [*doubts]
    more = f" (and {len(shown) - 1:,} more, below)" if len(shown) > 1 else ""
    return f"{shown[0]}{more}" if shown else "The state at the end is not known."


def _read(findings: Findings) -> str:
    files = findings.logs.file_rows
    read = [row for row in files if row["status"] == "read"]
    lines = sum(row["lines"] or 0 for row in files)
    zones = dict.fromkeys(_zone(row["zone"]) for row in read if row["zone"])
    release = " and ".join(findings.settings.releases[:3])
    last_ms = max((row["last_ms"] for row in files if row["last_ms"]), default=None)
    parts = [
        f"{len(read):,} of {counted(len(files), 'file')}",
        counted(lines, "line"),
        f"Kafka {release}" if release else "release not printed",
        f"stamps {' and '.join(zones) or 'without a zone'}",
        *([f"the last {clock(last_ms)}"] if last_ms else []),
    ]
    skipped = [row for row in files if row["status"] != "read"]
    unread = findings.logs.unread_rows
    ends = ["nothing skipped"] * (not skipped) + ["nothing not understood"] * (not unread)
    if skipped:
        ends.append(f"{len(skipped):,} not read ({skipped[0]['file']}: {skipped[0]['status']})")
    if unread:
        lines = counted(sum(row["lines"] for row in unread), "line")
        ends.append(f"{lines} not understood ({unread[0]['reason']})")
    return f"{', '.join(parts)}; {', '.join(ends)}."


def _zone(name: str) -> str:
    """A time zone, and whether it is assumed; other sources are left out."""
    zone, _, how = name.partition(" (")
    return f"{zone} ({how}" if how == "assumed)" else zone.replace("UTC+00:00", "UTC")


def _more(findings: Findings) -> Iterator[str]:
    """Caveats and clock skew."""
    ahead = [clock for clock in findings.history.clocks if abs(clock.ahead_ms) >= FAR_MS]
    if ahead:
        names = ", ".join(f"broker {c.broker} {c.ahead_ms / 1000:+.1f} s" for c in ahead[:5])
        yield f"Clocks differ; the times here are corrected: {names}."
    yield from (f"{each[:1].upper()}{each[1:]}." for each in findings.caveats)


# One incident


def _story(number: int, each: Incident, findings: Findings, quotes: dict[Place, Quote]) -> Story:
    away = {*each.blamed, *each.out, *(b for b in each.who if not each.is_over)}
    address = findings.settings.bootstrap(away)
    fill = {"who": _comma(each.who), "losers": _comma(each.who or each.out)}
    fill |= {"partitions": grouped(each.partitions, 2), "isr": _last_isr(each, findings.record)}
    rule = TABLE.rule[each.what]
    then, done = (_HOST.sub(address, text.format_map(fill)) for text in (rule.then, rule.done))
    word = "controller" if "controller" in each.what else "broker"
    blamed = _brokers(each.blamed, word) if each.blamed else "no broker"
    return Story(
        number,
        each,
        _when(each, findings),
        address,
        f"{blamed[:1].upper()}{blamed[1:]}{'' if each.blamed else ' is to blame by these lines'}",
        f"{counted(len(each.partitions), 'partition')}: {grouped(each.partitions, MOST_TOPICS)}"
        if each.partitions else "no partition",
        tuple(_times(each)),
        tuple(_lost(each)),
        tuple(_proofs(each, quotes)),
        then,
        done,
        tuple(_HOST.sub(address, check) for check in each.checks),
        TABLE.why.get(rule.learn.partition(": ")[2], ""),
    )  # fmt: skip


def _when(each: Incident, findings: Findings) -> str:
    end_ms = findings.record.end_ms
    start = f"{clock(each.start_ms)} UTC"
    if each.end_ms is not None:
        took, after = each.end_ms - each.start_ms, duration(max(0, end_ms - each.end_ms))
        text = f"{clock(each.start_ms)} to {_time(each.end_ms)} UTC ({duration(took)})"
        return f"{text}; over, {after} before the logs end."
    ends = f"not over; the logs end {duration(max(0, end_ms - each.start_ms))} later."
    return f"{start}, {ends}"


def _last_isr(each: Incident, record: Record) -> str:
    """The ISRs that its partitions had as it began, and of which partitions."""
    last: dict[tuple[int, ...], set] = defaultdict(set)
    for key in each.partitions:
        isrs = [s.isr for s in record.spans.get(key, ()) if s.isr and s.start_ms <= each.start_ms]
        last[isrs[-1] if isrs else ()].add(key)
    known = [f"{_brokers(isr)} of {grouped(last[isr], 2)}" for isr in last if isr]
    return "; ".join(known[:3]) or "no line shows which"


def _times(each: Incident) -> Iterator[str]:
    far = " so far" * (not each.is_over)
    times = {
        "under-replicated": each.under_replicated_ms,
        "under min ISR": each.under_min_isr_ms or 0,
        "on one copy": each.one_copy_ms,
        "without a leader": each.leaderless_ms,
    }
    yield from (f"{what} for {duration(ms)}{far}" for what, ms in times.items() if ms)
    if each.refused:
        yield f"{counted(each.refused, 'produce request')} refused"


def _lost(each: Incident) -> Iterator[str]:
    for lost in each.lost[:MOST_LOST]:
        count = counted(lost.last - lost.first + 1, "record")
        text = f"{lost.topic}-{lost.partition}: offsets {lost.first}..{lost.last} ({count}"
        if lost.appended_from_ms is not None and lost.appended_to_ms is not None:
            text += f", appended {_time(lost.appended_from_ms)} to {_time(lost.appended_to_ms)}"
        yield f"{text})"
    rest = len(each.lost) - MOST_LOST
    if rest > 0:
        yield f"{rest:,} more ranges; --json lists all"


def _proofs(each: Incident, quotes: dict[Place, Quote]) -> Iterator[Proof]:
    """One proof for each fact, with the first of its lines."""
    facts: dict[str, list[Place]] = defaultdict(list)
    for place in each.evidence:
        facts[place.fact].append(place)
    for fact, places in facts.items():
        held = {place: quotes[place].text if place in quotes else Raw() for place in places}
        lines = tuple(
            (f"{place.file}:{place.line} {_time(place.ts_ms)}", text)
            for place, text in held.items()
        )
        count = max(places[0].count, len(places))
        yield Proof(TABLE.fact[fact], count, lines[0][0], message(lines[0][1]), lines)


# Words


def _brokers(numbers: tuple[int, ...], word: str = "broker") -> str:
    return f"{word}{'s' * (len(numbers) > 1)} {_comma(numbers)}"


def _comma(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "(not named)"


def _time(ts_ms: int) -> str:
    """The time of day of a moment."""
    return clock(ts_ms)[11:]
