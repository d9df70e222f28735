"""Replicas are placed as in Kafka, and probabilities agree with counting all failures."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest

from isrlab import placement
from isrlab.placement import place, risk
from isrlab.placement.describe import DescribedPartition
from isrlab.workbook import placement as notebook

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
    (partition,) = placement.describe(text)
    assert partition._replace(leader=1, adding=()) == HEALTHY


def test_reads_eligible_leader_replicas_and_what_the_topic_sets():
    expected = DescribedPartition("t", 0, -1, (1, 2, 3), (), (2, 3), (1,), min_isr=2)
    assert placement.describe(ELR) == [expected]
    assert placement.describe(ELR.replace("Elr: 2,3", "Elr: N/A"))[0].elr == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line of a partition, such as 'Topic: orders"),
        (LAYOUTS["0.8.0"].replace("isr: 1", "isr: 4"), "line 1 is impossible for its replicas"),
        (LAYOUTS["0.8.0"].replace("s: 1", "s: 2"), "impossible"),
        (LAYOUTS["0.8.0"].replace("isr: 1,2,3", ""), "line 1 is not like"),
        (LAYOUTS["0.8.0"] + ",99999999999", "line 1 is not like"),
        (LAYOUTS["0.8.0"] + "\n" + LAYOUTS["0.8.0"], "1 partition listed twice"),
    ],
)
def test_what_cannot_be_is_named(text, says):
    with pytest.raises(ValueError, match=says):
        placement.describe(text)


def test_racks_are_given_for_all_brokers_or_for_none():
    assert placement.racks_of("1=a, 2=b", {1}) == {1: "a", 2: "b"}
    assert placement.racks_of("", {2, 1}) == {1: "", 2: ""}
    for text, says in (("1=a", "broker 2"), ("1", "'1' is not a rack")):
        with pytest.raises(ValueError, match=says):
            placement.racks_of(text, {1, 2})


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
    partitions = placement.placed("zookeeper", racks, {f"t{i}": (200, 3, 1) for i in range(200)})
    used = {tuple(sorted(p.replicas)) for p in partitions}
    assert len(used) == brokers * (brokers - 3)
    assert all({1, brokers - 1} & {b - a for a, b in combinations(triple, 2)} for triple in used)


def test_kraft_takes_neighbours_and_shuffles_after_as_many_partitions_as_brokers():
    partitions = placement.placed("kraft", BARE, {"t": (24, 3, 1)})
    steps = [[(b - a) % 12 for a, b in pairwise(p.replicas)] for p in partitions]
    assert steps[:12] == [[1, 1]] * 12
    assert steps[12:] != [[1, 1]] * 12
    small = placement.placed("kraft", BARE, {f"t{i}": (12, 3, 1) for i in range(50)})
    assert len({tuple(sorted(p.replicas)) for p in small}) == 12


@pytest.mark.parametrize("racks", [BARE, RACKED], ids=["bare", "racked"])
@pytest.mark.parametrize("algorithm", placement.ALGORITHMS)
def test_replicas_are_even_distinct_and_in_all_racks(algorithm, racks):
    partitions = placement.placed(algorithm, racks, {f"t{i}": (24, 3, 2) for i in range(40)})
    held = [sum(broker in p.replicas for p in partitions) for broker in racks]
    assert len(partitions) == 960 and max(held) < 1.25 * min(held)
    for partition in partitions:
        assert len({*partition.replicas}) == 3
        assert len({racks[b] or b for b in partition.replicas}) == 3
    leaders = [sum(b == p.replicas[0] for p in partitions) for b in racks]
    assert max(leaders) < 1.8 * min(leaders)


def test_placing_names_what_does_not_fit():
    with pytest.raises(ValueError, match="t: 13 replicas do not fit on 12 brokers"):
        placement.placed("kraft", BARE, {"t": (1, 13, 1)})
    with pytest.raises(ValueError, match="no algorithm 'chord'; known: zookeeper, kraft"):
        placement.placed("chord", BARE, {})
    with pytest.raises(ValueError, match="some brokers have a rack"):
        placement.placed("zookeeper", {1: "a", 2: ""}, {"t": (1, 2, 1)})


# Failing


def counted(partitions, units, fate, failures):
    """By brute force: how likely some partition meets the fate, and how many do on average."""
    bad = []
    for failed in combinations(sorted({*units.values()}), failures):
        left = [[b for b in p.isr if units[b] not in failed] for p in partitions]
        if fate == "under min ISR":
            bad.append(sum(len(isr) < p.min_isr for isr, p in zip(left, partitions, strict=True)))
            continue
        kept = [{*p.replicas} if fate == "lost" else {*p.isr, *p.elr} for p in partitions]
        bad.append(sum(all(units[b] in failed for b in brokers) for brokers in kept))
    return float(np.mean(np.array(bad) > 0)), float(np.mean(bad))


def wounded(seed):
    """Partitions on 9 brokers, with partial ISRs, some eligible replicas, and RF 2 or 3."""
    draw = np.random.default_rng(seed)
    racks = {broker: "abc"[broker % 3] for broker in range(9)}
    found = []
    for number in range(6):
        replicas = tuple(map(int, draw.permutation(9)[: 2 + number % 2]))
        size = int(draw.integers(0 if number == 5 else 1, len(replicas) + 1))
        isr, elr = replicas[:size], replicas[size : size + int(draw.integers(2))]
        least = 1 + number % 2
        found.append(DescribedPartition("t", number, -1, replicas, isr, elr, min_isr=least))
    return racks, found


@pytest.mark.parametrize("fate", placement.FATES)
@pytest.mark.parametrize("by_rack", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_exact_is_what_counting_all_failures_gives(fate, by_rack, seed, monkeypatch):
    racks, partitions = wounded(seed)
    units = placement.units_of(racks, by_rack)
    many = len({*units.values()})
    bad = placement.bad_sets(partitions, units, fate)
    for failures in range(many + 1):
        share, mean = counted(partitions, units, fate, failures)
        exact = placement.chance(bad, many, failures)
        assert exact.is_exact and exact.value == pytest.approx(share)
        assert placement.expected(partitions, units, fate, failures) == pytest.approx(mean)
        monkeypatch.setattr(risk, "MOST_TRIED", 0)
        drawn = placement.chance(bad, many, failures, seed=seed + 7)
        monkeypatch.undo()
        assert drawn.low - 0.006 <= exact.value <= drawn.high + 0.006


def test_a_drawn_chance_has_its_exact_value_in_its_band_as_often_as_it_says(monkeypatch):
    partitions = placement.placed("kraft", BARE, {f"t{i}": (30, 3, 2) for i in range(3)})
    bad = placement.bad_sets(partitions, placement.units_of(BARE), "offline")
    exact = placement.chance(bad, 12, 5).value
    monkeypatch.setattr(risk, "MOST_TRIED", 0)
    drawn = [placement.chance(bad, 12, 5, seed) for seed in range(100)]
    assert not drawn[0].is_exact and 0.2 < exact < 0.95
    assert sum(each.low <= exact <= each.high for each in drawn) >= 88


def test_the_mean_does_not_depend_on_the_placement_and_the_chance_does():
    units, topics = placement.units_of(BARE), {f"t{i}": (6, 3, 2) for i in range(50)}
    placed = {name: placement.placed(name, BARE, topics) for name in placement.ALGORITHMS}
    means = [placement.expected(each, units, "offline", 3) for each in placed.values()]
    assert max(means) == pytest.approx(min(means)) == pytest.approx(300 / 220)
    chances = [
        placement.chance(placement.bad_sets(each, units, "offline"), 12, 3).value
        for each in placed.values()
    ]
    assert max(chances) > 5 * min(chances)
    assert (
        placement.partners(placed["copyset"], units)
        <= 4
        < placement.partners(placed["random"], units)
    )


def test_pairs_and_racks_that_share():
    partitions = placement.placed("zookeeper", RACKED, {"t": (12, 3, 2)})
    units = placement.units_of(RACKED, by_rack=True)
    racks = Counter(tuple(sorted(units[b] for b in p.replicas)) for p in partitions)
    assert racks == {(0, 1, 2): 12}
    with pytest.raises(ValueError, match="no fate 'gone'; known: under min ISR"):
        placement.bad_sets(partitions, placement.units_of(RACKED), "gone")
    with pytest.raises(ValueError, match="13 failures of 12; valid: 0 to 12"):
        placement.chance(set(), 12, 13)


# The notebook


def test_the_notebook_reads_a_description_and_places_its_topics_anew(tmp_path):
    file = tmp_path / "described.txt"
    lines = (f"Topic: t Partition: {n} Leader: 1 Replicas: 1,2 Isr: 1" for n in range(4))
    file.write_text("\n".join([*lines, "Topic: u Partition: 0 Leader: 3 Replicas: 3,4 Isr: 4,3"]))
    cluster = notebook.read(str(file), "1=a 2=b 3=a 4=b", 1, notebook.generated(12, 1, 1))
    assert [len(p) for p in cluster.placed.values()] == [5] * 5
    assert cluster.chances("described", "offline", [1, 2]) == [(0.25,) * 3, (4 / 6,) * 3]
    assert cluster.chances("described", "lost", [1, 2]) == [(0,) * 3, (2 / 6,) * 3]
    title = notebook.plot_chances(cluster, "under min ISR").get_title(loc="left")
    assert title.startswith("Of 4 brokers 3 fail, and some partition is under min ISR: 75% (")


def test_the_notebook_says_what_its_cluster_does():
    (kraft,) = (
        row for row in notebook.rows(notebook.generated(12, 50, 6), 1)
        if row["placement"].endswith("KRaft")
    )  # fmt: skip
    assert (kraft["under min ISR"], kraft["offline"]) == ("0%", "0%")


def test_kraft_is_safer_only_while_a_topic_has_no_more_partitions_than_there_are_brokers():
    """In each of ten draws; larger topics are shuffled under KRaft."""
    for brokers, sizes in ((12, [6, 12, 24]), (9, [9, 27])):
        chances = notebook.chances_by_size(brokers, 50, sizes, 3, draws=10)
        safer = [size <= brokers for size in sizes]
        assert notebook._kraft_is_safer(chances) == safer, brokers
        less = [
            max(z) < min(k) for k, z in zip(chances["kraft"], chances["zookeeper"], strict=True)
        ]
        assert less == [not each for each in safer]
    title = notebook.plot_by_size(chances, sizes).get_title(loc="left")
    assert "with 9 partitions a topic, and less safe with more" in " ".join(title.split())
    assert "9 partitions a topic: ZooKeeper" in notebook.finding(chances, sizes, 3)
