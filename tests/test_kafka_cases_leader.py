"""What Kafka's own tests say a leader does: lag clock, ISR, high watermark, becoming leader.

The numbers are those of ReplicaTest, IsrExpirationTest and PartitionTest; the ids are ours.
Broker 1 leads, 2 to 4 follow; times are milliseconds since the leadership began.
"""

from __future__ import annotations

from cases.leader_bench import LeaderBench
from cases.table import Case, in_every_column, play

KRAFT_ERROR = "NOT_LEADER_OR_FOLLOWER"

LAG_CLOCK = (
    Case(
        "A1",
        "LMNO",
        {"isr": (1,)},
        (
            (
                ("order", 5, 2, (1,), (1, 2, 3)),
                {"3.leo": -1, "3.caught_up": None, "3.end_then": 0, "3.fetched": None},
            ),
        ),
    ),
    Case(  # the second fetch reaches what was the end at the first
        "A3",
        "CDEFGHIJKLMNO",
        {"leo": 10, "isr": (1,)},
        (
            (("at", 100), {}),
            (("fetch", 2, 5), {"2.leo": 5, "2.caught_up": None, "2.end_then": 10}),
            (("append", 5), {"leo": 15}),
            (("at", 200), {}),
            (
                ("fetch", 2, 10),
                {"2.leo": 10, "2.caught_up": 100, "2.end_then": 15, "2.fetched": 200},
            ),
        ),
    ),
    Case(
        "A5",
        "CDEFGHIJKLMNO",
        {"leo": 11},
        (
            (("fetch", 2, 5), {"2.leo": 5}),
            (("at", 500), {}),
            (
                ("order", 6, 2, (1, 2)),
                {"2.leo": 5, "2.end_then": 11, "2.fetched": 500, "2.caught_up": 500},
            ),
        ),
    ),
    Case(
        "A7",
        "CDEFGHIJKLMNO",
        {"leo": 11},
        (
            (("fetch", 2, 5), {"2.leo": 5}),
            (("order", 6, 2, (1, 2), None, 2), {}),
            (("at", 500), {}),
            (
                ("order", 7, 3, (1, 2)),
                {"2.leo": -1, "2.end_then": -1, "2.fetched": None, "2.caught_up": 500},
            ),
        ),
    ),
    Case(
        "A9",
        "EFGHIJKLMNO",
        {"leo": 10},
        (
            (("fetch", 2, 10), {"2.caught_up": 0}),
            (("check",), {"requests": 0}),
            (("wait", 30_001), {}),
            (("check",), {"requests": 0}),
        ),
    ),
    Case(
        "A11",
        "NO",
        {"leo": 10},
        (
            (("brokers", {2: (2, True)}), {}),
            (("fetch", 2, 5, -1, -1, 2), {"response": 5, "2.leo": 5, "2.broker_epoch": 2}),
            (("fetch", 2, 7, -1, -1, 1), {"response": KRAFT_ERROR, "2.leo": 5}),
            (("fetch", 2, 7, -1, -1, -1), {"response": 3, "2.leo": 7}),
        ),
    ),
)

SHRINK = (
    Case(
        "B2",
        "A",
        {"leo": 15, "replica_lag_time_max_ms": 100, "replica_lag_max_messages": 10},
        (
            (("fetch", 2, 5), {}),
            (("check",), {"isr": (1, 2)}),  # exactly the limit is still in sync
            (("fetch", 2, 4), {}),
            (("check",), {"isr": (1,)}),
        ),
    ),
    Case(
        "B4",
        "B",
        {"leo": 15, "replica_lag_time_max_ms": 100},
        (
            (("at", 100), {}),
            (("check",), {"isr": (1, 2)}),
            (("at", 150), {}),
            (("check",), {"isr": (1,)}),
        ),
    ),
    Case(
        "B6",
        "CD",
        {"leo": 15, "replica_lag_time_max_ms": 100},
        (
            (("fetch", 2, 10), {}),
            (("check",), {"requests": 0}),
            (("at", 75), {}),
            (("fetch", 2, 11), {}),
            (("check",), {"requests": 0}),
            (("at", 150), {}),
            (("check",), {"requests": 1, "asked": (1,), "isr": (1,)}),
            (("fetch", 2, 15), {"isr": (1, 2)}),
            (("check",), {"isr": (1, 2)}),
        ),
    ),
    Case(
        "B8",
        "EFGHIJKLMNO",
        {"leo": 20, "replica_lag_time_max_ms": 100},
        (
            (("fetch", 2, 19), {}),
            (("check",), {"requests": 0}),
            (("at", 150), {}),
            (("check",), {"asked": (1,)}),
        ),
    ),
    Case(
        "B10",
        "EFGHIJKLMNO",
        {"leo": 20, "replica_lag_time_max_ms": 100},
        (
            (("fetch", 2, 18), {}),
            (("check",), {"requests": 0}),
            (("at", 75), {}),
            (("fetch", 2, 19), {}),
            (("check",), {"requests": 0}),
            (("at", 150), {}),
            (("check",), {"requests": 1, "asked": (1,)}),
            (("order", 6, 9, (1, 2)), {"isr": (1, 2)}),
            (("fetch", 2, 20), {}),
            (("wait", 150), {}),
            (("check",), {"requests": 1}),
        ),
    ),
    Case(  # 10,001 ms after t0, yet caught up as of the fetch at 5,000 ms
        "B12",
        "CDEFGHIJKLMNO",
        {"leo": 10, "replica_lag_time_max_ms": 10_000},
        (
            (("at", 5_000), {}),
            (("fetch", 2, 5), {"2.leo": 5, "2.caught_up": 0, "hw": 5}),
            (("at", 10_001), {}),
            (("append", 5), {"leo": 15}),
            (("fetch", 2, 10), {"2.leo": 10, "2.caught_up": 5_000, "hw": 10}),
            (("check",), {"requests": 0, "isr": (1, 2)}),
        ),
    ),
    Case(
        "B14",
        "N",
        {"leo": 10, "replicas": (1, 2, 3)},
        (
            (("fetch", 2, 10), {"hw": 0}),
            (("check",), {"requests": 0}),
            (("wait", 30_001), {}),
            (("check",), {"pending": (1, 2), "isr": (1, 2, 3), "maximal": (1, 2, 3), "hw": 0}),
            (("answer",), {"pending": None, "isr": (1, 2), "hw": 10, "partition_epoch": 2}),
        ),
    ),
    Case(
        "B16",
        "IJKLMNO",
        {"leo": 10},
        (
            (("wait", 30_001), {}),
            (("check",), {"pending": (1,)}),
            (
                ("answer", "INVALID_UPDATE_VERSION"),
                {"pending": (1,), "isr": (1, 2), "maximal": (1, 2), "hw": 0, "requests": 1},
            ),
        ),
    ),
)

EXPAND = (
    Case(
        "C2",
        "IJKLMNO",
        {"leo": 10, "isr": (1,)},
        (
            (("fetch", 2, 10), {"pending": (1, 2), "isr": (1,)}),
            (
                ("answer", "INVALID_UPDATE_VERSION"),
                {"isr": (1,), "maximal": (1, 2), "pending": (1, 2), "requests": 1},
            ),
        ),
    ),
    Case(
        "C4",
        "LMNO",
        {"leo": 10, "isr": (1,)},
        (
            (("fetch", 2, 10), {"pending": (1, 2)}),
            (("answer", "INELIGIBLE_REPLICA"), {"isr": (1,), "maximal": (1,), "pending": None}),
            (("brokers", {2: (0, False)}), {}),
            (("fetch", 2, 10), {"requests": 1, "pending": None}),
            (("brokers", {}), {}),
            (("fetch", 2, 10), {"requests": 2, "pending": (1, 2)}),
            (("answer",), {"isr": (1, 2)}),
        ),
    ),
    Case(  # the fetch was the former incarnation's: the registered one has not fetched yet
        "C6",
        "MNO",
        {"leo": 10, "replicas": (1, 2, 3), "isr": (1, 3)},
        (
            (("brokers", {2: (7, False)}), {}),
            (("fetch", 2, 10, -1, -1, 7), {"2.leo": 10, "2.broker_epoch": 7, "requests": 0}),
            (("brokers", {2: (8, True)}), {}),
            (("try_expand", 2), {"requests": 0, "pending": None}),
            (
                ("fetch", 2, 10, -1, -1, 8),
                {"requests": 1, "maximal": (1, 2, 3), "asked_epochs": {1: 0, 2: 8, 3: -1}},
            ),
        ),
    ),
    Case(
        "C8",
        "IJKLMNO",
        {"leo": 10, "replicas": (1, 2, 3, 4), "isr": (1, 2, 3)},
        (
            (("fetch", 4, 10), {"requests": 1, "pending": (1, 2, 3, 4)}),
            (("wait", 30_001), {}),
            (("check",), {"requests": 1, "pending": (1, 2, 3, 4)}),
        ),
    ),
    Case(  # the other way round: another replica may not join meanwhile either
        "C8-expand",
        "IJKLMNO",
        {"leo": 10, "replicas": (1, 2, 3), "isr": (1,)},
        (
            (("fetch", 2, 10), {"requests": 1, "pending": (1, 2)}),
            (("fetch", 3, 10), {"requests": 1, "pending": (1, 2)}),
            (("answer",), {"isr": (1, 2), "pending": None}),
            (("fetch", 3, 10), {"requests": 2, "pending": (1, 2, 3)}),
        ),
    ),
    Case(
        "C10",
        "KLMNO",
        {"leo": 10, "replicas": (1, 2, 3, 4), "isr": (1, 2, 3)},
        (
            (("fetch", 4, 10), {"requests": 1}),
            (("answer", "UNKNOWN_SERVER_ERROR"), {"requests": 2, "pending": (1, 2, 3, 4)}),
            (("answer",), {"isr": (1, 2, 3, 4), "partition_epoch": 2, "pending": None}),
        ),
    ),
)

HIGH_WATERMARK = (
    Case(
        "D1",
        "ABCDEFGHIJKLMNO",
        {"leo": 10, "replicas": (1, 2, 3), "isr": (1, 2), "min_insync_replicas": 3},
        ((("fetch", 2, 10), {"hw": 10}),),
        only={
            "NO": (
                (("fetch", 2, 10), {"hw": 0}),
                (("fetch", 3, 10), {"isr": (1, 2), "maximal": (1, 2, 3), "hw": 0}),
                (("answer",), {"isr": (1, 2, 3), "hw": 10}),
            )
        },
    ),
    Case(
        "D3",
        "EFGHIJKLMNO",
        {"replicas": (1, 2, 3), "isr": (1, 3), "epoch": 8},
        (
            (("append", 3), {}),
            (("append", 2), {"leo": 5}),
            (("fetch", 2, 0), {}),
            (("fetch", 2, 2), {}),
            (("fetch", 3, 0), {}),
            (("fetch", 3, 2), {"maximal": (1, 2, 3), "hw": 2, "leo": 5}),
        ),
    ),
    Case("D5", "ABCDEFGHIJKLMNO", {"leo": 6, "hw": 4}, ((("look",), {"leo": 6, "hw": 4}),)),
    Case(
        "D9-at-min",
        "ABCDEFGHIJKLMNO",
        {"isr": (1,), "min_insync_replicas": 1},
        ((("append", 1, -1), {"leo": 1, "produced": [None]}),),
    ),
    Case(
        "D9-above",
        "ABCDEFGHIJKLMNO",
        {"isr": (1, 2), "min_insync_replicas": 2},
        ((("append", 1, -1), {"leo": 1, "produced": []}),),
    ),
    Case(
        "D9-under",
        "ABCDEFGHIJKLMNO",
        {"isr": (1,), "min_insync_replicas": 2},
        ((("append", 1, -1), {"leo": 0, "produced": ["NOT_ENOUGH_REPLICAS"]}),),
    ),
)

BECOMING_LEADER = (
    Case(
        "E1",
        "EFGHIJKLMNO",
        {"log": ((0, 2), (5, 2)), "epoch": 8},
        ((("look",), {"leo": 4, "end_of_epoch": (8, 4), "epochs": ((0, 0), (5, 2), (8, 4))}),),
    ),
    Case(
        "E3",
        "LMNO",
        {"leo": 10, "epoch": 1},
        (
            (("at", 100), {}),
            (("fetch", 2, 5), {"2.leo": 5, "2.fetched": 100, "2.caught_up": 0}),
            (("at", 200), {}),
            (
                ("order", 1, 2, (1, 2)),
                {"partition_epoch": 2, "2.leo": 5, "2.fetched": 100, "2.caught_up": 0},
            ),
        ),
    ),
    Case(
        "E5",
        "LMNO",
        {"epoch": 8},
        ((("order", 8, 0, (1,)), {"partition_epoch": 1, "epoch": 8, "isr": (1, 2)}),),
    ),
    Case(
        "E7",
        "LMNO",
        {"replicas": (1, 3)},
        (
            (("fetch", 2, 0, -1, 5), {"verdict": "UNKNOWN_LEADER_EPOCH"}),
            (("fetch", 2, 0), {"verdict": KRAFT_ERROR}),
            (("order", 5, 2, (1, 3), (1, 3, 2)), {}),
            (("fetch", 2, 0, -1, 5), {"verdict": "read", "2.leo": 0}),
        ),
    ),
)

ZOOKEEPER_TWINS = (
    Case(  # also in older columns: no version but the last two had a pending state
        "N1",
        "FGH",
        {"leo": 10, "isr": (1,)},
        (
            (("fetch", 2, 3), {"isr": (1,), "requests": 0}),
            (("fetch", 2, 10), {"isr": (1, 2), "pending": None, "partition_epoch": 2}),
        ),
    ),
    Case(
        "N3",
        "FGH",
        {"leo": 10},
        (
            (("check",), {"isr": (1, 2), "hw": 0}),
            (("wait", 30_001), {}),
            (("check",), {"isr": (1,), "hw": 10, "pending": None}),
        ),
    ),
    Case(  # one request, and until its answer nothing has changed (KAFKA-13091)
        "N5",
        "I",
        {"leo": 10},
        (
            (("check",), {"isr": (1, 2), "hw": 0}),
            (("wait", 30_001), {}),
            (("check",), {"isr": (1, 2), "maximal": (1, 2), "hw": 0, "requests": 1}),
        ),
    ),
)


@in_every_column(LAG_CLOCK + SHRINK + EXPAND + HIGH_WATERMARK + BECOMING_LEADER + ZOOKEEPER_TWINS)
def test_case(case: Case, column: str) -> None:
    play(LeaderBench(column, **case.setup), case.steps_in(column))
