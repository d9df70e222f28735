"""`check` predicts, from their description, what real brokers did when each was stopped."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import msgspec
import pytest

from isrlab_ops.check import cluster
from isrlab_ops.check.outcome import Shapes

FILES = sorted((Path(__file__).parents[2] / "data" / "check").glob("*-[0-9].jsonl.xz"))


@cache
def states() -> list[dict]:
    lines = (line for file in FILES for line in lzma.decompress(file.read_bytes()).splitlines())
    return [msgspec.json.decode(line) for line in lines]


def stops() -> list[tuple[dict, dict, cluster.ClusterState]]:
    return [(state, stop, cluster.of_text(stop["text"], state["version"]))
            for state in states() for stop in state["stops"]]  # fmt: skip


def test_drawn_states_of_two_releases_are_kept():
    assert len(states()) >= 30 and len(stops()) >= 90
    moving = [state for state in states() if "Adding Replicas" in state["text"]]
    assert len(moving) >= 9
    assert {state["version"] for state in states()} >= {"3.9.2", "4.3.1"}


def test_exactly_the_predicted_partitions_refused_a_record_with_acks_all():
    for _, stop, before in stops():
        assert sorted(Shapes(before).effect({stop["broker"]}).refuse) == stop["refused"]
        assert stop["by_log"] == stop["refused"]  # as the metadata log had it


def test_nothing_refused_that_did_not_before_where_a_broker_was_called_safe():
    safe, blocking = 0, 0
    for _, stop, before in stops():
        (blocks,) = Shapes(before).blocks([frozenset({stop["broker"]})])
        refused_before = set(Shapes(before).effect().refuse)
        if blocks:
            blocking += 1
            immediate = {b.partition.name for b in blocks if b.refuses}
            assert immediate <= set(stop["refused"])
        else:
            safe += 1
            assert set(stop["refused"]) <= refused_before
    assert min(safe, blocking) >= 5


def test_the_predicted_replica_led_with_the_predicted_isr():
    """In two cases a live replica of t01 lagged on a busy machine."""
    lagged = []
    for _, stop, before in stops():
        shapes = Shapes(before)
        for p in before.partitions:
            after = shapes.outcome(p, [stop["broker"]] if stop["broker"] in p.isr else [])
            leader, isr = stop["after"][p.name]
            assert shapes.leader(p, after) == leader, p
            lagged += [p.name] * (after.isr_size != len(isr))
    assert lagged == ["t01-0"] * 2


@pytest.mark.parametrize("name", ["unavailable", "under-replicated", "under-min-isr", "at-min-isr"])
def test_kafka_topics_lists_the_same_partitions(name):
    """kafka-topics asks for min.insync.replicas even of fewer replicas; leaders do not."""
    for state in states():
        described = cluster.of_text(state["text"], state["version"]).partitions
        counted = {
            "unavailable": lambda p: p.leader < 0,
            "under-replicated": lambda p: len({*p.replicas} - {*p.adding}) > len(p.isr),
            "under-min-isr": lambda p: p.leader < 0 or len(p.isr) < p.min_isr,
            "at-min-isr": lambda p: len(p.isr) == p.min_isr,
        }[name]
        text = state["lists"][name]
        listed = cluster.described(text).partitions if text.strip() else []
        whole = {p[:9] for p in described}
        changed = {p.name for p in listed if p[:9] not in whole}  # between the two commands
        names = {p.name for p in listed} - changed
        assert {p.name for p in described if counted(p)} - changed == names
