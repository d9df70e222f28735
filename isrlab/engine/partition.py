"""What is stored about a partition, in ZooKeeper or in KRaft's metadata log."""

from __future__ import annotations

from isrlab.engine.frozen import Frozen


class PartitionState(Frozen):
    """The leader, the ISR, and the numbers by which a change of them is told from an old one."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0  # KRaft's, or the version of the ZooKeeper node
    elr: tuple[int, ...] = ()  # eligible leader replicas (KIP-966)
    last_known_elr: tuple[int, ...] = ()
    is_recovering: bool = False  # the leader was elected uncleanly and has not said that it is well
