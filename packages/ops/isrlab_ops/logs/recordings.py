"""The recordings in `data/recordings`: logs of real Kafka brokers, and the faults injected.

`RUNS` are two KRaft clusters, 3.9 and 4.1, of three brokers each, lag limit 5 s; the README there
describes them. Each fault is known to the millisecond, and what the logs show is compared with it.
"""

import csv
import tarfile
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa

from isrlab.installed import DATA
from isrlab_ops.logs.reader.files import PathName, find, lines
from isrlab_ops.logs.reader.layout import Layout
from isrlab_ops.logs.reader.lines import LineReader
from isrlab_ops.logs.reader.read import read_local

RUNS = {"3.9": "kafka-3.9", "4.1": "kafka-4.1"}  # release: folder, and name of the run
TIMELINE = "timeline.csv"  # the faults injected, beside the logs
_ROOT = DATA / "recordings"
_ENDS = {"SIGSTOP": "SIGCONT", "SIGKILL": "start", "SIGTERM": "start"}


class Outage(NamedTuple):
    """A broker was away from `start_ms` to `end_ms`; `signal` is the cause, such as "SIGSTOP"."""

    broker: int
    start_ms: int
    end_ms: int
    signal: str


def folder(release: str) -> Path:
    """The folder of the recording of "3.9" or "4.1". Raises ValueError for another release."""
    if release not in RUNS:
        raise ValueError(f"no recording of Kafka {release!r}; there are: {', '.join(RUNS)}")
    return _ROOT / RUNS[release]


def traced(release: str) -> pa.Table:
    """The events of a recording with TRACE of the leaders, such as "4.1.2" (data/recordings/eras).

    Raises ValueError for a release without one.
    """
    path = _ROOT / "eras" / f"{release}-trace.tar.xz"
    if not path.is_file():
        known = sorted(each.name.split("-")[0] for each in path.parent.glob("*-trace.tar.xz"))
        raise ValueError(f"no recording with TRACE of {release!r}; there are: {', '.join(known)}")
    with TemporaryDirectory() as unpacked, tarfile.open(path) as packed:
        packed.extractall(unpacked, filter="data")
        return read_local(unpacked, run=f"{release} with TRACE").events


def replayed(log_dir: PathName, target: PathName, step_ms: int) -> Iterator[int]:
    """Write the logs of a folder into another as brokers did, `step_ms` of their time at each step.

    Yields the time up to which they are written, in ms since the epoch.
    """
    written: list[tuple[int, str, int, str]] = []
    for source in (each for each in find(log_dir) if not each.skipped):
        texts = [line.text.decode("utf-8", "replace") for line in lines(source.path)]
        reader, ts_ms = LineReader(None, Layout.of(texts[:200])), 0
        for number, text in enumerate(texts):
            head = reader.time_of(text)
            ts_ms = max(ts_ms, head.ts_ms) if head else ts_ms
            written.append((ts_ms, source.name.removesuffix(".gz"), number, text))
    written.sort(reverse=True)
    for now_ms in range(written[-1][0], written[0][0] + step_ms, step_ms):
        step: dict[str, list[str]] = {}
        while written and written[-1][0] <= now_ms:
            _, name, _, text = written.pop()
            step.setdefault(name, []).append(f"{text}\n")
        for name, own in step.items():
            path = Path(target) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(own)
        yield now_ms


def outages(release: str, *signals: str) -> list[Outage]:
    """The outages by pause (SIGSTOP), kill (SIGKILL) and shutdown (SIGTERM), or these signals."""
    return [each for each in known_outages(folder(release)) if each.signal in (signals or _ENDS)]


def known_outages(log_dir: str | Path) -> list[Outage]:
    """The outages in a `timeline.csv` (time_utc, action, broker) beside the logs, if there is one.

    An outage ends with SIGCONT, or with the start of the process, or with the timeline.
    """
    path = Path(log_dir) / TIMELINE
    if not path.is_file():
        return []
    rows = csv.DictReader(path.read_text("utf-8").splitlines())
    times = ((datetime.fromisoformat(row["time_utc"]).timestamp(), row) for row in rows)
    actions = [(row["broker"], row["action"], round(at_s * 1000)) for at_s, row in times]
    ended = []
    for index, (broker, action, start_ms) in enumerate(actions):
        if action in _ENDS:
            ends = [at for b, a, at in actions[index:] if (b, a) == (broker, _ENDS[action])]
            ended.append(Outage(int(broker), start_ms, [*ends, actions[-1][2]][0], action))
    return ended


@cache
def events(release: str) -> pa.Table:
    """The events of a recording as its lines report them, in order; the run is `RUNS[release]`.

    Events that a controller reports have `detail.said_by`, and `detail.file` names the log.
    """
    return read_local(folder(release), run=RUNS[release]).events
