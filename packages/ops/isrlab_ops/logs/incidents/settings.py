"""A cluster's releases, settings and addresses, as logs show them. Nothing is guessed.

A process prints its settings when it starts, near the beginning of a log (reader/printed.py). Later
changes by a command are missed unless a line reports them.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isrlab.events.exact import Key
from isrlab_ops.logs.history.record import Record

MIN_ISR = "min.insync.replicas"
CAPPED_SINCE = 3, 7
_CONFIGURED = re.compile(r"min\.insync\.replicas(?:=| -> |: )(\d{1,4})")
_ADDRESS = re.compile(r"(?:[A-Z_0-9]+://)?([A-Za-z0-9][A-Za-z0-9._-]{0,252}:\d{1,5})")


@dataclass
class PrintedSettings:
    """`addresses` by broker; `min_isr` of the brokers; `of_topics` that have their own; `sizes`:
    how many replicas each partition has."""

    sizes: dict[Key, int] = field(default_factory=dict)
    releases: tuple[str, ...] = ()
    addresses: dict[int, str] = field(default_factory=dict)
    min_isr: int | None = None
    of_topics: dict[str, int] = field(default_factory=dict)
    is_given: bool = False  # by the user

    def least(self, key: Key) -> int | None:
        """How many replicas must be in sync for acks=all; None: not known. If all brokers run 3.7
        or later, no more than the partition has (KIP-966: Partition.effectiveMinIsr)."""
        least = self.min_isr if self.is_given else self.of_topics.get(key.topic, self.min_isr)
        numbers = [tuple(map(int, re.findall(r"\d+", name)[:2])) for name in self.releases]
        is_capped = min(numbers, default=(0,)) >= CAPPED_SINCE and key in self.sizes
        return min(least, self.sizes[key]) if least is not None and is_capped else least

    def bootstrap(self, but: Collection[int]) -> str:
        """The address of a broker other than these, else a placeholder."""
        known = [self.addresses[b] for b in sorted(self.addresses) if b not in but]
        return known[0] if known else "HOST:9092"


def settings_of(
    record: Record, files: Iterable[Mapping[str, Any]], given: int | None
) -> PrintedSettings:
    """The settings in the events and in the rows of files; `given` is min.insync.replicas."""
    cluster = PrintedSettings(is_given=given is not None)
    spans = {key: spans[-1] for key, spans in record.spans.items()}
    cluster.sizes = {key: len(record.held(key, span)) for key, span in spans.items()}
    releases = {r.detail.get("release") for r in record.rows["sign"]} - {None}
    cluster.releases = tuple(sorted(map(str, releases)))
    least: set[int] = set()
    for file in files:
        _take(file.get("printed") or (), cluster, least)
    for row in record.rows["sign"]:
        config = _CONFIGURED.search(row.detail.get("config", ""))
        if config and row.topic:
            cluster.of_topics[row.topic] = int(config[1])
    cluster.min_isr = given if given is not None else min(least) if len(least) == 1 else None
    return cluster


def _take(printed: Iterable[tuple[str, str]], cluster: PrintedSettings, least: set[int]) -> None:
    texts: dict[str, list[str]] = defaultdict(list)
    for name, value in printed:
        texts[name].append(value)
    brokers = {int(text) for text in texts["broker.id"] + texts["node.id"] if text.isdecimal()}
    least |= {int(text) for text in texts[MIN_ISR] if text.isdecimal()}
    topics = [name for name in texts if name.startswith("topic ")]
    cluster.of_topics |= {name[6:]: int(texts[name][-1]) for name in topics}
    for text in texts["advertised.listeners"] + texts["listeners"]:
        for listener in text.split(","):
            address = _ADDRESS.fullmatch(listener)
            is_open = address and not listener.startswith(("CONTROLLER", "SSL", "SASL"))
            if address and is_open and len(brokers) == 1 and not address[1].startswith("0.0.0.0:"):
                cluster.addresses.setdefault(min(brokers), address[1])
