"""How a record of Kafka's metadata log is encoded: the flexible form of KIP-482, by its schemas.

A value is framed by three unsigned varints: frame version (1), key of the record, its version. Then
come its fields as `records.txt` has them, those of fixed size that follow each other as one, and
its tagged fields, each with its size, so that one that is not known is passed over. Lengths are one
more than they say, so that 0 is null.

No library on PyPI decodes these records (kio and kafka-python know the client protocol only).
Source: AbstractApiMessageSerde.java, ByteBufferAccessor.java, 3.9.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = tuple[Any, int]  # what was read, and where it ends
Reader: TypeAlias = Callable[[bytes, int], Value]
Told: TypeAlias = tuple[str, dict[str, Any]]  # name of a record and its fields
FIXED = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
FIXED["uuid"] = "16s"


class Field(NamedTuple):
    name: str
    type: str
    since: int
    tag: int | None


class Schema(NamedTuple):
    name: str
    last_version: int
    fields: list[Field]
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
            known[max(known)].fields.append(Field(first, second, int(third), tag))
        else:
            last, name = int(third.split("-")[-1]), second.removesuffix("Record")
            known[int(first)] = Schema(name, last, [], rest == ["skipped"])
    return known


def decode(value: bytes) -> Told | None:
    """Name and fields of a record; None if it says nothing about replicas.

    Raises UnknownRecord for types and versions that are not in the schemas, ValueError, IndexError
    or struct.error for bytes that do not fit them.
    """
    name, read = _decoder(value[:3])
    return (name, read(value, 3)[0]) if read else None


@lru_cache(maxsize=1024)
def _decoder(beginning: bytes) -> tuple[str, Reader | None]:
    """What a record is called, and how its fields are read."""
    frame, key, version = beginning  # each of one byte: no release has a key or version above 127
    if frame != 1:
        raise UnknownRecord(f"unknown frame version {frame}", True)
    schema = schemas().get(key)
    if schema is None:
        raise UnknownRecord(f"unknown type of record: {key}", False)
    _require(schema, version)
    return schema.name, None if schema.is_skipped else _struct(schema.fields, version)


def _require(schema: Schema, version: int) -> None:
    if version > schema.last_version and not schema.is_skipped:
        raise UnknownRecord(f"unknown version {version} of {schema.name}Record", True)


def decode_json(record: dict[str, Any]) -> Told | None:
    """The same of what kafka-dump-log prints of one; KeyError or TypeError, too."""
    title = "".join(word.capitalize() for word in record["type"].removesuffix("_RECORD").split("_"))
    schema = next((schema for schema in schemas().values() if schema.name == title), None)
    if schema is None:
        raise UnknownRecord(f"unknown type of record: {title[:40]}", False)
    _require(schema, record["version"])
    told = record["data"]
    wanted = [f for f in schema.fields if f.since <= record["version"] and f.type[:3] != "[]("]
    here = [field for field in wanted if field.tag is None or field.name in told]
    fields = {field.name: _of_json(field.type, told[field.name]) for field in here}
    return None if schema.is_skipped else (title, fields)


def _of_json(kind: str, value: Any) -> Any:
    """A value as the binary form would give it, which must be able to hold it."""
    if kind.startswith("[]"):
        return None if value is None else [_of_json(kind[2:], each) for each in value]
    if kind == "uuid":
        value = base64.urlsafe_b64decode(f"{value}==")
    if kind in FIXED:
        return struct.unpack(f">{FIXED[kind]}", struct.pack(f">{FIXED[kind]}", value))[0]
    if not isinstance(value, str | None):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def uvarint(data: bytes, at: int) -> Value:
    value = data[at]
    if value < 0x80:  # nearly always
        return value, at + 1
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number of more than 9 bytes")


def varint(data: bytes, at: int) -> Value:
    value = data[at]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), at + 1
    value, at = uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _size(data: bytes, at: int) -> Value:
    """A length; -1 stands for null."""
    size, at = uvarint(data, at)
    if size - 1 > len(data) - at:
        raise ValueError(f"a length of {size - 1:,}, with {len(data) - at:,} bytes left")
    return size - 1, at


def _string(data: bytes, at: int) -> Value:
    size, at = _size(data, at)
    return (None, at) if size < 0 else (data[at : at + size].decode("utf-8"), at + size)


@cache
def _reader(kind: str) -> Reader:
    """How a field of this type is read."""
    if kind in FIXED:
        form = struct.Struct(f">{FIXED[kind]}")
        return lambda data, at: (form.unpack_from(data, at)[0], at + form.size)
    if kind == "string":
        return _string
    item = kind[2:]
    code, width = FIXED.get(item, ""), struct.calcsize(f">{FIXED.get(item, '')}")
    inner = [Field(str(n), type_, 0, None) for n, type_ in enumerate(item.strip("()").split(","))]
    read_item = None if code else _struct(inner, 0)

    def read_array(data: bytes, at: int) -> Value:
        size, at = _size(data, at)
        if size < 0:
            return None, at
        if read_item is None:
            return struct.unpack_from(f">{code * size}", data, at), at + width * size
        values = []
        for _ in range(size):
            value, at = read_item(data, at)
            values.append(value)
        return values, at

    return read_array


def _struct(fields: list[Field], version: int) -> Reader:
    """How the fields of a version are read; tagged fields that are not known are passed over."""
    fields = [field for field in fields if field.since <= version]
    tagged = {f.tag: (f.name, _reader(f.type)) for f in fields if f.tag is not None}
    steps: list[tuple[Sequence[str], Callable, int]] = []  # one reads several of a fixed size
    plain = (field for field in fields if field.tag is None)
    for is_fixed, group in groupby(plain, key=lambda field: field.type in FIXED):
        if is_fixed:
            names, codes = zip(*((f.name, FIXED[f.type]) for f in group), strict=True)
            form = struct.Struct(">" + "".join(codes))
            steps.append((names, form.unpack_from, form.size))
        else:
            steps += [([field.name], _reader(field.type), 0) for field in group]

    def read(data: bytes, at: int) -> Value:
        values: dict[str, Any] = {}
        for names, reader, size in steps:
            if size:
                values.update(zip(names, reader(data, at)))  # noqa: B905 (they are as many)
                at += size
            else:
                values[names[0]], at = reader(data, at)
        if data[at] == 0:
            return values, at + 1
        more, size = read_tagged(data[at:])
        values.update(more)
        return values, at + size

    @lru_cache(maxsize=10_000)
    def read_tagged(data: bytes) -> Value:  # many partitions change alike
        values: dict[str, Any] = {}
        count, at = uvarint(data, 0)
        for _ in range(count):
            tag, at = uvarint(data, at)
            size, at = uvarint(data, at)
            end = at + size
            if tag in tagged:
                name, reader = tagged[tag]
                values[name], at = reader(data, at)
            if at > end or end > len(data) or (tag in tagged and at != end):
                raise ValueError(f"tagged field {tag} has not the {size} bytes that it says")
            at = end
        return values, at

    return read
