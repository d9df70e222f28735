"""The states of partitions that ZooKeeper stored, read from its transaction log.

Source: FileTxnLog, TxnHeader, SetDataTxn, CreateTxn and MultiTxn of ZooKeeper 3.4 to 3.6
(zookeeper-jute): a file header of 16 bytes, then (checksum, length, transaction, 'B') repeated.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

COLUMNS = ("ts_ms", "partition", "partition_epoch", "leader", "leader_epoch", "isr")
CREATE, SET_DATA, MULTI, CREATE_2 = 1, 5, 14, 15


class _Reader:
    """Reads numbers and buffers one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def buffer(self) -> bytes:
        size = max(0, self.number("i"))
        self.at += size
        return self.data[self.at - size : self.at]


def states(data: bytes, topic: str) -> Iterator[tuple[int, int, int, int, int, str]]:
    """Each written state of a topic's partitions, as `COLUMNS`; times are the server's."""
    log = _Reader(data, 16)
    while log.at + 12 <= len(data):
        log.number("q")
        entry = _Reader(log.buffer())
        log.at += 1
        if not entry.data:
            return  # the rest of the file is preallocated
        ms, kind = struct.unpack_from(">qi", entry.data, 20)
        entry.at = 32
        for path, version, value in _writes(entry, kind):
            places = path.split("/")
            if places[1:4] == ["brokers", "topics", topic] and places[-1] == "state" and value:
                state = json.loads(value)
                isr = " ".join(map(str, state["isr"]))
                yield ms, int(places[5]), version, state["leader"], state["leader_epoch"], isr


def _writes(entry: _Reader, kind: int) -> Iterator[tuple[str, int, bytes]]:
    if kind == MULTI:
        for _ in range(entry.number("i")):
            inner = entry.number("i")
            yield from _writes(_Reader(entry.buffer()), inner)
    elif kind in (CREATE, CREATE_2, SET_DATA):
        path, value = entry.buffer().decode(), entry.buffer()
        yield path, entry.number("i") if kind == SET_DATA else 0, value
