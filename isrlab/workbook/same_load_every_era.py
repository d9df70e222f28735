"""The same load in every era: which step of Kafka's rules ended which evictions.

Each eviction has a *reason*, told from what the leader knew when it evicted, by the measure of
today's lag clock, so that all versions are judged alike.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import Any, TypeAlias

import ipywidgets as widgets
import pandas as pd
import pyarrow as pa
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

# Evictions and their reasons, by run, partition, replica and ms.
JudgedAbsences: TypeAlias = dict[tuple[str, int, int, int], tuple[exact.Absence, str]]
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
FEW = ("0.8.2", "0.9.0", "0.10.2", "2.2", "2.7", "3.1", "3.7")  # enough for a picture
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
        is_far = lag_messages is not None and lag_records > lag_messages
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
        "shrink_raises_leader_epoch": now.kafka.label("epoch_bump_on_isr_shrink"),
    }
    felt = [name for name in after if after[name] != before[name]]
    if not now.restart_s:
        felt = [name for name in felt if name not in AFTER_REMOVAL]
    return ", ".join(filter(None, (words.get(name, f"{name} {after[name]}") for name in felt)))


def judged(events: pa.Table, configs: Iterable[FleetConfig]) -> JudgedAbsences:
    """Each eviction in the events of these fleets, and its reason."""
    fleets = {config.run: config for config in configs}
    back_ms: dict[tuple[exact.Key, int], float] = {}
    known: JudgedAbsences = {}
    for out in exact.evictions(events):
        config, place = fleets[out.key.run], (out.key, out.replica)
        knew = out.lag_records or 0, out.since_caught_up_ms or 0
        since_joined_ms = out.start_ms - back_ms.get(place, -math.inf)
        why = reason(*knew, config.lag_time_ms, config.lag_messages, since_joined_ms)
        known[out.key.run, out.key.partition, out.replica, out.start_ms] = out, why
        back_ms[place] = config.duration_ms if out.end_ms is None else out.end_ms
    return known


def by_step(
    diffs: pd.DataFrame, known: JudgedAbsences, configs: Sequence[FleetConfig]
) -> pd.DataFrame:
    """A row for each generation and the one before: fates of evictions (`churn.diff`) by reason.

    The reason is that of the run where it happened, of the earlier one if it happened in both.
    """
    leaves, rows = diffs[diffs["change"] == "leaves"], []
    for was, now in pairwise(configs):
        part = leaves[(leaves["was"] == was.run) & (leaves["now"] == now.run)]
        counts = Counter(part["fate"])
        for left in part.to_dict("records"):
            side, run = ("now", now.run) if left["fate"] == "new" else ("was", was.run)
            _, why = known[run, left["partition"], left["replica"], left[f"{side}_ms"]]
            counts[f"{left['fate']} {why}"] += 1
        names = [f"{fate} {why}".strip() for fate in ("gone", "new") for why in ("", *REASONS)]
        row: dict[str, Any] = {"was": was.kafka.name, "now": now.kafka.name}
        row |= {"was_limit_s": was.lag_time_ms / 1000, "limit_s": now.lag_time_ms / 1000}
        row |= {"rules": rules_changed(was, now), "same": counts["same"], "moved": counts["moved"]}
        row |= {"moved_s": part.loc[part["fate"] == "moved", "moved_ms"].abs().median() / 1000}
        rows.append(row | {name: counts[name] for name in names})
    return pd.DataFrame(rows)


def first_changes(diffs: pd.DataFrame, version: str, most: int = 8) -> HTML:
    """The first rows of a diff that are not the same, of one generation and the one before."""
    rows = diffs[(diffs["now"] == version) & (diffs["fate"] != "same")].head(most)
    times = {
        f"{side} (s)": rows[f"{side}_ms"].map(lambda ms: "" if pd.isna(ms) else f"{ms / 1000:,.1f}")
        for side in ("was", "now")
    }
    columns = ["was", "now", "partition", "replica", "change", "fate"]
    return table(rows[columns].assign(**times))


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


def plot_eras(config: FleetConfig = SMALL) -> Axes:
    """Partition 0 under the same load in `FEW` generations: who is out of the ISR, and why.

    A row for each follower; on top its bursts, and the stalls of its followers.
    """
    eras = fleet.versions(config, FEW)
    events = pa.concat_tables(fleet.simulate_local(era) for era in eras)
    known = [(out, why) for out, why in judged(events, eras).values() if out.key.partition == 0]
    followers, length_s = assignment(config)[0].tolist()[1:], max(config.burst_s, 1)
    starts_s = (load.burst_starts_ms(config, 0) / 1000).tolist()
    rows = {"bursts": [Span(start, start + length_s, style.INK) for start in starts_s]}
    for broker in followers:
        rows[f"stalls of {broker}"] = [
            Span(start / 1000, end / 1000, style.STATES["away"])
            for start, end in zip(*load.stalls(config, broker), strict=True)
        ]
    notes = {}
    for era, broker in product(eras, followers):
        name = f"{era.version}: replica {broker}"
        away = [
            Span(out.start_ms / 1000, (out.end_ms or era.duration_ms) / 1000, REASONS[why][0])
            for out, why in known
            if (out.key.run, out.replica) == (era.run, broker)
        ]
        rows[name] = away
        notes[name] = f"{len(away)}×, {sum(span.end_s - span.start_s for span in away):.0f} s"
    counts = [sum(out.key.run == era.run for out, _ in known) for era in eras]
    spread = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    title = f"Evictions of partition 0 under the rules of {len(eras)} generations, "
    title += f"the same load: {spread}"
    legend = {style.STATES["away"]: "stall", style.INK: "burst", **dict(REASONS.values())}
    ax = plot_bands(rows, title, notes=notes, legend=legend)
    ax.set_xlabel("time since the start (s); coloured: out of the ISR")
    return ax


def era_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Sliders for burst height and length of stall, and the picture they make."""
    heights = 1_000, 20_000, 100_000, 200_000
    height = choice("burst height (records)", heights, config.burst_records)
    stall = choice("stall (s)", (0, 5, 8, 12, 20, 40), int(config.stall_s))

    def draw(records: int, stall_s: float) -> Axes:
        return plot_eras(config.with_(burst_records=records, stall_s=stall_s))

    return Redrawn((height, stall), draw)
