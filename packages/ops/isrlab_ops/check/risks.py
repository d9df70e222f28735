"""The risks of further failures. A loss and its shortest schedule come from
logs/incidents/exposed.py, for a state from any source; other risks are counted, with an example."""

from collections.abc import Mapping
from shlex import quote

from isrlab.events.exact import Key
from isrlab.events.wording import counted
from isrlab_ops.check.cluster import ClusterState
from isrlab_ops.check.describe import DescribedPartition
from isrlab_ops.logs.incidents.exposed import UNCLEAN, Exposure, StoredPartition, ranked
from isrlab_ops.logs.reader.metadata.log import ELR, MIN_ISR

THROTTLED = ".replication.throttled."
REASSIGN, CONFIGS = (
    f"kafka-{what}.sh --bootstrap-server HOST:9092" for what in ("reassign-partitions", "configs")
)


def exposures(state: ClusterState) -> list[Exposure]:
    """The losses that a few failures would cause, nearest first."""
    known, settings = dict[Key, StoredPartition](), dict(state.settings)
    settings |= {("cluster", ELR): "1"} if state.has_elr else {}
    heeds = any(not v.kraft or v.kraft_elects_uncleanly for v in state.versions)
    for p in state.partitions:
        past = state.past.get(p[:2], (set(),))
        known[Key("", p.topic, p.number)] = StoredPartition(
            -1, p.leader, p.isr, p.replicas, p.adding, p.elr, *past
        )
    for p in {p.topic: p for p in state.partitions}.values():
        settings[p.topic, UNCLEAN] = "true" if p.unclean and heeds else "false"  # if it is known
        settings |= {(p.topic, MIN_ISR): str(p.min_isr)} if p.min_isr else {}
    return ranked(known, settings)


def risks(state: ClusterState) -> dict[str, list[str]]:
    """Conditions that make failures worse than necessary, and where they hold."""
    known: dict[str, list[str]] = {}
    racks = state.racks if len(state.zones) > 1 else {}
    for p in state.partitions:
        is_alone = len(p.replicas) == 1
        for holds, what in (
            (is_alone, "only one replica"),
            (not is_alone and len(p.isr) <= 1, "one copy left"),
            (not is_alone and p.min_isr == 1,
             "min.insync.replicas=1, so acks=all may mean one copy"),
            (not is_alone and p.unclean, f"{UNCLEAN} is on"),
            (not is_alone and racks and len({racks[b] for b in p.replicas}) == 1,
             "all replicas in one zone"),
        ):  # fmt: skip
            if holds:
                known.setdefault(what, []).append(p.name)
    throttled = {of for (of, name), value in state.settings.items() if value and THROTTLED in name}
    if throttled and state.shows_moves and not moving(state):
        known["a throttle is set and nothing moves"] = sorted(throttled)
    return known


def moving(state: ClusterState) -> list[DescribedPartition]:
    """The partitions of moves that are in progress, or were never finished."""
    return [p for p in state.partitions if p.adding or p.removing]


def removal(state: ClusterState) -> str:
    """The commands that remove what a move has left behind, if no tool is at work on it."""
    names, lists = [p.name for p in moving(state)], dict[str, list[str]]()
    for (of, name), value in sorted(state.settings.items()):
        if value and THROTTLED in name:
            lists.setdefault(of, []).append(name)
    lines = [f"{len(names)} with Adding or Removing Replicas, such as {name}: {REASSIGN} "
             "--cancel --reassignment-json-file <(... --json | jq .cancel)"
             for name in names[:1]]  # fmt: skip
    for of, settings in [*lists.items()][:1]:
        kind, entity = ("broker", of[7:]) if of.startswith("broker ") else ("topic", of)
        lines += [
            f"{len(lists)} with a throttle, such as {of}: {CONFIGS} --alter --entity-type "
            f"{kind}s --entity-name {quote(entity)} --delete-config {','.join(settings)}"
        ]
    return "; ".join(lines) and f"if no tool moves replicas (Cruise Control?): {'; '.join(lines)}"


def shown(known: Mapping[str, list[str]]) -> str:
    """All risks in one sentence."""
    kinds = {what: "throttle" if "throttle" in what else "partition" for what in known}
    return "; ".join(
        f"{what} ({counted(len(names), kinds[what])}, such as {names[0]})"
        for what, names in known.items()
    )
