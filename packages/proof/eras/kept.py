"""A recording of `data/recordings/eras`: the actions, the stored states, the brokers' log lines."""

from __future__ import annotations

import csv
import tarfile
from datetime import datetime
from functools import cache
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from isrlab.engine.versions import release
from isrlab_ops.logs.reader.read import read_local

FOLDER = Path(__file__).parents[3] / "data" / "recordings" / "eras"
SUFFIX = ".tar.xz"


class Done(NamedTuple):
    """An action on a broker (0: on none), or an observation."""

    ts_ms: int
    action: str
    broker: int
    detail: str


class Stored(NamedTuple):
    """A state of a partition in ZooKeeper or the metadata log."""

    ts_ms: int
    partition: int
    partition_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class Recording(NamedTuple):
    name: str  # such as "2.4.1" or "2.4.1-trace"
    done: list[Done]
    stored: list[Stored]
    files: dict[str, bytes]  # by path, such as "broker-1/server.log"

    @property
    def version(self) -> str:
        return self.name.split("-")[0]

    @property
    def begun_ms(self) -> int:
        """When the first record was produced."""
        return next(done.ts_ms for done in self.done if done.action == "producing")

    @property
    def lag_ms(self) -> int:
        return 2_500 if release(self.version) < release("0.9") else 3_000


def names(suffix: str = "") -> list[str]:
    """The names of the recordings that end in `suffix`, such as "-trace"; oldest release first."""
    found = [path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{suffix}{SUFFIX}")]
    return sorted(found, key=lambda name: (release(name.split("-")[0]), name))


@cache
def read(name: str) -> Recording:
    with tarfile.open(FOLDER / f"{name}{SUFFIX}") as kept:
        files = {m.name: kept.extractfile(m).read() for m in kept}  # type: ignore[union-attr]
    rows = csv.DictReader(files["timeline.csv"].decode().splitlines())
    done = [Done(_ms(r["time_utc"]), r["action"], int(r["broker"] or 0), r["detail"]) for r in rows]
    return Recording(name, done, _stored(files), files)


@cache
def logs(name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The brokers' logs as read: events in order, with `detail` as a dict, and unread lines."""
    rows, unread = _read(read(name).files, "broker-")
    # At the same time, the controller's orders come before the leader's actions
    at = itemgetter("file", "line")
    return sorted(rows, key=lambda r: (r["ts_ms"], *_place(*at(r["detail"])))), unread


def _place(file: str, line: str) -> tuple[bool, str, int]:
    return "state-change" not in file, file, int(line)


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _stored(files: dict[str, bytes]) -> list[Stored]:
    """The stored states, from ZooKeeper's transaction log or the metadata log."""
    if "stored.csv" in files:
        rows = csv.DictReader(files["stored.csv"].decode().splitlines())
        numbers = Stored._fields[:-1]
        return [
            Stored(*(int(r[n]) for n in numbers), tuple(map(int, r["isr"].split()))) for r in rows
        ]
    states = [r for r in _read(files, "metadata/")[0] if r["topic"] == "orders" and r["isr"]]
    return [
        Stored(r["ts_ms"], r["partition"], r["partition_epoch"], int(_leader(r)),
               r["leader_epoch"], tuple(r["isr"]))
        for r in states
    ]  # fmt: skip


def _leader(row: dict[str, Any]) -> int:
    return row["replica"] if row["kind"] == "leader" else int(row["detail"].get("leader", 0))


def _read(
    files: dict[str, bytes], prefix: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The events of those files, and the unread lines."""
    with TemporaryDirectory() as folder:
        for path, data in files.items():
            if path.startswith(prefix):
                target = Path(folder) / path
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(data)
        logs = read_local(folder, "run")
    rows = [row | {"detail": dict(row["detail"] or ())} for row in logs.events.to_pylist()]
    return rows, logs.unread.to_pylist()
