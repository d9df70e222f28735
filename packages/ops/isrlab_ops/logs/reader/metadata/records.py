"""The records of Kafka's metadata log, `__cluster_metadata-0`, from its segments and checkpoints.

Theory of operation. A segment is a chain of record batches (magic 2). The header of a batch has its
first offset, its length and the CRC-32C of what follows; offsets have no gaps. An idle cluster
writes a `NoOpRecord` every half second, so nearly all batches are irrelevant: they are recognised
by their length and one byte, and skipped if their CRC is right. Records are decoded by encoding.py.

Anything unreadable becomes a `Damage`, and reading continues at the next batch with a correct CRC.
The base offset is not under the CRC: a batch out of turn counts as a gap.

Source: DefaultRecordBatch.java, 3.9.
"""

import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from isrlab_ops.logs.reader.metadata.checksum import crc32c
from isrlab_ops.logs.reader.metadata.encoding import (
    UnknownRecord,
    decoder,
    quorum_in,
    schemas,
    varint,
)

_HEADER = struct.Struct(">qiibIhi8xq")  # base offset, length, epoch, magic, CRC, attributes,
# last offset - base offset, and the time of the last record
HEADER_BYTES, UNDER_CRC, LENGTH_FROM, SHORTEST = 61, 21, 12, 49
NO_OP_LENGTH, NO_OP_PLACE, NO_OP_KEY = 60, 68, 20  # a batch of one NoOpRecord
COMPRESSED, CONTROL = 0x07, 0x20
SNAPSHOT_FOOTER = 4  # type of the control record that ends a checkpoint
LIKE_A_BATCH = re.compile(rb"(?=\0[\0-\xff]{7}\0[\0-\xff]{7}\x02)")
MOST_BYTES = 16 * 1024 * 1024  # of a batch; Kafka writes 8 MiB at most
MOST_TRIES = 1_000  # positions in garbage that may look like a batch
BROKEN = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, struct.error)


class Record(NamedTuple):
    """One record: `name` as Kafka's, without "Record"."""

    name: str
    data: dict[str, Any]
    ts_ms: int
    offset: int


class Damage(NamedTuple):
    """An unreadable part; `is_loss` if changes may be missing from here on."""

    reason: str
    where: str
    line: int
    is_loss: bool = True


class MetadataReader:
    """Reads the files of one log, one after another; `next_offset` is the one expected next.

    `ended` is true if the last file was a whole checkpoint. `quorum`: the last voters and leader.
    """

    def __init__(self) -> None:
        self.next_offset: int | None = None
        self.last_ms = 0
        self.records = 0
        self.ended = False
        self.quorum: dict[str, Any] = {}

    def segment(self, data: bytes) -> Iterator[list[Record] | Damage]:
        """The relevant batches of a segment or checkpoint, and the damage in it."""
        position, size, unpack, checksum = 0, len(data), _HEADER.unpack_from, crc32c
        damaged, tries, known_key = -1, 0, NO_OP_KEY
        while size - position >= HEADER_BYTES:
            base, length, _, magic, crc, attributes, last, last_ms = unpack(data, position)
            end = position + LENGTH_FROM + length
            is_whole = magic == 2 and SHORTEST <= length <= MOST_BYTES and end <= size
            if not is_whole or checksum(data[position + UNDER_CRC : end]) != crc:
                damaged, tries = position if damaged < 0 else damaged, tries + 1
                like = LIKE_A_BATCH.search(data, position + 1)
                position = like.start() if like and tries < MOST_TRIES else size
                continue
            if damaged >= 0:
                yield _damage(data, damaged, position)
                damaged, tries = -1, 0
            if base != self.next_offset:
                yield from self._gap(base, base)
            self.next_offset = base + last + 1
            self.records += last + 1
            self.last_ms = last_ms
            if length != NO_OP_LENGTH or data[position + NO_OP_PLACE] != known_key:
                yield from self._batch(data[position:end], base, attributes)
            position = end
        if damaged >= 0 or position < size:
            yield _damage(data, damaged if damaged >= 0 else position, size)

    def _batch(self, data: bytes, base: int, attributes: int) -> Iterator[list[Record] | Damage]:
        if attributes & COMPRESSED:
            yield Damage("a compressed batch, which no release writes", f"offset {base:,}", base)
            return
        base_ms, count = struct.unpack_from(">q22xi", data, 27)
        position, records = HEADER_BYTES, list[Record]()
        for offset in range(base, base + count):
            try:
                size, position = varint(data, position)
                end = position + size
                ms, value, key = _parts(data, position, end)
                if attributes & CONTROL:
                    self.ended = key[2:4] == bytes([0, SNAPSHOT_FOOTER])
                    self.quorum |= quorum_in(key[3], value)
                else:
                    name, read = decoder(value[:3])
                    if read:
                        records.append(Record(name, read(value), base_ms + ms, offset))
            except BROKEN as error:
                yield from filter(None, [records])
                records = []
                yield _unreadable(error, offset, f"offset {offset:,}")
            if not position < end <= len(data):
                break
            position = end
        if records:
            yield records

    def _gap(self, base: int, line: int) -> Iterator[Damage]:
        """Continue at offset `base`; yield a damage if another one was expected."""
        expected, self.next_offset = self.next_offset, base
        if expected not in (None, base):
            where = f"offset {base:,} instead of {expected:,}"
            yield Damage("records are missing or out of order", where, line)


def _parts(data: bytes, at: int, end: int) -> tuple[int, bytes, bytes]:
    """The parts of a record after its length: milliseconds since its batch began, value, key."""
    _, ms, number, size = data[at : at + 4]
    if ms | number < 0x80 and size == 1:  # the usual case: one byte each, and no key
        ms, key, at = (ms >> 1) ^ -(ms & 1), b"", at + 4
    else:
        ms, at = varint(data, at + 1)
        _, at = varint(data, at)
        size, at = varint(data, at)
        key, at = (data[at : at + size], at + size) if size > 0 else (b"", at)
    size, at = varint(data, at)
    if not 0 <= size <= end - at:
        raise ValueError(f"a value of {size} bytes")
    return ms, data[at : at + size], key


def _unreadable(error: Exception, line: int, where: str) -> Damage:
    if isinstance(error, UnknownRecord):
        return Damage(str(error), where, line, error.is_loss)
    return Damage("an invalid record", f"{error!r:.80}: {where}", line)


def _damage(data: bytes, start: int, end: int) -> Damage:
    """Bytes that are not a batch. The next offset shows whether records are missing."""
    where = f"{end - start:,} bytes from byte {start:,}"
    if not data[start:end].strip(b"\0"):
        return Damage("a hole of zero bytes", where, start, False)
    is_cut = end == len(data) and data[start + 16 : start + 17] in (b"", b"\2")
    reason = "the file ends within a batch" if is_cut else "a damaged batch (CRC)"
    return Damage(reason, where, start, False)


def is_metadata(beginning: bytes) -> bool:
    """Whether a file with this beginning belongs to a metadata log."""
    return first_offset(beginning) is not None


def first_offset(data: bytes) -> int | None:
    """The first offset of a segment or checkpoint of a metadata log with this beginning, else None.

    Its first records are those of KRaft itself (control records of another type than 0 and 1, the
    transaction markers of other topics), or framed like metadata.
    """
    if len(data) < HEADER_BYTES or data[16] != 2:
        return None
    base, length, _, _, _, attributes, *_ = _HEADER.unpack_from(data)
    try:
        size, at = varint(data, HEADER_BYTES)
        _, value, key = _parts(data, at, at + size)
        is_control = bool(attributes & CONTROL) and 2 <= key[3] <= 6
        is_known = is_control or (not key and value[0] == 1 and value[1] in schemas())
    except (ValueError, IndexError):
        return None
    return base if is_known and base >= 0 and length < MOST_BYTES else None
