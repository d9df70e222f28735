"""What real brokers did in situations that operators ask about: data/check/operated.jsonl."""

import json
from typing import Any

from isrlab.installed import DATA


def rows(what: str) -> list[dict[str, Any]]:
    """All stored rows of one kind: gauges, limits, commits, blocked, transactions or gate."""
    lines = (DATA / "check" / "operated.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["what"] == what]


def shown(what: str, *names: str) -> list[dict[str, Any]]:
    """These fields of each row, for a table: lists other than `isr` become text."""
    return [
        {name: ", ".join(map(str, row[name])) if isinstance(row[name], list) and name != "isr"
         else row[name] for name in names}
        for row in rows(what)
    ]  # fmt: skip
