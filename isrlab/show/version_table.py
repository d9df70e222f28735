"""The table of all generations, as Markdown: one row for each rule, one column for each generation.

Made from `KafkaVersion` and nothing else, so it cannot say what the engine does not do.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

from isrlab.engine.versions import PRESETS, RELEASES, KafkaVersion

NO_RULES = ("column", "name", "releases", "tag")
SAME = "="
HEAD = """# Kafka's replication rules, generation by generation

Made by `python -m isrlab versions --markdown`; a test compares it with the code. `=` means: as in
the column to the left. `isrlab/engine/choices.py` explains the forms of each rule, the fields of
`KafkaVersion` in `isrlab/engine/versions.py` the other rows. Two rows need a word: from 2.8 to 3.2
KRaft was a preview, so *epoch bump on isr shrink* matters there only where KRaft is chosen; and
*expand waits under min isr* is KAFKA-19996, proposed and in no release, to be switched on by hand.
"""
CHANGES = """
## What each release changed

A column shows one release of its generation; some generations have more than one.
"""


def rule_names() -> list[str]:
    return [f.name for f in fields(KafkaVersion) if f.name not in NO_RULES]


def form(version: KafkaVersion, rule: str) -> str:
    """The value of one rule in words."""
    value = getattr(version, rule)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if hasattr(value, "name"):
        return str(value.name).lower().replace("_", " ")
    if rule == "producer_acks" and value == -1:
        return "all"
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def markdown() -> str:
    """The whole document."""
    return f"{HEAD}\n{_table(list(PRESETS.values()))}{CHANGES}\n{_changes()}"


def _table(versions: list[KafkaVersion]) -> str:
    head = ["rule", *(f"{v.column} {v.name}" for v in versions)]
    rows = [["releases", *(v.releases for v in versions)]]
    rows += [[rule.replace("_", " "), *_row(versions, rule)] for rule in rule_names()]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _row(versions: list[KafkaVersion], rule: str) -> list[str]:
    forms = [form(v, rule) for v in versions]
    before = [None, *forms]
    return [SAME if now == old else now for now, old in zip(forms, before, strict=False)]


def _changes() -> str:
    lines = []
    for before, version in pairwise(version for _, version in RELEASES):
        changed = [
            f"{rule.replace('_', ' ')}: {form(version, rule)}"
            for rule in rule_names()
            if getattr(version, rule) != getattr(before, rule)
        ]
        what = "; ".join(changed) or "none of these rules"
        lines.append(f"- **{version.releases}** (column {version.column}): {what}\n")
    return "".join(lines)
