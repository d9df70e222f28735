"""Which broker holds which replica, and which fetcher thread reads which partition.

Brokers, from 1 on, have no racks; without `assigned`, partition 0 has broker 1 first.
Source: AbstractFetcherManager.getFetcherId 0.8.2.2 (hash of topic and partition).
"""

from functools import lru_cache

import numpy as np

from isrlab.fleet.config import FleetConfig
from isrlab.fleet.given import replicas_of
from isrlab.fleet.kernel.state import Ints
from isrlab.fleet.place import zookeeper

TOPIC = "load"
TOPIC_HASH = 3_327_206  # String.hashCode() of it


def assignment(config: FleetConfig) -> Ints:
    """Broker of each replica, int64[partitions, replication_factor]; column 0 is the leader."""
    return _placed(config.partitions, config.brokers, config.replication_factor, config.assigned)


@lru_cache(maxsize=8)
def _placed(partitions: int, brokers: int, replication_factor: int, assigned: str) -> Ints:
    if assigned:
        replicas = np.array(replicas_of(assigned), dtype=np.int64)
    else:
        racks = dict.fromkeys(range(1, brokers + 1), "")
        replicas = np.array(zookeeper(racks, partitions, replication_factor, None), dtype=np.int64)
    replicas.flags.writeable = False
    return replicas


def fetcher_id(partition: int, num_replica_fetchers: int) -> int:
    """Which of a broker's fetcher threads reads a partition."""
    return (31 * TOPIC_HASH + partition) % num_replica_fetchers
