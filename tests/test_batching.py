"""The broker's batches of ISR changes: Kafka's own cases, then one property.

K2 to K8 are cases of AlterPartitionManagerTest; the ids are ours.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isrlab.closeups import batching as ap
from isrlab.engine.messages import After, Send

RELEASES = ("2.7", "2.8", "3.0", "3.1", "3.2.0", "3.2.1", "3.7", "4.1")
AT_ONCE = RELEASES[1:]


class Bench:
    """A broker's changes, what went to the controller, and what the leaders were told."""

    def __init__(self, release: str) -> None:
        self.requests: list[tuple[str, ...]] = []
        self.answers: list[tuple[str, str | None]] = []
        self.timers: list[int] = []
        self.state, outputs = ap.start(ap.BatchingRules.of(release))
        self._note(outputs)

    def do(self, message, resubmit=lambda answer: None) -> None:
        self.state, outputs = ap.step(self.state, message, resubmit)
        self._note(outputs)

    def submit(self, *partitions: str, isr=(1, 2, 3)) -> None:
        for partition in partitions:
            self.do(ap.IsrChange(partition, isr))

    def respond(self, *stored: str, error: str | None = None) -> None:
        self.do(ap.AlterPartitionsResponse(tuple((p, None) for p in stored), error))

    def tick(self) -> None:
        self.timers.pop(0)
        self.do(ap.SendChanges())

    def _note(self, outputs) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self.requests.append(tuple(c.partition for c in output.message.changes))
            elif isinstance(output, After):
                self.timers.append(output.delay_ms)
            else:
                self.answers.append((output.change.partition, output.error))


# K: Kafka's own cases


@pytest.mark.parametrize("release", AT_ONCE)
def test_k2_one_change_for_a_partition(release):
    bench = Bench(release)
    bench.submit("tp0")
    bench.submit("tp0", isr=(1, 2))
    refusal = "ILLEGAL_STATE" if release == "2.8" else "OPERATION_NOT_ATTEMPTED"
    assert bench.answers == [("tp0", refusal)]
    bench.respond("tp0")
    bench.submit("tp0", isr=(1,))
    assert bench.requests == [("tp0",), ("tp0",)]
    assert bench.state.in_flight == (ap.IsrChange("tp0", (1,)),)


@pytest.mark.parametrize("release", AT_ONCE)
def test_k4_one_in_flight(release):
    bench = Bench(release)
    bench.submit("tp0", "tp1", "tp2")
    bench.respond("tp0")
    assert bench.requests == [("tp0",), ("tp1", "tp2")]
    bench.respond("tp1", "tp2")
    assert (bench.state.unsettled, bench.state.in_flight) == ((), ())


@pytest.mark.parametrize("release", AT_ONCE)
def test_k6_an_error_of_the_whole_request(release):
    """Whichever it is: STALE_BROKER_EPOCH, UNSUPPORTED_VERSION, an authentication that failed."""
    bench = Bench(release)
    bench.submit("tp0")
    bench.respond(error="CLUSTER_AUTHORIZATION_FAILED")
    assert (bench.state.holds("tp0"), bench.answers, bench.timers) == (True, [], [50])
    bench.tick()
    assert bench.requests == [("tp0",), ("tp0",)]
    bench.respond("tp0")
    assert not bench.state.holds("tp0")


@pytest.mark.parametrize("release", RELEASES)
def test_k8_resubmit_from_within_the_answer(release):
    """tp0 fails and its leader retries at once; tp1 is in the same request.

    Up to 3.2.0 the partition is still taken while its leader is told (KAFKA-14010), and up to 2.8
    the exception ends the handling of the batch.
    """
    bench = Bench(release)
    both = tuple(ap.IsrChange(partition, (1, 2)) for partition in ("tp0", "tp1"))
    bench.state = replace(bench.state, unsettled=both, in_flight=both)
    failed = ("tp0", "UNKNOWN_SERVER_ERROR")
    response = ap.AlterPartitionsResponse((failed, ("tp1", None)))
    bench.do(response, lambda a: both[0] if (a.change.partition, a.error) == failed else None)
    left = [change.partition for change in bench.state.unsettled]
    if release in ("3.2.1", "3.7", "4.1"):
        assert (bench.answers, bench.requests) == ([failed, ("tp1", None)], [("tp0",)])
        bench.respond("tp0")
        assert (bench.answers[2:], bench.state.unsettled) == ([("tp0", None)], ())
    elif release in ("2.7", "2.8"):
        assert bench.answers == [failed, ("tp0", "ILLEGAL_STATE")]
        assert (left, bench.requests) == (["tp1"], [])
    else:
        assert bench.answers[:2] == [failed, ("tp0", "OPERATION_NOT_ATTEMPTED")]
        assert (left, bench.requests) == ([], [])


# What else the manager's tests say


@pytest.mark.parametrize("release", AT_ONCE)
def test_single_batch_and_a_partition_missing_in_the_response(release):
    """testSingleBatch, testPartitionMissingInResponse: what is not named is sent again."""
    bench = Bench(release)
    bench.submit(*(f"tp{i}" for i in range(10)))
    bench.respond()
    assert [len(r) for r in bench.requests] == [1, 10]
    bench.respond(*(f"tp{i}" for i in range(9)))
    assert bench.requests[-1] == ("tp9",)


def test_2_7_sends_on_its_timer_only():
    bench = Bench("2.7")
    bench.submit("tp0", "tp1")
    assert (bench.timers, bench.requests) == ([50], [])
    bench.tick()
    assert bench.requests == [("tp0", "tp1")]
    bench.submit("tp2")
    bench.tick()
    bench.respond(error="STALE_BROKER_EPOCH")
    assert bench.timers == [50]  # the period goes on; the error adds nothing
    bench.tick()
    assert bench.requests == [("tp0", "tp1"), ("tp0", "tp1", "tp2")]


def test_an_error_of_a_partition_settles_it():
    bench = Bench("3.7")
    bench.submit("tp0")
    bench.do(ap.AlterPartitionsResponse((("tp0", "INVALID_UPDATE_VERSION"),)))
    assert bench.answers == [("tp0", "INVALID_UPDATE_VERSION")]
    bench.submit("tp0")
    assert bench.state.in_flight


def test_what_is_impossible():
    with pytest.raises(ValueError, match="no request"):
        Bench("3.7").respond("tp0")
    for release in ("2.6", "trunk", "3", "7.3"):
        with pytest.raises(ValueError, match="ZooKeeper" if release == "2.6" else "unknown"):
            ap.BatchingRules.of(release)


# Property

PARTITIONS = ("tp0", "tp1", "tp2", "tp3")
command = st.sampled_from([*PARTITIONS, "tick", "error"]) | st.sets(st.sampled_from(PARTITIONS))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(RELEASES), st.lists(command, max_size=60))
def test_one_request_in_flight_and_no_change_forgotten(release, script):
    bench = Bench(release)
    open_requests = accepted = 0
    for command in script:
        sent, answered = len(bench.requests), len(bench.answers)
        if command == "tick":
            bench.tick() if bench.timers else None
        elif isinstance(command, str) and command != "error":
            accepted += not bench.state.holds(command)
            bench.submit(command)
        elif open_requests:
            open_requests -= 1
            bench.respond(error="X") if command == "error" else bench.respond(*command)
        accepted -= sum(error is None for _, error in bench.answers[answered:])
        open_requests += len(bench.requests) - sent
        assert open_requests in (0, 1)
        assert bool(bench.state.in_flight) == bool(open_requests)
        assert len(bench.state.unsettled) == accepted == len(set(bench.state.unsettled))
        assert set(bench.state.in_flight) <= set(bench.state.unsettled)
