"""Findings as JSON for a program, and as CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import asdict
from typing import Any

from isrlab.events.wording import printable
from isrlab_ops.logs.history.record import clock
from isrlab_ops.logs.history.rules import Fault
from isrlab_ops.logs.incidents.answer import LogAnswer
from isrlab_ops.logs.incidents.look import Findings

FAULTS_FOR_A_PROGRAM = 200
COLUMNS = (
    "start", "end", "what", "blamed", "out", "partitions", "under_replicated_ms",
    "under_min_isr_ms", "one_copy_ms", "leaderless_ms", "refused", "says", "evidence",
)  # fmt: skip


def as_dict(findings: Findings, answer: LogAnswer) -> dict[str, Any]:
    """Everything (but only 200 faults), for a program; lines of the evidence have their text."""
    return {
        "status": findings.status,
        "verdict": answer.title,
        "state": answer.state,
        "answer": [
            {"label": row.label, "text": row.text} | ({"line": row.quote} if row.quote else {})
            for row in answer.rows
        ],
        "partitions": len(findings.partitions),
        **{
            name: [f"{key.topic}-{key.partition}" for key in getattr(findings, name)]
            for name in ("under_replicated", "under_min_isr", "leaderless", "not_known")
        },
        "exposed": [
            each._asdict() | {"key": f"{each.key.topic}-{each.key.partition}"}
            for each in findings.exposures
        ],
        "doubts": list(findings.doubts),
        "faults": [_fault(each) for each in findings.faults[:FAULTS_FOR_A_PROGRAM]],
        "faults_by_rule": Counter(fault.rule for fault in findings.faults),
        "caveats": list(findings.caveats),
        "incidents": [_incident(answer, number) for number in range(len(answer.stories))],
    }


def _incident(answer: LogAnswer, number: int) -> dict[str, Any]:
    story = answer.stories[number]
    texts = {place.partition(" ")[0]: text for proof in story.proofs for place, text in proof.lines}
    made = asdict(story.incident)
    for line in made["evidence"]:
        line["text"] = texts.get(f"{line['file']}:{line['line']}", "")
    made["checks"] = list(story.checks)
    return made | {"then": story.then, "why": story.why}


def _fault(fault: Fault) -> dict[str, object]:
    key = fault.key
    return fault._asdict() | {"key": f"{key.topic}-{key.partition}" if key else None}


def as_csv(answered: dict[str, Any]) -> str:
    """The incidents in the result of `as_dict`: a header, and a row for each."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for each in answered["incidents"]:
        made = {
            "start": clock(each["start_ms"]),
            "end": clock(each["end_ms"]),
            "blamed": " ".join(map(str, each["blamed"])),
            "out": " ".join(map(str, each["out"])),
            "partitions": " ".join(f"{topic}-{number}" for _, topic, number in each["partitions"]),
            "evidence": " ".join(f"{line['file']}:{line['line']}" for line in each["evidence"]),
        }
        cells = [made.get(name, each.get(name, "")) for name in COLUMNS]
        texts = (printable(str(cell)) for cell in cells)
        # So that no spreadsheet takes a cell for a formula.
        writer.writerow([f"'{text}" if text[:1] in tuple("=+-@") else text for text in texts])
    return text.getvalue()
