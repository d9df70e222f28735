"""Slow leaders and slow followers: which evicts which, the costs, and what helps.

The seed of `SMALL` gives one stall at about one minute, to broker 3 in either role.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ipywidgets as widgets
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from IPython.display import HTML
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.events import exact
from isrlab.events.measures import measures
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.sums import by_run
from isrlab.show.controls import LiveFigure, choice, pick
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.style import BLUE, FAINT, OUTCOMES, VERMILION, counted
from isrlab.show.svg import Drawing
from isrlab.show.table import table
from isrlab.world import faults, scenario
from isrlab_book.fields import draw_fields
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents.find import Incident, find

ROLES = {"leader": "leader_stall_s", "follower": "stall_s"}
# The roles of a broker that an incident blames.
CLAIMS = {
    "leader_stalled": ("leader",), "leader_woke": ("leader",), "follower_stalled": ("follower",),
    "follower_slow": ("follower",), "broker_stalled": ("leader", "follower"),
}  # fmt: skip
FATES = ("right", "undecided", "wrong")
SMALL = FleetConfig(
    version="3.7", partitions=30, brokers=6, minutes=4, load="steady", records_per_s=20,
    min_insync_replicas=2, stall_s=0, stall_every_s=7_200, leader_stall_every_s=7_200, seed=352,
)  # fmt: skip

SLOW_LEADER = """partition leader=3 replicas=3,1,2 latency=2ms min.insync.replicas=2 \
replica.lag.time.max.ms=30s
advance 7s
pause 1 fetcher
pause 2 fetcher"""  # the leader checks its ISR 38 s after that


class InjectedStall(NamedTuple):
    """A stall of one role of a broker, in ms of the run."""

    role: str
    broker: int
    from_ms: int
    to_ms: int


class Judgement(NamedTuple):
    """An incident of a fleet, and the stalls at that time."""

    incident: Incident
    causes: tuple[InjectedStall, ...]

    @property
    def claims(self) -> set[tuple[str, int]]:
        """The blamed brokers, with their roles."""
        roles = CLAIMS.get(self.incident.what, ())
        return {(role, broker) for broker in self.incident.blamed for role in roles}

    @property
    def fate(self) -> str:
        """ "right" if every claim is true, "undecided" if there is none, "wrong" if one is not."""
        true = {cause[:2] for cause in self.causes}
        return "undecided" if not self.claims else "right" if self.claims <= true else "wrong"


def in_trouble(config: FleetConfig, role: str, length_s: float, every_s: float) -> FleetConfig:
    """The fleet with brokers that stall for `length_s` every `every_s`, in one of the `ROLES`."""
    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    every = ROLES[role].replace("stall_s", "stall_every_s")
    calm = dict.fromkeys(ROLES.values(), 0.0)
    changes = calm | {ROLES[role]: float(length_s), every: float(every_s)}
    return config.with_(**changes, name=f"slow {role}")


def plan(
    config: FleetConfig, stall_s: float, percent: float, limits_s: Sequence[float]
) -> tuple[list[FleetConfig], list[list[FleetConfig]]]:
    """Fleets with slow leaders, slow followers, and both; the first two under each limit.

    A broker is stalled for `percent` of the time.
    """
    every_s = stall_s * 100 / percent
    leaders, followers = (in_trouble(config, role, stall_s, every_s) for role in ROLES)
    both = leaders.with_(stall_s=stall_s, stall_every_s=every_s, name="both")
    limits_ms = [round(1000 * s) for s in sorted({*limits_s})]
    name = "replica_lag_time_max_ms"
    return [leaders, followers, both], [
        fleet.sweep(c, name, limits_ms) for c in (leaders, followers)
    ]


def troubles_of(config: FleetConfig) -> list[InjectedStall]:
    """Every stall of a leader's reads or a follower's fetchers in a fleet."""
    return [
        InjectedStall(role, broker, int(start), int(end))
        for role, stalls in (("follower", load.stalls), ("leader", load.leader_stalls))
        for broker in range(1, config.brokers + 1)
        for start, end in zip(*stalls(config, broker), strict=True)
    ]


def verdicts(config: FleetConfig, events: pa.Table) -> list[Judgement]:
    """The incidents in the events of a fleet, and for each the troubles that touch it, or that had
    ended less than a lag limit before."""
    troubles = troubles_of(config)
    end_ms = config.duration_ms
    return [
        Judgement(each, tuple(
            trouble for trouble in troubles
            if trouble.from_ms <= (end_ms if each.end_ms is None else each.end_ms)
            and trouble.to_ms + config.lag_time_ms > each.start_ms
        ))
        for each in find(Record(events, end_ms, start_ms=0))
    ]  # fmt: skip


def accuracy(config: FleetConfig, judged: Sequence[Judgement]) -> dict[str, str | int]:
    """How many faults a right verdict names, and how many incidents meet each of the `FATES`."""
    fates = Counter(each.fate for each in judged)
    named = {
        cause for each in judged if each.fate == "right"
        for cause in each.causes if cause[:2] in each.claims
    }  # fmt: skip
    return {
        "fleet": config.run,
        "faults": len(troubles_of(config)),
        "of these, named": len(named),
        "incidents": len(judged),
        **{fate: fates[fate] for fate in FATES},
    }


def handed_over(version: str, after_s: Sequence[int]) -> HTML:
    """The fate of a produce a second when a slow leader is shut down `after_s` into its stall.

    The engine plays one partition. Its leader, broker 3, sends its followers nothing for 45 s. A
    controlled shutdown for 10 s makes the controller elect another leader; 0: no shutdown.
    """
    rows = []
    for after in after_s:
        cluster, without_s = scenario.play(SLOW_LEADER, version).cluster, 0
        for second in range(60):
            if second == (after or 45):
                for follower in (1, 2):
                    faults.resume(cluster, follower)
                if after:
                    faults.clean_shutdown(cluster, 3)
            elif after and second == after + 10:
                faults.start(cluster, 3)
            cluster.advance(0)
            leader = cluster.controller.state.leader
            if leader in cluster.brokers:
                cluster.produce(leader, (f"m{second}",))
            without_s += leader not in cluster.brokers
            cluster.advance(1_000)
        errors = Counter(request.error for request in cluster.requests)
        refused = ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
        rows.append({
            "shut down after (s)": after or "never",
            "acknowledged": errors[None],
            "sent again": errors[cluster.version.not_leader_error],
            "timed out": errors["REQUEST_TIMED_OUT"],
            "refused": sum(errors[error] for error in refused),
            "without a leader (s)": without_s,
        })  # fmt: skip
    return table(rows)


def costs(
    configs: Sequence[FleetConfig], refused: pd.DataFrame, under: pd.DataFrame
) -> pd.DataFrame:
    """The mean cost of one stall: the sums of `by_run`, divided by the number of stalls."""
    rows = [(c.run, c.lag_time_ms / 1000, len(troubles_of(c))) for c in configs]
    runs = pd.DataFrame(rows, columns=["run", "lag_limit_s", "troubles"])
    sums = by_run(configs, refused, under)
    return runs.join(sums.div(runs["troubles"].clip(lower=1).to_numpy(), axis=0), on="run")


def by_broker(configs: Sequence[FleetConfig]) -> HTML:
    """What each broker of small fleets reports as a leader, and how often it is evicted."""
    rows = []
    for config in configs:
        events = fleet.simulate_local(config)
        evicted = Counter(out.replica for out in exact.evictions(events))
        sizes = config.replication_factor, config.min_isr(config.replication_factor)
        for broker in range(1, config.brokers + 1):
            own = events.filter(pc.equal(events["broker"], broker))
            numbers = measures(own, *sizes, (0, config.duration_ms))
            rows.append({
                "fleet": config.run,
                "broker": broker,
                "evicts": int(numbers["evictions"]),
                "is evicted": evicted[broker],
                "under-replicated (s)": round(60 * numbers["under_replicated_minutes"], 1),
                "p99 of produces (s)": round(numbers["p99_ms"] / 1000, 1),
            })  # fmt: skip
    return table(rows)


def draw_pairs(config: FleetConfig = SMALL) -> Drawing:
    """Leaders as rows, replicas as columns: how often that leader evicted that replica."""
    evictions = exact.evictions(fleet.simulate_local(config))
    counts = Counter((out.leader, out.replica) for out in evictions)
    names = range(1, config.brokers + 1)
    rows = {
        f"by leader {leader}": [
            (f"{n}", OUTCOMES["lost"]) if (n := counts[leader, replica]) else ("·", FAINT)
            for replica in names
        ]
        for leader in names
    }
    leaders, replicas = ({pair[side] for pair in counts} for side in (0, 1))
    evict = "evicts" if len(leaders) == 1 else "evict"
    title = f"{counted(len(leaders), 'leader')} {evict} {counted(len(replicas), 'replica')}, "
    title = f"{title}{counts.total():,} times in all" if counts else "No replica is evicted"
    return draw_fields(title, [([f"replica {name}" for name in names], rows)], wide=64)


def trouble_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Controls for the role that stalls, the length of a stall and the lag limit."""
    roles = [("a leader's reads", "leader"), ("a follower's fetchers", "follower")]
    role = pick("what stalls", roles, "leader")
    length = choice("for (s)", (20, 35, 45, 60), 45)
    limit = choice("lag limit (s)", (10, 30, 60), 30)

    def draw(role: str, length_s: float, limit_s: int) -> Drawing:
        moved = in_trouble(config, role, length_s, config.stall_every_s)
        return draw_pairs(moved.with_(replica_lag_time_max_ms=1000 * limit_s))

    return LiveFigure((role, length, limit), draw)


def plot_limits(costs_by_run: Mapping[str, pd.DataFrame], length_s: float) -> Axes:
    """Produces that failed in each stall, by lag limit: refused, and timed out."""
    curves, parts = {}, []
    for (name, rows), colour in zip(costs_by_run.items(), (VERMILION, BLUE), strict=False):
        x, late = rows["lag_limit_s"], rows["timed_out"]
        curves[f"{name}: timed out"] = Curve(x, late, look=(colour, "o"))
        curves[f"{name}: refused"] = Curve(x, rows["refused"], look=(colour, "s"), style="--")
        ends = (
            f"{rows[n].iloc[0]:,.0f} → {rows[n].iloc[-1]:,.0f}" for n in ("refused", "timed_out")
        )
        parts.append("{}: refused {}, timed out {}".format(name, *ends))
    limits = [limit for rows in costs_by_run.values() for limit in rows["lag_limit_s"]]
    title = f"Limit {min(limits):g} → {max(limits):g} s, {'; '.join(parts)}"
    scales = Scale("replica.lag.time.max.ms (s)"), Scale("produces (batches) per fault")
    return plot_curves(curves, title, scales, marks={length_s: f"a stall, {length_s:g} s"})


def finding(
    costs_by_run: Mapping[str, pd.DataFrame], limit_s: float, judged: Sequence[Judgement]
) -> str:
    """The cost of a stall, and how many verdicts were right."""
    parts = []
    for name, rows in costs_by_run.items():
        row = rows[rows["lag_limit_s"] == limit_s].iloc[0]
        parts.append(f"{name}: {row['refused']:,.0f} refused, {row['timed_out']:,.0f} timed out")
    fates = Counter(each.fate for each in judged)
    return (
        f"Produces that fail in one stall, limit {limit_s:g} s, {'; '.join(parts)}. The right "
        f"broker and role are blamed in {fates['right']} of {len(judged)} incidents, wrong ones in "
        f"{fates['wrong']}."
    )
