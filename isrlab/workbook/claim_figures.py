"""Figures of single claims: how long until a follower is dropped, its clock, its catching up."""

from __future__ import annotations

from itertools import pairwise

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.model import Leader
from isrlab.engine.versions import KafkaVersion
from isrlab.show.replicas import plot_replicas, story_finding
from isrlab.show.style import INK, PALE, bare, broker_colour, plain
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.membership import STEADY, lag_ms, removal_ages_ms
from isrlab.workbook.claims.recorded import KAFKA, LAG_MS, recorded_ages_ms
from isrlab.world.cluster import START_MS
from isrlab.world.script import Run

_KAFKA_COLOURS = {"3.9": broker_colour(1), "4.1": broker_colour(2)}


def plot_removal(versions: tuple[str, ...], *, ax: Axes | None = None) -> Axes:
    """Row 2: how long a stopped follower stays in the ISR, by release."""
    ax = ax or plt.subplots(figsize=(8.5, 0.5 + 0.5 * len(versions)))[1]
    for y, name in enumerate(versions):
        version = KafkaVersion.of(name)
        ages = [age / 1000 for age in removal_ages_ms(version)]
        limit = lag_ms(version) / 1000
        ax.barh(y, max(ages) - limit, left=limit, height=0.5, color=broker_colour(2), alpha=0.5)
        ax.plot(ages, [y] * len(ages), "|", color=INK, markersize=9)
        ax.text(max(ages) + 0.7, y, f"at most {max(ages):g} s", va="center", fontsize=9)
    longest = max(max(removal_ages_ms(KafkaVersion.of(n))) for n in versions) / 1000
    ax.set_xlim(0, longest * 1.2)
    ax.set_ylim(len(versions) - 0.5, -0.5)
    ax.set_yticks(range(len(versions)), [plain(n) for n in versions])
    ax.set_xlabel("time since the follower last caught up, s")
    ax.set_ylabel("Kafka")
    bare(ax, "left", "bottom")
    first, last = (max(removal_ages_ms(KafkaVersion.of(versions[i]))) / 1000 for i in (0, -1))
    told = f"up to {first:g} s in {versions[0]}, {last:g} s in {versions[-1]}"
    ax.set_title(plain(f"A stopped follower stays {told}"), loc="left", fontsize=10)
    return ax


def clock_ages(run: Run) -> list[tuple[float, float, bool]]:
    """(seconds, age of follower 2's clock in seconds, in the ISR) after each step."""
    points = []
    for frame in run.frames[run.first_frame :]:
        role = frame.brokers[1].role
        assert isinstance(role, Leader)
        clock = runs.remote(frame, 2).last_caught_up_time_ms
        now = (frame.now_ms - START_MS) / 1000
        points.append((now, (frame.now_ms - clock) / 1000, 2 in role.isr))
    return points


def plot_clock_age(versions: tuple[str, ...], *, limit_s: float = 1.0) -> Figure:
    """Row 3: the clock of a follower that is always one fetch behind a steady producer."""
    figure, axes = plt.subplots(1, len(versions), figsize=(10, 3), sharey=True, squeeze=False)
    for ax, name in zip(axes.flat, versions, strict=True):
        points = clock_ages(runs.play(STEADY, name))
        ax.plot([p[0] for p in points], [p[1] for p in points], color=broker_colour(2))
        ax.axhline(limit_s, color=INK, linestyle=":", linewidth=1)
        ax.text(0.02, limit_s + 0.03, "replica.lag.time.max.ms", fontsize=8, color=INK)
        out = [p[0] for p in points if not p[2]]
        if out:
            ax.axvline(out[0], color=INK, linewidth=1)
            ax.text(out[0] + 0.03, 0.1, "dropped", fontsize=8)
        verdict = f"dropped after {out[0]:.1f} s" if out else "stays in the ISR"
        ax.set_title(plain(f"Kafka {name}: {verdict}"), fontsize=10, loc="left")
        ax.set_xlabel("time, s")
        bare(ax, "left", "bottom")
    axes[0][0].set_ylabel("since it last caught up, s")
    figure.tight_layout()
    return figure


def _catching_up(run: Run) -> tuple[list[int], list[int], list[int]]:
    """The leader's end, its high watermark, and the follower's confirmed end, record by record."""
    ends, marks, confirmed = [], [], []
    frames = run.frames[run.blocks[1].frames[0] :]
    for before, frame in pairwise(frames):
        if frame.disks[1].log_end_offset > before.disks[1].log_end_offset:
            ends.append(frame.disks[1].log_end_offset)
            marks.append(runs.high_watermark(frame))
            confirmed.append(runs.remote(frame, 2).log_end_offset)
    return ends, marks, confirmed


def plot_catching_up(version: str) -> Figure:
    """Rows 4 and 5: the high watermark that a returning follower has to reach, rule on and off."""
    plain_isr = KafkaVersion.of(version).with_(high_watermark_set=HighWatermarkSet.ISR)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), sharey=True)
    for ax, rules, label in zip(
        axes,
        (KafkaVersion.of(version), plain_isr),
        ("ISR and replicas in time count", "the ISR alone counts"),
        strict=True,
    ):
        run = runs.library("claim_catching_up", rules)
        ends, marks, confirmed = _catching_up(run)
        ax.plot(ends, ends, "o-", color=broker_colour(1), label="leader's end offset")
        ax.plot(ends, marks, "--", color=INK, linewidth=2, label="high watermark")
        ax.plot(ends, confirmed, "s-", color=broker_colour(2), label="follower's end offset")
        joined = runs.rows(run, "isr_expand", replica=2)
        verdict = f"it joins at {joined[0].log_end_offset}" if joined else "it never joins"
        ax.set_title(plain(f"{label}: {verdict}"), fontsize=10, loc="left")
        ax.set_xlabel("records in the leader's log")
        bare(ax, "left", "bottom")
    axes[0].set_ylabel("offset")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return figure


def plot_ends(cases: dict[str, Run]) -> Figure:
    """The replicas at the end of some runs, one below the other, each with what it shows."""
    size = (9, 2.4 * len(cases))
    figure, axes = plt.subplots(len(cases), 1, figsize=size, squeeze=False)
    for ax, (label, run) in zip(axes.flat, cases.items(), strict=True):
        plot_replicas(run.frames[-1], ax=ax, title=f"{label}: {story_finding(run)}")
    figure.tight_layout()
    return figure


def plot_recorded_ages(*, ax: Axes | None = None) -> Axes:
    """Row 32: when real leaders dropped followers, over the range that the engine gives."""
    ax = ax or plt.subplots(figsize=(8.5, 2.2))[1]
    ax.axvspan(LAG_MS / 1000, 1.5 * LAG_MS / 1000, color=PALE, zorder=0)
    inside = total = 0
    for y, kafka in enumerate(KAFKA):
        ages = [age / 1000 for age in recorded_ages_ms(kafka)]
        spread = [y + 0.1 * (i % 5 - 2) for i in range(len(ages))]
        ax.plot(ages, spread, "o", color=_KAFKA_COLOURS[kafka], markersize=5, alpha=0.8)
        inside += sum(LAG_MS / 1000 < age <= 1.5 * LAG_MS / 1000 for age in ages)
        total += len(ages)
    ax.set_yticks(range(len(KAFKA)), [f"Kafka {k}" for k in KAFKA])
    ax.set_ylim(len(KAFKA) - 0.5, -0.5)
    ax.set_xlim(0, 10)
    ax.set_xlabel("time since the dropped follower last caught up, s (grey: 1.0 to 1.5 lag times)")
    bare(ax, "left", "bottom")
    ax.set_title(
        f"{inside} of {total} followers were dropped within the engine's range",
        loc="left",
        fontsize=10,
    )
    return ax
