"""The partition of a record with a key: Kafka's default partitioner.

Source: org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey (3.3 and
later, DefaultPartitioner before), with the 32-bit murmur2 of org.apache.kafka.common.utils.Utils.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from isrlab.fleet.kernel.compiled import compiled, entry
from isrlab.fleet.kernel.state import Ints

SEED = np.uint32(0x9747B28C)
MIX = np.uint32(0x5BD1E995)


def partition_of_keys(keys: pa.Array, partitions: int) -> Ints:
    """The partition of each key, int64[n]; -1 for a missing or empty key (any partition).

    `keys` are binary, or strings, which are hashed as UTF-8.
    """
    plain = keys.cast(pa.large_binary())
    _, offsets, content = plain.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[plain.offset : plain.offset + len(plain) + 1]
    letters = np.frombuffer(content or b"\0", dtype=np.uint8)
    chosen = np.full(len(plain), -1, dtype=np.int64)
    _choose(letters, ends, partitions, chosen)
    return chosen


@compiled
def murmur2(letters: NDArray[np.uint8], start: int, end: int) -> int:
    """The hash of letters[start:end], as an unsigned 32-bit number."""
    mixed = SEED ^ np.uint32(end - start)
    for at in range(start, end, 4):
        word = np.uint32(0)
        for byte in range(min(4, end - at)):
            word |= np.uint32(letters[at + byte]) << np.uint32(8 * byte)
        if at + 4 > end:  # the incomplete last word is not mixed
            mixed = np.uint32((mixed ^ word) * MIX)
        else:
            word = np.uint32(word * MIX)
            word ^= word >> np.uint32(24)
            mixed = np.uint32(mixed * MIX) ^ np.uint32(word * MIX)
    mixed ^= mixed >> np.uint32(13)
    mixed = np.uint32(mixed * MIX)
    return int(mixed ^ (mixed >> np.uint32(15)))


@entry
def _choose(letters: NDArray[np.uint8], ends: Ints, partitions: int, chosen: Ints) -> None:
    for key in range(len(chosen)):
        if ends[key + 1] > ends[key]:
            positive = murmur2(letters, ends[key], ends[key + 1]) & np.uint32(0x7FFFFFFF)
            chosen[key] = positive % partitions
