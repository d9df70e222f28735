"""The world around the engine: who is believed to be alive, and what a long run keeps."""

from __future__ import annotations

import pytest

from isrlab.engine.versions import PRESETS
from isrlab.world import scenario

PARTITION = "partition leader=1 replicas=1,2,3\n"


def play(version: str, text: str) -> scenario.Run:
    return scenario.play(PARTITION + text, version=version)


every_version = pytest.mark.parametrize("version", [v.name for v in PRESETS.values()])


@every_version
def test_a_healed_link_does_not_wake_a_paused_broker(version: str) -> None:
    cluster = play(version, "cut 1 controller\npause 1\nheal 1 controller\nadvance 60s").cluster
    assert not cluster.controller.is_alive(1)
    assert cluster.controller.leader == 2


@every_version
def test_a_broker_that_starts_unseen_is_given_up(version: str) -> None:
    cluster = play(version, "cut 3 controller\nkill 3\nstart 3\nadvance 60s").cluster
    assert not cluster.controller.is_alive(3)
    assert set(cluster.controller.isr) == {1, 2}


@every_version
def test_it_is_back_in_sync_once_it_is_seen(version: str) -> None:
    text = "cut 3 controller\nkill 3\nstart 3\nadvance {}\nheal 3 controller\nadvance 5s"
    for unseen in ("1s", "60s"):
        cluster = play(version, text.format(unseen)).cluster
        assert cluster.controller.is_alive(3)
        assert set(cluster.controller.isr) == {1, 2, 3}


@every_version
def test_a_leader_without_its_fetcher_takes_writes(version: str) -> None:
    run = play(version, "pause 1 fetcher\nproduce 1 m1 acks=1")
    assert run.cluster.requests[-1].error is None
    assert run.cluster.brokers[1].log.log_end_offset == 1


@every_version
def test_a_paused_leader_takes_none(version: str) -> None:
    run = play(version, "pause 1\nproduce 1 m1 acks=1")
    assert run.cluster.requests[-1].error == "REQUEST_TIMED_OUT"
    assert run.cluster.brokers[1].log.log_end_offset == 0


@every_version
def test_without_a_leader_a_paused_fetcher_does_not_keep_clients_waiting(version: str) -> None:
    """Nobody, as a leader, and the client have one number: -1."""
    text = "partition replicas=1,2 unclean.leader.election.enable=false\npause 2 fetcher\n"
    text += "produce 1 m1 acks=1\nadvance 60s\nkill 1\nadvance 60s\nproduce 2 m2 acks=1"
    run = scenario.play(text, version=version)
    assert run.cluster.controller.leader == -1
    assert run.cluster.requests[-1].error.startswith("NOT_LEADER")


def test_a_long_run_ends_in_its_last_state() -> None:
    """Pictures once stopped after 5,000 frames and events, while the text went on."""
    text = "partition replicas=1,2\nproduce 1 every=100ms for=130s acks=1\nadvance 1s\nstatus"
    run = scenario.play(text)
    assert "leo=1300 hw=1300" in run.printed
    assert run.frames[-1].brokers[1].log.high_watermark == 1_300
    assert [frame.disks[1].log_end_offset for frame in run.frames if frame.target == 1][-1] == 1_300
    assert all(frame.brokers for frame in run.frames)
