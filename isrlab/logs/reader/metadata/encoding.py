"""How a record of Kafka's metadata log is encoded: the flexible form of KIP-482, by its schemas.

A value is framed by three unsigned varints: frame version (1), key of the record, its version. Then
come its fields as `records.txt` has them, and its tagged fields, each with its size, so that one
that is not known is passed over. Lengths are one more than they say, so that 0 is null. Most
records say of one partition what others say of theirs: but for its first fields, those of fixed
size, a record is decoded once.

No library on PyPI decodes these records (kio and kafka-python know the client protocol only).
Source: AbstractApiMessageSerde.java, ByteBufferAccessor.java, 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = tuple[Any, int]  # what was read, and where it ends
FIXED = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
FIXED["uuid"] = "16s"


class WireField(NamedTuple):
    name: str
    type: str
    since: int = 0
    tag: int | None = None


class Schema(NamedTuple):
    name: str
    last_version: int
    fields: list[WireField]
    is_skipped: bool


class UnknownRecord(ValueError):
    """`is_loss`: changes may be missing from here on."""

    def __init__(self, text: str, is_loss: bool) -> None:
        super().__init__(text)
        self.is_loss = is_loss


@cache
def schemas() -> dict[int, Schema]:
    """By key, from `records.txt`, where they stand in this order."""
    known: dict[int, Schema] = {}
    text = files(__package__).joinpath("records.txt").read_text("utf-8")
    for line in filter(None, (line.partition("#")[0].rstrip() for line in text.splitlines())):
        first, second, third, *rest = line.split()
        if line.startswith(" "):
            tag = int(rest[0].removeprefix("tag=")) if rest else None
            known[max(known)].fields.append(WireField(first, second, int(third), tag))
        else:
            last, name = int(third.split("-")[-1]), second.removesuffix("Record")
            known[int(first)] = Schema(name, last, [], rest == ["skipped"])
    return known


@lru_cache(maxsize=1024)
def decoder(beginning: bytes) -> tuple[str, Callable[[bytes], dict[str, Any]] | None]:
    """What a record is called that begins with these three bytes, and how its fields are read.

    No reader for a record that says nothing about replicas. Raises UnknownRecord for types and
    versions that are not in the schemas; the reader ValueError, IndexError or struct.error for
    bytes that do not fit them.
    """
    frame, key, version = beginning  # each of one byte: no release has a key or version above 127
    if frame != 1:
        raise UnknownRecord(f"unknown frame version {frame}", True)
    schema = schemas().get(key)
    if schema is None:
        raise UnknownRecord(f"unknown type of record: {key}", False)
    if schema.is_skipped:
        return schema.name, None
    fields = _fields(schema, version)
    first = [*takewhile(lambda field: field.type in FIXED and field.tag is None, fields)]
    names = [field.name for field in first]
    form = struct.Struct(">" + "".join(FIXED[field.type] for field in first))

    @lru_cache(maxsize=10_000)
    def rest(data: bytes) -> dict[str, Any]:
        return _struct(fields[len(first) :], data, 0)[0]

    def read(value: bytes) -> dict[str, Any]:
        values = dict(zip(names, form.unpack_from(value, 3)))  # noqa: B905 (they are as many)
        values.update(rest(value[3 + form.size :]))
        return values

    return schema.name, read


def _fields(schema: Schema, version: int) -> list[WireField]:
    """The fields that a version has. Raises UnknownRecord for one that is not known."""
    if version > schema.last_version:
        raise UnknownRecord(f"unknown version {version} of {schema.name}Record", True)
    return [field for field in schema.fields if field.since <= version]


def uvarint(data: bytes, at: int) -> Value:
    value = data[at]
    if value < 0x80:  # nearly always
        return value, at + 1
    value = 0
    for nth, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * nth
        if byte < 0x80:
            return value, at + nth + 1
    raise ValueError("a number that does not end, or of more than 10 bytes")


def varint(data: bytes, at: int) -> Value:
    value = data[at]
    value, at = (value, at + 1) if value < 0x80 else uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _value(kind: str, data: bytes, at: int) -> Value:
    """A value of this type; None is null."""
    if kind in FIXED:
        form = f">{FIXED[kind]}"
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    size, at = uvarint(data, at)
    if size - 1 > len(data) - at:
        raise ValueError(f"a length of {size - 1:,}, with {len(data) - at:,} bytes left")
    if size == 0:
        return None, at
    if kind == "string":
        return data[at : at + size - 1].decode("utf-8"), at + size - 1
    item, values = kind.removeprefix("[]"), []
    if item in FIXED:
        form = ">" + FIXED[item] * (size - 1)
        return [*struct.unpack_from(form, data, at)], at + struct.calcsize(form)
    parts = [WireField(str(nth), part) for nth, part in enumerate(item.strip("()").split(","))]
    for _ in range(size - 1):
        value, at = _struct(parts, data, at) if item[0] == "(" else _value(item, data, at)
        values.append(value)
    return values, at


def _struct(fields: Sequence[WireField], data: bytes, at: int) -> Value:
    """The values of fields; tagged ones that are not known are passed over."""
    values: dict[str, Any] = {}
    for field in fields:
        if field.tag is None:
            values[field.name], at = _value(field.type, data, at)
    tagged = {field.tag: field for field in fields}
    count, at = uvarint(data, at)
    for _ in range(count):
        tag, at = uvarint(data, at)
        size, at = uvarint(data, at)
        end = at + size
        if tag in tagged:
            values[tagged[tag].name], at = _value(tagged[tag].type, data, at)
        else:
            at = end
        if at != end or end > len(data):
            raise ValueError(f"tagged field {tag} has not the {size} bytes that it says")
    return values, at
