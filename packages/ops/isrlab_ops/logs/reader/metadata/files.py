"""The files of a metadata log: recognised, put in order, and read into rows.

A file is recognised by its beginning, not its name: a record batch of a metadata log.
"""

import os
import re
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, NamedTuple, TypeAlias

from isrlab_ops.logs.reader import files
from isrlab_ops.logs.reader.files import DamagedFileError, chunks
from isrlab_ops.logs.reader.metadata.log import MetadataCluster
from isrlab_ops.logs.reader.metadata.records import Damage, MetadataReader, Record, first_offset

CHECKPOINT = re.compile(r"\d{20}(?=-\d{10}\.checkpoint)")
BOOTSTRAP = "bootstrap.checkpoint"
LAYOUT = "metadata log"
BEGINNING = 64 * 1024  # of a file, by which it is recognised
SAME = ("offset", "ts_ms", "kind", "topic", "partition", "replica", "isr")  # in copies

MetadataRow: TypeAlias = dict[str, Any]


class MetadataSource(NamedTuple):
    """A file of a metadata log: a segment begins at offset `first`, a checkpoint ends before `end`.
    Of a growing file the first `size_bytes` count."""

    path: str
    name: str
    first: int
    end: int | None
    size_bytes: int | None = None


class Checkpoint(NamedTuple):
    """The whole state before offset `end`."""

    end: int
    name: str
    records: list[Record]


class Chain(NamedTuple):
    """Successive segments, and the checkpoints still to come."""

    reader: MetadataReader
    cluster: MetadataCluster
    checkpoints: list[Checkpoint]

    def installed(self, before: float) -> Iterator[MetadataRow]:
        """The events of checkpoints that end up to this offset."""
        while self.checkpoints and self.checkpoints[0].end <= before:
            checkpoint = self.checkpoints.pop(0)
            place = {"line": checkpoint.end, "offset": checkpoint.end}
            events = (event | place for event in self.cluster.install(checkpoint.records))
            yield from _events(events, checkpoint.name)


def metadata_sources(sources: Iterable[files.Source]) -> list[MetadataSource]:
    """The files that belong to metadata logs."""
    readable = ((s.end, recognise(s.path, s.name)) for s in sources if not s.skipped)
    return [known._replace(size_bytes=size) for size, known in readable if known]


def recognise(path: str, name: str) -> MetadataSource | None:
    """The source, if the file belongs to a metadata log and can be read at all."""
    begin = b""
    try:
        for chunk in chunks(path):
            begin += chunk
            if len(begin) >= BEGINNING:
                break
    except (DamagedFileError, OSError):
        pass  # judge by the part that is there
    first = first_offset(begin)
    if first is None:
        return None
    end, bootstrap = CHECKPOINT.search(name), 0 if BOOTSTRAP in name else None
    return MetadataSource(path, name, first, int(end[0]) if end else bootstrap)


def rows(sources: list[MetadataSource], run: str) -> Iterator[MetadataRow]:
    """Rows like those of read.py for other files: "event", "unread", and one "file" for each."""
    folders: dict[str, list[MetadataSource]] = {}
    for source in sources:
        folders.setdefault(os.path.dirname(source.name), []).append(source)
    events: dict[str, MetadataRow] = {}
    for folder in folders.values():
        for row in _folder(folder, [], MetadataCluster):
            row = {"run": run, "ts_ms": 0, "kind": "", **row}
            if row["row"] != "event":
                yield row
            elif row["same"] not in events or events[row["same"]].get("partition_epoch") is None:
                events[row["same"]] = row  # of two copies, the one with epochs
    yield from events.values()


def last_state(
    sources: list[MetadataSource], kind: type[MetadataCluster]
) -> tuple[MetadataCluster, list[MetadataRow]]:
    """The state at the end of the files of one folder, and the rows before it."""
    chains: list[Chain] = []
    rows_before = [*_folder(sources, chains, kind)]
    chains.sort(key=lambda chain: chain.reader.next_offset or 0)
    for chain in chains:
        chains[-1].cluster.quorum |= chain.reader.quorum
    return chains[-1].cluster, rows_before


def _folder(
    sources: list[MetadataSource], chains: list[Chain], kind: type[MetadataCluster]
) -> Iterator[MetadataRow]:
    """The rows of a folder: checkpoints first, then segments in order; adds to `chains`."""
    checkpoints: list[Checkpoint] = []
    for source in sorted(sources, key=lambda s: (s.end is None, s.end or s.first, s.name)):
        later = [checkpoint for checkpoint in checkpoints if checkpoint.end >= source.first]
        new = Chain(MetadataReader(), kind(), later)
        chain, whole = _chain(chains, source, new, checkpoints), list[Record]()
        for item in _file(source, chain.reader):
            if isinstance(item, Damage):
                chain.cluster.forget()
            elif isinstance(item, dict):
                yield item
            elif source.end is not None:
                whole += item
            else:
                yield from chain.installed(item[0].offset)
                yield from _events(chain.cluster.apply(item), source.name)
        if source.end is not None and chain.reader.ended:
            checkpoints.append(Checkpoint(source.end, source.name, whole))
    if not chains:
        chains.append(Chain(MetadataReader(), kind(), checkpoints))
    for chain in chains:
        yield from chain.installed(inf)
        if chain.cluster.saved:
            row = {"row": "unread", "file": source.name, "line": 0, "lines": 1, "text": ""}
            yield row | {"reason": "a transaction of the metadata log without its end"}


def _chain(
    chains: list[Chain], source: MetadataSource, new: Chain, checkpoints: list[Checkpoint]
) -> Chain:
    """The chain that ends where a segment begins; or else the new one."""
    if source.end is not None:
        return new
    for chain in chains:
        if chain.reader.next_offset == source.first:
            return chain
    for checkpoint in (new.checkpoints or checkpoints)[:1] if source.first else ():
        list(new.cluster.install(checkpoint.records))  # for the names of topics, and settings
        new.cluster.forget()
    chains.append(new)
    return new


def _events(events: Iterator[MetadataRow], file: str) -> Iterator[MetadataRow]:
    for event in events:
        yield {"row": "event", "file": file, "same": tuple(map(event.get, SAME)), **event}


def _file(
    source: MetadataSource, reader: MetadataReader
) -> Iterator[list[Record] | Damage | MetadataRow]:
    """Yield batches, each damage that leaves the state unknown, "unread" rows and a "file" row."""
    damages: dict[str, list[Damage]] = {}
    status, first_ms, before = "read", None, reader.records
    try:
        for item in _items(source, reader):
            if isinstance(item, Damage):
                damages.setdefault(item.reason, []).append(item)
                if item.is_loss:
                    yield item
            else:
                first_ms = item[0].ts_ms if first_ms is None else first_ms
                yield item
    except (DamagedFileError, OSError) as error:
        why = "broken off" if isinstance(error, DamagedFileError) else "not read"
        status = f"{why}: {error}"
        damages[status] = [Damage(status, "", 0)]
    for reason, items in damages.items():
        row = {"row": "unread", "file": source.name, "line": items[0].line, "reason": reason}
        yield row | {"text": items[0].where, "lines": len(items)}
    count = reader.records - before
    row = {"row": "file", "file": source.name, "bytes": os.path.getsize(source.path)}
    row |= {"lines": count, "reason": status, "layout": LAYOUT, "heads": count}
    last_ms = reader.last_ms if count else None
    yield row | {"first_ms": first_ms, "last_ms": last_ms, "headless": 0}


def _items(source: MetadataSource, reader: MetadataReader) -> Iterator[list[Record] | Damage]:
    data: list[bytes] = []
    try:
        data.extend(chunks(source.path, end=source.size_bytes))
    finally:  # the records before damage count
        yield from reader.segment(b"".join(data))
