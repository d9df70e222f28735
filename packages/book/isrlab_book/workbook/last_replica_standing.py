"""Notebook 09: which broker may lead when no replica is in sync, and what each failure loses.

A partition has three replicas. A table has a row for each failure and a column for each pair of
acks and min.insync.replicas; a cell is a run: a record is written, something fails, a second record
is tried, perhaps something else fails, everything is repaired, and then the observer looks for
acknowledged records. No disk is flushed meanwhile: the worst case.

A second table has outages of a leader's network, by session timeout and lag limit.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from isrlab.engine.versions import KafkaVersion
from isrlab.show import style
from isrlab.show.matrix import plot_matrix
from isrlab.world import scenario
from isrlab.world.script import Run
from isrlab_book.branches import branches

STOPS = ("kill", "power_loss", "clean_shutdown")
UNREACHABLE = "cut 1 2\ncut 1 3\nproduce 1 m3 acks={acks}\nadvance 60s"
STOPPED = "clean_shutdown 3\nclean_shutdown 2"
KILLED = "# Where `m2 refused`: Broker 1, now alone, refuses m2.\nkill 3\nelect\nkill 2\nelect"
POWER = "# Where `ok`: Broker 1 loses power, and m1 with it; no broker leads.\npower_loss 1\nelect"
# The failures before the second record is written, and those after
FAILURES = {
    "1 follower dies": ("kill 3\nelect", ""),
    "the leader dies": ("kill 1\nelect", ""),
    "2 followers die": (KILLED, ""),
    "the leader is cut off, then dies": ("cut 1 2\ncut 1 3", "kill 1\nelect"),
    "the leader loses power": ("power_loss 1\nelect", ""),
    "2 are cut off, then it loses power": (UNREACHABLE, POWER),
    "2 shut down, then it loses power": (STOPPED, POWER),
    "2 are killed, then it loses power": (KILLED, POWER),
}
BLOCKS = (  # of a trial; an empty one is left out
    "# Where `m1 acknowledged`: m1 is acknowledged, and all three replicas have it.\n"
    "partition replicas=1,2,3 min.insync.replicas={least} unclean.leader.election.enable=false\n"
    "produce 1 m1 acks={acks}\nadvance 6s",
    "{first}\nstabilize\nproduce {leader} m2 acks={acks}\nadvance 1s",
    "{then}",
    "# Where `1 leads epoch 2 from offset 0`: Broker 1 returns with an empty log, and leads;\n"
    "# the others truncate m1.\n{starts}\nheal 1 2\nheal 1 3\nstabilize\nadvance 5s",
)
SETTINGS = tuple((acks, least) for acks in ("1", "all") for least in (1, 2, 3))
GOOD, BAD, NONE = (style.OUTCOMES[outcome] for outcome in ("safe", "lost", "offline"))
COLOURS = {"writes go on": GOOD, "writes stop": NONE, "1 record lost": BAD}
COLOURS |= dict.fromkeys(("2 records lost", "3 records lost"), style.OUTCOMES["diverged"])
OUTAGE, OUTAGES_S = "timeouts_in_wrong_order", range(5, 75, 5)


def trial(version: str | KafkaVersion, acks: str, least: int, failure: str) -> Run:
    """Write, fail, try to write, fail again, repair. Raises KeyError for an unknown failure."""
    first, then = (part.format(acks=acks) for part in FAILURES[failure])
    lines = [line.split() for line in f"{first}\n{then}".splitlines() if line]
    stopped = sorted({line[1] for line in lines if line[0] in STOPS})
    leader = 2 if any(f"{word} 1" in first for word in STOPS) else 1
    starts = "\n".join(f"start {broker}" for broker in stopped)
    parts = {"first": first, "then": then, "leader": leader, "starts": starts}
    blocks = [block.format(acks=acks, least=least, **parts) for block in BLOCKS]
    return scenario.play("\n----\n\n".join(filter(None, blocks)), version=version)


def word(run: Run) -> str:
    """How many acknowledged records a trial lost, or else whether the second one was accepted."""
    assert run.outcome.has_leader, "after the repair there is a leader"
    if lost := run.outcome.lost_acknowledged:
        return f"{style.counted(len(lost), 'record')} lost"
    return "writes go on" if "m2" in run.cluster.observer.acknowledged else "writes stop"


def table(version: str | KafkaVersion) -> dict[str, dict[str, str]]:
    """The outcome of each failure, for every pair of acks and min.insync.replicas."""
    return {f"acks={acks}, min ISR {least}":
            {failure: word(trial(version, acks, least, failure)) for failure in FAILURES}
            for acks, least in SETTINGS}  # fmt: skip


def plot_table(cells: dict[str, dict[str, str]]) -> Axes:
    """A row for each failure, a column for each pair of acks and min.insync.replicas; the title
    says which settings lose the fewest records."""
    stops = {name: [*row.values()].count("writes stop") for name, row in cells.items()}
    lost = {name: sum(int(cell.split()[0]) for cell in row.values() if "lost" in cell)
            for name, row in cells.items()}  # fmt: skip
    best = min(cells, key=lambda name: (lost[name], stops[name]))
    title = f"{best} loses least: {style.counted(lost[best], 'record')} in {len(cells[best])} "
    title += f"failures; writes stop in {stops[best]} more"
    rows = {failure: {name: (_short(row[failure]), row[failure]) for name, row in cells.items()}
            for failure in next(iter(cells.values()))}  # fmt: skip
    return plot_matrix(rows, title, colours=COLOURS, size=(0.47, 0.3), is_upright=True)


def _short(cell: str) -> str:
    return {"writes go on": "on", "writes stop": "stop"}.get(cell, f"−{cell.split()[0]}")


def finding(versions: Sequence[str], acks: str) -> str:
    """In how many failures min ISR 2 loses acknowledged records, by version."""
    row = f"acks={acks}, min ISR 2"
    lost = {v: sum("lost" in cell for cell in table(v)[row].values()) for v in versions}
    parts = [f"in {lost[v]} of {len(FAILURES)} failures under Kafka {v}" for v in versions]
    return f"With {row}, acknowledged records are lost {', '.join(parts)}."


# Timeouts in the wrong order


def outage(version: str | KafkaVersion, session_s: int, lag_s: int, outage_s: int) -> Run:
    """The leader has no network for a while, reaches the controller for a moment, and dies."""
    return next(outages(version, session_s, lag_s, [outage_s]))[1]


def outages(
    version: str | KafkaVersion, session_s: int, lag_s: int, outages_s: Iterable[int] = OUTAGES_S
) -> Iterator[tuple[int, Run]]:
    """The same for each of these outages, with its seconds, the shortest first."""
    text = scenario.read(OUTAGE).replace("=60s", f"={session_s}s").replace("=30s", f"={lag_s}s")
    start, end = text.split("advance 50s\n")
    stories = ((s, f"advance {s - was_s}s", end) for was_s, s in pairwise([0, *outages_s]))
    return branches(KafkaVersion.of(version), start, stories)


def offline_after(
    version: str | KafkaVersion, sessions_s: Sequence[int], lags_s: Sequence[int]
) -> dict[str, dict[str, tuple[str, str]]]:
    """The `OUTAGES_S` after which no broker may lead, by session timeout and lag limit."""
    cells: dict[str, dict[str, tuple[str, str]]] = {}
    for session_s in sessions_s:
        row = cells.setdefault(f"session {session_s} s", {})
        for lag_s in lags_s:
            runs = outages(version, session_s, lag_s)
            bad = [length for length, run in runs if run.outcome.word == "offline"]
            text = " to ".join(map(str, sorted({*bad[:1], *bad[-1:]})))
            row[f"lag limit {lag_s} s"] = (f"{text} s", "offline") if bad else ("never", "safe")
    return cells


def plot_offline(cells: dict[str, dict[str, tuple[str, str]]]) -> Axes:
    """Which outages leave no broker that may lead."""
    offline = sum(word == "offline" for row in cells.values() for _, word in row.values())
    count = f"{offline} of {sum(map(len, cells.values()))}"
    title = f"No broker may lead after some outages in {count} settings"
    return plot_matrix(cells, title, size=(1.4, 0.4))
