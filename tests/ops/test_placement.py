"""Descriptions of topics are read, and replicas placed, as in Kafka."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from isrlab.fleet import place
from isrlab_ops.check.describe import DescribedPartition, described, racks_of

BARE = dict.fromkeys(range(1, 13), "")
RACKED = {broker: "abc"[broker % 3] for broker in BARE}
HEALTHY = DescribedPartition("t", 0, 1, (1, 2, 3), (1, 2, 3), min_isr=1)

LAYOUTS = {
    "0.8.0": "topic: t\tpartition: 0\tleader: 1\treplicas: 1,2,3\tisr: 1,2,3",
    "0.8.2": "Topic:t\tPartitionCount:1\tReplicationFactor:3\tConfigs:\n"
    "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1,2,3",
    "2.1": "Topic:t\tPartitionCount:1\tReplicationFactor:3\tConfigs:\tMarkedForDeletion:true\n"
    "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tMarkedForDeletion: true",
    "2.4": "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3"
    "\tAdding Replicas: h:9092 (id: 3 rack: null)\tRemoving Replicas: ",
    "pasted": "   Topic: t    Partition: 0    Leader: 1    Replicas: 1,2,3    Isr: 1,2,3  ",
}
ELR = (
    "Topic: t\tTopicId: uLw\tPartitionCount: 1\tReplicationFactor: 3"
    "\tConfigs: min.insync.replicas=2,segment.bytes=1\n"
    "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: \tElr: 2,3\tLastKnownElr: 1\n"
)


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_reads_what_each_release_prints(text):
    (partition,) = described(text).partitions
    assert partition._replace(leader=1, adding=(), min_isr=1) == HEALTHY


def test_reads_eligible_leader_replicas_and_what_the_topic_sets():
    expected = DescribedPartition("t", 0, -1, (1, 2, 3), (), (2, 3), (1,), min_isr=2)
    assert described(ELR).partitions == [expected]
    assert described(ELR.replace("Elr: 2,3", "Elr: N/A")).partitions[0].elr == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line of a partition, such as 'Topic: orders"),
        (LAYOUTS["0.8.0"].replace("s: 1", "s: 2"), "impossible"),
        (LAYOUTS["0.8.0"].replace("isr: 1,2,3", ""), "line 1 is not like"),
        (LAYOUTS["0.8.0"] + ",99999999999", "line 1 is not like"),
        (LAYOUTS["0.8.0"] + "\n" + LAYOUTS["0.8.0"], "1 partition listed twice"),
    ],
)
def test_what_cannot_be_is_named(text, says):
    with pytest.raises(ValueError, match=says):
        described(text)


def test_racks_are_given_for_all_brokers_or_for_none():
    assert racks_of("1=a, 2=b", {1}) == {1: "a", 2: "b"}
    assert racks_of("", {2, 1}) == {1: "", 2: ""}
    for text, says in (("1=a", "broker 2"), ("1", "'1' is not a rack")):
        with pytest.raises(ValueError, match=says):
            racks_of(text, {1, 2})


# Placing


def test_zookeeper_places_as_in_kafka_s_own_tests():
    """AdminTest.testReplicaAssignment 0.8.2.2, and the table above AdminUtils' method 3.2.3."""
    plain = place.zookeeper(dict.fromkeys(range(5), ""), 10, 3, None)
    assert plain[:3] == [(0, 1, 2), (1, 2, 3), (2, 3, 4)]
    assert plain[5:] == [(0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2)]
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert place.zookeeper(racks, 7, 3, None) == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("brokers", [6, 12, 25])
def test_zookeeper_never_uses_more_than_n_times_n_less_3_triples(brokers):
    racks = dict.fromkeys(range(brokers), "")
    partitions = place.placed("zookeeper", racks, [(200, 3)] * 200)
    used = {tuple(sorted(replicas)) for replicas in partitions}
    assert len(used) == brokers * (brokers - 3)
    assert all({1, brokers - 1} & {b - a for a, b in combinations(triple, 2)} for triple in used)


def test_kraft_takes_neighbours_and_shuffles_after_as_many_partitions_as_brokers():
    partitions = place.placed("kraft", BARE, [(24, 3)])
    steps = [[(b - a) % 12 for a, b in pairwise(replicas)] for replicas in partitions]
    assert steps[:12] == [[1, 1]] * 12
    assert steps[12:] != [[1, 1]] * 12
    small = place.placed("kraft", BARE, [(12, 3)] * 50)
    assert len({tuple(sorted(replicas)) for replicas in small}) == 12


@pytest.mark.parametrize("racks", [BARE, RACKED], ids=["bare", "racked"])
@pytest.mark.parametrize("algorithm", place.ALGORITHMS)
def test_replicas_are_even_distinct_and_in_all_racks(algorithm, racks):
    partitions = place.placed(algorithm, racks, [(24, 3)] * 40)
    held = [sum(broker in replicas for replicas in partitions) for broker in racks]
    assert len(partitions) == 960 and max(held) < 1.25 * min(held)
    for replicas in partitions:
        assert len({*replicas}) == 3
        assert len({racks[b] or b for b in replicas}) == 3
    leaders = [sum(b == replicas[0] for replicas in partitions) for b in racks]
    assert max(leaders) < 1.8 * min(leaders)


def test_placing_names_what_does_not_fit():
    with pytest.raises(ValueError, match="13 replicas do not fit on 12 brokers"):
        place.placed("kraft", BARE, [(1, 13)])
    with pytest.raises(ValueError, match="no algorithm 'chord'; known: zookeeper, kraft"):
        place.placed("chord", BARE, [])
    with pytest.raises(ValueError, match="some brokers have a rack"):
        place.placed("zookeeper", {1: "a", 2: ""}, [(1, 2)])
