"""Steps of the engine per second on one core: one produce, then a fetch of each follower, again.

    make bench, or: python benchmarks/bench_engine.py [--long]

A new log begins every 100 records, because scenarios are short. All generations are compared.
"""

from __future__ import annotations

import sys
import time

from isrlab.engine.broker import start, step
from isrlab.engine.frozen import replace
from isrlab.engine.log import Log
from isrlab.engine.messages import BrokerInfo, Fetch, LeaderAndIsr, Produce, UpdateMetadata
from isrlab.engine.model import Broker, Settings
from isrlab.engine.versions import PRESETS, KafkaVersion

RECORDS = 100


def leader(version: KafkaVersion) -> Broker:
    broker, _ = start(Broker(1, version, Settings.of(version), (1, 2, 3)))
    broker, _ = step(broker, UpdateMetadata(tuple(BrokerInfo(i, 0) for i in (1, 2, 3))), 0)
    broker, _ = step(broker, LeaderAndIsr(1, 0, (1, 2, 3), 0, (1, 2, 3)), 0)
    return broker


def steps_per_second(version: KafkaVersion, seconds: float) -> float:
    """Produce and fetch for `seconds`; a step is one call of `step`."""
    fresh = leader(version)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        broker = replace(fresh, log=Log())
        for offset in range(RECORDS):
            now_ms = 1_000_000 + offset
            broker, _ = step(broker, Produce(offset, (f"m{offset}",), 1), now_ms)
            for follower in (2, 3):
                epoch = 0 if version.fences_stale_leader_epoch else -1
                fetch = Fetch(follower, offset, offset + 1, epoch, broker_epoch=0)
                broker, _ = step(broker, fetch, now_ms)
            count += 3
        assert broker.log.high_watermark == RECORDS
    return count / (time.perf_counter() - begin)


def main(seconds: float) -> None:
    print("engine: steps per second on one core (one produce, two fetches)")
    for version in PRESETS.values():
        print(f"  {version.name:<7} {steps_per_second(version, seconds):>9,.0f}")


if __name__ == "__main__":
    main(5.0 if "--long" in sys.argv else 1.0)
