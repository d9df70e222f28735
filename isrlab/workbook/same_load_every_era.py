"""The same load in every era: which step of Kafka's rules ended which evictions.

Each eviction has a *reason*, told from what the leader knew when it evicted, by the measure of
today's lag clock, so that all versions are judged alike. The small fleet under the sliders is
simulated here; generations whose rules are the same for a fleet are simulated once.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.engine.versions import PRESETS, RULES
from isrlab.events import exact
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.kernel.state import Rules
from isrlab.fleet.layout import assignment
from isrlab.show import style
from isrlab.show.bands import Span, plot_bands
from isrlab.show.controls import Redrawn, choice
from isrlab.show.curves import plot_bars
from isrlab.show.table import table

GENERATIONS = tuple(version.name for version in PRESETS.values())
REASONS = {  # colour of each, and what the leader knew
    "messages": (style.VERMILION, "caught up a moment ago, but too many records behind"),
    "clock": (style.ORANGE, "caught up a moment ago, but never at the log end"),
    "idle": (style.SKY, "stalled, but lacked nothing"),
    "early": (style.PINK, "let in while behind, and not caught up since"),
    "behind": (style.GREY, "behind for longer than the limit"),
}
AFTER_REMOVAL = (  # rules that a fleet feels only if the controller removes a broker
    "clock_reset", "fences_stale_leader_epoch", "fetches_after_removal",
    "removal_raises_leader_epoch",
)  # fmt: skip
FEW = ("0.8.2", "0.9.0", "0.10.2", "2.2", "2.7", "3.1", "3.7")  # enough for a slider
ALIKE_MS = 500  # within which two histories are drawn as one
SMALL = FleetConfig(
    partitions=3, minutes=6, burst_records=200_000, burst_s=20, burst_every_s=150,
    batch_every_ms=20_000, stall_s=20, stall_every_s=150, min_insync_replicas=2,
    replica_lag_time_max_ms=10_000, seed=8,
)  # fmt: skip


def reason(
    lag_records: int,
    since_caught_up_ms: int,
    lag_time_ms: int,
    lag_messages: float | None,
    since_joined_ms: float,
) -> str:
    """Why a leader evicted, one of `REASONS`; `since_joined_ms` is infinite for who never left."""
    if since_caught_up_ms <= lag_time_ms:
        is_far = lag_messages is not None and lag_records > lag_messages  # never above a NaN
        return "messages" if is_far else "clock"
    if lag_records == 0:
        return "idle"
    return "early" if since_caught_up_ms > since_joined_ms else "behind"


def rules_changed(was: FleetConfig, now: FleetConfig) -> str:
    """In words, what one fleet's rules have that the other's had not; "" if they are the same."""
    before, after = was.rules()._asdict(), now.rules()._asdict()
    words = {rule: now.kafka.label(rule) for rule in Rules._fields if rule in RULES} | {
        "isr_check_period_ms": f"checks every {style.duration(now.isr_check_period_ms)}",
        "replica_lag_time_max_ms": f"limit {style.duration(now.lag_time_ms)}",
        "replica_lag_max_messages": "",  # the label of the shrink rule says it
        "waits_for_controller": now.kafka.label("isr_write"),
    }
    felt = [name for name in after if after[name] != before[name]]
    if not now.restart_s:
        felt = [name for name in felt if name not in AFTER_REMOVAL]
    return ", ".join(filter(None, (words.get(name, f"{name} {after[name]}") for name in felt)))


def by_step(
    diffs: pd.DataFrame, evictions: pd.DataFrame, configs: Sequence[FleetConfig]
) -> pd.DataFrame:
    """A row for each generation and the one before: fates of evictions (`churn.diff`) by reason."""
    leaves = _with_reasons(diffs, evictions)
    rows = []
    for was, now in pairwise(configs):
        part = leaves[(leaves["was"] == was.run) & (leaves["now"] == now.run)]
        counts = Counter(part["fate"]) + Counter(part["fate"] + " " + part["reason"])
        names = [f"{fate} {why}".strip() for fate in ("gone", "new") for why in ("", *REASONS)]
        row: dict[str, Any] = {"was": was.kafka.name, "now": now.kafka.name}
        row |= {"was_limit_s": was.lag_time_ms / 1000, "limit_s": now.lag_time_ms / 1000}
        row |= {"rules": rules_changed(was, now), "same": counts["same"], "moved": counts["moved"]}
        row |= {"moved_s": part.loc[part["fate"] == "moved", "moved_ms"].abs().median() / 1000}
        rows.append(row | {name: counts[name] for name in names})
    return pd.DataFrame(rows)


def _with_reasons(diffs: pd.DataFrame, evictions: pd.DataFrame) -> pd.DataFrame:
    """Each eviction of a diff with its reason in the run where it happened, in `was` if in both."""
    sides = [
        diffs.assign(run=diffs[side], ts_ms=diffs[f"{side}_ms"]).dropna(subset="ts_ms")
        for side in ("was", "now")
    ]
    was, now = sides
    rows = pd.concat([was, now[(now["fate"] == "new") | (now["change"] == "joins")]])
    rows = rows.astype({"ts_ms": "int64"}).sort_values("ts_ms", kind="stable")
    left, joined = (rows[rows["change"] == change] for change in ("leaves", "joins"))
    key, names = ["run", "partition", "replica"], ["lag_records", "since_caught_up_ms"]
    names += ["lag_time_ms", "lag_messages"]
    knew = evictions[["run", "partition", "ts_ms", *names]].sort_values("ts_ms")
    left = pd.merge_asof(left, knew, on="ts_ms", by=key[:2])  # a commit follows what was asked for
    joined = joined[[*key, "ts_ms"]].assign(joined_ms=joined["ts_ms"])
    left = pd.merge_asof(left, joined, on="ts_ms", by=key)
    since_joined_ms = (left["ts_ms"] - left["joined_ms"]).fillna(np.inf)
    known = [*(left[name] for name in names), since_joined_ms]
    return left.assign(reason=[reason(*row) for row in zip(*known, strict=True)])


def first_changes(diffs: pd.DataFrame, version: str, most: int = 8) -> HTML:
    """The first rows of a diff that are not the same, of one generation and the one before."""
    rows = diffs[(diffs["now"] == version) & (diffs["fate"] != "same")].head(most)
    times = {
        f"{side} (s)": rows[f"{side}_ms"].map(lambda ms: "" if pd.isna(ms) else f"{ms / 1000:,.1f}")
        for side in ("was", "now")
    }
    columns = ["was", "now", "partition", "replica", "change", "fate"]
    return table(rows[columns].assign(**times))


def felt_counts(counts: pd.DataFrame, configs: Sequence[FleetConfig]) -> HTML:
    """The rows of `churn.diff_counts` for these fleets in which anything differs."""
    is_felt = counts[["moved", "gone", "new"]].sum(axis=1) > 0
    rows = counts[is_felt & counts["now"].isin([config.run for config in configs])]
    order = {config.run: place for place, config in enumerate(configs)}
    return table(rows.sort_values("now", key=lambda now: now.map(order), kind="stable").round(0))


def plot_ladder(every_step: pd.DataFrame) -> Axes:
    """Each step that is felt: evictions that it ends (left) and brings (right), by reason."""
    steps = _felt(every_step)
    parts: dict[str, Any] = {}
    colours = {}
    for why, (colour, meaning) in REASONS.items():
        for fate, sign in (("gone", -1), ("new", 1)):
            if steps[f"{fate} {why}"].any():
                name = f"_{meaning}" if meaning in parts else meaning  # _: once in the legend
                parts[name], colours[name] = sign * steps[f"{fate} {why}"], colour
    notes = []
    for step in steps.to_dict("records"):
        counts = _signed("−", step["gone"]) + _signed("+", step["new"])
        moved = f", {step['moved']:,} moved by {step['moved_s']:.2g} s" if step["moved"] else ""
        rules = textwrap.fill(step["rules"], 52)
        notes.append(f"{counts}({step['same']:,} the same{moved})\n{rules}")
    title = f"None of {len(every_step)} steps changes who leaves the ISR"
    if len(steps):
        most = steps.iloc[int(steps["gone"].to_numpy().argmax())]
        title = f"{len(steps)} of {len(every_step)} steps change who leaves the ISR; "
        title += f"{most['now']} ends most evictions ({most['gone']:,})"
    names = [f"{step.was} → {step.now}" for step in steps.itertuples()]
    label = "evictions that the step ends (left) and brings (right)"
    ax = style.axes(10, 1.6 + 0.72 * len(steps))
    plot_bars(names, parts, title, label, notes=notes, colours=colours, ax=ax)
    ax.axvline(0, color=style.INK, linewidth=0.8)
    return ax


def _felt(steps: pd.DataFrame) -> pd.DataFrame:
    return steps[(steps["gone"] > 0) | (steps["new"] > 0)]


def finding(steps: pd.DataFrame, released: pd.DataFrame) -> str:
    """What each step that is felt ends and brings under one limit; and the largest as released."""
    parts = [
        f"{step['now']} {_signed('−', step['gone'])}{_signed('+', step['new'])}".strip()
        for step in _felt(steps).to_dict("records")
    ]
    most = released.iloc[int(released["gone"].to_numpy().argmax())]
    limit, own = (f"{rows['limit_s']:g} s" for rows in (steps.iloc[0], most))
    was = f"{most['was_limit_s']:g} s"
    return (
        f"With a limit of {limit} everywhere, {len(parts)} of {len(steps)} steps change who is "
        f"evicted (− no longer, + newly): {', '.join(parts) or 'none'}. "
        f"With each release's own limit {most['now']} ({own}, before it {was}) ends most: "
        f"{most['gone']:,}."
    )


def _signed(sign: str, number: int) -> str:
    return f"{sign}{number:,} " if number else ""


class Away(NamedTuple):
    """A replica out of the ISR of a partition, and why it was evicted."""

    partition: int
    replica: int
    start_ms: int
    end_ms: int
    reason: str


def absences(config: FleetConfig) -> list[Away]:
    """Every time that a leader of the fleet evicted a replica; those at the end last until then."""
    joined_ms: dict[tuple[int, int], int] = {}
    away = []
    for out in exact.evictions(fleet.simulate_local(config)):
        place = out.key.partition, out.replica
        knew = out.lag_records or 0, out.since_caught_up_ms or 0
        since_joined_ms = out.start_ms - joined_ms[place] if place in joined_ms else np.inf
        why = reason(*knew, config.lag_time_ms, config.lag_messages, since_joined_ms)
        end_ms = config.duration_ms if out.end_ms is None else out.end_ms
        away.append(Away(*place, out.start_ms, end_ms, why))
        joined_ms[place] = end_ms
    return away


def most_telling(config: FleetConfig, names: Iterable[str] = GENERATIONS) -> int:
    """The partition with evictions for most reasons in these versions; of several the busiest."""
    whys: list[list[str]] = [[] for _ in range(config.partitions)]
    for _, era in _eras(config, names):
        for away in era:
            whys[away.partition].append(away.reason)
    return max(range(config.partitions), key=lambda p: (len({*whys[p]}), len(whys[p])))


def _eras(config: FleetConfig, names: Iterable[str]) -> list[tuple[list[str], list[Away]]]:
    """The versions that run by the same rules, and what happens to all partitions under them."""
    alike: dict[Rules, list[FleetConfig]] = {}
    for version in fleet.versions(config, names):
        alike.setdefault(version.rules(), []).append(version)
    return [([c.kafka.name for c in same], absences(same[0])) for same in alike.values()]


def plot_eras(
    config: FleetConfig = SMALL, partition: int = 0, names: Iterable[str] = GENERATIONS
) -> Axes:
    """One partition under the same load in several versions: who is out of the ISR, and why.

    Neighbouring versions in which the same happens to it share their rows, one for each follower.
    On top, what happens to all of them: its bursts, and the stalls of its followers. Raises
    ValueError if there is no such partition.
    """
    if not 0 <= partition < config.partitions:
        raise ValueError(f"partition={partition} out of range; valid: 0 to {config.partitions - 1}")
    eras: list[tuple[list[str], list[Away]]] = []
    for versions, fates in _eras(config, names):
        era = [away for away in fates if away.partition == partition]
        if eras and _is_alike(eras[-1][1], era):
            eras[-1][0].extend(versions)
        else:
            eras.append((versions, era))
    placed = assignment(config)
    followers, notes, length_s = placed[partition].tolist()[1:], {}, max(config.burst_s, 1)
    starts_s = (load.burst_starts_ms(config, partition) / 1000).tolist()
    rows = {"bursts": [Span(start, start + length_s, style.INK) for start in starts_s]}
    for broker in followers:
        rows[f"stalls of {broker}"] = [
            Span(start / 1000, end / 1000, style.STATES["away"])
            for start, end in zip(*load.stalls(config, broker), strict=True)
        ]
    for versions, era in eras:
        for broker in followers:
            name = f"{_span(versions)}: replica {broker}"
            away = [out for out in era if out.replica == broker]
            rows[name] = [
                Span(a.start_ms / 1000, a.end_ms / 1000, REASONS[a.reason][0]) for a in away
            ]
            notes[name] = f"{len(away)}×, {sum(a.end_ms - a.start_ms for a in away) / 1000:.0f} s"
    legend = {style.STATES["away"]: "stall", style.INK: "burst", **dict(REASONS.values())}
    ax = plot_bands(rows, _eras_title(eras, partition), notes=notes, legend=legend)
    ax.set_xlabel("time since the start (s); coloured: out of the ISR")
    return ax


def _is_alike(era: list[Away], other: list[Away]) -> bool:
    """The same, but for the milliseconds of a round trip to the controller."""
    return len(era) == len(other) and all(
        (a.replica, a.reason) == (b.replica, b.reason)
        and abs(a.start_ms - b.start_ms) + abs(a.end_ms - b.end_ms) < ALIKE_MS
        for a, b in zip(era, other, strict=True)
    )


def _span(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _eras_title(eras: list[tuple[list[str], list[Away]]], partition: int) -> str:
    counts = [len(era) for _, era in eras]
    if len(eras) == 1:
        return f"Partition {partition}: {counts[0]} evictions, the same in every version"
    most, least = int(np.argmax(counts)), int(np.argmin(counts))
    ends = [f"{style.counted(counts[i], 'eviction')} in {_span(eras[i][0])}" for i in (most, least)]
    return f"Partition {partition}, the same load with {len(eras)} endings: {', '.join(ends)}"


def era_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for burst height and length of stall, and one partition in a `FEW` generations."""
    heights = 1_000, 20_000, 100_000, 200_000
    height = choice("burst height (records)", heights, config.burst_records)
    stall = choice("stall (s)", (0, 5, 8, 12, 20, 40), int(config.stall_s))
    partition = most_telling(config, FEW)

    def draw(records: int, stall_s: float) -> Axes:
        return plot_eras(config.with_(burst_records=records, stall_s=stall_s), partition, FEW)

    return Redrawn((height, stall), draw)
