"""Findings as JSON, for a program."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from isrlab_ops.logs.history.rules import Fault
from isrlab_ops.logs.incidents.answer import LogAnswer
from isrlab_ops.logs.incidents.look import Findings

FAULTS_FOR_A_PROGRAM = 200


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
