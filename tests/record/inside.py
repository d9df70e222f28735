"""What a broker has on its disk, and what the controller has stored: read from outside.

Formats: records of message formats 0 to 2 (docs/implementation/message-format), the two checkpoint
files, and of the metadata log the two records that say who leads a partition.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stored:
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()


@dataclass(frozen=True)
class Disk:
    """A replica: (offset, text, leader epoch) of each record; -1 where a format has no epoch."""

    records: tuple[tuple[int, str, int], ...]
    high_watermark: int  # as last written to replication-offset-checkpoint
    epochs: tuple[tuple[int, int], ...]  # leader-epoch-checkpoint: (epoch, start offset)

    @property
    def log_end_offset(self) -> int:
        return self.records[-1][0] + 1 if self.records else 0


def disk(folder: Path, topic: str, partition: int = 0) -> Disk:
    """Of one replica, in a broker's data folder."""
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
    """The uncompressed records of a segment; what is not written whole yet is left out."""
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
    """Formats 0 and 1: offset, size, crc, magic, attributes, (timestamp), key, value."""
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


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    raw, at = unsigned(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


# The metadata log. Source: TopicRecord, PartitionRecord and PartitionChangeRecord in
# metadata/src/main/resources/common/metadata.

TOPIC, PARTITION, CHANGE = 2, 3, 5


def stored_in(folder: Path, topic: str, partition: int = 0) -> Stored:
    """What the metadata log in a controller's data folder says of a partition."""
    state, wanted = Stored(), b""
    for path in sorted((folder / "__cluster_metadata-0").glob("*.log")):
        data = path.read_bytes()
        for at, size in batches(data):
            if struct.unpack_from(">h", data, at + 21)[0] & 0x20:
                continue  # a control batch of the quorum
            for _, value in batch_values(data[at : at + size], 0):
                kind, body = value[1], value[3:]
                if kind == TOPIC and _string(body)[0] == topic:
                    _, after = _string(body)
                    wanted = body[after : after + 16]
                elif body[:20] == struct.pack(">i", partition) + wanted:
                    if kind == PARTITION:
                        state = _partition(body)
                    elif kind == CHANGE:
                        state = _changed(state, body)
    return state


def _string(data: bytes) -> tuple[str, int]:
    size, at = unsigned(data, 0)
    return data[at : at + size - 1].decode(), at + size - 1


def _ints(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    size, at = unsigned(data, at)
    count = max(0, size - 1)
    return struct.unpack_from(f">{count}i", data, at), at + 4 * count


def _partition(body: bytes) -> Stored:
    _, at = _ints(body, 20)  # replicas
    isr, at = _ints(body, at)
    _, at = _ints(body, at)  # removing, adding
    _, at = _ints(body, at)
    leader, epoch = struct.unpack_from(">ii", body, at)
    return Stored(leader, epoch, isr)


def _changed(state: Stored, body: bytes) -> Stored:
    """Only what changed is there, tagged: 0 ISR, 1 leader, 6 eligible leader replicas.

    A change of leader, and up to metadata version 3.5 a smaller ISR, is a new leader epoch.
    """
    count, at = unsigned(body, 20)
    leader, epoch, isr, elr = state.leader, state.leader_epoch, state.isr, state.elr
    for _ in range(count):
        tag, at = unsigned(body, at)
        size, at = unsigned(body, at)
        if tag == 0:
            isr, _ = _ints(body, at)
        elif tag == 1:
            (leader,) = struct.unpack_from(">i", body, at)
            epoch += leader != -2  # NO_LEADER_CHANGE
        elif tag == 6:
            elr, _ = _ints(body, at)
        at += size
    return Stored(leader, epoch, isr, elr)
