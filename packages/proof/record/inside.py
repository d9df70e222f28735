"""The content of a broker's disk, and the state that the controller has stored, read from outside.

Formats: records of message formats 0 to 2 (docs/implementation/message-format), and the two
checkpoint files.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isrlab_ops.logs.reader.metadata.encoding import varint
from isrlab_ops.logs.reader.read import read_local


@dataclass(frozen=True)
class Stored:
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()  # of KRaft
    adding: tuple[int, ...] = ()
    partition_epoch: int = -1


@dataclass(frozen=True)
class Disk:
    """A replica: (offset, text, leader epoch) of each record; -1 where a format has no epoch."""

    records: tuple[tuple[int, str, int], ...]
    high_watermark: int  # as last written to replication-offset-checkpoint
    epochs: tuple[tuple[int, int], ...]  # leader-epoch-checkpoint: (epoch, start offset)


def disk(folder: Path, topic: str, partition: int = 0) -> Disk:
    """The content of one replica's files in a broker's data folder."""
    home = folder / f"{topic}-{partition}"
    segments = sorted(home.glob("*.log"))
    records = [record for path in segments for record in read_records(path.read_bytes())]
    epochs = _checkpoint(home / "leader-epoch-checkpoint")
    marks = {tuple(line[:2]): int(line[2]) for line in _checkpoint(
        folder / "replication-offset-checkpoint")}  # fmt: skip
    pairs = tuple((int(epoch), int(start)) for epoch, start in epochs)
    return Disk(tuple(records), marks.get((topic, str(partition)), 0), pairs)


def _checkpoint(path: Path) -> list[list[str]]:
    """The entries of a checkpoint file, without its version and its count."""
    return [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []


def read_records(data: bytes) -> Iterator[tuple[int, str, int]]:
    """The uncompressed records of a segment, without an incomplete one at its end."""
    for at, size in batches(data):
        if data[at + 16] < 2:
            yield _old_record(data[at : at + size])
        else:
            base, epoch = struct.unpack_from(">q4xi", data, at)
            for offset, value in batch_values(data[at : at + size], base):
                yield offset, value.decode(), epoch


def batches(data: bytes) -> Iterator[tuple[int, int]]:
    """(place, size) of each batch, or of each record of an old format."""
    at = 0
    while at + 17 <= len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if size <= 17 or at + size > len(data):
            return
        yield at, size
        at += size


def _old_record(data: bytes) -> tuple[int, str, int]:
    """(offset, text, -1), from offset, size, crc, magic, attributes, (timestamp), key, value."""
    offset, magic = struct.unpack_from(">q", data)[0], data[16]
    at = 18 + 8 * magic
    at += 4 + max(0, struct.unpack_from(">i", data, at)[0])
    size = struct.unpack_from(">i", data, at)[0]
    return offset, data[at + 4 : at + 4 + size].decode(), -1


def batch_values(data: bytes, base: int) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of each record of a batch of format 2."""
    (count,) = struct.unpack_from(">i", data, 57)
    at = 61
    for _ in range(count):
        size, at = varint(data, at)
        end = at + size
        _, inner = varint(data, at + 1)  # attributes, timestamp
        delta, inner = varint(data, inner)
        key, inner = varint(data, inner)
        length, inner = varint(data, inner + max(0, key))
        yield base + delta, data[inner : inner + max(0, length)]
        at = end


def stored_in(folder: Path, topic: str, partition: int = 0) -> Stored:
    """The state of a partition in the metadata log of a controller's data folder."""
    return all_stored_in(folder).get((topic, partition), Stored())


def all_stored_in(folder: Path) -> dict[tuple[str, int], Stored]:
    """The state of every partition in a controller's metadata log, by topic and number."""
    return {place: stored for _, place, stored in changes_in(folder)}


def changes_in(folder: Path) -> list[tuple[int, tuple[str, int], Stored]]:
    """Each stored change: time (ms), partition, new state."""
    changes = []
    epochs: dict[tuple[str, int], int] = {}
    for row in _whole(folder):
        place = row["topic"], row["partition"]
        if row["partition_epoch"] < epochs.get(place, -1):
            continue
        epochs[place], detail = row["partition_epoch"], dict(row["detail"])
        lists = {name: tuple(map(int, filter(None, detail.get(name, "").split(","))))
                 for name in ("elr", "replicas", "adding")}  # fmt: skip
        leader = row["replica"] if row["kind"] == "leader" else int(detail["leader"])
        epoch = row["partition_epoch"]
        stored = Stored(leader, row["leader_epoch"], tuple(row["isr"]), **lists,
                        partition_epoch=epoch)  # fmt: skip
        changes.append((row["ts_ms"], place, stored))
    return changes


def topic_ids_in(folder: Path) -> dict[str, str]:
    """The ids of topics, by name."""
    return {row["topic"]: dict(row["detail"])["topic_id"] for row in _whole(folder)}


def _whole(folder: Path) -> list[dict[str, Any]]:
    """The events of partitions; read again if the log was read while it was written."""
    for _ in range(3):
        events = read_local(folder / "__cluster_metadata-0", "run").events.to_pylist()
        rows = [row for row in events if row["isr"] is not None]
        known = [row for row in rows if row["partition_epoch"] is not None]
        if len(known) == len(rows):
            break
        time.sleep(0.3)
    return known
