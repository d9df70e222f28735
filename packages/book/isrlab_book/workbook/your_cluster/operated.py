"""Notebook 13: the gauges under each cause of under-replication, and the loss of a quorum.

Both are from real brokers: `data/check/operated.jsonl` has the gauges that
`packages/proof/record/operated.py` read while each cause lasted; a recording has its truth beside
the logs.
"""

import json
from pathlib import Path

from isrlab_ops.logs.incidents.look import Findings
from isrlab_ops.recordings.operated import rows


def gauges(version: str) -> list[dict[str, str]]:
    """A row for each cause, a column for each gauge that was not 0 for some cause: its values."""
    measured = [row for row in rows("gauges") if row["version"] == version]
    names = dict.fromkeys(n for row in measured for own in row["values"].values() for n in own)
    return [
        {"cause": row["cause"]} | {
            name: ", ".join(f"{_node(node)}: {own[name]:,}"
                            for node, own in row["values"].items() if name in own)
            for name in names
        } for row in measured
    ]  # fmt: skip


def _node(number: str) -> str:
    return "controller" if number == "100" else f"broker {number}"


def without_quorum(findings: Findings, log_dir: str) -> list[dict[str, object]]:
    """The actions and the stored changes, in s since the first controllers were killed."""
    truth = json.loads((Path(log_dir) / "truth.json").read_text(encoding="utf-8"))
    done = [(a["t_ms"], a["what"]) for a in truth["actions"]]
    start_ms = next(ms for ms, what in done if what.startswith("kill"))
    record = findings.record
    stored = [(span.start_ms, f"stored: the ISR of {key.topic}-{key.partition} is "
               + ",".join(map(str, span.isr))) for key, spans in record.spans.items()
              for span in spans]  # fmt: skip
    stored += [(ms, f"stored: broker {leader} leads {key.topic}-{key.partition}")
               for key, (times, leaders) in record.leaders.items()
               for ms, leader in zip(times, leaders, strict=True)]  # fmt: skip
    return [{"s": round((ms - start_ms) / 1000, 1), "what": what}
            for ms, what in sorted(done + stored) if ms >= start_ms]  # fmt: skip
