"""Why logs that were read may not show everything that happened, or show what did not.

Files that were not read or not understood; logs that are missing; lines that no broker prints,
which a client may have forged (its id may hold line breaks); logs of more than one cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from isrlab.logs.reader.lines import IMPOSSIBLE_LINE
from isrlab.logs.reader.metadata.files import LAYOUT
from isrlab.logs.reader.read import BrokerLogs
from isrlab.logs.reader.strays import STRAY

FEW_HEADS = 0.5  # with a smaller share of lines with a time, a layout is not understood
TOGETHER_MS = 60_000  # two logs of one broker that overlap for longer are of two clusters
MOST_LINES = 5  # of one reason, that are listed one by one


def doubts(logs: BrokerLogs, leaders: Collection[int]) -> list[str]:
    """Sentences, none where there is no doubt. `leaders` lead partitions by what the logs say."""
    files = logs.files.to_pylist()
    return [
        *_unread_files(files),
        *_lines(logs.unread, STRAY),
        *_lines(logs.unread, IMPOSSIBLE_LINE),
        *_missing_logs(files, leaders),
        *_clusters(logs.events),
        *_remade_topics(logs.events),
        *_two_at_once(logs.events),
    ]


def _unread_files(files: list[dict]) -> Iterator[str]:
    for row in files:
        looked = (row["heads"] or 0) + (row["headless"] or 0)
        if row["status"].startswith(("broken off", "not read")):
            yield f"{row['file']}: {row['status']}"
        elif looked and row["heads"] < FEW_HEADS * looked:
            share = f"{row['heads']:,} of {looked:,} lines begin with a time"
            yield f"{row['file']}: only {share}; its layout is not understood"
    if not any(row["lines"] for row in files):
        yield "there is not one line to read"


def _lines(unread: pa.Table, reason: str) -> Iterator[str]:
    """Those that are unread for a reason that begins so."""
    rows = unread.filter(pc.starts_with(unread["reason"], reason)).to_pylist()
    for row in rows[:MOST_LINES]:
        yield f"{row['file']}:{row['line']}: {row['reason']}: {row['text']}"
    if more := sum(row["lines"] for row in rows[MOST_LINES:]):
        yield f"and {more:,} more lines: {reason}"


def _missing_logs(files: list[dict], leaders: Collection[int]) -> Iterator[str]:
    """Leaders whose server.log is not there, or holds nothing below WARN: they alone print what
    they ask for. A metadata log has all of it."""
    if any(row["layout"] == LAYOUT for row in files):
        return
    heard, nameless = set[int](), 0
    for row in files:
        if "server" in (row["parts"] or "").split():
            names = [int(name) for name in (row["brokers"] or "").split(",") if name]
            heard |= set(names)
            nameless += not names
    missing = sorted(set(leaders) - heard - {-1})
    listed = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
    if files and not heard and not nameless:
        yield "no server.log with lines of INFO is there: leaders print there what they ask for"
    elif len(missing) > nameless:
        which = f"broker {missing[0]}" if len(missing) == 1 else f"brokers {listed}"
        yield f"no server.log with lines of INFO is there of {which}, which lead partitions"


def _clusters(events: pa.Table) -> Iterator[str]:
    ids: dict[str, str] = {}
    for detail in events.filter(pc.equal(events["kind"], "sign"))["detail"].to_pylist():
        said = dict(detail)
        if said.get("sign") == "cluster":
            ids.setdefault(said["cluster"], f"{said['file']}:{said['line']}")
    if len(ids) > 1:
        (one, here), (other, there), *_ = ids.items()
        yield f"two clusters, {one} ({here}) and {other} ({there}): read each of them by itself"


def _remade_topics(events: pa.Table) -> Iterator[str]:
    """Topics of two ids that no line deletes: of two clusters, or lines are missing."""
    is_gone = pc.is_in(events["kind"], pa.array(["deleted", "unhosted"]))
    gone = set(pc.unique(events.filter(is_gone)["topic"]).to_pylist())
    named = pc.map_lookup(events["detail"], pa.scalar("topic_id"), "first")
    pairs = pa.table({"topic": events["topic"], "id": named}).drop_null()
    ids: dict[str, set[str]] = defaultdict(set)
    for pair in pairs.group_by(["topic", "id"]).aggregate([]).to_pylist():
        own = pair["id"].removeprefix("Some(").removesuffix(")")
        ids[pair["topic"]] |= {own} - {"None", "none"}
    several = sorted(topic for topic, own in ids.items() if len(own) > 1 and topic not in gone)
    if several:
        yield (
            f"topic {several[0]} has two ids and no line deletes it: "
            "these may be logs of two clusters, or lines are missing"
        )


def _two_at_once(events: pa.Table) -> Iterator[str]:
    """Logs of one name in which one broker tells different things at the same time.

    Lines that are equal have been read once: a copy of a log has none left.
    """
    told = events.select(["broker", "ts_ms"])
    told = told.append_column("file", pc.map_lookup(events["detail"], "file", "first"))
    told = told.drop_null().group_by(["broker", "file"])
    logs = told.aggregate([("ts_ms", "min"), ("ts_ms", "max")]).sort_by("file").to_pylist()
    for one, other in combinations(logs, 2):
        until_ms = min(one["ts_ms_max"], other["ts_ms_max"])
        is_together = until_ms - max(one["ts_ms_min"], other["ts_ms_min"]) > TOGETHER_MS
        is_alike = one["broker"] == other["broker"] and one["file"] != other["file"]
        if is_together and is_alike and Path(one["file"]).name == Path(other["file"]).name:
            pair = f"a {one['file']} and another {other['file']} of the same hours"
            yield f"broker {one['broker']} has {pair}: read two clusters one by one"
            return
