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
SCENARIOS = {"failed-disk": "failed_disk", "settings": "deleted_settings"}
CHANGED = {  # what a try does differently: text of the scenario, and its replacement
    "the disk is repaired and stays": ("remove_directory 1\n", ""),
    "the deleted topics had no setting": (" retention.ms=1s", ""),
}
NOT_PLAYED = {
    "the new topics set retention.ms themselves",  # the engine has no such setting
    # There the broker read setting and deletion in two deltas; in the engine it always reads one
    "two brokers, of which one restarts",
}
PLAYED = [row for row in csv.DictReader(TRIES.open()) if row["what is different"] not in NOT_PLAYED]


@pytest.mark.parametrize("row", PLAYED, ids=lambda row: "-".join(row.values()))
def test_engine_and_real_brokers_lose_alike(row: dict[str, str]) -> None:
    script, version = scenario.read(SCENARIOS[row["report"]]), KafkaVersion.of(row["release"])
    if row["what is different"] == "without eligible leader replicas":
        version = version.with_(eligible_leader_replicas=False)
    old, new = CHANGED.get(row["what is different"], ("", ""))
    assert old in script
    word = scenario.play(script.replace(old, new), version=version).outcome.word
    assert (word == "lost") == (int(row["tries that lost every record"]) > 0)


def test_a_failed_disk_costs_records_only_from_4_3_on() -> None:
    """Before, no broker leads until the former leader is back."""
    runs = [scenario.play(scenario.read("failed_disk"), version) for version in GENERATIONS]
    assert [run.outcome.word for run in runs] == ["safe"] * (len(runs) - 1) + ["lost"]
    for run in runs[:-1]:
        assert -1 in {frame.controller.leader for frame in run.frames}
        assert run.cluster.controller.leader == 2


def test_a_failed_directory_serves_nothing_until_a_start() -> None:
    """Its broker ignores orders, and is elected by no controller; repaired, it has its records."""
    script = "version 4.3\npartition replicas=1,2\nproduce 1 m1 acks=all\nfail_directory 1\n"
    run = scenario.play(script + "stabilize\nelect preferred\nstabilize\nkill 2\nelect")
    assert run.cluster.brokers[1].is_offline and run.cluster.controller.leader == -1
    run = scenario.play(script + "stabilize\nclean_bounce 1\nstabilize")
    assert run.cluster.controller.offline == ()
    assert [r.id for r in run.cluster.disks[1].records] == ["m1"]
    cut = scenario.play(script + "cut 1 controller\nadvance 20s\nheal 1 controller\nstabilize")
    assert cut.cluster.controller.offline == (1,)


def test_settings_of_a_deleted_topic_come_back_with_a_restart_from_3_8_on() -> None:
    """Kafka's classes of 3.7.2 drop them, those of 3.8.1 to 4.4.0 do not (data/hunt/kinds.toml)."""
    script = scenario.read("deleted_settings")
    for version in GENERATIONS:
        word = scenario.play(script, version).outcome.word
        assert word == ("lost" if version.first >= (3, 8) else "safe")
    without = script.replace("clean_bounce 1\n", "")
    assert scenario.play(without, version="4.3").outcome.word == "safe"


def test_what_a_leader_deletes_can_be_read_from_no_follower() -> None:
    """Records behind the high watermark are not deleted."""
    script = "version 4.3\npartition replicas=1,2\nrecreate retention.ms=1s\n"
    script += "produce 1 m1 m2 acks=all\nadvance 1s\nclean_bounce 1\nstabilize\nelect preferred\n"
    run = scenario.play(script + "advance 6m\nproduce 1 m3 acks=all\nadvance 2s")
    logs = [broker.log for broker in run.cluster.brokers.values()]
    assert [(g.log_start_offset, [r.id for r in g.records]) for g in logs] == [(2, ["m3"])] * 2
    assert run.outcome.lost == ("m1", "m2")
    held = "replica.lag.time.max.ms=1h\nrecreate retention.ms=1s"
    held = script.replace("\nrecreate retention.ms=1s", f" {held}")
    run = scenario.play(held + "stabilize\npause 2 fetcher\nproduce 1 m3 acks=1\nadvance 20m")
    assert run.cluster.brokers[1].log.log_start_offset == 0
    with pytest.raises(scenario.ScriptError, match="down, paused or cut off"):
        scenario.play("partition replicas=1,2\nkill 2\nrecreate")
