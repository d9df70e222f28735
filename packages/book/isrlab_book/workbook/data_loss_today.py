"""Notebook 10: three losses of acknowledged records in today's Kafka, their causes, and repairs.

Two come with tries on real brokers (data/upstream). The third follows a move, by two rules of the
KRaft controller, which are switches of the engine, as their repairs are. Eligible leader replicas
(ELR, KIP-966) may be brokers that a reassignment removed. And what caps `min.insync.replicas` is
the number of replicas of partition 0, for each partition of the topic.
"""

import random
import tomllib
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from isrlab.engine.versions import KafkaVersion
from isrlab.installed import DATA
from isrlab.show import style
from isrlab.show.matrix import plot_matrix
from isrlab.world import scenario, words
from isrlab.world.commands import obey
from isrlab.world.script import Command, Run
from isrlab_ops.recordings import reassigned, recorded

STORY, MOVED = "elr_of_two", "p1"
STRANDED = "set_while_down"
VARIANTS = {  # scenario: what is done
    "elr_of_two": "one partition of two goes to one replica and back",
    "elr_one_by_one": "all go to one replica, and back one by one",
    "elr_in_one_request": "all go to one replica, and back in one request",
    "drained_and_back": "a broker is drained and filled while two others are down",
    "cancelled_and_lost": "a move is cancelled after its new replica has joined",
    "eligible_but_gone": "a replica is moved away and back, three brokers fail",
}
RECORDED = {  # a variant of data/recordings/eligible: what was done
    "A": "one partition goes to one replica and back",
    "B": "both partitions go to one replica, and back one by one",
    "A-together": "both partitions, there and back in one request each",
    "C": "a broker is drained and filled while two others are down",
    "G": "a move is cancelled after its new replica has joined",
}
EXPOSED = {"A": "to one replica and back", "C": "drained", "G": "cancelled"}
EXPOSED |= {"good": "its ELR is right"}
REMEDIES = {  # the end of a variant's name: what is done just before the leader fails
    "": "nothing",
    "-started": "the brokers that are down are started",
    "-finished": "the move is finished",
    "-undone": "the move is cancelled",
    "-topic": "the topic's min.insync.replicas is set again, to the same value",
    "-changed": "the topic's min.insync.replicas is changed, and changed back",
    "-cluster": "the cluster's min.insync.replicas is set again, to the same value",
    "-feature": "eligible.leader.replicas.version is set to 0",
}
LATE = "min.insync.replicas is raised, and the leader, held back by us, learns of it late"
JUDGES = {  # variant: scenario of the engine, kind of data/hunt that Kafka's controller was seen in
    "A": ("elr_of_two", "elr_of_a_removed_replica"),
    "C": ("drained_and_back", "elr_of_a_drained_broker"),
    "G": ("cancelled_and_lost", "elr_of_one_partition"),
    "raised": ("raised_minimum", "late_min_isr"),
}
WORDS = {"": "white", "not lost": "safe", "leaderless": "offline", "stranded": "diverged"}
WORDS = {word: style.OUTCOMES.get(like, style.WHITE) for word, like in WORDS.items()}
RELEASES = "4.0", "4.1", "4.2", "4.3", "4.4"
WITHOUT = {"eligible_leader_replicas": False}
REPAIRS: dict[str, dict[str, bool]] = {
    "as released": {},
    "ELR of replicas only": {"elr_of_replicas_only": True},
    "min ISR per partition": {"min_isr_of_own_partition": True},
    "both": {"elr_of_replicas_only": True, "min_isr_of_own_partition": True},
}


def tries(report: str) -> list[dict[Any, Any]]:
    """In how many tries of a report in data/upstream real brokers lost all, by releases."""
    known = pd.read_csv(DATA / "upstream" / "tries.csv", dtype=str).query("report == @report")
    known["lost"] = known["tries that lost every record"] + " of " + known["tries"]
    cells = known.pivot(index="what is different", columns="release", values="lost").fillna("")
    return cells.loc[known["what is different"].unique()].reset_index().to_dict("records")


def steps(text: str) -> list[str]:
    """The commands of a script that do something, in order."""
    return [c.text for block in scenario.parse(text) for c in block.commands
            if not c.text.startswith(("status", "check", "version"))]  # fmt: skip


def written(text: str, version: str, partition: str = MOVED) -> list[dict[str, Any]]:
    """The controller's writes: a row for each command that changed the stored state."""
    lines, rows, known = steps(text), list[dict[str, Any]](), None
    for count, line in enumerate(lines, 1):
        if line.startswith("partition"):
            continue
        run = scenario.play("\n".join(lines[:count]), version=version).of(partition)
        state = run.cluster.controller.state
        if state != known:
            rows.append({
                "after": line, "leader": state.leader if state.leader > 0 else "none",
                "leader epoch": state.leader_epoch, "replicas": words.ids(state.replicas),
                "adding": words.ids(state.adding), "ISR": words.ids(state.isr),
                "ELR": words.ids(state.elr),
            })  # fmt: skip
        known = state
    return rows


def outcomes(columns: Mapping[str, KafkaVersion]) -> dict[str, dict[str, str]]:
    """For each variant the outcome by the rules of each column."""
    return {
        what: {label: ended(scenario.play(scenario.read(name), version=version))
               for label, version in columns.items()}
        for name, what in VARIANTS.items()
    }  # fmt: skip


def ended(run: Run) -> str:
    """The word that `TopicTry.word` has for such a try on real brokers."""
    leaders = {frame.controller.state.leader for part in run.topic for frame in part.frames}
    return "leaderless" if min(leaders) < 0 and run.outcome.word != "lost" else run.outcome.word


def by_release() -> dict[str, KafkaVersion]:
    """The releases with their own defaults, and the last of them also without ELR."""
    versions = {release: KafkaVersion.of(release) for release in RELEASES}
    without = versions[RELEASES[-1]].with_(**WITHOUT)
    return versions | {f"{RELEASES[-1]} without ELR": without}


def by_repair(release: str) -> dict[str, KafkaVersion]:
    """A release as it comes and with each repair."""
    return {name: KafkaVersion.of(release).with_(**switch) for name, switch in REPAIRS.items()}


def plot_outcomes(cells: Mapping[str, Mapping[str, str]]) -> Axes:
    """Variants by release; the title names the releases with the most losses and with none."""
    losing = {column: sum(row[column] == "lost" for row in cells.values())
              for column in next(iter(cells.values()))}  # fmt: skip
    most = max(losing, key=lambda column: losing[column])
    fine = [column for column, number in losing.items() if not number]
    title = f"{most}: {losing[most]} of {len(cells)} scenarios lose acknowledged records; "
    title += f"{' and '.join(fine)}: none does" if fine else "no column is without a loss"
    return plot_matrix(cells, title, colours=WORDS, size=(1.0, 0.4))


# On real brokers


def on_brokers() -> dict[str, dict[str, tuple[str, str]]]:
    """How the tries of each recorded variant ended, in each release, with ELR and without."""
    counts = [c for c in reassigned.counts() if c.variant in RECORDED]
    columns = sorted({(not c.elr, c.release) for c in counts})
    tried = {(RECORDED[c.variant], not c.elr, c.release): c for c in counts}
    return {
        name: {f"{release}{' without ELR' * off}": _cell(tried.get((name, off, release)))
               for off, release in columns}
        for name in RECORDED.values()
    }  # fmt: skip


def remedies(release: str) -> dict[str, dict[str, tuple[str, str]]]:
    """How the tries with each remedy ended in the first recorded release of that name."""
    counts = [c for c in reassigned.counts() if c.elr and c.release.startswith(release)]
    tried = {c.variant: c for c in reversed(counts)}
    return {
        what: {column: _cell(tried.get(name + end)) for name, column in EXPOSED.items()}
        for end, what in REMEDIES.items()
    }


def _cell(count: reassigned.Tally | None) -> tuple[str, str]:
    if not count:
        return "", ""
    word = next((w for w in ("lost", "stranded", "leaderless") if getattr(count, w)), "safe")
    return f"{word}\n{getattr(count, word, count.tries)} of {count.tries}", word


def plot_on_brokers(cells: Mapping[str, Mapping[str, tuple[str, str]]], of: str) -> Axes:
    """A field for each row and column; the title counts those with a loss, `of` all of them."""
    ends = [word for row in cells.values() for _, word in row.values() if word]
    title = f"Real brokers lost acknowledged records in {ends.count('lost')} of {len(ends)} {of}"
    return plot_matrix(cells, title, colours=WORDS, size=(1.0, 0.42))


def by_judge() -> dict[str, dict[str, str]]:
    """Whether variants lose records: in the engine, with Kafka's own controller class (data/hunt;
    data or brokers simulated), and on real brokers; a column for each release."""
    kinds = tomllib.loads((DATA / "hunt" / "kinds.toml").read_text("utf-8"))
    rows: dict[str, dict[str, str]] = {}
    for variant, (name, kind) in JUDGES.items():
        script, lost_in = scenario.read(name), kinds[kind]["releases"]
        what = RECORDED.get(variant, LATE)
        parts = [rows.setdefault(f"{what}: {judge}", {}) for judge in
                 ("engine", "Kafka's controller", "real brokers")]  # fmt: skip
        for count in (c for c in reassigned.counts(variant) if c.elr):
            outcome = scenario.play(script, version=count.release).outcome.word
            is_lost = outcome == "lost", count.release in lost_in, count.lost > 0
            for row, lost in zip(parts, is_lost, strict=True):
                row[count.release] = "lost" if lost else "not lost"
    return rows


def plot_by_judge(cells: Mapping[str, Mapping[str, str]]) -> Axes:
    """Three rows for each variant; the title says whether the three agree."""
    triples = zip(*[iter(cells.values())] * 3, strict=True)
    apart = sum(len(set(words)) > 1 for rows in triples
                for words in zip(*(row.values() for row in rows), strict=True))  # fmt: skip
    agree = f"part in {style.counted(apart, 'field')}" if apart else "agree in every field"
    title = f"Engine, Kafka's own controller and real brokers {agree}"
    return plot_matrix(cells, title, colours=WORDS, size=(0.9, 0.36))


def a_try(release: str, variant: str = "A") -> tuple[list[dict[str, Any]], list[str]]:
    """The first try of a variant, recorded in a release with ELR, that lost records: what
    was stored and on disk at each moment, and the lines that its brokers and controller logged.

    Raises ValueError, with the releases that have one, if there is none.
    """
    sessions = [session for session in reassigned.sessions() if session.elr]
    losing = [(session.release, each) for session in sessions for each in session.tries
              if each.variant == variant and each.lost > 0]  # fmt: skip
    for name, each in losing:
        if name.startswith(release):
            rows = [{
                "moment": moment.name, "leader": moment.leader if moment.leader > 0 else "none",
                "replicas": words.ids(moment.replicas), "adding": words.ids(moment.adding),
                "ISR": words.ids(moment.isr), "ELR": words.ids(moment.elr),
                "records on broker": ", ".join(f"{b}: {n}" for b, n in moment.held.items()),
            } for moment in each.moments]  # fmt: skip
            return rows, each.lines
    known = ", ".join(dict.fromkeys(name for name, _ in losing)) or "none"
    raise ValueError(f"no recorded loss of variant {variant} in {release!r}; known: {known}")


def stranded() -> list[dict[str, Any]]:
    """Real brokers on which min.insync.replicas was set while both replicas were down: a row for
    each release, with the leader once both were back, and after an unclean election."""
    rows = []
    for recording in recorded.recordings(STRANDED):
        ends = [t.moments[-2:] for t in recording.finished]
        back, elected = ({words.ids([end[i].state.leader]) for end in ends} for i in (0, 1))
        rows.append({
            "release": recording.release, "tries": len(ends),
            "leader when both are back": ", ".join(back).replace("-1", "none"),
            "and after an unclean election": ", ".join(elected),
        })  # fmt: skip
    return rows


# Random scenarios of two partitions

HEAD = (
    "partition replicas=1,2,3 min.insync.replicas=2 unclean.leader.election.enable=false",
    "partition p1 replicas=1,2,3",
)
TARGETS = "1", "2", "1,2", "2,3", "4,2", "1,2,3", "2,3,4"
LENGTH = 14  # commands of a scenario


def searched(columns: Mapping[str, KafkaVersion], scenarios: int) -> list[dict[str, Any]]:
    """How many random scenarios lose an acknowledged record, by the rules of each column.

    Two partitions of one topic are written with acks=all and moved, fetchers stall, and at most one
    broker is down at a time. No disk loses anything, so nothing acknowledged may be lost.
    Scenario n has seed n in every column.
    """
    rows = []
    for name, version in columns.items():
        losing = [lines for seed in range(scenarios) if (lines := _losing(version, seed))]
        shortest = min(losing, key=len, default=[])
        rows.append({
            "rules": name, "scenarios": scenarios, "lose acknowledged records": len(losing),
            "the shortest": "; ".join(shortest),
        })  # fmt: skip
    return rows


def _losing(version: KafkaVersion, seed: int) -> list[str]:
    """The lines of a seed up to a loss; empty if nothing was lost."""
    draw, run, lines = random.Random(seed), Run([], version), list[str]()
    for number in range(LENGTH + len(HEAD)):
        line = HEAD[number] if number < len(HEAD) else _line(draw, run, number)
        for each in (line, "advance 1s") if number >= len(HEAD) else (line,):
            obey(run, Command(len(lines) + 1, each))
            lines.append(each)
        if number >= len(HEAD) and "acknowledged_records_survive" in run.violations:
            return lines
    return []


def _line(draw: random.Random, run: Run, number: int) -> str:
    """A command that makes sense now."""
    part = draw.choice(run.topic)
    cluster, moved = part.cluster, f"reassign {part.name} {draw.choice(TARGETS)}"
    live, leader = sorted(cluster.brokers), cluster.controller.leader
    dead = sorted(set(cluster.replicas) - set(live))
    offers = [moved, moved, *(f"start {b}" for b in dead)]
    if leader in live:
        offers += [f"produce {part.name} {leader} m{number} acks=all"] * 3
    offers += [f"pause {part.name} {b} fetcher" for b in live if b != leader]
    offers += [f"resume {part.name} {b}" for b in sorted(cluster.paused)]
    if not dead:
        offers += [f"kill {draw.choice(live)}"] * 2
    return draw.choice(offers)
