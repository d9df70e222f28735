"""Notebook 02: when a stalled follower leaves the ISR.

`eviction_times` and `played_evictions` play one stall many times, from different moments;
`recorded_evictions` reads those of real followers. Replica 2 is the follower in question.
"""

import csv
from collections.abc import Mapping, Sequence
from itertools import pairwise

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isrlab.engine import messages as m
from isrlab.engine import rules
from isrlab.engine.versions import KafkaVersion, release
from isrlab.installed import DATA
from isrlab.show import bands, controls, curves, offsets, style
from isrlab.show.offsets import Offsets
from isrlab.world import scenario
from isrlab.world.cluster import START_MS
from isrlab.world.script import Run
from isrlab_book.branches import branches

FOLLOWER = 2
# A follower that is caught up lacks a record from now on, and hangs
STALL = "produce 1 acks=1\nstabilize\npause 2 fetcher\nproduce 1 acks=1\nadvance {watch_ms}ms"
# What `packages/proof/record/eras.py --pauses` does to real clusters
RECORDED_LAG_MS, RECORDED_EVERY_MS = 3_000, 200
RECORDED = f"partition replicas=1,2,3 replica.lag.time.max.ms={RECORDED_LAG_MS} latency=1"
FEED = f"produce 1 acks=1 every={RECORDED_EVERY_MS}ms"
PAUSE = f"advance {{since_ms}}ms\npause 2\nadvance {{left_ms}}ms\n{FEED} for=6800ms"
PAUSES = DATA / "recordings" / "eras" / "pauses.csv"
# A follower that hangs for a while, catches up in half a second, and hangs again
SAW_TOOTH = "partition replicas=1,2 replica.lag.time.max.ms=10000\n"
TOOTH = """
pause 2 fetcher
produce 1 acks=1 every=500ms for={hang_s}s
resume 2
produce 1 acks=1 every=500ms for=500ms
"""


def eviction_times(version: str, samples: int = 40, lag_ms: int | None = None) -> list[int]:
    """ms from the stall to the smaller ISR, of stalls spread evenly over one check period."""
    known = KafkaVersion.of(version)
    lag_ms = lag_ms or known.replica_lag_time_max_ms
    period_ms = rules.isr_check_period_ms(lag_ms, known.isr_checks_per_lag_time)
    begins_ms = [period_ms + sample * period_ms // samples for sample in range(samples)]
    start = f"partition replicas=1,2 replica.lag.time.max.ms={lag_ms}"
    rest = STALL.format(watch_ms=3 * lag_ms)
    stories = ((ms, f"advance {ms - was_ms}ms", rest) for was_ms, ms in pairwise([0, *begins_ms]))
    return [offsets.isr_of(run)[1].start_ms - ms for ms, run in branches(known, start, stories)]


def recorded_evictions() -> dict[str, list[int]]:
    """ms from SIGSTOP to the stored smaller ISR, of real followers: by release, oldest first."""
    waits: dict[str, list[int]] = {}
    for row in csv.DictReader(PAUSES.read_text("utf-8").splitlines()):
        waits.setdefault(row["version"], []).append(int(row["waited_ms"]))
    return dict(sorted(waits.items(), key=lambda item: release(item[0])))


def played_evictions(version: str | KafkaVersion, samples: int = 100) -> list[int]:
    """ms until the ISR shrinks in the engine, for pauses spread evenly over one check period."""
    known, stories, fed_ms = KafkaVersion.of(version), [], 0
    period_ms = rules.isr_check_period_ms(RECORDED_LAG_MS, known.isr_checks_per_lag_time)
    for sample in range(samples):
        pause_ms = 2 * period_ms + sample * period_ms // samples
        since_ms = pause_ms % RECORDED_EVERY_MS
        rest = PAUSE.format(since_ms=since_ms, left_ms=RECORDED_EVERY_MS - since_ms)
        stories.append((pause_ms, f"{FEED} for={pause_ms - since_ms - fed_ms}ms", rest))
        fed_ms = pause_ms - since_ms
    return [offsets.isr_of(run)[1].start_ms - ms for ms, run in branches(known, RECORDED, stories)]


def plot_recorded(times: Mapping[str, Sequence[int]], samples: int = 60) -> Axes:
    """Pauses of real followers beside the same pauses in the engine, release by release."""
    rows = {
        version: {"Kafka": np.divide(waits, 1000),
                  "engine": np.divide(played_evictions(version, samples), 1000)}
        for version, waits in times.items()
    }  # fmt: skip
    means = [f"{version} {np.mean(waits) / 1000:.1f} s" for version, waits in times.items()]
    title = f"{sum(map(len, times.values()))} pauses of real followers, lag limit "
    title += f"{RECORDED_LAG_MS / 1000:g} s; mean time to leave: {', '.join(means)}"
    scale = curves.Scale("from the pause to the smaller ISR (s)", low=2.5)
    return curves.plot_ticks(rows, title, scale)


def plot_evictions(times: Mapping[str, Sequence[int]]) -> Axes:
    """When a stalled follower leaves: for each version a tick for every run."""
    seconds = {version: [ms / 1000 for ms in values] for version, values in times.items()}
    means = {version: sum(values) / len(values) for version, values in seconds.items()}
    slow, quick = (end(means, key=means.__getitem__) for end in (max, min))
    title = f"The same stall: out after {means[quick]:.1f} s on average in {quick}, "
    title += f"after {means[slow]:.1f} s in {slow}"
    notes = {v: f"{min(values):.1f} to {max(values):.1f} s" for v, values in seconds.items()}
    scale = curves.Scale("from the stall to the smaller ISR (s)")
    rows = {version: {"one stall": values} for version, values in seconds.items()}
    return curves.plot_ticks(rows, title, scale, notes=notes)


def clock_ages(data: Offsets, follower: int = FOLLOWER) -> tuple[np.ndarray, np.ndarray]:
    """Times (s), the age (s) of a follower's lag clock, just before and just after each reset."""
    times, set_at = np.asarray(data.times_s), np.asarray(data.caught_up_s[follower])
    moved = np.flatnonzero(np.diff(set_at, prepend=-1.0))
    points = [(times[i], times[i] - set_at[j]) for i in moved.tolist() for j in (max(i - 1, 0), i)]
    points.append((times[-1], times[-1] - set_at[-1]))
    x, y = np.array(points).T
    return x, np.maximum(y, 0)


def plot_clocks(runs: Mapping[str, Run], follower: int = FOLLOWER) -> Figure:
    """The age of the follower's lag clock in each run, and a tick for each check of its leader: a
    check that finds it above the dotted limit removes the follower."""
    figure, grid = style.panels(len(runs), 1, (9.5, 0.9 + 1.5 * len(runs)), sharex=True)
    names: dict[str, list[str]] = {"leaves the ISR": [], "stays in the ISR": []}
    known = {name: offsets.offsets_of(run) for name, run in runs.items()}
    limits_s = {n: r.cluster.settings.replica_lag_time_max_ms / 1000 for n, r in runs.items()}
    ages = {name: clock_ages(data, follower) for name, data in known.items()}
    highest = max(min(float(ages[n][1].max()), 3 * limits_s[n]) for n in runs)
    highest = 1.15 * max(highest, *limits_s.values())
    for ax, (name, data) in zip(grid.flat, known.items(), strict=True):
        ax.plot(*ages[name], color=style.broker_colour(follower), linewidth=1.2)
        frames = runs[name].frames[runs[name].first_frame :]
        checks_ms = [f.now_ms - START_MS for f in frames if isinstance(f.message, m.ExpireIsr)]
        ax.vlines(np.divide(checks_ms, 1000), 0, 0.09 * highest, color=style.INK, linewidth=1.6)
        style.limit(ax, limits_s[name], "limit")
        away = [span for span in data.isr if follower not in span.isr]
        bands.shade(ax, [bands.Span(s.start_ms / 1000, s.end_ms / 1000, "out") for s in away])
        ax.set(ylim=(0, highest), xlim=(0, max(data.times_s[-1] for data in known.values())))
        ax.set_ylabel("age (s)", fontsize=8)
        text = ", ".join(f"{s.start_ms / 1000:g} to {s.end_ms / 1000:g} s" for s in away[:3])
        style.finish(ax, f"{name}: out of the ISR (shaded) {text}" if away else name)
        names["leaves the ISR" if away else "stays in the ISR"].append(name)
    grid.flat[-1].set_xlabel("time since the start (s); ticks: the leader checks")
    parts = [f"{what} in {style.listed(those)}" for what, those in names.items() if those]
    return style.headline(figure, f"The follower {' and '.join(parts)}")


def hang_slider(version: str, hang_s: int = 8) -> widgets.VBox:
    """A slider: how long a follower hangs, again and again, and whether it stays in the ISR."""
    slider = controls.choice("hangs for (s)", (2, 5, 8, 9, 10, 11, 12, 15, 20), hang_s)

    def draw(seconds: int) -> Figure:
        script = SAW_TOOTH + 4 * TOOTH.format(hang_s=seconds)
        return plot_clocks({version: scenario.play(script, version=version)})

    return controls.LiveFigure([slider], draw)
