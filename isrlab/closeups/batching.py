"""How a broker sends the ISR changes of all its partitions to the controller, in batches.

Theory of operation. A leader submits an ISR change for its partition. The broker keeps at most one
change for each partition, and at most one request on its way; a request takes all changes there
are. While it is on its way, later changes wait for the answer. The answer to a whole request may be
an error (or nothing may arrive): then every change is kept and all are sent again after 50 ms, for
ever. Otherwise each partition has its own answer, which goes to its leader; a partition that the
answer left out stays and is sent again.

So one slow answer delays every other partition of the broker. The machine for a single partition is
`isr.py`; this one holds several. `step` takes an `IsrChange`, an `AlterPartitionsResponse`, or the
timer's `SendChanges`, and answers with what to send, and whom to tell what.

Left out: topic ids, wire versions, broker epochs, the ZooKeeper form of the same interface.

Source: AlterIsrManager.scala 2.7.2:65-215, 2.8.2:131-277, 3.1.2:130-295;
AlterPartitionManager.scala 3.7.1:155-380. KAFKA-14010 is in 3.2.1, not in 3.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

from isrlab.engine import messages as m
from isrlab.engine import versions

PERIOD_MS = 50  # of the sending task (2.7)
RETRY_MS = 50  # after an error of the whole request (2.8+)


@dataclass(frozen=True, slots=True)
class BatchingRules:
    """The forms of the batching, by release."""

    sends_at_once: bool = True  # 2.8; in 2.7 a task looks every 50 ms
    frees_before_answering: bool = True  # 3.2.1: a leader's answer may resubmit (KAFKA-14010)
    refusal_throws: bool = False  # up to 2.8, in the middle of a batch; 3.0 only writes a line

    @classmethod
    def of(cls, release: str) -> BatchingRules:
        """The rules of "2.7.2", "3.7", ... Raises ValueError for what is no release, and for those
        before 2.7, which have no such request.
        """
        numbers = versions.release(release)
        if numbers < (2, 7):
            raise ValueError(f"Kafka {release} writes ISR changes into ZooKeeper, one by one")
        return cls(numbers >= (2, 8), numbers >= (3, 2, 1), numbers < (3,))

    @property
    def refusal(self) -> str:
        return "ILLEGAL_STATE" if self.refusal_throws else "OPERATION_NOT_ATTEMPTED"


class IsrChange(NamedTuple):
    """What a leader asks for."""

    partition: str
    isr: tuple[int, ...]


class SendChanges(NamedTuple):
    """The 50 ms timer."""


class AlterPartitions(NamedTuple):
    """One request with the changes of several partitions."""

    changes: tuple[IsrChange, ...]


class AlterPartitionsResponse(NamedTuple):
    """An answer of the controller. `error` is that of the whole request; `results` are pairs of
    partition and error (None: stored). Partitions may be missing.
    """

    results: tuple[tuple[str, str | None], ...] = ()
    error: str | None = None


class Answer(NamedTuple):
    """What a leader is told about its change."""

    change: IsrChange
    error: str | None = None


Resubmit = Callable[[Answer], IsrChange | None]
Step = tuple["IsrChanges", tuple[m.Output | Answer, ...]]


@dataclass(frozen=True, slots=True)
class IsrChanges:
    """The changes that no answer has settled yet, oldest first, and those of them on their way."""

    rules: BatchingRules = BatchingRules()
    unsettled: tuple[IsrChange, ...] = ()
    in_flight: tuple[IsrChange, ...] = ()

    def holds(self, partition: str) -> bool:
        return any(change.partition == partition for change in self.unsettled)


def start(rules: BatchingRules) -> Step:
    """A broker starts: in 2.7 its sending task, too."""
    return IsrChanges(rules), () if rules.sends_at_once else (m.After(PERIOD_MS, SendChanges()),)


def step(
    changes: IsrChanges,
    message: IsrChange | AlterPartitionsResponse | SendChanges,
    resubmit: Resubmit = lambda answer: None,
) -> Step:
    """`resubmit` is what a leader submits at once, from within its answer."""
    at_once = changes.rules.sends_at_once
    if isinstance(message, AlterPartitionsResponse):
        return on_response(changes, message, resubmit)
    if isinstance(message, SendChanges):
        sent, outputs = _send(changes)
        return sent, outputs if at_once else (*outputs, m.After(PERIOD_MS, SendChanges()))
    if changes.holds(message.partition):
        return changes, (Answer(message, changes.rules.refusal),)
    taken = replace(changes, unsettled=(*changes.unsettled, message))
    return _send(taken) if at_once else (taken, ())


def _send(changes: IsrChanges) -> Step:
    """All unsettled changes in one request, if none is on its way."""
    if changes.in_flight or not changes.unsettled:
        return changes, ()
    request = m.Send(m.CONTROLLER, AlterPartitions(changes.unsettled))
    return replace(changes, in_flight=changes.unsettled), (request,)


def on_response(changes: IsrChanges, response: AlterPartitionsResponse, resubmit: Resubmit) -> Step:
    """Settle what the answer names, tell the leaders, then send what is left or new.

    A leader that throws (up to 2.8, when it resubmits) ends that: the rest of the batch is neither
    answered nor freed, and 2.8 sends nothing until the next change. Raises ValueError when no
    request is on its way.
    """
    if not changes.in_flight:
        raise ValueError("an answer, but no request is on its way")
    rules, results = changes.rules, dict(response.results)
    changes, in_flight = replace(changes, in_flight=()), changes.in_flight
    if response.error:
        return changes, (m.After(RETRY_MS, SendChanges()),) if rules.sends_at_once else ()
    answers: tuple[m.Output | Answer, ...] = ()
    for answer in (Answer(c, results[c.partition]) for c in in_flight if c.partition in results):
        changes, outputs = _settle(changes, answer, resubmit(answer))
        answers += outputs
        if len(outputs) > 1 and rules.refusal_throws:
            return changes, answers
    changes, outputs = _send(changes) if rules.sends_at_once else (changes, ())
    return changes, answers + outputs


def _settle(changes: IsrChanges, answer: Answer, again: IsrChange | None) -> Step:
    """Free the partition and answer. Up to 3.2.0 it is freed too late for a change from within."""
    freed = replace(changes, unsettled=tuple(c for c in changes.unsettled if c != answer.change))
    if again is None:
        return freed, (answer,)
    if (freed if changes.rules.frees_before_answering else changes).holds(again.partition):
        return freed, (answer, Answer(again, changes.rules.refusal))
    return replace(freed, unsettled=(*freed.unsettled, again)), (answer,)


# A broker in time


class Request(NamedTuple):
    """When a request was sent, with whose changes, and when it was answered."""

    sent_ms: int
    partitions: tuple[str, ...]
    answered_ms: int


def play(release: str, submitted: Mapping[str, int], round_trip_ms: int = 100) -> list[Request]:
    """The requests of one broker whose partitions submit a change at these times (ms)."""
    changes, outputs = start(BatchingRules.of(release))
    requests, open_changes, now_ms = list[Request](), len(submitted), 0
    queue: list[tuple[int, Any]] = [(ms, IsrChange(name, (1,))) for name, ms in submitted.items()]
    while True:
        for output in outputs:
            if isinstance(output, Answer):
                open_changes -= 1
            elif isinstance(output, m.After):
                queue.append((now_ms + output.delay_ms, output.message))
            else:
                names = tuple(change.partition for change in changes.in_flight)
                requests.append(Request(now_ms, names, now_ms + round_trip_ms))
                stored = AlterPartitionsResponse(tuple((name, None) for name in names))
                queue.append((now_ms + round_trip_ms, stored))
        if not open_changes:
            return requests
        queue.sort(key=itemgetter(0))  # of one moment, in the order in which they came about
        now_ms, message = queue.pop(0)
        changes, outputs = step(changes, message)
