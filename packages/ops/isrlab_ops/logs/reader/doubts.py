"""Why logs may miss something that happened, or show something that did not.

The reasons are files that were not read or not understood, missing logs, logs of several clusters,
and lines that no broker prints, which a client may have forged (its id may hold line breaks).
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import combinations
from pathlib import Path

from isrlab.events.statements import Statement
from isrlab_ops.logs.reader.lines import IMPOSSIBLE_LINE
from isrlab_ops.logs.reader.metadata.files import LAYOUT
from isrlab_ops.logs.reader.read import BrokerLogs
from isrlab_ops.logs.reader.strays import STRAY

TOGETHER_MS = 60_000  # logs of one broker that overlap for longer come from two clusters
MOST_LINES = 5  # listed individually, for each reason
START_MS = 60_000  # a start that the cluster refuses fails within this time


def doubts(logs: BrokerLogs, leaders: Collection[int]) -> list[str]:
    """The doubts as sentences. `leaders` are the brokers that lead, according to the logs."""
    return [
        *_unread_files(logs.file_rows),
        *_lines(logs.unread_rows, STRAY),
        *_lines(logs.unread_rows, IMPOSSIBLE_LINE),
        *_missing_logs(logs.file_rows, leaders),
        *_clusters(logs.rows),
        *_remade_topics(logs.rows),
        *_two_at_once(logs.rows),
    ]


def _unread_files(files: list[dict]) -> Iterator[str]:
    for row in files:
        if row["status"].startswith(("broken off", "not read", "not understood")):
            yield f"{row['file']}: {row['status']}"
    if not any(row["lines"] for row in files):
        yield "there is not one line to read"


def _lines(unread: list[dict], reason: str) -> Iterator[str]:
    """The unread lines whose reason begins with `reason`."""
    rows = [row for row in unread if row["reason"].startswith(reason)]
    for row in rows[:MOST_LINES]:
        yield f"{row['file']}:{row['line']}: {row['reason']}: {row['text']}"
    if more := sum(row["lines"] for row in rows[MOST_LINES:]):
        yield f"and {more:,} more lines: {reason}"


def _missing_logs(files: list[dict], leaders: Collection[int]) -> Iterator[str]:
    """Leaders whose server.log is missing, or has nothing below WARN: only that log shows their
    requests. None are missed if a metadata log is present, which has every change."""
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
        own = [row for row in files if row["brokers"]]
        is_pod = any(" " in (r["parts"] or "") or r["layout"] != "stock" for r in own)
        how = "; on Kubernetes kubectl logs -l strimzi.io/name=CLUSTER-kafka --prefix --tail=-1 "
        how += "reads all pods, and with --previous what they logged before their last restart"
        lead = f"no server.log with lines of INFO is there of {which}, which lead partitions"
        yield lead + how * is_pod


def _clusters(rows: list[Statement]) -> Iterator[str]:
    """Several cluster ids, apart from those of brokers whose start fails soon afterwards."""
    ids: dict[str, str] = {}
    signs = [row for row in rows if row.kind == "sign"]
    failed = [(r.broker, r.ts_ms) for r in signs if r.detail.get("sign") == "start_failed"]
    for row in signs:
        if row.detail.get("sign") == "cluster" and not any(
            broker == row.broker and row.ts_ms <= ms <= row.ts_ms + START_MS
            for broker, ms in failed
        ):
            ids.setdefault(row.detail["cluster"], f"{row.file}:{row.line}")
    if len(ids) > 1:
        (first, here), (second, there), *_ = ids.items()
        yield f"two clusters, {first} ({here}) and {second} ({there}): read each of them by itself"


def _remade_topics(rows: list[Statement]) -> Iterator[str]:
    """Topics with two ids and no deletion: from two clusters, or lines are missing."""
    gone = {row.topic for row in rows if row.kind in ("deleted", "unhosted")}
    pairs = {(r.topic, r.detail["topic_id"]) for r in rows if "topic_id" in r.detail and r.topic}
    ids: dict[str, set[str]] = defaultdict(set)
    for topic, text in pairs:
        ids[topic] |= {text.removeprefix("Some(").removesuffix(")")} - {"None", "none"}
    several = sorted(topic for topic, own in ids.items() if len(own) > 1 and topic not in gone)
    if several:
        yield (
            f"topic {several[0]} has two ids and no line deletes it: "
            "these may be logs of two clusters, or lines are missing"
        )


def _two_at_once(rows: list[Statement]) -> Iterator[str]:
    """Logs with the same name in which one broker logs different things at the same time.

    Equal lines are read once, so no rows are left of a copied log.
    """
    ends: dict[tuple[int, str], tuple[int, int]] = {}  # the rows are in order of time
    for row in rows:
        if row.broker is not None and row.file:
            place = row.broker, row.file
            ends[place] = ends.get(place, (row.ts_ms,))[0], row.ts_ms
    logs = sorted(ends.items(), key=lambda log: (log[0][1], log[0][0]))
    for ((broker, path), spans), ((other_broker, other), others) in combinations(logs, 2):
        is_together = min(spans[1], others[1]) - max(spans[0], others[0]) > TOGETHER_MS
        is_alike = broker == other_broker and path != other
        if is_together and is_alike and Path(path).name == Path(other).name:
            pair = f"a {path} and another {other} of the same hours"
            yield f"broker {broker} has {pair}: read two clusters one by one"
            return
