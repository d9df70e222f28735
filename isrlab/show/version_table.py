"""The table of all releases, as Markdown: a row for each rule, a column for each change.

Generated from `KafkaVersion` alone, so it cannot differ from the engine.
"""

from itertools import pairwise

from isrlab.engine import versions
from isrlab.engine.versions import RULES, KafkaVersion

SAME = "="
HEAD = """# Kafka's replication rules, release by release

Made by `python -m isrlab versions --markdown`; a test compares it with the code. `=` means that the
rule is as in the column to the left; some columns stand for several releases. Each rule with named
forms is explained in `isrlab/engine/choices.py`, each other row in `KafkaVersion`
(`isrlab/engine/versions.py`). From 2.8 to 3.2 KRaft was a preview: *epoch bump on isr shrink*
matters only if it is chosen. *Expand waits under min isr* is KAFKA-19996, a proposal that no
release has; it can be switched on by hand.
"""


def markdown() -> str:
    """The whole document."""
    shown = list(versions.PRESETS.values())
    return f"{HEAD}\n{_table(shown)}\n## What each release changed\n\n{changes()}"


def _table(shown: list[KafkaVersion]) -> str:
    head = ["rule", *(f"{v.column} {v.name}" for v in shown)]
    rows = [["releases", *(v.releases for v in shown)]]
    rows += [[rule.replace("_", " "), *_row(shown, rule)] for rule in RULES]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _row(shown: list[KafkaVersion], rule: str) -> list[str]:
    forms = [version.form(rule) for version in shown]
    return [forms[0], *(SAME if now == old else now for old, now in pairwise(forms))]


def changes() -> str:
    """A line for each column: the rules it changed."""
    first = versions.GENERATIONS[0]
    lines = [f"- **{first.releases}** (column {first.column}): the first of this table\n"]
    for before, version in pairwise(versions.GENERATIONS):
        changed = [rule for rule in RULES if getattr(version, rule) != getattr(before, rule)]
        what = "; ".join(map(version.label, changed)) or "none of these rules"
        lines.append(f"- **{version.releases}** (column {version.column}): {what}\n")
    return "".join(lines)
