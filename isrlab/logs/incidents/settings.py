"""A cluster's releases, settings and addresses, as logs show them. Nothing is guessed.

A process prints its settings when it starts, near the beginning of a log, so only the beginning of
each file is read for them. Later changes by a command are missed unless a line reports them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from isrlab.events.exact import Key
from isrlab.logs.history.record import Record
from isrlab.logs.reader.files import DamagedFileError, PathName, chunks

MOST_FILES = 60
LOOKED_AT = 1  # chunks of some megabytes, of each file
MIN_ISR = "min.insync.replicas"
_KEYS = "broker.id|node.id|advertised.listeners|listeners|min.insync.replicas"
_SETTING = re.compile(rb"\b(" + _KEYS.replace(".", r"\.").encode() + rb") = ([^\s\"\\]+)")
_CREATED = re.compile(
    rb"Created log for partition ([A-Za-z0-9._-]{1,249})-\d+ in \S+ with properties \{"
    rb"[^}]*?min\.insync\.replicas=(\d{1,4})"
)
_CONFIGURED = re.compile(r"min\.insync\.replicas(?:=| -> |: )(\d{1,4})")
_ADDRESS = re.compile(r"(?:[A-Z_0-9]+://)?([A-Za-z0-9][A-Za-z0-9._-]{0,252}:\d{1,5})")


@dataclass
class PrintedSettings:
    """`addresses` by broker; `min_isr` of the brokers; `of_topics` that have their own."""

    releases: tuple[str, ...] = ()
    addresses: dict[int, str] = field(default_factory=dict)
    min_isr: int | None = None
    of_topics: dict[str, int] = field(default_factory=dict)
    is_given: bool = False  # by the user

    def least(self, key: Key) -> int | None:
        """min.insync.replicas of a partition; None: not known."""
        return self.min_isr if self.is_given else self.of_topics.get(key.topic, self.min_isr)

    def bootstrap(self, but: Collection[int]) -> str:
        """The address of a broker other than these, else a placeholder."""
        known = [self.addresses[b] for b in sorted(self.addresses) if b not in but]
        return known[0] if known else "HOST:9092"


def settings_of(
    record: Record, log_dir: PathName, files: list[str], given: int | None
) -> PrintedSettings:
    """The settings in the events and the beginnings of files; `given` is min.insync.replicas."""
    cluster = PrintedSettings(is_given=given is not None)
    releases = {r.detail.get("release") for r in record.rows["sign"]} - {None}
    cluster.releases = tuple(sorted(map(str, releases)))
    least: set[int] = set()
    named = [name for name in files if "server" in name] or files
    for name in named[:MOST_FILES]:
        path = Path(log_dir) / name if Path(log_dir).is_dir() else Path(log_dir)
        try:
            for data in islice(chunks(str(path)), LOOKED_AT):
                _read(data, cluster, least)
        except (OSError, DamagedFileError):
            continue
    for row in record.rows["sign"]:
        config = _CONFIGURED.search(row.detail.get("config", ""))
        if config and row.topic:
            cluster.of_topics[row.topic] = int(config[1])
    cluster.min_isr = given if given is not None else min(least) if len(least) == 1 else None
    return cluster


def _read(data: bytes, cluster: PrintedSettings, least: set[int]) -> None:
    texts: dict[str, list[str]] = defaultdict(list)
    for key, value in _SETTING.findall(data):
        texts[key.decode()].append(value.decode("ascii", "replace"))
    brokers = {int(text) for text in texts["broker.id"] + texts["node.id"] if text.isdecimal()}
    least |= {int(text) for text in texts[MIN_ISR] if text.isdecimal()}
    cluster.of_topics |= {topic.decode(): int(size) for topic, size in _CREATED.findall(data)}
    for text in texts["advertised.listeners"] + texts["listeners"]:
        for listener in text.split(","):
            address = _ADDRESS.fullmatch(listener)
            is_open = address and not listener.startswith(("CONTROLLER", "SSL", "SASL"))
            if address and is_open and len(brokers) == 1 and not address[1].startswith("0.0.0.0:"):
                cluster.addresses.setdefault(min(brokers), address[1])
