"""How a producer groups records into batches, by size and by time.

A partition has one producer, which adds records to the partition's open batch. The batch is sent
when a record no longer fits, or `linger.ms` after its first record. Source: RecordAccumulator
(append, batchReady) 3.9.2. Left out: compression, the batch's header, a sender that is busy or out
of memory, several producers for one partition.
"""

import numpy as np
from numpy.typing import NDArray

from isrlab.fleet.kernel.compiled import entry
from isrlab.fleet.kernel.state import Ints

Batches = tuple[Ints, NDArray[np.int32]]  # times (ms, ascending) and records, each at least 1
OPENED_MS, HELD = range(2)  # of the open batch: the time of its first record; its records, or 0


def batched(
    ts_ms: Ints, records: NDArray[np.int32], until_ms: int, limits: tuple[int, int], held: Ints
) -> Batches:
    """Times (ms) and records of the batches that are sent before `until_ms`.

    The producer is given `records` int32[n] at `ts_ms` int64[n], ascending. `limits` are the most
    records of a batch and linger.ms; `held` int64[2], the open batch, is changed in place.
    """
    size = len(ts_ms) + int(records.sum()) // limits[0] + 2
    sent = np.empty(size, np.int64), np.empty(size, np.int32)
    count = _fill((ts_ms, records), until_ms, limits, held, sent)
    return sent[0][:count], sent[1][:count]


@entry
def _fill(
    handed: Batches, until_ms: int, limits: tuple[int, int], held: Ints, sent: Batches
) -> int:
    (ts_ms, records), (most, linger_ms), (sent_ms, sizes) = handed, limits, sent
    count = 0
    for place in range(len(ts_ms) + 1):
        now_ms = ts_ms[place] if place < len(ts_ms) else until_ms
        if held[HELD] > 0 and held[OPENED_MS] + linger_ms < now_ms:
            sent_ms[count], sizes[count] = held[OPENED_MS] + linger_ms, held[HELD]
            count += 1
            held[HELD] = 0
        left = np.int64(records[place]) if place < len(ts_ms) else 0
        while left > 0:
            if held[HELD] == most:
                sent_ms[count], sizes[count] = now_ms, most
                count += 1
                held[HELD] = 0
            if held[HELD] == 0:
                held[OPENED_MS] = now_ms
            more = min(left, most - held[HELD])
            held[HELD] += more
            left -= more
    return count
