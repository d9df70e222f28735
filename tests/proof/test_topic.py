"""Topics of several partitions: how scenarios name them, and what Kafka's controller makes of them.

The outcomes are those of Kafka's ReplicationControlManager, 4.1.2 and 4.3.1, for the same schedules
(data/judged plays random ones); on real brokers of 4.3.1 and 4.4.0 `elr_of_two` loses, and does not
with eligible leader replicas switched off.
"""

from __future__ import annotations

import pytest

from isrlab.engine.versions import KafkaVersion
from isrlab.world import scenario
from isrlab_proof.search.at_random import Schedule

OFF = {"eligible_leader_replicas": False}
REPLICAS, OWN = {"elr_of_replicas_only": True}, {"min_isr_of_own_partition": True}
RULES = (("4.0", {}), ("4.2", {}), ("4.3", {}), ("4.4", {}), ("4.3", OFF), ("4.3", REPLICAS),
         ("4.3", OWN), ("4.3", REPLICAS | OWN))  # fmt: skip
OUTCOMES = """
elr_of_two              safe    lost    lost    lost    safe    safe    safe    safe
elr_one_by_one          offline lost    lost    lost    offline offline offline offline
elr_in_one_request      safe    safe    safe    safe    safe    safe    safe    safe
drained_and_back        safe    safe    lost    lost    offline offline lost    offline
first_partition_of_one  lost    lost    lost    lost    lost    lost    safe    safe
refused_repair          offline offline offline offline offline offline offline offline
cancelled_and_lost      offline lost    lost    lost    offline offline lost    offline
eligible_but_gone       offline lost    lost    lost    offline offline offline offline
"""
CASES = [(name, *rule, word) for name, *words in map(str.split, OUTCOMES.strip().splitlines())
         for rule, word in zip(RULES, words, strict=True)]  # fmt: skip


@pytest.mark.parametrize(("name", "release", "choices", "word"), CASES)
def test_what_is_lost_and_what_would_mend_it(name, release, choices, word) -> None:
    version = KafkaVersion.of(release)
    run = scenario.play(scenario.read(name), version=version.with_(**choices))
    assert run.outcome.word == word


TWO = "version 4.3\npartition replicas=1,2,3 min.insync.replicas=2\npartition p1 replicas=3,4\n"


def test_each_partition_has_a_run_of_its_own() -> None:
    run = scenario.play(
        f"{TWO}produce p1 3 m1 acks=all\nstabilize\nkill 4\nelect\nstabilize\nstatus"
    )
    assert [part.name for part in run.topic] == ["p0", "p1"]
    assert run.cluster.controller.isr == (1, 2, 3)
    assert run.of("p1").cluster.controller.isr == (3,)
    assert "p1    3  Leader    leo=1 hw=1 isr=3   m1" in run.printed
    assert {row["partition"] for row in run.of("p1").events().to_pylist()} == {1}
    assert 4 not in run.cluster.brokers  # a machine fails for all its partitions
    with pytest.raises(ValueError, match="no partition 'p2'; there are p0, p1"):
        run.of("p2")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("produce 1", "which partition\\? p0, p1"),
        ("produce p2 1", "no partition 'p2'; there are p0, p1"),
        ("kill p1 3", "'p1' is a partition; this command affects all of a machine's"),
        ("pause p1 3", "'p1' is a partition"),
        ("partition p3", "the next one is p2"),
        ("partition p2 min.insync.replicas=1", "settings of a topic belong in the line of its"),
        ("kill 1\npartition p2", "before all other commands"),
    ],
)
def test_what_cannot_be_right_is_refused(line, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        scenario.play(TWO + line)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("topic min.insync.replicas=2", "lost"),
        ("cluster min.insync.replicas=2", "safe"),
        ("topic min.insync.replicas=1", "safe"),
    ],
)
def test_another_min_isr_makes_the_controller_forget(line, word) -> None:
    """If the value does not change, only the setting of the cluster has this effect."""
    text = scenario.read("elr_of_two").replace("kill 1\n", f"configure {line}\nkill 1\n")
    assert scenario.play(text).outcome.word == word


def test_a_random_schedule_names_partitions_and_strikes_machines_once() -> None:
    topic = "partition replicas=1,2,3\npartition p1 replicas=1,2,3"
    schedule = Schedule("4.3", topic, ("reassign",))
    offers = [line for lines in schedule.offers() for line in lines]
    assert {"reassign p0 1,2,4", "reassign p1 2,3", "produce p1 1 acks=all"} < set(offers)
    assert offers.count("hard_bounce 1") == 1
    for kind in range(40):
        schedule.choose(kind * 7, kind)
    assert scenario.play(schedule.text).printed


def test_a_session_ends_for_all_partitions_even_if_one_is_named() -> None:
    text = "version 4.3\npartition replicas=1,3,4\npartition p1 replicas=1,3,2"
    run = scenario.play(f"{text}\nkill 1\nelect p0 unclean\nstabilize")
    assert [part.cluster.controller.leader for part in run.topic] == [3, 3]
