"""Notebook 08: schedules of a lost record under other settings, and what brokers keep of epochs.

The schedules are files of data/scenarios; here their acks and min.insync.replicas are exchanged,
and the leader epochs of their replicas put into words.
"""

from __future__ import annotations

import re

from isrlab.engine.log import LeaderEpochCache
from isrlab.engine.versions import KafkaVersion
from isrlab.world import scenario
from isrlab.world.script import Run

SCHEDULES = {
    "unnoticed restart": "loss_bounce",
    "unclean election": "loss_unclean",
    "two leaders die": "loss_three_replicas",
}
SETTINGS = (("1", 1), ("all", 1), ("all", 2))


def by_settings(version: str | KafkaVersion) -> dict[str, dict[str, str]]:
    """For each pair of acks and min.insync.replicas, the outcome of each schedule."""
    return {
        f"acks={acks}, min ISR {least}": {
            label: scenario.play(_with(name, acks, least), version=version).outcome.word
            for label, name in SCHEDULES.items()
        }
        for acks, least in SETTINGS
    }


def _with(name: str, acks: str, least: int) -> str:
    text = re.sub(r"acks=\w+", f"acks={acks}", scenario.read(name))
    return re.sub(r"min.insync.replicas=\d", f"min.insync.replicas={least}", text)


def epoch_entries(run: Run) -> dict[str, list[str]]:
    """After each block of a scenario, the leader epochs that each replica has noted, as pairs."""
    frames = [run.frames[block.frames[1] - 1] for block in run.blocks]
    return {
        f"broker {number}": [_pairs(frame.disks[number].epochs) for frame in frames]
        for number in sorted(run.cluster.replicas)
    }


def _pairs(cache: LeaderEpochCache) -> str:
    return " ".join(f"({epoch}, {start})" for epoch, start in cache.entries) or "none"


def checkpoint_file(run: Run, broker: int) -> str:
    """A replica's leader-epoch-checkpoint: version of the format, number of entries, entries.

    Source: LeaderEpochCheckpointFile.scala 0.11.0.2.
    """
    entries = run.cluster.disks[broker].epochs.entries
    return "\n".join(["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)])
