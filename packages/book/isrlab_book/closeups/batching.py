"""How a broker sends the ISR changes of all its partitions to the controller, in batches.

Theory of operation. A leader submits an ISR change for its partition. The broker has at most one
request on its way; a request takes all changes there are. While it is on its way, later changes
wait for the answer: one slow answer delays every other partition of the broker. In 2.7 a task looks
for changes every 50 ms; since 2.8 a change is sent immediately if no request is in flight, and
those that wait are sent when the answer comes. For a single partition see `engine/isr.py`.

Left out: answers that are errors, and partitions that submit a second change.

Source: AlterIsrManager.scala 2.7.2:65-215, 2.8.2:131-277, 3.1.2:130-295;
AlterPartitionManager.scala 3.7.1:155-380.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

from isrlab.engine import versions

PERIOD_MS = 50  # of the sending task (2.7)


class SentBatch(NamedTuple):
    """When a request was sent, with whose changes, and when it was answered."""

    sent_ms: int
    partitions: tuple[str, ...]
    answered_ms: int


def play(release: str, submitted: Mapping[str, int], round_trip_ms: int = 100) -> list[SentBatch]:
    """The requests of one broker whose partitions submit a change at these times (ms).

    Raises ValueError for an unknown release, and for one before 2.7, which has no such request.
    """
    numbers = versions.release(release)
    if numbers < (2, 7):
        raise ValueError(f"Kafka {release} writes ISR changes into ZooKeeper, one by one")
    unsent = sorted(submitted.items(), key=itemgetter(1))
    requests, free_ms = list[SentBatch](), -1  # `free_ms`: when the last answer arrived
    while unsent:
        (first, submitted_ms), *_ = unsent
        sent_ms = max(submitted_ms, free_ms)
        if numbers < (2, 8):
            sent_ms = max(PERIOD_MS, -(-sent_ms // PERIOD_MS) * PERIOD_MS)
        gathered = [name for name, ms in unsent if ms <= sent_ms]
        is_sent_alone = numbers >= (2, 8) and submitted_ms > free_ms  # it finds the broker free
        taken = (first,) if is_sent_alone else tuple(gathered)
        free_ms = sent_ms + round_trip_ms
        requests.append(SentBatch(sent_ms, taken, free_ms))
        unsent = unsent[len(taken) :]
    return requests
