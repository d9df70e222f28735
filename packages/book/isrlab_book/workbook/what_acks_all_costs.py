"""How much acks=all costs: how long a produce waits for the ISR, and where that time goes.

A *wait* begins when the leader appends a batch and ends when the high watermark reaches its end:
what Kafka calls RemoteTimeMs. One produce is watched every millisecond;
thousands are counted in classes.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence

import ipywidgets as widgets
import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes

from isrlab import fleet
from isrlab.events import exact
from isrlab.events.measures import measures
from isrlab.fleet import load
from isrlab.fleet.config import FleetConfig
from isrlab.fleet.sums import quantile
from isrlab.show import style
from isrlab.show.controls import LiveFigure, Number, pictured
from isrlab.show.curves import Curve, Scale, plot_curves
from isrlab.show.player import PlayerImage
from isrlab_book.commits import NO_FOLLOWER, Commit, commits
from isrlab_ops.logs.reader.read import read_local
from isrlab_ops.logs.recordings import traced

PAIR = FleetConfig(
    version="4.1", partitions=1, brokers=2, replication_factor=2, minutes=0.05, load="steady",
    records_per_s=500, batch_every_ms=40, fetch_latency_ms=10, stall_s=0, follower_spread=0,
)  # fmt: skip
SMALL = FleetConfig(
    version="4.1", partitions=6, minutes=5, load="steady", records_per_s=20, batch_every_ms=500,
    stall_s=5, stall_every_s=60, replica_lag_time_max_ms=10_000,
)  # fmt: skip
QUANTILES = {"half": 0.5, "99 %": 0.99, "99.9 %": 0.999}
ZERO_MS = 0.3  # where a wait of 0 ms stands on the logarithmic scale
_TIMES = Scale(
    "wait for the ISR",
    "log",
    ticks=(ZERO_MS, 1, 10, 100, 1_000, 10_000, 100_000),
    names=("0", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"),
    low=ZERO_MS,
    high=100_000,
)


def waits(trace: fleet.Trace) -> pd.DataFrame:
    """The committed appends of a trace, a row for each ms: `ts_ms`, `records`, `wait_ms`."""
    records = np.diff(trace.log_end_offset, prepend=0)
    at = np.flatnonzero(records)
    done = np.searchsorted(trace.high_watermark, trace.log_end_offset[at])
    at, done = at[done < len(trace.ts_ms)], done[done < len(trace.ts_ms)]
    wait_ms = trace.ts_ms[done] - trace.ts_ms[at]
    return pd.DataFrame({"ts_ms": trace.ts_ms[at], "records": records[at], "wait_ms": wait_ms})


def spread(trace: fleet.Trace) -> str:
    """The shortest, the median and the longest wait of a trace, in one sentence."""
    low, half, high = waits(trace)["wait_ms"].quantile([0, 0.5, 1])
    count = style.counted(len(waits(trace)), "produce")
    return f"{count}: shortest wait {low:.0f} ms, median {half:.0f} ms, longest {high:.0f} ms."


def lag_rows(configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """How many records wait in partition 0 of each fleet, on average: measured, and rate x wait."""
    rows = []
    for config in configs:
        trace = fleet.trace(config, 0, sample_ms=1)
        each = waits(trace)
        rate = float(trace.log_end_offset[-1]) / config.duration_ms
        mean_ms = float(np.average(each["wait_ms"], weights=each["records"]))
        lag = float((trace.log_end_offset - trace.high_watermark).mean())
        setting = config.fetch_latency_ms, config.record_bytes
        rows.append((*setting, rate * 1000, mean_ms, rate * mean_ms, lag))
    columns = ["one_way_delay_ms", "record_bytes", "records_per_s", "mean_wait_ms", "rate_x_wait"]
    return pd.DataFrame(rows, columns=[*columns, "lag_records"])


def plot_produce(trace: fleet.Trace, share: float) -> Axes:
    """One produce between a leader and its only follower: the messages that it waits for.

    `share` chooses it: 0 for the shortest wait of the trace, 1 for the longest. An answer
    leaves the leader two one-way delays and the time of writing before the next fetch arrives.
    """
    ax = style.axes(7.6, 2.8)
    config, delay_ms = trace.config, trace.config.fetch_latency_ms
    each = waits(trace).sort_values("wait_ms", kind="stable")
    zero, _, wait_ms = each.iloc[round(share * (len(each) - 1))].tolist()
    ((broker, end),) = trace.followers.items()
    moved = np.diff(end, prepend=0)
    ax.axvspan(0, wait_ms, color=style.PALE, linewidth=0, zorder=-1)
    for at in np.flatnonzero(moved).tolist():
        arrives_ms = int(trace.ts_ms[at]) - zero
        size = int(moved[at]) * config.record_bytes
        write_ms = -(-size * 1000 // load.follower_bytes_per_s(config, broker))
        left_ms = arrives_ms - 2 * delay_ms - write_ms
        if not -3 * delay_ms <= left_ms <= wait_ms:
            continue
        is_waited_for = arrives_ms == wait_ms or arrives_ms > 0 > left_ms
        look = {"arrowstyle": "-|>", "alpha": 1.0 if is_waited_for else 0.35, "lw": 1.6}
        answer, fetch = (left_ms + delay_ms, 0), (arrives_ms - delay_ms, 0)
        for start, stop, colour in (
            ((left_ms, 1), answer, style.BLUE), (fetch, (arrives_ms, 1), style.VERMILION)
        ):  # fmt: skip
            props = look | {"color": colour}
            ax.annotate("", stop, start, arrowprops=props, annotation_clip=False)
    for place, number in ((1, 1), (0, 2)):
        ax.axhline(place, color=style.broker_colour(number), linewidth=3, zorder=0)
    ax.set_yticks([1, 0], ["leader", "follower"])
    ax.set(ylim=(-0.25, 1.55), xlim=(-2.2 * delay_ms, wait_ms + 1.2 * delay_ms))
    ax.text(0, 1.08, "appended", va="bottom", fontsize=8, color=style.INK)
    ax.text(wait_ms, 1.08, "high watermark\npasses it", ha="right", va="bottom", fontsize=8)
    ax.plot([], [], color=style.BLUE, label="answer with records")
    ax.plot([], [], color=style.VERMILION, label="next fetch: confirms the record")
    style.legend_below(ax)
    ax.set_xlabel("time since the leader appended the record (ms)")
    why = "A fetch was parked" if wait_ms < 3 * delay_ms else "The fetch had just been answered"
    times = f"{wait_ms / delay_ms:.1f} times the one-way delay of {delay_ms} ms"
    return style.finish(ax, f"{why}: the record waits {wait_ms} ms, {times}", spines=("bottom",))


def with_settings(table: pd.DataFrame, configs: Sequence[FleetConfig], *names: str) -> pd.DataFrame:
    """A table's rows in the order of `configs`, with these settings as columns instead of `run`."""
    rows = [(config.run, *(getattr(config, name) for name in names)) for config in configs]
    settings = pd.DataFrame(rows, columns=["run", *names])
    return settings.merge(table, on="run", how="left").drop(columns="run")


def plot_by_network(table: pd.DataFrame) -> Axes:
    """Median and 99th percentile of the waits by one-way delay; the band is 2 to 4 delays."""
    delays = table["fetch_latency_ms"].to_numpy(float)
    times, look = table["p50_ms"] / delays, (style.INK, "")
    curves = {
        "2 to 4 one-way delays": Curve(delays, 3 * delays, 2 * delays, 4 * delays, look, "-."),
        "median": Curve(delays, table["p50_ms"]),
        "99th percentile": Curve(delays, table["p99_ms"]),
    }
    title = f"Half of the produces wait {times.min():.1f} to {times.max():.1f} times the one-way "
    title += "delay or less"
    x = Scale("one-way delay of a message between brokers (ms)", "log", ticks=delays)
    return plot_curves(curves, title, (x, Scale("wait of a produce (ms)", "log")))


def plot_tails(histograms: Mapping[str, pd.DataFrame]) -> Axes:
    """The share of produces that wait longer than a time, a line for each histogram.

    A histogram has `latency_ms` (the lower bound of a class: events of kind `latency`) and `count`.
    """
    curves, worst = {}, []
    for name, histogram in histograms.items():
        ordered = histogram.sort_values("latency_ms")
        counts = ordered["count"].to_numpy(float)
        longer = 100 * (1 - (np.cumsum(counts) - counts) / max(1.0, counts.sum()))
        starts = np.maximum(ordered["latency_ms"].to_numpy(float), ZERO_MS)
        curves[name] = Curve(starts, longer, is_step=True)
        worst.append(f"{style.duration(quantile(ordered, 0.999))} ({name})")
    return plot_curves(
        curves,
        f"1 in 1,000 produces waits at least {', '.join(worst)}",
        (_TIMES, Scale("produces that wait longer (%)", "log", low=0.005, high=140)),
        limits={50: "half", 1: "1 in 100", 0.1: "1 in 1,000"},
    )


def plot_limits(
    histograms: pd.DataFrame, refused: pd.DataFrame, configs: Sequence[FleetConfig]
) -> Axes:
    """The tail of the waits under each lag limit, with the produces that timed out (`refused`)."""
    timeout_ms = configs[0].request_timeout_ms
    late = refused[refused["error"] == "REQUEST_TIMED_OUT"].assign(latency_ms=timeout_ms)
    waited = pd.concat([histograms, late.rename(columns={"produces": "count"})])
    ax = plot_tails({
        f"limit {config.lag_time_ms / 1000:g} s": waited[waited["run"] == config.run]
        for config in configs
    })  # fmt: skip
    style.mark(ax, timeout_ms, "request.timeout.ms", side="right")
    return ax


def summary(configs: Sequence[FleetConfig]) -> pd.DataFrame:
    """A row for each fleet: waits, failures per hour, and time in which one copy is enough.

    `one copy accepts` are partition-minutes per hour in which only the leader was in the ISR and
    produces were acknowledged all the same.
    """
    rows = []
    for config in configs:
        asks, least = config.acks_all_share > 0, config.min_isr(config.replication_factor)
        events = fleet.simulate_local(config)
        numbers = measures(events, config.replication_factor, least, (0, config.duration_ms))
        is_enough, per_hour = not asks or least < 2, 60 / config.minutes
        rows.append({
            "acks": "all" if asks else "1",
            "min ISR": str(least) if asks else "any",
            **{f"{name} (ms)": quantile(histogram(events), q) for name, q in QUANTILES.items()},
            "refused/h": numbers["refused"] * per_hour,
            "timed out/h": numbers["timed_out"] * per_hour,
            "one copy accepts (min/h)": is_enough * numbers["one_copy_minutes"] * per_hour,
        })  # fmt: skip
    return pd.DataFrame(rows).round(1)


def finding(tables: Sequence[pd.DataFrame], stalled_share: float) -> str:
    """The costs of acks=all with min ISR 1, 2 and 3; `tables` has one `summary` for each seed."""

    def ends(size: str, column: str, word: Callable[[float], str] = "{:,.0f}".format) -> str:
        values = [t.loc[t["min ISR"] == size, column].iloc[0] for t in tables]
        texts = dict.fromkeys((word(min(values)), word(max(values))))
        return " to ".join(texts)

    half, rest = (ends("1", f"{name} (ms)", style.duration) for name in ("half", "99.9 %"))
    alone = ends("1", "one copy accepts (min/h)", "{:,.1f}".format)
    return (
        f"Where each broker's fetchers are stalled for {stalled_share:.0%} of the time, acks=all "
        f"makes half of the produces wait {half} and 1 in 1,000 {rest} ({len(tables)} seeds). With "
        f"min ISR 1 the leader alone acknowledges for {alone} partition-minutes an hour; with 2 it "
        f"refuses {ends('2', 'refused/h')} attempts instead, with 3 {ends('3', 'refused/h')}."
    )


def histogram(events: pa.Table) -> pd.DataFrame:
    """How many produces of a small fleet waited how long: `latency_ms`, `count`."""
    rows = [(wait.latency_ms, wait.produces) for wait in exact.waits(events)]
    return pd.DataFrame(rows, columns=["latency_ms", "count"])


def commits_of(log_dir: str = "", release: str = "4.1.2") -> list[Commit]:
    """The commits that the TRACE logs in a folder show; without one, those of a recording.

    Raises ValueError where no leader's position is printed.
    """
    events = read_local(log_dir).events if log_dir else traced(release)
    shown = commits(events)
    if not shown:
        raise ValueError(
            f"{log_dir}: no commits are logged; set the logger kafka.cluster.Partition to TRACE"
        )
    return shown


def _held_by(broker: int) -> str:
    return "no broker" if broker == NO_FOLLOWER else f"broker {broker}"


def plot_commits(shown: Sequence[Commit]) -> Axes:
    """How long each append waited, when, and for which follower."""
    start_ms = shown[0].committed_ms
    curves = {}
    for broker, has_left in sorted({(commit.held_by, commit.has_left) for commit in shown}):
        own = [c for c in shown if (c.held_by, c.has_left) == (broker, has_left)]
        seconds = [(commit.appended_ms - start_ms) / 1000 for commit in own]
        waits_ms = [max(commit.wait_ms, ZERO_MS) for commit in own]
        look = style.broker_colour(broker), "x" if has_left else "o"
        name = f"{_held_by(broker)}{', until it is out of the ISR' if has_left else ''}"
        curves[f"waits for {name}"] = Curve(seconds, waits_ms, look=look, style="")
    longest = max(shown, key=lambda commit: commit.wait_ms)
    title = (
        f"Half of the appends wait {statistics.median_low(c.wait_ms for c in shown)} ms or less; "
        f"the longest waits {longest.wait_ms / 1000:.1f} s, for {_held_by(longest.held_by)}"
    )
    return plot_curves(curves, title, (Scale("s since the first commit", low=None), _TIMES))


def wait_controls(config: FleetConfig = SMALL) -> widgets.VBox:
    """Numbers for network latency, stalls and lag limit; the waits that they make, and the formula
    with these numbers."""
    controls = [
        Number("one-way delay (ms)", (1, 10, 50), value=config.fetch_latency_ms, min=1, max=1_000),
        Number("stalls of brokers (s)", (0, 5, 20, 60), value=20, min=0, max=600),
        Number("lag limit (s)", (10, 30), value=config.lag_time_ms / 1_000, min=1, max=600),
    ]

    def draw(delay_ms: float, stall_s: float, limit_s: float) -> PlayerImage:
        lag_ms, delay_ms = round(1_000 * limit_s), round(delay_ms)
        chosen = {"fetch_latency_ms": delay_ms, "replica_lag_time_max_ms": lag_ms}
        events = fleet.simulate_local(config.with_(stall_s=stall_s, **chosen))
        ax = plot_tails({f"{delay_ms} ms one way, stalls of {stall_s:g} s": histogram(events)})
        style.mark(ax, 4 * delay_ms, "4 delays")
        style.mark(ax, 1.5 * lag_ms, "1.5 limits", side="right")
        caption = f"2 to 4 × {delay_ms} ms = {2 * delay_ms} to {4 * delay_ms} ms while every "
        caption += f"follower works; up to 1.5 × {limit_s:g} s = {1.5 * limit_s:g} s after a stall"
        return pictured(ax, caption)

    return LiveFigure(controls, draw)
