"""Short scenarios that break a property in some generation, or show a rule end to end."""

from __future__ import annotations

# 10 committed records; the last five of broker 1 are lost with the page cache, and it leads.
I2_DIVERGENT_LOGS = """
partition leader=1 replicas=1,2
produce 1 count=5 acks=all
stabilize
flush 1
produce 1 count=5 acks=all
stabilize
advance 6s
kill 2
elect
power_loss 1
elect
start 1
elect unclean
stabilize
produce 1 count=9 acks=1
start 2
stabilize
advance 5s
"""

# Five rounds of one record, a bounce of the follower and a bounce of the leader.
I4_FAST_LEADER_CHANGE = """
partition leader=1 replicas=1,2
produce 1 acks=all
stabilize
advance 1s
""" + "".join(
    f"""
produce {leader} acks=all
stabilize
clean_bounce {3 - leader}
stabilize
advance 2s
clean_bounce {leader}
stabilize
advance 2s
"""
    for leader in (1, 2, 1, 2, 1)
)

# No restart, no unclean election, and still m2 is gone.
KIP_101_LOSS = """
partition leader=1 replicas=1,2,3 min.insync.replicas=2 unclean.leader.election.enable=false
produce 1 m1 acks=all
stabilize
advance 4800ms
produce 1 m2 acks=all
stabilize
kill 1
elect
deliver controller>2 all
deliver controller>3 all
kill 2
elect
stabilize
"""

# Both lose power, m2 is on the disk of broker 1 alone, broker 2 leads and writes m3 (KIP-101).
KIP_101_DIVERGENCE = """
partition leader=1 replicas=1,2
produce 1 m1 acks=1
stabilize
flush 2
advance 4800ms
produce 1 m2 acks=1
stabilize
flush 1
advance 200ms
power_loss 1
power_loss 2
power_loss controller
start 2
stabilize
produce 2 m3 acks=1
start 1
stabilize
advance 2s
"""

# The same divergence without power loss, by an unclean election.
UNCLEAN_DIVERGENCE = """
partition leader=1 replicas=1,2 unclean.leader.election.enable=true replica.lag.time.max.ms=10000
produce 1 m1 acks=1
stabilize
advance 6s
cut 1 2
produce 1 m2 acks=1
advance 60s
kill 1
heal 1 2
elect
stabilize
produce 2 m3 acks=1
start 1
stabilize
advance 2s
"""

# Two unclean elections before the first leader has cut its log.
KIP_279 = """
partition leader=1 replicas=1,2 unclean.leader.election.enable=true
produce 1 count=10 acks=1
stabilize
advance 6s
kill 2
elect
stabilize
produce 1 count=10 acks=1
advance 6s
kill 1
start 2
elect
stabilize
produce 2 count=5 acks=1
advance 6s
kill 2
start 1
elect
stabilize
produce 1 count=5 acks=1
start 2
stabilize
advance 2s
"""

# A committed and acknowledged record, and an election that does not ask who has it.
UNCLEAN_LOSS = """
partition leader=1 replicas=1,2
cut 1 2
produce 1 m1 acks=1
advance 70s
produce 1 m2 acks=all
kill 1
heal 1 2
elect
elect unclean
stabilize
"""

# acks=1: acknowledged, never committed, gone. Nothing that was promised to be safe is lost.
ACKS_1_LOSS = """
partition leader=1 replicas=1,2
cut 1 2
produce 1 m1 acks=1
stabilize
kill 1
heal 1 2
elect
stabilize
"""

# The last member of the ISR loses what it had not flushed (the motivation of KIP-966).
LAST_REPLICA_STANDING = """
partition leader=1 replicas=1,2,3 min.insync.replicas=2
produce 1 m1 acks=all
stabilize
advance 6s
kill 2
kill 3
elect
power_loss 1
elect
start 1
stabilize
start 2
start 3
stabilize
advance 2s
"""

# What the random search found by itself, made as short as it gets.

FOUND_LOSS_BY_A_BOUNCE = """
partition replicas=1,2 min.insync.replicas=1 unclean.leader.election.enable=false
produce 1 acks=1
stabilize
kill 1
kill 2
start 2
advance 6s
"""

FOUND_LOSS_OF_THREE = """
partition replicas=1,2,3 min.insync.replicas=2 unclean.leader.election.enable=false
produce 1 acks=1
stabilize
kill 1
kill 2
advance 18s
"""

FOUND_DIVERGENCE = """
partition replicas=1,2 min.insync.replicas=1 unclean.leader.election.enable=true
cut 1 2
produce 1 acks=1
advance 50s
heal 1 2
kill 1
advance 20s
start 1
produce 2 acks=1
advance 20s
"""

FOUND_KIP_279 = """
partition replicas=1,2 min.insync.replicas=1 unclean.leader.election.enable=true
kill 2
produce 1 acks=1
kill 1
start 2
elect
stabilize
produce 2 acks=1
kill 2
start 1
elect
stabilize
produce 1 acks=1
start 2
stabilize
"""

# The leader loses power and is back, in the same epoch, before the controller notices (KAFKA-1120).
FOUND_SAME_EPOCH_TWICE = """
partition replicas=1,2 min.insync.replicas=1 unclean.leader.election.enable=false
produce 1 acks=1
stabilize
power_loss 1
start 1
stabilize
produce 1 acks=all
advance 6s
"""
