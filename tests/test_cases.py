"""The cases of tests/cases/*.txt: the rules of each generation, and Kafka's own tests (kafka_*).

Broker 1 leads or is led; times are milliseconds since the leadership began.
"""

from __future__ import annotations

from cases.follower_bench import FollowerBench
from cases.leader_bench import LeaderBench
from cases.table import Case, in_every_column, play


@in_every_column("leader", "isr", "kafka_leader")
def test_leader(case: Case, column: str) -> None:
    play(LeaderBench(column, **case.setup), case.steps)


@in_every_column("follower", "kafka_truncation")
def test_follower(case: Case, column: str) -> None:
    play(FollowerBench(column, **case.setup), case.steps)
