"""Partitions in which a failure can lose acknowledged records, by the states in the metadata log.

Theory of operation. With eligible leader replicas (KIP-966) the controller may elect a replica that
has left the ISR, if it still has every committed record: while the ISR is below min ISR no more are
committed. Kafka 4.1 to 4.4 break that in two ways (data/upstream/elr): a replica that a
reassignment removes stays eligible, though its log is deleted; and the controller bounds min ISR by
the replicas of partition 0, while a leader bounds it by those of its own partition.

This module replays the stored states. A replica is *emptied* from its removal until it is in the
ISR again. `exposures` are the exposed partitions at the end of the log:

    no replica        an eligible broker without a replica: added again, it may lead without records
    came back         an eligible replica that is emptied: the failure of all ISR members suffices
    being added       likewise, from a snapshot alone, which does not show earlier states
    partition 0       the two bounds differ: too many replicas are eligible, or none
    unclean           the only in-sync replica of several, and any other may be elected uncleanly

Left out: logs that were lost by a disk or a file system; brokers that are fenced now, which could
not be elected before they return. Without a metadata log no exposure can be seen. Source:
PartitionChangeBuilder.maybePopulateTargetElr and isValidNewLeader,
ReplicationControlManager.getTopicEffectiveMinIsr, 4.1.2 to 4.4.0; Partition.effectiveMinIsr.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isrlab.events.exact import Key
from isrlab.events.statements import Events, Statement, statements
from isrlab.events.wording import counted
from isrlab_ops.logs.reader.metadata.log import ELR, MIN_ISR

UNCLEAN = "unclean.leader.election.enable"
STATES = ("isr_commit", "leader", "offline")


class Exposure(NamedTuple):
    """`schedule`: the steps of a short schedule that loses records, with this many `failures`."""

    key: Key
    why: str
    replica: int | None
    failures: int
    says: str
    schedule: tuple[str, ...]


@dataclass
class StoredPartition:
    """The last stored state, and the replicas emptied by then."""

    epoch: int = -1
    leader: int = -1
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    emptied: set[int] = field(default_factory=set)
    has_history: bool = False  # whether its creation was read

    def become(self, row: Statement) -> None:
        """Take in the next state; an older one, from another copy of the log, changes nothing."""
        epoch = row.partition_epoch
        if epoch is None:
            self.emptied, self.has_history, self.epoch = set(), False, -1
        elif epoch < self.epoch:
            return
        else:
            self.has_history, self.epoch = self.has_history or epoch == 0, epoch
        before = {*self.replicas}
        self.isr, self.leader = row.isr or (), -1 if row.leader is None else row.leader
        for name in ("replicas", "adding", "elr"):
            setattr(self, name, row.ids(name))
        self.emptied = (self.emptied | (before - {*self.replicas})) - {*self.isr}


def exposures(events: Events, until_ms: int | None = None) -> list[Exposure]:
    """The exposures after these events, up to a time; none without a metadata log."""
    rows = (row for row in statements(events) if until_ms is None or row.ts_ms <= until_ms)
    return ranked(*stored_in(rows))


def stored_in(
    rows: Iterable[Statement],
) -> tuple[dict[Key, StoredPartition], dict[tuple[str, str], str]]:
    """The last state of each partition by these rows of metadata logs, and the settings."""
    partitions: dict[Key, StoredPartition] = {}
    settings: dict[tuple[str, str], str] = {}
    for row in filter(lambda each: each.is_exact, rows):
        if row.kind == "config":
            settings[row.detail["of"], row.detail["name"]] = row.detail.get("value", "")
        elif row.kind == "deleted":
            partitions.pop(row.key, None)
        elif row.kind in STATES and row.isr is not None and row.leader is not None:
            partitions.setdefault(row.key, StoredPartition()).become(row)
    return partitions, settings


def ranked(
    partitions: dict[Key, StoredPartition], settings: dict[tuple[str, str], str]
) -> list[Exposure]:
    """The exposures, those first that need the fewest failures."""
    return sorted(_all(partitions, settings), key=lambda e: (e.failures, e.why != "came back"))


def shown(known: Sequence[Exposure]) -> Iterator[str]:
    """In words: the nearest loss and its schedule, and how many partitions are exposed."""
    if not known:
        return
    first, others = known[0], len({each.key for each in known}) - 1
    more = f", and {counted(others, 'more partition')}" if others else ""
    yield f"Exposed: {first.key.topic}-{first.key.partition}{more}: {first.says}"
    yield "Lost by: " + "; ".join(f"{n}. {step}" for n, step in enumerate(first.schedule, 1))


def _all(
    partitions: dict[Key, StoredPartition], settings: dict[tuple[str, str], str]
) -> Iterator[Exposure]:
    has_elr = settings.get(("cluster", ELR), "") not in ("", "0")
    has_elr |= any(state.elr for state in partitions.values())
    for key, state in partitions.items():
        if has_elr:
            yield from _eligible(key, state)
            first = partitions.get(key._replace(partition=0))
            yield from _bounds(key, state, first, _setting(settings, key.topic, MIN_ISR))
        if _setting(settings, key.topic, UNCLEAN) == "true":
            yield from _unclean(key, state, _setting(settings, key.topic, MIN_ISR))


def _setting(settings: dict[tuple[str, str], str], topic: str, name: str) -> str | None:
    """The topic's value, or else the cluster's; None if the log has neither."""
    return settings.get((topic, name)) or settings.get(("broker", name)) or None


def _eligible(key: Key, state: StoredPartition) -> Iterator[Exposure]:
    """Exposed by eligible replicas that no longer have their log."""
    last = named(state.isr)
    for replica in state.elr:
        ends = f"{last} {fails(state.isr)} before broker {replica} is in sync again"
        leads = f"broker {replica} is elected from the ELR, without the records that {last} " + (
            "has" if len(state.isr) == 1 else "have"
        )
        if replica not in state.replicas:
            says = f"broker {replica} is eligible to lead, but is not a replica: its log is deleted"
            again = f"a reassignment makes broker {replica} a replica again"
            yield Exposure(key, "no replica", replica, len(state.isr), says, (again, ends, leads))
        elif replica in state.emptied:
            says = f"broker {replica} is eligible to lead, and came back with an empty log"
            yield Exposure(key, "came back", replica, len(state.isr), says, (ends, leads))
        elif replica in state.adding and not state.has_history:
            says = f"broker {replica} is eligible to lead, and is being added: unless it has been "
            says += "in sync since, which a snapshot does not show, its log is not whole"
            yield Exposure(key, "being added", replica, len(state.isr), says, (ends, leads))


def _bounds(
    key: Key, state: StoredPartition, first: StoredPartition | None, setting: str | None
) -> Iterator[Exposure]:
    """Exposed because the controller bounds the min ISR by partition 0, a leader by its own."""
    if first is None or len(first.replicas) == len(state.replicas):
        return
    of_first, own = len(first.replicas), len(state.replicas)
    if setting is not None and setting.isdecimal():
        of_first, own = min(of_first, int(setting)), min(own, int(setting))
    if of_first == own:
        return
    counts = f"partition 0 has {counted(len(first.replicas), 'replica')}, "
    counts += f"this partition {counted(len(state.replicas), 'replica')}"
    if of_first < own:
        says = f"{counts}: with fewer than {own} in sync no replica stays eligible"
        steps = (
            f"the ISR shrinks to one replica, as all other brokers of {named(state.replicas)} fail",
            "that replica also fails, and returns without its last records",
            "no other may lead, though another may have them",
        )
        yield Exposure(key, "partition 0", None, own, says, steps)
    else:
        says = f"{counts}: what a reassignment removes stays eligible while fewer than {of_first} "
        says += f"are in sync, and the leader acknowledges with {own}"
        last = named(state.isr)
        steps = (
            "a reassignment adds a replica, and another removes it again",
            "a third adds it once more",
            f"{last} {fails(state.isr)} before it is in sync: it is elected with an empty log",
        )
        yield Exposure(key, "partition 0", None, len(state.isr), says, steps)


def _unclean(key: Key, state: StoredPartition, setting: str | None) -> Iterator[Exposure]:
    """Exposed because unclean elections are allowed, and only one replica is in sync."""
    if len(state.isr) != 1 or len(state.replicas) < 2 or setting not in (None, "1"):
        return
    (last,) = state.isr
    says = f"broker {last} alone is in sync, and {UNCLEAN} is true"
    steps = (f"broker {last} fails", "another replica is elected, without its last records")
    yield Exposure(key, "unclean", last, 1, says, steps)


def named(brokers: Iterable[int]) -> str:
    """ "broker 1", or "brokers 1, 2"."""
    ids = sorted(brokers)
    return f"broker{'s' * (len(ids) != 1)} {', '.join(map(str, ids)) or 'none'}"


def fails(brokers: tuple[int, ...]) -> str:
    return "fails" if len(brokers) == 1 else "all fail"
