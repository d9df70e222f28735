"""Losses of today's Kafka end as the tries on real brokers in data/upstream did.

A row of tries.csv is a script, made from the scenario by leaving out or adding commands.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.world import scenario

TRIES = Path(__file__).parents[2] / "data" / "upstream" / "tries.csv"
SCENARIOS = {"failed-disk": "failed_disk"}
CHANGED = {  # what a try does differently: text of the scenario and its replacement
    "the disk is repaired and stays": ("remove_directory 1\n", "")
}


def outcome(script: str, what: str, release: str) -> str:
    version = KafkaVersion.of(release)
    if what == "without eligible leader replicas":
        version = version.with_(eligible_leader_replicas=False)
    old, new = CHANGED.get(what, ("", ""))
    assert old in script
    return scenario.play(script.replace(old, new), version=version).outcome.word


@pytest.mark.parametrize(
    "row", [*csv.DictReader(TRIES.open())], ids=lambda row: "-".join(row.values())
)
def test_engine_and_real_brokers_lose_alike(row: dict[str, str]) -> None:
    if row["report"] not in SCENARIOS:
        pytest.skip("not played yet")
    script = scenario.read(SCENARIOS[row["report"]])
    word = outcome(script, row["what is different"], row["release"])
    assert (word == "lost") == (int(row["tries that lost every record"]) > 0)


def test_a_failed_disk_costs_records_only_from_4_3_on() -> None:
    """Before, no broker leads until the former leader is back; so does the repair."""
    script = scenario.read("failed_disk")
    words = [scenario.play(script, version).outcome.word for version in GENERATIONS]
    assert words == ["safe"] * (len(words) - 1) + ["lost"]
    repaired = GENERATIONS[-1].with_(elr_of_online_directories=True)
    for version in (*GENERATIONS[:-1], repaired):
        frames = scenario.play(script, version).frames
        assert -1 in {frame.controller.leader for frame in frames}
        assert frames[-1].controller.leader == 2


def test_a_failed_directory_serves_nothing_until_a_start() -> None:
    """Its broker ignores orders, and is elected by no controller; repaired, it has its records."""
    script = "partition replicas=1,2\nproduce 1 m1 acks=all\nfail_directory 1\nstabilize\n"
    run = scenario.play(script + "elect preferred\nstabilize\nkill 2\nelect", version="4.3")
    assert run.cluster.brokers[1].is_offline and run.cluster.controller.leader == -1
    run = scenario.play(script + "clean_bounce 1\nstabilize\nstatus", version="4.3")
    assert run.cluster.controller.offline == ()
    assert [r.id for r in run.cluster.disks[1].records] == ["m1"]
    cut = script + "cut 1 controller\nadvance 20s\nheal 1 controller\nstabilize"
    assert scenario.play(cut, version="4.3").cluster.controller.offline == (1,)
