"""The encoding of records in Kafka's metadata log: the flexible form of KIP-482, by schemas.

A value is framed by three unsigned varints: frame version (1), key of the record, its version. Then
come its fields as `records.txt` has them, and its tagged fields, each with its size, so that
unknown ones are skipped. Lengths are stored plus one, so that 0 is null. Many records differ only
in their first fields, which have a fixed size: the rest is decoded once.

No library on PyPI decodes these records (kio and kafka-python know the client protocol only).
Source: AbstractApiMessageSerde.java, ByteBufferAccessor.java, 3.9; LeaderChangeMessage.json,
VotersRecord.json, ControlRecordType.java, 4.1.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = tuple[Any, int]  # the value, and the index at which it ends
ReadValue: TypeAlias = Callable[..., Value]  # reads bytes from an index on
FIXED = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
FIXED["uuid"] = "16s"
LEADER_CHANGE, VOTERS = 2, 6  # types of control records


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
    """The schemas of `records.txt` by key, in its order."""
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


def quorum_in(kind: int, value: bytes) -> dict[str, Any]:
    """The voters in a control record, and the leader of a LeaderChangeMessage; else nothing."""
    if kind not in (LEADER_CHANGE, VOTERS):
        return {}
    version, leader = struct.unpack_from(">hi", value)
    at, voter = 2, [WireField("0", "int32"), WireField("directory", "uuid")]
    if kind == LEADER_CHANGE:
        at, voter = 6, voter[: 1 + version]
    else:  # its versions of KRaft are a structure, here without tagged fields
        voter += [WireField("ends", "[](string,string,uint16)"), WireField("least", "int16")]
        voter += [WireField("most", "int16"), WireField("tags", "int8")]
    voters, _ = _structs(_struct(voter))(value, at)
    known = {"voters": tuple(each["0"] for each in voters)}
    return known | ({"leader": leader} if kind == LEADER_CHANGE else {})


@lru_cache(maxsize=1024)
def decoder(beginning: bytes) -> tuple[str, Callable[[bytes], dict[str, Any]] | None]:
    """The name of a record that begins with these three bytes, and the reader of its fields.

    A record that does not concern replicas has no reader. Raises UnknownRecord for types and
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

    rest = lru_cache(maxsize=10_000)(_struct(fields[len(first) :]))

    def read(value: bytes) -> dict[str, Any]:
        values = dict(zip(names, form.unpack_from(value, 3)))  # noqa: B905 (they are as many)
        values.update(rest(value[3 + form.size :])[0])
        return values

    return schema.name, read


def _fields(schema: Schema, version: int) -> list[WireField]:
    """The fields that a version has. Raises UnknownRecord for one that is not known."""
    if version > schema.last_version:
        raise UnknownRecord(f"unknown version {version} of {schema.name}Record", True)
    return [field for field in schema.fields if field.since <= version]


def uvarint(data: bytes, at: int) -> Value:
    value = data[at]
    if value < 0x80:  # the usual case
        return value, at + 1
    value = 0
    for nth, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * nth
        if byte < 0x80:
            return value, at + nth + 1
    raise ValueError("a number that does not end, or has more than 10 bytes")


def varint(data: bytes, at: int) -> Value:
    value = data[at]
    value, at = (value, at + 1) if value < 0x80 else uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _length(data: bytes, at: int) -> Value:
    """How many bytes or items follow; -1 is null."""
    size, at = uvarint(data, at)
    if size - 1 > len(data) - at:
        raise ValueError(f"a length of {size - 1:,}, with {len(data) - at:,} bytes left")
    return size - 1, at


def _reader(kind: str) -> ReadValue:
    """The function that reads a value of this type; None is null."""
    if kind in FIXED:
        form = struct.Struct(f">{FIXED[kind]}")
        return lambda data, at: (form.unpack_from(data, at)[0], at + form.size)
    if kind == "string":
        return _string
    item = kind.removeprefix("[]")
    if item in FIXED:
        return _numbers(FIXED[item])
    parts = enumerate(item.strip("()").split(","))
    return _structs(_struct([WireField(str(nth), part) for nth, part in parts]))


def _string(data: bytes, at: int) -> Value:
    size, at = _length(data, at)
    return (data[at : at + size].decode("utf-8"), at + size) if size >= 0 else (None, at)


def _numbers(letter: str) -> ReadValue:
    """The function that reads an array of values of one size."""
    width = struct.calcsize(f">{letter}")

    def read(data: bytes, at: int) -> Value:
        count, at = _length(data, at)
        if count < 0:
            return None, at
        return [*struct.unpack_from(f">{letter * count}", data, at)], at + width * count

    return read


def _structs(reader: ReadValue) -> ReadValue:
    """The function that reads an array of structures."""

    def read(data: bytes, at: int) -> Value:
        count, at = _length(data, at)
        values = []
        for _ in range(count):
            value, at = reader(data, at)
            values.append(value)
        return (values if count >= 0 else None), at

    return read


def _struct(fields: Sequence[WireField]) -> ReadValue:
    """The function that reads the values of fields; unknown tagged ones are skipped."""
    plain = [(field.name, _reader(field.type)) for field in fields if field.tag is None]
    tagged = {field.tag: (field.name, _reader(field.type)) for field in fields}

    def read(data: bytes, at: int = 0) -> Value:
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
            else:
                at = end
            if at != end or end > len(data):
                raise ValueError(f"tagged field {tag} is shorter than the {size} bytes it declares")
        return values, at

    return read
