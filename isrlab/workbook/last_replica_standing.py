"""Who may lead, and what is lost: pictures of the stored state, and tables of failures.

A partition has three replicas. `plot_candidates` draws who is in the ISR, who is remembered as
eligible (ELR, KIP-966) and who leads, moment by moment. A table has a row for each pair of acks and
min.insync.replicas and a column for each failure; a cell is a run: a record is written, something
fails, a second record is tried, perhaps more fails, everything is repaired, and then the observer
looks for what was acknowledged. No disk is written back meanwhile: the worst case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from isrlab.engine.versions import KafkaVersion
from isrlab.show.style import INK, LOST, PALE, bare, broker_colour, draw_matrix, plain
from isrlab.world import scenario
from isrlab.world.cluster import START_MS
from isrlab.world.frames import Frame
from isrlab.world.script import Run

STOPS = ("kill", "power_loss", "clean_shutdown")
UNREACHABLE = "cut 1 2\ncut 1 3\nproduce 1 tried acks={acks}\nadvance 60s"
STOPPED = "clean_shutdown 3\nclean_shutdown 2"
KILLED = "kill 3\nelect\nkill 2\nelect"
POWER = "power_loss 1\nelect\nheal 1 2\nheal 1 3"
# What fails before somebody tries to write, and what after
FAILURES = {
    "1 follower\ndies": ("kill 3\nelect", ""),
    "the leader\ndies": ("kill 1\nelect", ""),
    "2 followers\ndie": (KILLED, ""),
    "the leader is cut\noff, then dies": ("cut 1 2\ncut 1 3", "kill 1\nelect"),
    "the leader\nloses power": ("power_loss 1\nelect", ""),
    "2 are cut off, then\nit loses power": (UNREACHABLE, POWER),
    "2 shut down, then\nit loses power": (STOPPED, POWER),
    "2 are killed, then\nit loses power": (KILLED, POWER),
}
SETTINGS = tuple((acks, least) for acks in ("1", "all") for least in (1, 2, 3))
WORDS = {
    "go on": ("#C7E9DC", "writes go on"),
    "stop": ("#E4E4E4", "writes stop"),
    "lost 1": ("#F6C28B", "1 record lost"),
    "lost 2": ("#E9A15B", "2 records lost"),
    "lost 3": ("#D98A3D", "3 records lost"),
}
Table = dict[str, dict[str, str]]


# Tables of failures


@dataclass(frozen=True, slots=True)
class Trial:
    """One cell of a table: what failed, and the run."""

    failure: str
    run: Run

    @property
    def word(self) -> str:
        """So many acknowledged records are lost; or the second was refused; or it was taken."""
        if lost := self.run.outcome.lost_acknowledged:
            return f"lost {len(lost)}"
        assert self.run.outcome.has_leader, "after the repair there is a leader"
        return "go on" if "second" in self.run.cluster.acknowledged else "stop"


def trial(version: str | KafkaVersion, acks: str, least: int, failure: str) -> Trial:
    """Write, fail, try to write, fail again, repair. Raises KeyError for an unknown failure."""
    first, then = (part.format(acks=acks).splitlines() for part in FAILURES[failure])
    words = [line.split()[:2] for line in (*first, *then) if " " in line]
    stopped = sorted({broker for command, broker in words if command in STOPS})
    leader = "2" if "1" in {line.split()[1] for line in first if line.split()[0] in STOPS} else "1"
    lines = [
        f"partition leader=1 replicas=1,2,3 min.insync.replicas={least} "
        "unclean.leader.election.enable=false",
        f"produce 1 first acks={acks}",
        "advance 6s",
        *first,
        "stabilize",
        f"produce {leader} second acks={acks}",
        "advance 1s",
        *then,
        *(f"start {broker}" for broker in stopped),
        "heal 1 2",
        "heal 1 3",
        "stabilize",
        "advance 5s",
    ]
    return Trial(failure, scenario.play("\n".join(lines), version=version))


def table(version: str | KafkaVersion, failures: Iterable[str] = tuple(FAILURES)) -> Table:
    """For every pair of acks and min.insync.replicas, what each failure brings."""
    asked = tuple(failures)
    return {
        f"acks={acks}, min ISR {least}": {f: trial(version, acks, least, f).word for f in asked}
        for acks, least in SETTINGS
    }


def count(found: Table, row: str, word: str) -> int:
    return sum(cell.startswith(word) for cell in found[row].values())


def records_lost(found: Table, row: str) -> int:
    """How many acknowledged records one pair of settings loses over all failures."""
    return sum(int(cell.removeprefix("lost ")) for cell in found[row].values() if "lost" in cell)


def table_finding(found: Table) -> str:
    """Which settings lose the fewest records, and how often their writes stop."""
    best = min(found, key=lambda row: (records_lost(found, row), count(found, row, "stop")))
    lost, failures = records_lost(found, best), len(found[best])
    return (
        f"{best} loses least: {lost} record{'s' * (lost != 1)} in {failures} failures; "
        f"writes stop in {count(found, best, 'stop')} more"
    )


def plot_table(found: Table, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """A word in each cell: writes go on, writes stop, or something acknowledged is lost."""
    columns = next(iter(found.values()))
    ax = ax or plt.subplots(figsize=(1.6 + 1.5 * len(columns), 1.4 + 0.42 * len(found)))[1]
    shades = {r: {c: WORDS[word] for c, word in row.items()} for r, row in found.items()}
    draw_matrix(ax, shades)
    ax.set_title(plain(title or table_finding(found)), fontsize=11, loc="left", pad=12)
    return ax


# The stored state, moment by moment


def moments(run: Run, record: str) -> list[Frame]:
    """The last frame of each while in which the stored state, and who is alive, stay the same."""
    kept: list[Frame] = []
    for frame in run.frames[run.first_frame :]:
        if not kept and not any(_has(frame, number, record) for number in frame.disks):
            continue
        if kept and _looks(frame) == _looks(kept[-1]):
            kept.pop()
        kept.append(frame)
    return kept


def _has(frame: Frame, number: int, record: str) -> bool:
    return any(r.id == record for r in frame.disks[number].records)


def _looks(frame: Frame) -> tuple:
    state = frame.controller.state
    sets = (state.leader, frozenset(state.isr), frozenset(state.elr), state.last_known_elr)
    return sets, frozenset(frame.brokers)


def plot_candidates(
    run: Run, record: str, *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Each replica's place in the stored state at each moment, and whether it has `record`.

    Filled: in the ISR. Dashed: in the ELR. Pale: in neither. A star leads; a cross is dead.
    """
    shown = moments(run, record)
    replicas = sorted(run.cluster.replicas)
    ax = ax or plt.subplots(figsize=(1.5 + 1.05 * len(shown), 1.2 + 0.62 * len(replicas)))[1]
    for x, frame in enumerate(shown):
        for y, number in enumerate(replicas):
            _draw_place(ax, (x, y), frame, number, record)
    ax.set_xlim(0, len(shown))
    ax.set_ylim(len(replicas), 0)
    times = [f"until {(f.now_ms - START_MS) / 1000:.0f} s" for f in shown]
    ax.set_xticks([x + 0.5 for x in range(len(shown))], times)
    ax.set_yticks([y + 0.5 for y in range(len(replicas))], [f"broker {n}" for n in replicas])
    ax.tick_params(length=0, labelsize=8.5)
    ax.set_xlabel("stored state and replicas, from one change to the next", fontsize=8)
    bare(ax)
    version = run.cluster.version.name
    ax.set_title(
        plain(title or f"{version}: {candidates_finding(run, record)}"), fontsize=10.5, loc="left"
    )
    return ax


def _draw_place(ax: Axes, corner: tuple[int, int], frame: Frame, number: int, record: str) -> None:
    x, y = corner
    state, colour = frame.controller.state, broker_colour(number)
    in_isr, in_elr = number in state.isr, number in state.elr
    ax.add_patch(
        Rectangle(
            (x + 0.05, y + 0.1),
            0.9,
            0.8,
            facecolor=to_rgba(colour, 0.35) if in_isr else "white",
            edgecolor=colour if in_isr or in_elr else PALE,
            linewidth=2.2 if in_elr else 1.0,
            linestyle="--" if in_elr else "-",
        )
    )
    where = "ISR" if in_isr else "ELR" if in_elr else "out"
    head = "★ " * (state.leader == number) + "✕ " * (number not in frame.brokers)
    has_it = _has(frame, number, record)
    ax.text(x + 0.5, y + 0.36, f"{head}{where}", ha="center", va="center", fontsize=9, color=INK)
    ax.text(
        x + 0.5,
        y + 0.68,
        f"has {plain(record)}" if has_it else f"no {plain(record)}",
        ha="center",
        va="center",
        fontsize=8,
        color=INK if has_it else LOST,
    )


def candidates_finding(run: Run, record: str) -> str:
    """Whether the record survived, and how long nobody led."""
    shown = moments(run, record)
    without_ms = sum(
        after.now_ms - before.now_ms
        for before, after in pairwise(shown)
        if after.controller.leader < 0
    )
    kept = record not in (*run.outcome.lost, *run.outcome.lost_acknowledged)
    fate = "survives" if kept else "is lost"
    gap = f"; {without_ms / 1000:g} s without a leader" if without_ms else ""
    return f"the committed {record} {fate}{gap}"
