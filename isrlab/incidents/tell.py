"""Findings as text for a terminal, as CSV and as JSON.

Names of topics and files, and lines of logs, are not trusted: whatever a terminal would obey is
shown escaped, never sent.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from isrlab.brokerlogs.files import DamagedFileError, PathName, lines
from isrlab.events.exact import Key
from isrlab.incidents.find import Incident
from isrlab.incidents.find import Line as Place
from isrlab.incidents.look import CALM, WRONG, Findings
from isrlab.incidents.record import clock

HEADINGS = {CALM: ("CALM", "green"), WRONG: ("WRONG NOW", "red")}
UNSURE = ("NOT KNOWN", "red")
NAMED = 5  # partitions
MOST_INCIDENTS = 10
MOST_OPEN = 3  # in the verdict
MOST_LINES = 9  # of the verdict, below its title
TEXT_WIDTH = 150
COLUMNS = (
    "start", "end", "what", "blamed", "out", "partitions", "under_replicated_ms",
    "under_min_isr_ms", "one_copy_ms", "leaderless_ms", "refused", "says", "evidence",
)  # fmt: skip


def printable(text: str) -> str:
    r"""Text that a terminal shows and does not obey: \x1b, \u202e and the like are spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def duration(ms: int) -> str:
    """Milliseconds as a person says them."""
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def heading(findings: Findings) -> tuple[str, str]:
    """The verdict in two words at most, and its colour."""
    return HEADINGS.get(findings.status, UNSURE)


def verdict(findings: Findings) -> list[str]:
    """What an operator reads first, in at most ten lines."""
    record, files = findings.record, findings.logs.files
    read = sum(count or 0 for count in files["lines"].to_pylist())
    told = [
        f"{files.num_rows:,} files, {read:,} lines, {len(record.brokers)} brokers, "
        f"{clock(record.start_ms)} to {clock(record.end_ms)} UTC",
        _at_the_end(findings),
    ]
    over = sum(incident.is_over for incident in findings.incidents)
    count = len(findings.incidents)
    if count:
        longest = max(findings.incidents, key=lambda incident: incident.under_replicated_ms)
        told.append(
            f"{count} incident{'s' * (count > 1)}, {over} over; the longest under-replication "
            f"{duration(longest.under_replicated_ms)}"
        )
    else:
        told.append("No replica left an ISR as far as these lines tell")
    still = [incident.says for incident in findings.incidents if not incident.is_over]
    told += [f"Not over: {printable(says)}" for says in still[-MOST_OPEN:]]
    ahead = [clock for clock in findings.evidence.clocks if abs(clock.ahead_ms) >= 1_000]
    apart = [f"broker {each.broker} {each.ahead_ms / 1000:+.1f} s" for each in ahead[:NAMED]]
    told += [f"Clocks apart, put right here: {', '.join(apart)}"] if apart else []
    if findings.logs.unread.num_rows:
        reasons = findings.logs.unread["reason"].to_pylist()
        told.append(f"{len(reasons):,} lines not understood, as: {printable(reasons[0])}")
    if findings.not_known:
        told.append(f"Not known at the end: {_named(findings.not_known)}")
    told += [f"Unsure: {printable(doubt)}" for doubt in findings.doubts]
    return (told + [f"Mind that {printable(each)}" for each in findings.caveats])[:MOST_LINES]


def _at_the_end(findings: Findings) -> str:
    dark = len(findings.not_known)
    known = len(findings.partitions) - dark
    wrong = [
        f"{len(keys):,} {what} ({_named(keys)})"
        for what, keys in (
            ("without a leader", findings.leaderless),
            ("under min.insync.replicas", findings.under_min_isr),
            ("under-replicated", findings.under_replicated),
        )
        if keys
    ]
    of = f"of {len(findings.partitions):,} partitions"
    if wrong:
        return f"At the end, {of}: {'; '.join(wrong)}"
    if known < len(findings.partitions) or not known:
        known_ones = f"; the other {known:,} are full" if known else ""
        return f"At the end nobody says who is in sync in {dark:,} {of}{known_ones}"
    return f"At the end every one {of} has all its replicas in sync"


def _named(keys: tuple[Key, ...]) -> str:
    shown = ", ".join(printable(f"{key.topic}-{key.partition}") for key in keys[:NAMED])
    return shown + (f" and {len(keys) - NAMED:,} more" if len(keys) > NAMED else "")


def story(incident: Incident, texts: dict[Place, str]) -> Iterator[str]:
    """An incident in lines of text; `texts` are the lines of its evidence."""
    yield f"{clock(incident.start_ms)} to {clock(incident.end_ms)}  {incident.what}"
    yield f"  {printable(incident.says)}"
    blamed = ", ".join(f"broker {broker}" for broker in incident.blamed) or "nobody"
    yield f"  to blame: {blamed}; {len(incident.partitions):,} partitions"
    times = {
        "under-replicated": incident.under_replicated_ms,
        "under min ISR": incident.under_min_isr_ms or 0,
        "on one copy": incident.one_copy_ms,
        "without leader": incident.leaderless_ms,
    }
    parts = [f"{what} {duration(ms)}" for what, ms in times.items() if ms]
    parts += [f"{incident.refused:,} produces refused"] if incident.refused else []
    if parts:
        yield f"  {', '.join(parts)}"
    yield from (f"  besides: {printable(note)}" for note in incident.notes)
    for place in incident.evidence:
        where = printable(f"{place.file}:{place.line}")
        text = printable(texts.get(place, ""))[:TEXT_WIDTH]
        yield f"  seen ({place.fact.replace('_', ' ')}) {where}  {text}".rstrip()
    yield from (f"  or: {printable(other)}" for other in incident.instead)
    yield from (f"  check: {printable(check)}" for check in incident.checks)
    yield f"  why: notebooks/{incident.learn.replace(':', '.ipynb,', 1)}"


def texts_of(incidents: list[Incident], log_dir: PathName) -> dict[Place, str]:
    """The lines of the evidence, read again; without those of files that cannot be."""
    wanted: dict[str, list[Place]] = {}
    for incident in incidents:
        for place in incident.evidence:
            wanted.setdefault(place.file, []).append(place)
    texts = {}
    for file, places in wanted.items():
        path = Path(log_dir) / file if Path(log_dir).is_dir() else Path(log_dir)
        numbers = {place.line for place in places}
        try:
            read = islice(lines(str(path)), max(numbers))
            held = {line.number: line.text for line in read if line.number in numbers}
        except (OSError, DamagedFileError):  # it has gone or changed since
            continue
        for place in places:
            texts[place] = held.get(place.line, b"").decode("utf-8", "replace").strip()
    return texts


def as_json(findings: Findings) -> str:
    """Everything, for a program."""
    return json.dumps(
        {
            "status": findings.status,
            "verdict": heading(findings)[0],
            "says": verdict(findings),
            "partitions": len(findings.partitions),
            **{
                name: [f"{key.topic}-{key.partition}" for key in getattr(findings, name)]
                for name in ("under_replicated", "under_min_isr", "leaderless", "not_known")
            },
            "doubts": findings.doubts,
            "caveats": findings.caveats,
            "incidents": [asdict(incident) for incident in findings.incidents],
        },
        indent=1,
    )


def as_csv(findings: Findings) -> str:
    """A row for each incident, with a head."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for each in findings.incidents:
        made = {
            "start": clock(each.start_ms),
            "end": clock(each.end_ms),
            "blamed": " ".join(map(str, each.blamed)),
            "out": " ".join(map(str, each.out)),
            "partitions": " ".join(f"{key.topic}-{key.partition}" for key in each.partitions),
            "evidence": " ".join(f"{place.file}:{place.line}" for place in each.evidence),
        }
        cells = [made.get(name, getattr(each, name, "")) for name in COLUMNS]
        writer.writerow([_inert(printable(str(cell))) for cell in cells])
    return text.getvalue()


def _inert(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@") else cell
