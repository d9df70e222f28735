"""The answer as one page that can be sent to a colleague: no script, no external resources.

Every text is escaped; the page forbids the browser to load anything. The timeline is an SVG that
stretches with the page; its labels are text beside it, so that they are legible on a phone.
"""

from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from typing import NamedTuple

from isrlab.events.wording import counted, duration, printable
from isrlab_ops.logs.history.record import clock
from isrlab_ops.logs.history.rules import Fault
from isrlab_ops.logs.incidents.answer import LogAnswer, Proof, Story
from isrlab_ops.logs.incidents.look import Findings
from isrlab_ops.logs.incidents.quote import whole
from isrlab_ops.logs.incidents.timeline import AWAY, Bar, presence, under_replicated

MOST_BROKERS, MOST_STORIES, MOST_FAULTS = 24, 200, 50
UNITS, LEAST = 1000, 3  # the width of a drawing, and of an incident at least
HIGH = 60  # of the curve


class Timeline(NamedTuple):
    """The drawn data: numbers and times, no names."""

    start_ms: int
    end_ms: int
    incidents: list[Bar]
    brokers: dict[int, list[Bar]]
    short: list[tuple[int, int]]
    partitions: int


def timeline(findings: Findings) -> Timeline:
    """The timeline of some findings."""
    record = findings.record
    bars = [Bar(each.start_ms, record.end_ms if each.end_ms is None else each.end_ms,
                "over" if each.is_over else "open") for each in findings.incidents]  # fmt: skip
    brokers = {b: presence(record, b) for b in sorted(record.brokers)[:MOST_BROKERS]}
    steps = under_replicated(findings)
    return Timeline(record.start_ms, record.end_ms, bars, brokers, steps, len(findings.partitions))


def page_of(answer: LogAnswer, faults: Iterable[Fault], times: Timeline) -> str:
    """The whole page; names in the answer may already be anonymous."""
    template = files(__package__).joinpath("page.html").read_text("utf-8")
    parts = {
        "title": _text(f"{answer.title}: {answer.state}"[:120]),
        "verdict": _text(answer.title),
        "colour": "calm" if answer.title == "CALM" else "wrong",
        "state": _text(answer.state),
        "rows": "".join(
            f"<dt>{_text(row.label)}</dt><dd>{_text(row.text)}{_code(row.quote)}</dd>\n"
            for row in answer.rows
        ),
        "timeline": "".join(_timeline(times)),
        "notes": _list("Mind also", [*answer.doubts, *answer.more]) + _faults([*faults]),
        "stories": "".join(map(_story, answer.stories[-MOST_STORIES:])),
    }
    for name, text in parts.items():
        template = template.replace(f"<!-- {name} -->", text, 1)
    return template


def _text(text: str) -> str:
    return escape(printable(text))


def _code(text: str) -> str:
    return f"<code>{_text(text)}</code>" if text else ""


def _list(title: str, texts: list[str]) -> str:
    items = "".join(f"<li>{_text(text)}</li>\n" for text in texts)
    return f"<h2>{_text(title)}</h2>\n<ul>\n{items}</ul>\n" if texts else ""


def _faults(faults: list[Fault]) -> str:
    against = [f" (against {each.against})" * bool(each.against) for each in faults]
    texts = [f"{each.file}:{each.line} {each.says}{other}"
             for each, other in zip(faults[:MOST_FAULTS], against, strict=False)]  # fmt: skip
    return _list("Lines that break a rule of Kafka", texts)


def _story(story: Story) -> str:
    each = story.incident
    facts = [("When", story.when), ("Who", story.who), ("Hit", story.hit)]
    facts += [("How long", "; ".join(story.times))] * bool(story.times)
    facts += [("Lost", "; ".join(story.lost))] * bool(story.lost)
    facts += [("Also", note) for note in each.notes]
    facts += [("Or", other) for other in each.instead]
    facts += [("Check", check) for check in story.checks]
    facts += [("Do", story.then)] * bool(story.then)
    facts += [("Why", story.why)] * bool(story.why)
    rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>\n" for name, text in facts)
    state = "over" if each.is_over else "open"
    head = f"<h3><span class='mark {state}'>{story.number}</span> {_text(each.says)}</h3>\n"
    proofs = "".join(map(_proof, story.proofs))
    return f"<article id='i{story.number}'>\n{head}<dl>\n{rows}</dl>\n{proofs}</article>\n"


def _proof(proof: Proof) -> str:
    head = f"{proof.shows[:1].upper()}{proof.shows[1:]}: {counted(proof.lines_in_all, 'line')}"
    lines = "".join(f"<li><b>{_text(place)}</b> <code>{escape(whole(text))}</code></li>\n"
                    for place, text in proof.lines)  # fmt: skip
    return (
        f"<details><summary>{_text(head)}</summary>\n<ul class='lines'>\n{lines}</ul></details>\n"
    )


# The timeline


def _timeline(times: Timeline) -> Iterator[str]:
    for number, bar in enumerate(times.incidents, 1):
        state = "over" if bar.state == "over" else "not over"
        name = f"<a href='#i{number}'>Incident {number}</a>, {state}"
        yield _row(name, f"Incident {number}, {state}", [bar], times)
    for broker, bars in times.brokers.items():
        away_ms = sum(bar.end_ms - bar.start_ms for bar in bars if bar.state == AWAY)
        name = f"Broker {broker}" + (f", away for {duration(away_ms)}" if away_ms else "")
        yield _row(name, name, bars, times)
    most = max((count for _, count in times.short), default=0)
    name = f"Partitions under-replicated: at most {most:,} of {times.partitions:,} together"
    yield _drawing(name, name, HIGH, _area(times, most))
    start, end = clock(times.start_ms), clock(times.end_ms)
    yield f"<p class='axis'><span>{start}</span><span>{end[11:]} UTC</span></p>\n"


def _row(name: str, alt: str, bars: list[Bar], times: Timeline) -> str:
    rects = []
    for bar in bars:
        x = _x(bar.start_ms, times)
        width = max(_x(bar.end_ms, times) - x, LEAST)
        state = bar.state.replace(" ", "-")
        x = min(x, UNITS - LEAST)
        rects.append(f"<rect class='{state}' x='{x:.1f}' width='{width:.1f}' height='16'/>")
    return _drawing(name, alt, 16, "".join(rects))


def _area(times: Timeline, most: int) -> str:
    points = [(_x(times.start_ms, times), 0), *((_x(ms, times), n) for ms, n in times.short)]
    path = f"M0 {HIGH}"
    for x, count in points:
        path += f"H{x:.1f}V{HIGH - (HIGH - 2) * count / max(most, 1):.1f}"
    return f"<path class='open' d='{path}H{UNITS}V{HIGH}Z'/>"


def _drawing(name: str, alt: str, height: int, inside: str) -> str:
    box = f"viewBox='0 0 {UNITS} {height}' preserveAspectRatio='none' style='height:{height}px'"
    return (f"<div class='row'><span>{name}</span><svg role='img' aria-label='{alt}' {box}>"
            f"{inside}</svg></div>\n")  # fmt: skip


def _x(ms: int, times: Timeline) -> float:
    return UNITS * (ms - times.start_ms) / max(times.end_ms - times.start_ms, 1)
