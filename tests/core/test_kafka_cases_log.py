"""What Kafka's own tests say about diverging logs: where a follower truncates, and the epoch cache.

The numbers are those of ReplicaFetcherThreadTest and LeaderEpochFileCacheTest; the ids are ours. A
leader's answers and whole truncations are cases of kafka_leader.txt and kafka_truncation.txt.
"""

from __future__ import annotations

import pytest

from cases.bench import log_of
from isrlab.engine.log import LeaderEpochCache, Log
from isrlab.engine.rules import needs_another_round, truncation_offset
from isrlab.engine.versions import PRESETS

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


def test_h18_a_log_that_begins_later() -> None:
    cache = cache_of("N", (0, 0), (1, 7), (2, 10))
    assert cache.truncate_from_start(5).entries == ((0, 5), (1, 7), (2, 10))
    assert cache.truncate_from_start(7).entries == ((1, 7), (2, 10))
    assert cache.truncate_from_start(30).entries == ((2, 30),)
    assert cache_of("N", (3, 9)).truncate_from_start(2).entries == ((3, 9),)


def test_h20_the_previous_epoch() -> None:
    caches = [cache_of("N", *((2, 10), (4, 15), (10, 20))[:n]) for n in (1, 2, 3)]
    caches.append(caches[-1].truncate_from_end(18))
    assert [[e for e, _ in cache.entries][-2:-1] for cache in caches] == [[], [2], [4], [2]]


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
