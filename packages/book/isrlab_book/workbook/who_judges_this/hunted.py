"""The promises that Kafka's own classes broke in `make hunt`; the sentences that were tested."""

import re
import tomllib
from functools import cache
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from isrlab.engine.versions import release
from isrlab.installed import DATA
from isrlab.show.matrix import plot_matrix
from isrlab.show.style import FAINT, OUTCOMES, counted

PROMISES = {  # the promises of packages/proof/hunt/java/Promise.java, in words for readers
    "ANSWERED": "a request is answered",
    "LEADER_COMES": "a leader comes, where one can",
    "REASSIGNMENT_ENDS": "a reassignment ends",
    "ONE_ELIGIBLE": "a replica is left to elect",
    "LEADER_HAS_ALL": "a clean leader has every record",
    "ELR_HAS_ALL": "an ELR member has every record",
    "ELR_INDEX": "the index by broker has each ELR",
    "DIRECTORY_INDEX": "the index by directory is right",
    "ELR_OF_REPLICAS": "the ELR is of replicas",
    "ELR_REGISTERED": "the ELR is of registered brokers",
    "ISR_ACTIVE": "the ISR is of active brokers",
    "LEADER_ACTIVE": "the leader is active",
    "MIN_ISR_AGREED": "leader and controller agree on min ISR",
    "REPLAYED": "what a controller writes can be replayed",
    "RELOADED": "a new controller has the same state",
    "UNCLEAN_COMES": "an unclean leader comes, where allowed",
    "ISR_HAS_ALL": "an ISR member has every record",
    "HW_OF_MIN_ISR": "the high watermark waits for min ISR",
    "SAME_IMAGE": "a restarted broker has the same image",
    "EPOCHS_AGREE": "leader and controller agree on epochs",
    "STORED_AS_ASKED": "an accepted move is stored as asked",
}


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """Each kind of break by its name."""
    return tomllib.loads((DATA / "hunt" / "kinds.toml").read_text(encoding="utf-8"))


def promises(kind: dict[str, Any]) -> list[str]:
    """The promises that a kind breaks: those broken first, and the one that its scenario shows."""
    names = [text.split()[0] for text in (*kind["roots"], kind["broken"])]
    return list(dict.fromkeys(PROMISES.get(name, name) for name in names))


def plot_promises() -> Axes:
    """How many kinds of scenarios break each promise, by release."""
    every = sorted({r for kind in kinds().values() for r in kind["releases"]}, key=release)
    names = list(dict.fromkeys(p for kind in kinds().values() for p in promises(kind)))
    rows: dict[str, dict[str, str | tuple[str, str]]] = {}
    for name in names:
        counts = {
            r: sum(name in promises(k) and r in k["releases"] for k in kinds().values())
            for r in every
        }
        rows[name] = {r: (str(n), "broken") if n else ("", "no break") for r, n in counts.items()}
    title = f"Kafka breaks promises in {counted(len(kinds()), 'kind')} of scenarios, by release"
    colours = {"broken": OUTCOMES["lost"], "no break": FAINT}
    legend = {"broken": "kinds that break it", "no break": "no stored kind breaks it"}
    return plot_matrix(rows, title, colours=colours, legend=legend, size=(0.75, 0.3))


def proof() -> pd.DataFrame:
    """Seconds of one core until the hunt found each known bug (rows), for each seed (columns)."""
    rows = pd.read_csv(DATA / "hunt" / "proof.csv", dtype=str, keep_default_na=False)
    names = ["bug", "kind", "release", "level"]
    seconds = rows.pivot(index=names, columns="seed", values="seconds").fillna("")
    return seconds.rename(columns=lambda seed: f"seed {seed}").reset_index()


def hunted() -> pd.DataFrame:
    """What was run on each release: processor seconds, scenarios, steps, breaks of new kinds."""
    rows = pd.read_csv(DATA / "hunt" / "runs.csv")
    columns = ["seconds", "schedules", "steps", "new"]
    sums = rows.groupby(["release", "level"], as_index=False)[columns].sum()
    return sums.sort_values("release", key=lambda names: names.map(release), kind="stable")


def shortest(name: str) -> list[str]:
    """The shortest scenario of a kind, one action per line. Raises ValueError naming the kinds."""
    if name not in kinds():
        raise ValueError(f"unknown kind {name!r}; known: {', '.join(kinds())}")
    return re.split(r";\s*", str(kinds()[name]["schedule"]))


def held() -> pd.DataFrame:
    """By notebook: how many of its sentences hold over the range that they claim."""
    verdicts = pd.read_csv(DATA / "hold" / "verdicts.csv")
    counts = verdicts.pivot_table(
        index="notebook", columns="verdict", values="says", aggfunc="count", fill_value=0
    )
    runs = verdicts.groupby("notebook")["settings"].sum()
    return counts.assign(runs=runs).rename(lambda name: name.replace("_", " ")).reset_index()
