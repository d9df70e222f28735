"""The same load in every era: which step of Kafka's rules ended which evictions.

Tables come as pandas, from `isrlab.churn.diff` and `isrlab.fleet.evictions`. Each eviction has a
*reason*, told from what the leader knew when it evicted, by the measure of today's lag clock, so
that all versions are judged alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from isrlab.engine.versions import PRESETS
from isrlab.fleet.config import FleetConfig
from isrlab.show.style import INK, bare, plain

GENERATIONS = tuple(version.name for version in PRESETS.values())
REASONS = {  # colour of each, and what the leader knew
    "messages": ("#D55E00", "caught up a moment ago, but too many records behind"),
    "clock": ("#E69F00", "caught up a moment ago, but never at the log end"),
    "idle": ("#56B4E9", "stood still, but lacked nothing"),
    "early": ("#CC79A7", "let in while behind, and not caught up since"),
    "behind": ("#8A9BA8", "behind for longer than the limit"),
}
RULES = {  # what each rule of the kernel became, by its value; others are shown as they are
    ("shrink_rule", 1): "no limit in records (KAFKA-1546)",
    ("shrink_rule", 2): "who lacks nothing stays (KAFKA-7152)",
    ("lag_clock", 1): "clock: at the log end (KAFKA-1546)",
    ("lag_clock", 2): "clock: or at the end one fetch ago (KAFKA-4485)",
    ("expand_rule", 1): "joins from the epoch's start on (KAFKA-7128)",
    ("eligibility", 1): "the fenced may not join (KIP-841)",
    ("eligibility", 2): "nor a former incarnation (KIP-903)",
    ("high_watermark_set", 1): "high watermark waits for fresh clocks",
    ("high_watermark_set", 2): "high watermark by the maximal ISR",
    ("high_watermark_set", 3): "high watermark waits for who is caught up (KAFKA-13790)",
    ("high_watermark_set", 4): "only for who may join (KAFKA-15021)",
    ("high_watermark_only_if_follower_moved", 1): "no move, no new high watermark (KAFKA-8841)",
    ("pushes_high_watermark", 1): "a new one answers fetches (KIP-392)",
    ("pushes_high_watermark", 0): "a new high watermark answers no fetch",
    ("waits_for_controller", 1): "ISR changes ask the controller (KIP-497)",
    ("high_watermark_after_shrink", 1): "no look after a shrink",
    ("high_watermark_after_shrink", 2): "a look at the high watermark after a shrink (KAFKA-13091)",
    ("high_watermark_held_under_min_isr", 1): "high watermark held under min ISR (KAFKA-15583)",
}


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
    words = {
        "isr_check_period_ms": f"checks every {now.isr_check_period_ms / 1000:g} s",
        "replica_lag_time_max_ms": f"limit {now.lag_time_ms / 1000:g} s",
        "replica_lag_max_messages": "",  # told by the shrink rule
    }
    changed = [name for name in after if after[name] != before[name]]
    said = [
        words.get(n, RULES.get((n, int(after[n])), f"{n.replace('_', ' ')} {after[n]}"))
        for n in changed
    ]
    return ", ".join(word for word in said if word)


def neighbours(configs: Sequence[FleetConfig]) -> list[tuple[str, str]]:
    """The runs of each fleet and the one before it, as `churn.diff` takes them."""
    return [(was.run, now.run) for was, now in pairwise(configs)]


def by_step(
    diffs: pd.DataFrame, evictions: pd.DataFrame, configs: Sequence[FleetConfig]
) -> pd.DataFrame:
    """A row for each generation and its predecessor: fates of evictions, by reason.

    `diffs` is `churn.diff` of neighbours, `evictions` that of `truth.evictions`, for all runs.
    """
    leaves = _with_reasons(diffs, evictions)
    rows = []
    for was, now in pairwise(configs):
        part = leaves[(leaves["was"] == was.run) & (leaves["now"] == now.run)]
        moved_s = part.loc[part["fate"] == "moved", "moved_ms"].abs().median() / 1000
        counts = {
            f"{fate} {why}": int(((part["fate"] == fate) & (part["reason"] == why)).sum())
            for fate in ("gone", "new")
            for why in REASONS
        }
        fates = {fate: int((part["fate"] == fate).sum()) for fate in ("same", "moved")}
        step = {"was": was.kafka.name, "now": now.kafka.name, "rules": rules_changed(was, now)}
        rows.append({**step, **fates, "moved_s": moved_s, **counts})
    table = pd.DataFrame(rows)
    for fate in ("gone", "new"):
        table[fate] = table[[f"{fate} {why}" for why in REASONS]].sum(axis=1)
    return table


def _with_reasons(diffs: pd.DataFrame, evictions: pd.DataFrame) -> pd.DataFrame:
    """Each eviction of a diff with its reason in the run where it happened, in `was` if in both."""
    sides = [
        diffs.assign(run=diffs[side], ts_ms=diffs[f"{side}_ms"]).dropna(subset="ts_ms")
        for side in ("was", "now")
    ]
    rows = [side.astype({"ts_ms": "int64"}).sort_values("ts_ms") for side in sides]
    leaves = [side[side["change"] == "leaves"] for side in rows]
    left = pd.concat([leaves[0], leaves[1][leaves[1]["fate"] == "new"]]).sort_values("ts_ms")
    key = ["run", "partition", "replica"]
    joined = pd.concat([side.loc[side["change"] == "joins", [*key, "ts_ms"]] for side in rows])
    joined = joined.assign(joined_ms=joined["ts_ms"]).sort_values("ts_ms")
    names = ["lag_records", "since_caught_up_ms", "lag_time_ms", "lag_messages"]
    knew = evictions[["run", "partition", "ts_ms", *names]].sort_values("ts_ms")
    left = pd.merge_asof(left, knew, on="ts_ms", by=key[:2])  # a commit follows what was asked for
    left = pd.merge_asof(left, joined, on="ts_ms", by=key)
    since_joined_ms = (left["ts_ms"] - left["joined_ms"]).fillna(np.inf)
    known = [*(left[name] for name in names), since_joined_ms]
    return left.assign(reason=[reason(*row) for row in zip(*known, strict=True)])


def plot_ladder(steps: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Each step of the generations: evictions that it ends (left) and brings (right), by reason."""
    ax = ax or _axes(10.5, 1.2 + 0.42 * len(steps))
    places = np.arange(len(steps))
    for side, fate in ((-1, "gone"), (1, "new")):
        start = np.zeros(len(steps))
        for why, (colour, _) in REASONS.items():
            size = side * steps[f"{fate} {why}"].to_numpy(float)
            ax.barh(places, size, left=start, color=colour, height=0.62)
            start += size
        for place, end in zip(places, start, strict=True):
            if end:
                ax.annotate(
                    f"{end:+,.0f}".replace("-", "−"), (end, place), (5 * side, 0),
                    textcoords="offset points", va="center", fontsize=8, color=INK,
                    ha="right" if side < 0 else "left",
                )  # fmt: skip
    for place, row in zip(places, steps.itertuples(), strict=True):
        text = plain(row.rules) or "no rule that this fleet feels"
        ax.annotate(
            f"{text}\n{_kept(row)}", (1.02, place), xycoords=ax.get_yaxis_transform(),
            va="center", fontsize=7.5, color=INK if row.rules else "0.6",
        )  # fmt: skip
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_yticks(places, [f"{plain(s.was)} → {plain(s.now)}" for s in steps.itertuples()])
    ax.set_ylim(len(steps) - 0.5, -0.5)
    ends, brings = steps["gone"].max(), steps["new"].max()
    ax.set_xlim(-ends - 0.12 * (ends + brings + 1), brings + 0.12 * (ends + brings + 1))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):,.0f}"))
    ax.set_xlabel("evictions that the step ends (left) and brings (right)")
    ax.set_title(_ladder_title(steps), loc="left", fontsize=10)
    draw_legend(ax, [w for w in REASONS if steps[[f"gone {w}", f"new {w}"]].to_numpy().any()])
    bare(ax, "bottom")
    ax.tick_params(left=False)
    return ax


def _kept(row: object) -> str:
    same, moved, moved_s = (getattr(row, name) for name in ("same", "moved", "moved_s"))
    by = "" if not moved else f", {moved:,} moved (median {_seconds(moved_s)})"
    return f"{same:,} the same{by}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _ladder_title(steps: pd.DataFrame) -> str:
    felt = steps[(steps["gone"] > 0) | (steps["new"] > 0)]
    if felt.empty:
        return f"None of {len(steps)} steps changes who leaves the ISR"
    most = steps.iloc[int(steps["gone"].to_numpy().argmax())]
    said = f"{len(felt)} of {len(steps)} steps change who leaves the ISR"
    return f"{said}; {plain(most['now'])} ends most evictions ({most['gone']:,})"


def finding(steps: pd.DataFrame, released: pd.DataFrame) -> str:
    """What each step that is felt ends and brings under one limit; and the largest as released."""
    felt = steps[(steps["gone"] > 0) | (steps["new"] > 0)].to_dict("records")
    said = [
        f"{step['now']} ends {_by_reason(step, 'gone')} and brings {_by_reason(step, 'new')}"
        for step in felt
    ]
    calm = f"{len(steps) - len(felt)} of {len(steps)} steps change nobody"
    most = released.iloc[int(released["gone"].to_numpy().argmax())]
    return (
        f"With one limit, {'; '.join(said) or 'no step is felt'}; {calm}. As released, "
        f"{most['now']} ends most: {most['gone']:,} evictions ({most['rules']})."
    )


def _by_reason(step: dict[Any, Any], fate: str) -> str:
    named = [f"{step[f'{fate} {why}']:,} {why}" for why in REASONS if step[f"{fate} {why}"]]
    return f"{step[fate]:,} ({', '.join(named)})" if named else "none"


def draw_legend(ax: Axes, whys: list[str], below: float = -0.1) -> None:
    """The reasons, under the axes by a share of their height."""
    patches = [Patch(color=REASONS[why][0], label=REASONS[why][1]) for why in whys]
    if patches:
        ax.legend(
            handles=patches, frameon=False, fontsize=8, ncols=2,
            loc="upper left", bbox_to_anchor=(0, below),
        )  # fmt: skip


def _axes(width: float, height: float) -> Axes:
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
