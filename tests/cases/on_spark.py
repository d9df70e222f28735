"""Fixed questions to any session: `on_spark.py MASTER LOGS` prints the answers as JSON."""

from __future__ import annotations

import inspect
import json
import sys
import time

from isrlab import churn, fleet, spark
from isrlab.fleet import truth
from isrlab.fleet.config import FleetConfig
from isrlab_ops.logs.reader import data_sources

BASE = FleetConfig(partitions=24, brokers=4, minutes=10, burst_every_s=60, stall_every_s=200)
CONFIGS = fleet.versions(BASE.with_(seed=5), ["0.8.2", "3.7"])
QUESTIONS = {  # those that need events only
    name: ask
    for name, ask in vars(churn).items()
    if inspect.isfunction(ask)
    and [n for n, p in inspect.signature(ask).parameters.items() if p.default is p.empty]
    == ["events"]
}


def text(row):
    """A row whose maps are in order."""
    return json.dumps(row.asDict(recursive=True), sort_keys=True, default=str)


def answers(session, logs):
    """The questions with their sorted rows as text, and how many seconds all of them took."""
    began = time.monotonic()
    data_sources.register(session)
    simulated = fleet.stored(session, CONFIGS, tasks=4).cache()
    runs = fleet.runs(session, CONFIGS)
    frames = {"fleet": simulated, "evictions": truth.evictions(simulated, runs)}
    for source in (data_sources.BrokerLogSource, data_sources.MetadataLogSource):
        frames[source.name()] = session.read.format(source.name()).load(str(logs))
    for name, ask in QUESTIONS.items():
        frames[name] = ask(simulated)
    rows = {name: sorted(map(text, frame.collect())) for name, frame in frames.items()}
    return rows | {"seconds": time.monotonic() - began}


if __name__ == "__main__":
    print(json.dumps(answers(spark.session(sys.argv[1]), sys.argv[2])))
