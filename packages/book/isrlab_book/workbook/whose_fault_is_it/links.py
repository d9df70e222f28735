"""Fetcher threads and followers on one link: real brokers beside the fleet's model of it.

`packages/proof/record/linked.py` made the recordings; the model is `fleet/kernel/link.py`.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet.config import FleetConfig
from isrlab_ops.recordings.reassigned import ADVICE, ClusterRun, TopicTry, sessions

RATE, SMALL_BYTES, LARGE_BYTES = 4_000_000, 1_000, 20_000  # of the link; of the records
BEGIN_S, PARTITIONS = 5, 4


def rows(seeds: int = 10) -> list[dict[str, object]]:
    """A row for each situation: the real tries, and `seeds` runs of the model.

    Real times are the median, and in brackets the extremes; evictions are counted by partition.
    """
    return [_row(run, seeds) for run in sessions(ADVICE) if "link" in run.settings]


def _row(run: ClusterRun, seeds: int) -> dict[str, object]:
    tries = [[t for t in run.tries if t.partition == p] for p in range(PARTITIONS)]
    backlogs = [mb for each in tries if (mb := _megabytes(each[0]))]
    times = [sorted(_copied_s(run, t) for t in each) for each in tries[: len(backlogs)]]
    left = Counter({p: sum(_left(run, t) for t in each) for p, each in enumerate(tries)})
    sizes = int(run.settings.get("replica.fetch.max.bytes", 2**20)) // 2**20
    row: dict[str, object] = {
        "followers": len(run.brokers) - 1,
        "threads": int(run.settings["num.replica.fetchers"]),
        "4 MB/s": run.settings["link"].split(", ")[1].replace("shared", "for all"),
        "fetch.max": f"{sizes} MiB",
        "backlogs (MB)": _and(backlogs),
        "real: copied (s)": _and(f"{np.median(s):.1f} ({s[0]:.1f} to {s[-1]:.1f})" for s in times),
        f"evicted in {len(tries[0])} tries": _counts(left),
    }
    copied_s, left = _simulated(run, backlogs, seeds)
    row["model: copied (s)"] = _and(f"{s:.1f}" for s in copied_s)
    row[f"evicted with {seeds} seeds"] = _counts(left)
    return row


def _and(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _counts(left: Counter[int]) -> str:
    """By partition, such as "0: 10, 2: 10"."""
    return _and(f"{partition}: {n}" for partition, n in sorted(left.items()) if n) or "none"


def _megabytes(each: TopicTry) -> int:
    return max((round(max(m.held.values()) / 1e6) for m in each.moments if m.held), default=0)


def _copied_s(run: ClusterRun, each: TopicTry) -> float:
    """Seconds from the backlog until all followers had it, to a quarter of a second."""
    begin_s = _begin_s(run, each)
    looks = [m for m in each.moments if m.name == "bytes" and m.at_s > begin_s]
    late = [m.at_s for m in looks if min(m.held.values()) < max(m.held.values()) - LARGE_BYTES]
    return max(late, default=begin_s) - begin_s


def _begin_s(run: ClusterRun, each: TopicTry) -> float:
    return next(at for at, text in run.timeline if text.startswith(f"{each.topic}: backlogs"))


def _left(run: ClusterRun, each: TopicTry) -> int:
    """How many followers left the ISR after the backlog was written."""
    begin_s = _begin_s(run, each)
    members = [set(m.isr) for m in each.moments if m.name == "stored" and m.at_s > begin_s]
    return sum(any(follower not in isr for isr in members) for follower in run.brokers[1:])


def _simulated(
    run: ClusterRun, backlogs: Sequence[int], seeds: int
) -> tuple[list[float], Counter[int]]:
    """A fleet like that run: the times to copy, of one seed (it decides only when ISRs are
    checked), and the evictions of all seeds by partition."""
    threads, ids = int(run.settings["num.replica.fetchers"]), ",".join(map(str, run.brokers))
    link: dict[str, Any] = {"follower_bytes_per_s": 10**12, "leader_bytes_per_s": RATE}
    if "each" in run.settings["link"]:
        link = {"follower_bytes_per_s": RATE}
    limits = ("replica.fetch.max.bytes", "replica.fetch.response.max.bytes")
    link |= {n.replace(".", "_"): int(run.settings[n]) for n in limits if n in run.settings}
    with tempfile.TemporaryDirectory() as folder:
        config = FleetConfig(
            version=run.release, partitions=PARTITIONS, brokers=max(run.brokers),
            replication_factor=len(run.brokers), assigned=" ".join([ids] * PARTITIONS),
            minutes=0.5, num_replica_fetchers=threads, fetch_latency_ms=1, follower_spread=0,
            replica_lag_time_max_ms=int(run.settings["replica.lag.time.max.ms"]), stall_s=0,
            load="trace", trace_file=str(_trace(Path(folder), backlogs)), **link,
        )  # fmt: skip
        traces = [fleet.trace(config, p, sample_ms=20) for p in range(len(backlogs))]
        fleets = [fleet.simulate_local(config.with_(seed=n)) for n in range(1, seeds + 1)]
    copied_s = []
    for each in traces:
        behind = np.max([*each.lag_records.values()], axis=0) > LARGE_BYTES // SMALL_BYTES
        copied_s.append(each.ts_ms[behind].max(initial=1000 * BEGIN_S) / 1000 - BEGIN_S)
    left = {
        (n, e.key.partition, e.replica) for n, of in enumerate(fleets) for e in exact.evictions(of)
    }
    return copied_s, Counter(partition for _, partition, _ in left)


def _trace(folder: Path, backlogs: Sequence[int]) -> Path:
    """A small record every 0.2 s for each partition, and the backlogs, within a second."""
    lines = ["time_ms,partition,records,bytes"]
    for partition in range(PARTITIONS):
        lines += [f"{ms},{partition},1,{SMALL_BYTES}" for ms in range(0, 30_000, 200)]
    for partition, mb in enumerate(backlogs):
        lines += [f"{BEGIN_S * 1000 + ms},{partition},{mb},{mb * 1_000}" for ms in range(1000)]
    path = folder / "load.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
