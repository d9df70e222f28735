"""How a record of Kafka's metadata log is encoded: the flexible form of KIP-482, by its schemas.

A value is framed by three unsigned varints: frame version (1), key of the record, its version. Then
come its fields as `records.txt` has them, and its tagged fields, each with its size, so
that one that is not known is passed over. Lengths are one more than they say, so that 0 is null.

Source: AbstractApiMessageSerde.java, ByteBufferAccessor.java, 3.9.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = tuple[Any, int]  # what was read, and where it ends
Reader: TypeAlias = Callable[[bytes, int], Value]
INTEGERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}


class Schema(NamedTuple):
    name: str
    last_version: int
    fields: list[Field]
    is_skipped: bool


class Field(NamedTuple):
    name: str
    type: str
    since: int
    tag: int | None
    fields: list[Field]


@cache
def schemas() -> dict[int, Schema]:
    """By key, from `records.txt`."""
    known: dict[int, Schema] = {}
    nested: list[list[Field]] = []  # the fields of the record, and of its last struct
    text = files(__package__).joinpath("records.txt").read_text("utf-8")
    for line in filter(None, (line.partition("#")[0].rstrip() for line in text.splitlines())):
        first, second, third, *rest = line.split()
        if line.startswith(" "):
            tag = int(rest[0].removeprefix("tag=")) if rest else None
            field = Field(first, second, int(third), tag, [])
            depth = (len(line) - len(line.lstrip())) // 2
            nested[depth - 1].append(field)
            nested[depth:] = [field.fields]
        else:
            last, name = int(third.split("-")[-1]), second.removesuffix("Record")
            known[int(first)] = Schema(name, last, [], rest == ["skipped"])
            nested = [known[int(first)].fields]
    return known


class UnknownRecord(ValueError):
    def __init__(self, text: str, is_loss: bool) -> None:
        super().__init__(text)
        self.is_loss = is_loss


def decode(value: bytes) -> tuple[str, dict[str, Any]] | None:
    """Name and fields of a record; None if it says nothing about replicas.

    Raises UnknownRecord for types and versions that are not in the schemas, ValueError, IndexError
    or struct.error for bytes that do not fit them.
    """
    frame, at = uvarint(value, 0)
    key, at = uvarint(value, at)
    version, at = uvarint(value, at)
    schema = schemas().get(key)
    if frame != 1:
        raise UnknownRecord(f"unknown frame version {frame}", True)
    if schema is None:
        raise UnknownRecord(f"unknown type of record: {key}", False)
    if schema.is_skipped:
        return None
    if version > schema.last_version:
        raise UnknownRecord(f"unknown version {version} of {schema.name}Record", True)
    return schema.name, _decoder(key, version)(value, at)[0]


def check(fields: list[Field], data: dict[str, Any], version: int) -> None:
    """Raises an error for fields of a text that the binary form could not hold, or lack.

    ValueError, TypeError, KeyError or struct.error.
    """
    for field in fields:
        if (field.tag is None and field.since <= version) or field.name in data:
            _check(field, data[field.name])


def _check(field: Field, value: Any) -> None:
    if field.type.startswith("[]") and value is not None:
        for each in value:
            _check(field._replace(type=field.type[2:]), each)
    elif field.type in ("string", "uuid") and not isinstance(value, str | None):
        raise ValueError(f"{field.name} is no text")
    elif field.type in INTEGERS:
        struct.pack(">" + INTEGERS[field.type], value)


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
    value, at = uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


@cache
def _reader(kind: str) -> Reader:
    """How a field of this type is read."""
    if kind in INTEGERS:
        form = struct.Struct(">" + INTEGERS[kind])
        return lambda data, at: (form.unpack_from(data, at)[0], at + form.size)
    if kind == "[]int32":
        return _int32s
    if kind.startswith("[]"):
        item = _reader(kind[2:])
        return lambda data, at: _array(data, at, item)
    simple = {"string": _string, "uuid": _uuid, "bool": lambda data, at: (data[at] != 0, at + 1)}
    return simple[kind]


def _size(data: bytes, at: int) -> Value:
    """A length; -1 stands for null."""
    size, at = uvarint(data, at)
    if size - 1 > len(data) - at:
        raise ValueError(f"a length of {size - 1:,}, with {len(data) - at:,} bytes left")
    return size - 1, at


def _array(data: bytes, at: int, item: Reader) -> Value:
    size, at = _size(data, at)
    values = []
    for _ in range(size):
        value, at = item(data, at)
        values.append(value)
    return (None if size < 0 else values), at


def _string(data: bytes, at: int) -> Value:
    size, at = _size(data, at)
    return (None, at) if size < 0 else (data[at : at + size].decode("utf-8"), at + size)


def _uuid(data: bytes, at: int) -> Value:
    if len(data) - at < 16:
        raise ValueError("a UUID of less than 16 bytes")
    return _uuid_text(data[at : at + 16]), at + 16


@lru_cache(maxsize=10_000)
def _uuid_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _int32s(data: bytes, at: int) -> Value:
    size, at = _size(data, at)
    if size < 0:
        return None, at
    return [*struct.unpack_from(f">{size}i", data, at)], at + 4 * size


def _struct(fields: list[Field], version: int) -> Reader:
    """How the fields of a version are read; tagged fields that are not known are passed over."""
    readers = [(f, _array_of(f, version)) for f in fields if f.since <= version]
    plain = [(field.name, reader) for field, reader in readers if field.tag is None]
    tagged = {field.tag: (field.name, reader) for field, reader in readers}

    def read(data: bytes, at: int) -> Value:
        values: dict[str, Any] = {}
        for name, reader in plain:
            values[name], at = reader(data, at)
        count, at = uvarint(data, at)
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


def _array_of(field: Field, version: int) -> Reader:
    if field.type != "struct":
        return _reader(field.type)
    item = _struct(field.fields, version)
    return lambda data, at: _array(data, at, item)


@cache
def _decoder(key: int, version: int) -> Reader:
    return _struct(schemas()[key].fields, version)
