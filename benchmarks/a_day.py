"""A day of 100,000 partitions on 60 brokers under bursts, with two controls, on any Spark.

    python benchmarks/a_day.py FOLDER [MASTER]     such as spark://host:7077; default: local[*]

Driver and workers must see FOLDER. Each leader of each run is a task with its own file; after an
interruption the same command runs only the missing ones. The counts by hour and by broker go to
`data/fleet_day`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from isrlab import churn, spark
from isrlab.fleet import FleetConfig, load, stored

DAY = FleetConfig(
    version="4.3", name="bursts and stalls", partitions=100_000, brokers=60, minutes=1_440,
    min_insync_replicas=2, load="together", daily_swing=0.5, batch_every_ms=60_000,
    burst_records=36_000, burst_s=3, burst_every_s=3_600, burst_share=0.1,
    follower_bytes_per_s=4_000_000, stall_s=40, stall_every_s=14_400,
)  # fmt: skip
RUNS = [
    DAY, DAY.with_(name="bursts alone", stall_s=0), DAY.with_(name="stalls alone", load="steady")
]  # fmt: skip
DATA = Path(__file__).parent.parent / "data" / "fleet_day"
BACK_S = (0.1, 1, 3, 10, 30, 100)
AFTER_MS = 60_000  # a fault can cause an eviction until this long after its end


def within(ts_ms: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Which moments lie in one of several disjoint intervals, bool[n]."""
    place = np.searchsorted(starts, ts_ms, "right") - 1
    return (place >= 0) & (ts_ms < np.append(ends, 0)[place])


def evictions(moves: pd.DataFrame) -> pd.DataFrame:
    """Each eviction with its hour, its cause, and how long the replica was out."""
    order = moves.sort_values(["run", "partition", "replica", "ts_ms"])
    until = order.groupby(["run", "partition", "replica"])["ts_ms"].shift(-1)
    left = order.assign(out_s=(until.fillna(DAY.duration_ms) - order["ts_ms"]) / 1000)
    left = left[left["change"] == "leaves"].copy()
    bursts = {int(ms) for p in range(1_000) for ms in load.burst_starts_ms(DAY, p)}
    starts = np.array(sorted(bursts))
    in_burst = within(left["ts_ms"].to_numpy(), starts, starts + DAY.burst_s * 1000 + AFTER_MS)
    left["burst"] = in_burst & (left["run"] != RUNS[2].run)
    left["stall"] = False
    for broker, rows in left[left["run"] != RUNS[1].run].groupby("replica"):
        begin, end = load.stalls(DAY, int(broker))
        left.loc[rows.index, "stall"] = within(rows["ts_ms"].to_numpy(), begin, end + AFTER_MS)
    names = {(True, True): "burst on a stall", (True, False): "burst", (False, True): "stall"}
    pairs = zip(left["burst"], left["stall"], strict=True)
    left["trouble"] = [names.get(pair, "neither") for pair in pairs]
    return left.assign(hour=left["ts_ms"] // 3_600_000)


def counted(left: pd.DataFrame, key: str) -> pd.DataFrame:
    """Evictions by run, `key` and cause, and how many replicas were back within `BACK_S`."""
    rows = left.groupby(["run", key, "trouble"])["out_s"]
    table = pd.DataFrame({"evictions": rows.size(), "out_s": rows.sum().round().astype(int)})
    for seconds in BACK_S:
        table[f"back_{seconds:g}s"] = rows.apply(lambda each, s=seconds: int((each <= s).sum()))
    every = [left[name].unique() for name in ("run", key, "trouble")]
    return table.reindex(
        pd.MultiIndex.from_product(every, names=table.index.names), fill_value=0
    ).reset_index()


if __name__ == "__main__":
    session = spark.session(*sys.argv[2:])
    events = stored(session, RUNS, sys.argv[1])
    names = ["run", "partition", "replica", "change", "ts_ms"]
    left = evictions(churn.moves(events).select(*names).toPandas())
    by_broker = counted(left, "replica").rename(columns={"replica": "broker"})
    rates = [load.follower_bytes_per_s(DAY, broker) / 1e6 for broker in by_broker["broker"]]
    by_hour = counted(left, "hour").assign(leaders=DAY.brokers)
    by_hour.to_csv(DATA / "by_hour.csv.gz", index=False)
    by_broker.assign(mb_per_s=rates).to_csv(DATA / "by_broker.csv.gz", index=False)
    print(left.groupby(["run", "trouble"]).size().to_string())
