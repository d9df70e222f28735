"""The rules by which lines are judged, and a line that breaks one."""

from __future__ import annotations

from typing import NamedTuple

from isrlab.events.exact import Key
from isrlab.verdict.statements import Statement

RULES = {  # what Kafka always does
    "shrink": "a shrink takes members out, adds none, and keeps the leader",
    "grow": "a leader adds one replica at a time, and takes none out",
    "named": "those who are out of sync are those who leave",
    "limit": "a replica leaves only after the lag limit",
    "assigned": "only assigned replicas are in the ISR",
    "leads": "the leader is in the ISR",
    "twice": "no broker is twice in an ISR",
    "version": "one version of a partition has one ISR, one leader, one epoch",
    "epoch": "one leader epoch has one leader",
    "learns": "a broker learns versions in order",
    "next": "each change is one that a leader may ask for or a controller makes",
    "from": "a leader starts from the ISR that is stored",
    "same": "a leader stores only what changes the ISR",
    "heard": "what one line says of an ISR, a leader or an epoch, others who must know it say too",
    "counted": "versions and leader epochs count from 0, and a new partition begins there",
    "early": "nobody hears of a version before it is asked for and stored",
    "late": "a process that starts follows as it is by then",
    "order": "lines stand in the order of their times",
}


class Fault(NamedTuple):
    """A line that cannot be, the rule that it breaks, and the line that it contradicts, if one."""

    key: Key | None
    rule: str
    file: str
    line: int
    says: str
    against: str  # file:line, or nothing


def fault(line: Statement, rule: str, other: Statement | None = None) -> Fault:
    against = f"{other.file}:{other.line}" if other else ""
    return Fault(line.key, rule, line.file, line.line, RULES[rule], against)
