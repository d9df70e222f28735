"""The records of Kafka's metadata log, `__cluster_metadata-0`: of its segments and checkpoints, and
of what kafka-dump-log prints of them.

Theory of operation. A segment is a chain of record batches (magic 2). The header of a batch has its
first offset, its length and the CRC-32C of what follows; offsets have no gaps. An idle cluster
writes a `NoOpRecord` every half second, so nearly all batches say nothing: they are known by their
length and one byte, and passed over once their CRC is right.

Whatever cannot be read becomes a `Damage`, and reading goes on at the next batch whose CRC is
right. The base offset is not under the CRC: a batch out of turn counts as a gap.

No library on PyPI decodes these records (kio and kafka-python know the client protocol only).
Source: DefaultRecordBatch.java, DumpLogSegments.scala, 3.9.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import google_crc32c

from isrlab.brokerlogs.metadata.encoding import UnknownRecord, check, decode, schemas, varint

_HEADER = struct.Struct(">qiibIhi")  # base offset, length, epoch, magic, CRC, attributes, last
HEADER_BYTES, UNDER_CRC, LENGTH_FROM, LAST_MS = 61, 21, 12, 35
NO_OP_LENGTH, NO_OP_PLACE, NO_OP_KEY = 60, 68, 20  # a batch of one NoOpRecord
COMPRESSED, CONTROL = 0x07, 0x20
SNAPSHOT_FOOTER = 4  # type of the control record that ends a checkpoint
LIKE_A_BATCH = re.compile(rb"(?=\0[\0-\xff]{7}\0[\0-\xff]{7}\x02)")
MOST_BYTES = 16 * 1024 * 1024  # of a batch; Kafka writes 8 MiB at most
MOST_TRIES = 1_000  # places in garbage that may look like a batch


class Record(NamedTuple):
    """One record: `name` as Kafka's, without "Record"; `line` of the text, or else the offset."""

    name: str
    data: dict[str, Any]
    ts_ms: int
    offset: int
    line: int


class Damage(NamedTuple):
    """What could not be read; `is_loss` if changes may be missing from here on."""

    reason: str
    where: str
    line: int
    is_loss: bool = True


class MetadataReader:
    """Reads the files of one log, one after another; `next_offset` is the one expected next.

    `ended` is true if the last file was a whole checkpoint.
    """

    def __init__(self, next_offset: int | None = None) -> None:
        self.next_offset = next_offset
        self.last_ms = 0
        self.records = 0
        self.ended = False

    def segment(self, data: Any) -> Iterator[list[Record] | Damage]:
        """The batches of a segment or checkpoint, given as bytes or mmap, that say something."""
        position, size, unpack, latest = 0, len(data), _HEADER.unpack_from, None
        checksum, known_key = google_crc32c.value, NO_OP_KEY
        while size - position >= HEADER_BYTES:
            base, length, _, magic, crc, attributes, last = unpack(data, position)
            end = position + LENGTH_FROM + length
            is_whole = magic == 2 and position + HEADER_BYTES <= end <= size
            if not is_whole or checksum(data[position + UNDER_CRC : end]) != crc:
                damaged, position = position, _next_batch(data, position + 1, MOST_TRIES)
                yield _damage(data, damaged, position)
                continue
            if base != self.next_offset and (gap := self._gap(base)):
                yield gap
            self.next_offset = base + last + 1
            self.records += last + 1
            latest = position
            if length != NO_OP_LENGTH or data[position + NO_OP_PLACE] != known_key:
                yield from self._batch(data[position:end], base, attributes)
            position = end
        if latest is not None:
            self.last_ms = struct.unpack_from(">q", data, latest + LAST_MS)[0]
        if position < size:
            yield _damage(data, position, size)

    def text(self, lines: Iterator[tuple[int, str]]) -> Iterator[list[Record] | Damage]:
        """The same of what kafka-dump-log printed; `lines` with their numbers."""
        batch: list[Record] = []
        last = offset = -1
        for number, line in lines:
            if header := DUMPED_BATCH.match(line):
                yield from self._dumped_batch(batch, offset - last, number)
                batch, offset, last = [], int(header[1]) - 1, int(header[2])
                self.last_ms = int(header[3])
                if header[4] != "true":
                    yield Damage("a damaged batch (CRC)", line[:SHOWN], number)
                if offset + 1 != self.next_offset and (gap := self._gap(offset + 1, number)):
                    yield gap
                self.next_offset = last + 1
                self.records += max(0, last - offset)
            elif line.startswith("| "):
                offset += 1
                dumped = DUMPED_RECORD.match(line)
                if dumped is None or int(dumped[1] or offset) != offset:
                    yield Damage("an invalid record", line[:SHOWN], number)
                elif dumped[3]:
                    own_ms = int(dumped[2] or self.last_ms)
                    item = _dumped(dumped[3], (own_ms, offset, number))
                    if isinstance(item, Damage):
                        yield from ([batch] if batch else [])
                        batch = []
                        yield item
                    elif item is not None:
                        batch.append(item)
                self.ended = "SnapshotFooter" in line
        yield from self._dumped_batch(batch, offset - last, 0)

    def _dumped_batch(
        self, batch: list[Record], surplus: int, line: int
    ) -> Iterator[list[Record] | Damage]:
        if batch:
            yield batch
        if surplus:
            where = f"{-surplus} records fewer than their batch says"
            yield Damage("records are missing or out of order", where, line)

    def _gap(self, base: int, line: int | None = None) -> Damage | None:
        expected, self.next_offset = self.next_offset, base
        if expected is None:
            return None
        where = f"the batch at offset {base:,} follows offset {expected - 1:,}"
        return Damage("records are missing or out of order", where, base if line is None else line)

    def _batch(self, data: bytes, base: int, attributes: int) -> Iterator[list[Record] | Damage]:
        if attributes & COMPRESSED:
            yield Damage("a compressed batch, which no release writes", f"offset {base:,}", base)
            return
        base_ms, count = struct.unpack_from(">q22xi", data, 27)
        position = HEADER_BYTES
        records: list[Record] = []
        for number in range(count):
            try:
                size, position = varint(data, position)
                end = position + size
                ms, value, key = _parts(data, position, end)
                if attributes & CONTROL:
                    self.ended = key[2:4] == bytes([0, SNAPSHOT_FOOTER])
                elif record := decode(value):
                    offset = base + number
                    records.append(Record(*record, base_ms + ms, offset, offset))
            except (ValueError, IndexError, struct.error) as error:
                if records:
                    yield records
                    records = []
                yield _unreadable(error, base + number)
            if not position < end <= len(data):
                break
            position = end
        if records:
            yield records


def _parts(data: bytes, at: int, end: int) -> tuple[int, bytes, bytes]:
    """Of a record, after its length: milliseconds after the first of its batch, value, key."""
    ms, at = varint(data, at + 1)
    _, at = varint(data, at)
    size, at = varint(data, at)
    key, at = data[at : at + max(0, size)], at + max(0, size)
    size, at = varint(data, at)
    if not 0 <= size <= end - at:
        raise ValueError(f"a value of {size} bytes")
    return ms, data[at : at + size], key


SHOWN = 200  # characters of a line that is not read
DUMPED_BATCH = re.compile(
    r"baseOffset: (\d{1,18}) lastOffset: (\d{1,18}) .*Time: (\d{1,15}) .*isvalid: (\w+)"
)
DUMPED_RECORD = re.compile(
    r"\| (?:offset: (\d{1,18}) \w+: (\d{1,15}) keySize: .*?)?"
    r"(?:payload: (\{.*\})|(?:controlType|Snapshot|KRaft|LeaderChange)\w*:? .*)\s*$"
)


def _dumped(payload: str, place: tuple[int, int, int]) -> Record | Damage | None:
    """A record as kafka-dump-log prints it; `place` is its time, offset and line."""
    try:
        record = json.loads(payload)
        name, version, data = record["type"], record["version"], record["data"]
        title = "".join(word.capitalize() for word in name.removesuffix("_RECORD").split("_"))
        schema = next((s for s in schemas().values() if s.name == title), None)
        if schema is None:
            return Damage(f"unknown type of record: {title[:40]}", payload[:SHOWN], place[2])
        if schema.is_skipped:
            return None
        if version > schema.last_version:
            reason = f"unknown version {version} of {title}Record"
            return Damage(reason, payload[:SHOWN], place[2])
        check(schema.fields, data, version)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error) as error:
        return Damage("an invalid record", f"{error!r:.80}: {payload[:SHOWN]}", place[2])
    return Record(schema.name, data, *place)


def _unreadable(error: Exception, offset: int) -> Damage:
    if isinstance(error, UnknownRecord):
        return Damage(str(error), f"offset {offset:,}", offset, error.is_loss)
    return Damage("an invalid record", f"offset {offset:,}: {error}", offset)


def _damage(data: Any, start: int, end: int) -> Damage:
    """Bytes that are no batch. That records are missing is told by the next offset."""
    where = f"{end - start:,} bytes from byte {start:,}"
    if data.find(b"\2", start, end) < 0 and not data[start:end].strip(b"\0"):
        return Damage("a hole of zero bytes", where, start, False)
    is_cut = end == len(data) and data[start + 16 : start + 17] in (b"", b"\2")
    reason = "the file ends within a batch" if is_cut else "a damaged batch (CRC)"
    return Damage(reason, where, start, False)


def _next_batch(data: Any, start: int, tries: int) -> int:
    """Where the next batch with the right CRC begins, or the end."""
    for like, _ in zip(LIKE_A_BATCH.finditer(data, start), range(tries), strict=False):
        place = like.start()
        if len(data) - place >= HEADER_BYTES and is_batch(data, place):
            return place
    return len(data)


def is_batch(data: Any, place: int) -> bool:
    """A whole batch stands there, and its CRC is right."""
    _, length, _, magic, crc, _, _ = _HEADER.unpack_from(data, place)
    end = place + LENGTH_FROM + length
    is_whole = magic == 2 and place + HEADER_BYTES <= end <= min(len(data), place + MOST_BYTES)
    return is_whole and google_crc32c.value(data[place + UNDER_CRC : end]) == crc


LIKE_A_DUMP = re.compile(rb"(?m)^(Dumping \S|\| offset: \d|baseOffset: \d.* lastOffset: \d)")


def is_metadata(beginning: bytes) -> bool:
    """A file that begins so belongs to a metadata log, or is a dump of one."""
    return bool(LIKE_A_DUMP.search(beginning[:4096])) or first_offset(beginning) is not None


def first_offset(data: bytes) -> int | None:
    """The first offset of what begins like a segment or checkpoint of a metadata log, else None.

    Its first records are those of KRaft itself (control records of another type than 0 and 1, the
    transaction markers of other topics), or framed like metadata.
    """
    if len(data) < HEADER_BYTES or data[16] != 2:
        return None
    base, length, _, _, _, attributes, _ = _HEADER.unpack_from(data)
    try:
        size, at = varint(data, HEADER_BYTES)
        _, value, key = _parts(data, at, at + size)
        is_control = bool(attributes & CONTROL) and 2 <= key[3] <= 6
        is_metadata = is_control or (not key and value[0] == 1 and value[1] in schemas())
    except (ValueError, IndexError):
        return None
    return base if is_metadata and base >= 0 and length < MOST_BYTES else None
