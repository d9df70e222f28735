"""Partitions in which a failure can lose acknowledged records, by the states in the metadata log.

Theory of operation. With eligible leader replicas (KIP-966) the controller may elect a replica that
has left the ISR, if it still has every committed record: while the ISR is below min ISR no more are
committed. Kafka 4.1 to 4.4 break that in two ways (data/upstream/elr): a replica that a
reassignment removes stays eligible, though its log is deleted; and the controller bounds min ISR by
the replicas of partition 0, while a leader bounds it by those of its own partition. Its other
losses here (data/upstream/settings, failed-disk, drift) need no reassignment.

This module replays the stored states. A replica is *emptied* from its removal until it is in the
ISR again. `exposures` are the exposed partitions at the end of the log:

    deleted topic     settings of a deleted topic of this name come back with a restart
    no directory      an eligible replica whose directory is offline, or was when it got another
    epochs            a stored ELR that snapshots leave out: later no ISR of the leader grows
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

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, NamedTuple

from isrlab.events.exact import Key
from isrlab.events.statements import Events, Statement, statements
from isrlab.events.wording import counted
from isrlab_ops.logs.reader.metadata.log import ELR, LEFT, MIN_ISR

UNCLEAN = "unclean.leader.election.enable"
STATES = ("isr_commit", "leader", "offline")
WORDS = tomllib.loads(files(__package__).joinpath("exposed.toml").read_text("utf-8"))


class Exposure(NamedTuple):
    """`schedule`: the steps of a short schedule that loses records, with this many `failures`;
    `prevents`: what to do against it."""

    key: Key
    why: str
    replica: int | None
    failures: int
    says: str
    schedule: tuple[str, ...]
    prevents: str = ""


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
    no_log: tuple[int, ...] = ()  # eligible, with an offline or a new directory

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
        for name in ("replicas", "adding", "elr", "no_log"):
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
            settings = {key: value for key, value in settings.items() if key[0] != row.topic}
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
    label = "Reached by" if first.why == "epochs" else "Lost by"
    yield f"{label}: " + "; ".join(f"{n}. {step}" for n, step in enumerate(first.schedule, 1))
    if first.prevents:
        yield f"Prevent: {first.prevents}"


def _all(
    partitions: dict[Key, StoredPartition], settings: dict[tuple[str, str], str]
) -> Iterator[Exposure]:
    has_elr = settings.get(("cluster", ELR), "") not in ("", "0")
    has_elr |= any(state.elr for state in partitions.values())
    for key, state in partitions.items():
        least = _setting(settings, key.topic, MIN_ISR)
        if left := settings.get((key.topic, LEFT)):
            yield _exposure(key, state, "deleted topic", 0, left=left)
        if state.elr and settings.get(("cluster", ELR)) == "0":
            yield _exposure(key, state, "epochs", len(state.replicas))  # last: nothing is lost
        for why, replica in _eligible(state) if has_elr else ():
            yield _exposure(key, state, why, replica=replica)
        if has_elr:
            yield from _bounds(key, state, partitions.get(key._replace(partition=0)), least)
        is_alone = len(state.isr) == 1 < len(state.replicas) and least in (None, "1")
        if is_alone and _setting(settings, key.topic, UNCLEAN) == "true":
            yield _exposure(key, state, "unclean", replica=state.isr[0])


def _setting(settings: dict[tuple[str, str], str], topic: str, name: str) -> str | None:
    """The topic's value, or else the cluster's; None if the log has neither."""
    return settings.get((topic, name)) or settings.get(("broker", name)) or None


def _eligible(state: StoredPartition) -> Iterator[tuple[str, int]]:
    """The eligible replicas that no longer have their log, each with the reason."""
    for replica in state.elr:
        if replica not in state.replicas:
            yield "no replica", replica
        elif replica in state.no_log:
            yield "no directory", replica
        elif replica in state.emptied:
            yield "came back", replica
        elif replica in state.adding and not state.has_history:
            yield "being added", replica


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
    why, failures = ("too few", own) if of_first < own else ("too many", len(state.isr))
    exposure = _exposure(key, state, why, failures, counts=counts, first=of_first, own=own)
    yield exposure._replace(why="partition 0")


def _exposure(
    key: Key, state: StoredPartition, why: str, failures: int | None = None, **values: Any
) -> Exposure:
    """In the words of exposed.toml. Unless `failures` says otherwise, all in-sync replicas fail."""
    fails, has = ("fails", "has") if len(state.isr) == 1 else ("all fail", "have")
    values |= {"last": named(state.isr), "leader": state.leader, "replicas": named(state.replicas)}
    values |= {"fails": fails, "has": has}
    text = WORDS[why]
    says, *steps = (each.format(**values) for each in (text["says"], *text["steps"]))
    count, prevents = len(state.isr) if failures is None else failures, text.get("prevents", "")
    return Exposure(key, why, values.get("replica"), count, says, tuple(steps), prevents)


def named(brokers: Iterable[int]) -> str:
    """ "broker 1", or "brokers 1, 2"."""
    ids = sorted(brokers)
    return f"broker{'s' * (len(ids) != 1)} {', '.join(map(str, ids)) or 'none'}"
