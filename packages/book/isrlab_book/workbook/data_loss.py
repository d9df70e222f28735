"""Notebook 07: scenarios of a lost record, played with other settings, and the logs of a real loss
as a scenario."""

import re

from isrlab.engine.versions import KafkaVersion
from isrlab.installed import DATA
from isrlab.world import scenario
from isrlab_ops.logs.incidents.look import look
from isrlab_ops.logs.incidents.retold import Retold, retold

STORIES = {"unnoticed restart": "loss_bounce", "unclean election": "loss_unclean",
           "two leaders die": "loss_three_replicas"}  # fmt: skip
SETTINGS = (("1", 1), ("all", 1), ("all", 2))


def by_settings(version: str | KafkaVersion) -> dict[str, dict[str, str]]:
    """For each pair of acks and min.insync.replicas, the outcome of each scenario."""
    return {
        f"acks={acks}, min ISR {least}": {
            label: scenario.play(_with(name, acks, least), version=version).outcome.word
            for label, name in STORIES.items()
        }
        for acks, least in SETTINGS
    }


def in_every_version() -> dict[str, str]:
    """The scripts of the matrix of versions, by row; one has unclean election enabled."""
    names = {"one record": "loss_as_told", **STORIES, "and a write": "loss_then_write"}
    scripts = {label: scenario.read(name) for label, name in names.items()}
    unclean, least = scripts.pop("unclean election"), "min.insync.replicas=1"
    switched_on = unclean.replace(least, f"{least} unclean.leader.election.enable=true", 1)
    return scripts | {
        "a restart, and an unclean election": switched_on,
        "joins too early": scenario.read("joined_too_early"),
    }


def recorded_loss(recording: str = "402-unclean") -> Retold:
    """Partition 0 of `orders` in the logs of a recorded incident, as a scenario."""
    record = look(DATA / "recordings" / "incidents" / recording / "logs").record
    key = next(k for k in record.spans if (k.topic, k.partition) == ("orders", 0))
    return retold(record, key)


def _with(name: str, acks: str, least: int) -> str:
    text = re.sub(r"acks=\w+", f"acks={acks}", scenario.read(name))
    return re.sub(r"min.insync.replicas=\d", f"min.insync.replicas={least}", text)
