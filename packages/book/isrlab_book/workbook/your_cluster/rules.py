"""Notebook 13: alert rules to paste, and what each would have done in every recording.

A recording has a *fault* if its truth has a process that was paused, killed or starved, a host that
was gone, a link that was cut, a disk that was full, damaged or slow, a wrong setting, or a throttle
that was left; the others are planned restarts and an undisturbed cluster. A rule notices a fault if
it begins to fire at any time from then on; when it does so before, or without a fault, that is a
page for nothing. The rules are files of data/alerts; tests/book/test_alerts.py runs them in
promtool, on what the exporter shows of real brokers.
"""

import csv
import json
import lzma
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import floor, inf
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from isrlab.installed import DATA
from isrlab.show import style
from isrlab.show.curves import plot_bars
from isrlab_book.workbook.your_cluster import alerts
from isrlab_book.workbook.your_cluster.alerts import Times
from isrlab_ops.logs.history.history import history_of
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents.look import Findings
from isrlab_ops.logs.reader import read_local
from isrlab_ops.logs.recordings import TIMELINE

FAULT = re.compile(r"pause|SIGSTOP|kill|SIGKILL|cut|starve|disk of|--throttle|names another"
                   r"|^large |^(disk|slow|lose|limit|damage|burn) \d")  # fmt: skip
GRAVE = (alerts.OFFLINE, alerts.UNDER_MIN_ISR, alerts.UNCLEAN, alerts.REFUSED)
LEAST = re.compile(r"min_insync_replicas': ?(\d)")


ALERTS = DATA / "alerts"
LONGER = "for: 5m  # longer than a planned restart"


class AlertRule(NamedTuple):
    """`condition`: as `alerts` has it; `waits`: it has a `for:`."""

    alert: str
    condition: str
    waits: bool = False
    pages: bool = True


RULES = (
    AlertRule("KafkaPartitionOffline", alerts.OFFLINE),
    AlertRule("KafkaUncleanElection", alerts.UNCLEAN),
    AlertRule("KafkaElectionFromElr", alerts.ELIGIBLE),
    AlertRule("KafkaUnderMinIsr", alerts.UNDER_MIN_ISR),
    AlertRule("KafkaProduceRefused", alerts.REFUSED),
    AlertRule("KafkaUnderReplicated", alerts.UNDER_REPLICATED, waits=True),
    AlertRule("KafkaAtMinIsr", alerts.AT_MIN_ISR, waits=True, pages=False),
    AlertRule("KafkaIsrShrinks", alerts.SHRINKS, pages=False),
)


class FaultRecording(NamedTuple):
    """A recording that rules are judged by: when each condition held, and when the first fault
    began; `loses`: acknowledged records are gone."""

    name: str
    held: dict[str, Times]
    fault_ms: int | None
    loses: bool = False

    @property
    def is_grave(self) -> bool:
        """Whether a partition then had no leader, refused acks=all, or lost records."""
        since = self.fault_ms
        spans = (span for condition in GRAVE for span in self.held.get(condition, []))
        return since is not None and (self.loses or any(start >= since for start, _ in spans))


def wait_s(findings: Findings, every_s: float) -> float:
    """`for:` in s: five minutes, or longer than the longest planned restart in these logs."""
    took = [e.end_ms - e.start_ms for e in findings.incidents if e.what == "restart" and e.end_ms]
    return max(300.0, every_s * (1 + floor(max(took, default=0) / (1000 * every_s))))


def recorded(folder: str | Path) -> Iterator[FaultRecording]:
    """Every recording in a folder, in its `incidents`, and in `eligible` (losses with ELR)."""
    root, names = Path(folder), ("kafka-*", "moved-*", "incidents/*/", "eligible/*/")
    for each in sorted(path for name in names for path in root.glob(name)):
        logs = read_local(each)
        rows = history_of(logs.rows, logs.file_rows).rows
        record = Record(rows)
        if (end_ms := record.stopped_ms) is not None:  # the whole cluster, at the end
            record = Record([row for row in rows if row.ts_ms < end_ms])
        yield _judgeable(each, record)


def _judgeable(folder: Path, record: Record) -> FaultRecording:
    """A recording with its truth: min.insync.replicas, and when the first fault began."""
    truth, timeline = folder / "truth.json", folder / TIMELINE
    least, actions, loses = 2, list[tuple[float, str]](), False
    if truth.is_file():
        known = json.loads(truth.read_text(encoding="utf-8"))
        actions, loses = [(a["t_ms"], a["what"]) for a in known["actions"]], bool(known.get("lost"))
        least = min([int(m[1]) for _, what in actions if (m := LEAST.search(what))], default=2)
    elif timeline.is_file():
        rows = csv.DictReader(timeline.read_text("utf-8").splitlines())
        actions = [(1000 * datetime.fromisoformat(row["time_utc"]).timestamp(), row["action"])
                   for row in rows]  # fmt: skip
    else:  # a broker was paused or killed while partitions moved
        actions = [(record.start_ms, "pause")]
        if (tries := folder.with_name(f"{folder.name}.json.xz")).is_file():
            known = json.loads(lzma.decompress(tries.read_bytes()))
            loses = any(each["lost"] for each in known["tries"])
    times = [round(ms) for ms, what in actions if FAULT.search(what)]
    return FaultRecording(
        folder.name, alerts.conditions(record, least), min(times, default=None), loses
    )


def judged(recordings: Sequence[FaultRecording], for_s: float, every_s: float) -> pd.DataFrame:
    """A row for each rule, with and without its `for:`, and one for all that page."""
    asked = [(rule, wait) for rule in RULES for wait in dict.fromkeys((0.0, for_s * rule.waits))]
    rows = [_row(recordings, [each], every_s) for each in asked]
    pages = [(rule, for_s * rule.waits) for rule in RULES if rule.pages]
    all_rows = [*rows, {**_row(recordings, pages, every_s), "alert": "all that page", "for": ""}]
    return pd.DataFrame(all_rows)


def _row(
    recordings: Sequence[FaultRecording], asked: Sequence[tuple[AlertRule, float]], every_s: float
) -> dict[str, object]:
    count: Counter[str] = Counter()
    for each in recordings:
        fires = [on for rule, wait in asked for on in _fires(each, rule, wait, every_s)]
        since = inf if each.fault_ms is None else each.fault_ms
        is_noticed = any(on >= since for on in fires)
        count["pages"] += len(fires)
        count["for nothing"] += sum(on < since for on in fires)
        count["faults"] += since < inf
        count["noticed"] += is_noticed
        count["grave"] += each.is_grave
        count["grave noticed"] += each.is_grave and is_noticed
    (rule, wait), *_ = asked
    return {
        "alert": rule.alert, "for": f"{wait:g}s", "level": "page" if rule.pages else "none",
        "pages": count["pages"],
        "pages for nothing": count["for nothing"],
        f"faults missed (of {count['faults']})": count["faults"] - count["noticed"],
        f"grave ones missed (of {count['grave']})": count["grave"] - count["grave noticed"],
    }  # fmt: skip


def plot_judged(table: pd.DataFrame) -> Axes:
    """How many of the recorded grave faults each rule noticed, and how many it missed."""
    missed = table.iloc[:, -1]
    grave = int(str(missed.name).removesuffix(")").split()[-1])
    names = (table["alert"] + " " + table["for"]).str.strip().tolist()
    parts = {"noticed": grave - missed, "missed": missed}
    colours = {"noticed": style.OUTCOMES["safe"], "missed": style.OUTCOMES["lost"]}
    title = f"The rules that page miss {missed.iloc[-1]} of {grave} grave faults"
    notes, ax = parts["noticed"].astype(str).tolist(), style.axes(5.4, 3.4)
    return plot_bars(names, parts, title, "recorded faults", notes=notes, colours=colours, ax=ax)


def finding(table: pd.DataFrame) -> str:
    """What the rules that page notice together."""
    every = table.iloc[-1]
    grave = table.columns[-1].rpartition(" ")[2].removesuffix(")")
    text = f"On the recordings, the rules that page fire {every['pages']} times, "
    text += f"{every['pages for nothing']} of them for nothing, and miss {every.iloc[-1]} of "
    return f"{text}{grave} grave faults."


def _fires(each: FaultRecording, rule: AlertRule, wait: float, every_s: float) -> list[int]:
    held = each.held.get(rule.condition, [])
    return [on for on, _ in alerts.firings(held, round(1000 * wait), round(1000 * every_s))]


def as_yaml(for_s: float) -> str:
    """The configuration of the exporter, and the rules that page."""
    exporter, paging = ((ALERTS / name).read_text() for name in ("jmx_exporter.yml", "rules.yml"))
    return f"{exporter}---\n{paging.replace(LONGER, f'for: {for_s:g}s')}"
