"""What Kafka's own tests say about diverging logs: leader's answers, truncation, epoch cache.

The numbers are those of PartitionTest, ReplicaFetcherThreadTest, AbstractFetcherThreadTest and
LeaderEpochFileCacheTest; the ids are ours.
"""

from __future__ import annotations

import pytest
from cases.follower_bench import PairBench
from cases.leader_bench import LeaderBench, log_of

from isrlab.engine import messages as m
from isrlab.engine.frozen import replace
from isrlab.engine.log import LeaderEpochCache, Log
from isrlab.engine.rules import needs_another_round, truncation_offset
from isrlab.engine.versions import PRESETS

# F: what a leader answers to (epoch of the last record, offset)

LEADER_LOG = ((0, 2), (3, 6), (4, 5), (7, 1), (9, 3))


@pytest.mark.parametrize(
    ("case", "last_epoch", "offset", "start", "answer"),
    [
        ("F1", 2, 5, 0, (0, 2)),
        ("F3", 6, 6, 0, (4, 13)),
        ("F5", 10, 18, 0, (10, 17)),
        ("F7", 11, 5, 0, "OFFSET_OUT_OF_RANGE"),
        ("F9", 5, 6, 10, "OFFSET_OUT_OF_RANGE"),
        ("F9", 3, 6, 10, "OFFSET_OUT_OF_RANGE"),
        ("same-epoch", 9, 16, 0, 1),  # no divergence: one record follows
    ],
)
@pytest.mark.parametrize("column", "IJKLMNO")
def test_diverging_answer(column, case, last_epoch, offset, start, answer):
    """The followers of 2.7 do not ask this yet, but its leaders answer (N7)."""
    bench = LeaderBench(column, log=LEADER_LOG, epoch=10)
    assert bench.see("epochs") == ((0, 0), (3, 2), (4, 8), (7, 13), (9, 14), (10, 17))
    bench.log_starts_at(start)
    bench.fetch(2, offset, last_epoch)
    assert bench.see("response") == answer


# G: where a follower cuts


@pytest.mark.parametrize(
    ("case", "leo", "hw", "answer", "own", "cut", "again"),
    [  # own: where the follower's log ends the epoch of the answer; -1 is unknown
        ("G2", 200, 0, (4, 156), (-1, -1), 156, False),
        ("G2", 200, 0, (4, 202), (-1, -1), 200, False),
        ("G4", 200, 0, (-1, 155), (-1, -1), 155, False),
        ("G4", 200, 0, (-1, 143), (-1, -1), 143, False),
        ("G6", 200, 115, (4, 140), (4, 149), 140, False),
        ("G6", 200, 115, (4, 141), (4, 149), 141, False),
        ("G6", 140, 115, (3, 130), (2, 129), 129, True),
        ("G6", 141, 115, (3, 131), (2, 129), 129, True),
        ("G6", 129, 115, (2, 120), (1, 119), 119, True),
        ("G6", 129, 115, (2, 121), (1, 119), 119, True),
        ("undefined", 200, 115, (-1, -1), (4, 149), 115, False),
        ("own-is-shortest", 200, 115, (4, 180), (4, 149), 149, False),
    ],
)
def test_where_to_cut(case, leo, hw, answer, own, cut, again):
    assert truncation_offset(leo, hw, *answer, *own) == cut
    assert needs_another_round(*answer, *own) is again


@pytest.mark.parametrize("column", "EFGHIJKLMNO")
def test_g8_logs_that_share_nothing(column: str) -> None:
    """G8: every record has another epoch; the follower cuts everything and copies."""
    version = PRESETS[column]
    pair = PairBench(
        column,
        log_of(version, (1, 1), (3, 1), (5, 1)),
        log_of(version, (0, 1), (2, 1), (4, 1)),
        leader_epoch=6,
    )
    pair.run()
    assert pair.are_equal
    assert [log.log_end_offset for log in pair.logs] == [3, 3]


@pytest.mark.parametrize("column", PRESETS, ids=[v.name for v in PRESETS.values()])
def test_g12_leader_starts_after_the_follower_ends(column: str) -> None:
    """G12: the follower drops its log and begins where the leader does."""
    version = PRESETS[column]
    full = log_of(version, (0, 4))
    cut = replace(full, records=full.records[2:], log_start_offset=2, high_watermark=2)
    pair = PairBench(column, cut, log_of(version, (0, 1)), leader_epoch=1)
    pair.run()
    follower = pair.logs[1]
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 4)
    assert pair.are_equal


@pytest.mark.parametrize("column", "EFGHIJKLMNO")
def test_g14_leader_behind_in_epoch(column: str) -> None:
    """G14: the follower knows of epoch 7 before its leader does; it waits, then goes on."""
    version = PRESETS[column]
    pair = PairBench(
        column, log_of(version, (0, 5)), log_of(version, (0, 3)), leader_epoch=5, epoch=7
    )
    errors = [getattr(what, "error", None) for _, what in pair.delivered]
    assert "UNKNOWN_LEADER_EPOCH" in errors
    assert pair.logs[1].log_end_offset == 3
    pair.order(1, 7)
    pair.give(2, m.RetryRequest(pair.brokers[2].role.request))
    pair.run()
    assert pair.are_equal


def test_g16_truncation_on_fetch_takes_no_data() -> None:
    """G16: one cut to 3, high watermark still 1 then; in the end LEO 5, HW 4 (here: all, 5)."""
    version = PRESETS["N"]
    own = replace(log_of(version, (0, 2), (2, 1), (4, 3)), checkpointed_high_watermark=1)
    pair = PairBench("N", log_of(version, (0, 2), (2, 1), (5, 2)), own, leader_epoch=6, most=5)
    cut = pair.logs[1]
    assert (cut.log_end_offset, cut.high_watermark, pair.truncations) == (3, 1, 1)
    pair.most = 100
    pair.give(2, m.RetryRequest(pair.brokers[2].role.request))
    pair.run()
    assert pair.are_equal
    assert (pair.logs[1].log_end_offset, pair.truncations) == (5, 1)


# H: the leader-epoch cache


def cache_of(column: str, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache()
    for epoch, start in entries:
        cache = cache.assign(epoch, start, PRESETS[column])
    return cache


BOUNCES = ((1, 11), (1, 12), (2, 13), (2, 14), (3, 15), (3, 16))
THREE_EACH = tuple((o // 3, o) for o in range(9))


@pytest.mark.parametrize("column", "EFGHIJKLMNO")
@pytest.mark.parametrize(
    ("case", "assigned", "log_end", "asked", "answer"),
    [
        ("H2", ((2, 11), (3, 12)), 20, -1, (-1, -1)),
        ("H6", ((5, 11), (6, 12), (7, 13)), 20, 4, (4, 11)),
        ("H8", BOUNCES, 17, 2, (2, 15)),
        ("H10", ((2, 100),), 200, 3, (-1, -1)),
        ("H14", THREE_EACH, 9, 2, (2, 9)),
        ("H14", THREE_EACH, 9, 0, (0, 3)),
        ("H14", THREE_EACH, 9, 1, (1, 6)),
        ("gap", ((2, 11), (5, 14)), 20, 4, (2, 14)),
    ],
)
def test_end_of_an_epoch(column, case, assigned, log_end, asked, answer):
    cache = cache_of(column, *assigned)
    assert cache.end_offset_for(asked, log_end, PRESETS[column]) == answer


@pytest.mark.parametrize("column", "EFGHIJKLMNO")
@pytest.mark.parametrize(
    ("case", "assigned", "entries"),
    [
        ("H4", ((2, 9), (3, 9)), ((3, 9),)),
        ("H12", ((2, 6), (3, 5)), ((3, 5),)),
        ("again", ((2, 6), (2, 8)), ((2, 6),)),
    ],
)
def test_assignment(column, case, assigned, entries):
    assert cache_of(column, *assigned).entries == entries


@pytest.mark.parametrize(
    ("case", "assigned", "offset", "entries"),
    [
        ("H16", ((2, 6), (3, 8), (4, 11)), 9, ((2, 6), (3, 8))),
        ("nothing", ((2, 6), (3, 8)), 9, ((2, 6), (3, 8))),
        ("negative", ((2, 6), (3, 8)), -1, ((2, 6), (3, 8))),
    ],
)
def test_cut_of_the_cache(case, assigned, offset, entries):
    assert cache_of("N", *assigned).truncate_from_end(offset).entries == entries


@pytest.mark.parametrize("column", "EFGHIJKLMNO")
def test_h22_epochs_survive_a_restart(column: str) -> None:
    records = log_of(PRESETS[column], (2, 7)).records
    log = Log(records, epochs=cache_of(column, (2, 6)))
    assert log.load().epochs.entries == ((2, 6),)
    assert log.truncate_to(6).load().epochs.entries == ()


@pytest.mark.parametrize(
    ("assigned", "asked", "answer"),
    [  # 0.11 answers with an offset alone, and knows nothing before its first epoch
        (((2, 11), (5, 14)), 5, (-1, 20)),
        (((2, 11), (5, 14)), 2, (-1, 14)),
        (((2, 11), (5, 14)), 4, (-1, 14)),
        (((2, 11), (5, 14)), 1, (-1, -1)),
        (((2, 11), (5, 14)), 6, (-1, -1)),
        (((2, 9), (3, 5)), 3, (-1, -1)),  # (3, 5) was refused: it begins before (2, 9)
    ],
)
def test_epoch_cache_of_0_11(assigned, asked, answer):
    assert cache_of("D", *assigned).end_offset_for(asked, 20, PRESETS["D"]) == answer


def test_no_epochs_before_0_11() -> None:
    for column in "ABC":
        assert log_of(PRESETS[column], (0, 3), (1, 3)).epochs.entries == ()
