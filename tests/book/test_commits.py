"""Which follower held each record back, according to leaders' TRACE lines."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from isrlab.events import schema
from isrlab_book.commits import NO_FOLLOWER, commits
from isrlab_book.workbook import what_acks_all_costs as acks_all
from isrlab_ops.logs.recordings import traced


def said(*rows: tuple[int, str, int, int]) -> pa.Table:
    """Rows of leader 1: ms, kind, replica, offset."""
    columns = {"position": "log_end_offset", "high_watermark": "high_watermark"}
    return schema.table([
        {"run": "r", "topic": "t", "partition": 0, "broker": 1, "ts_ms": ms, "kind": kind,
         "replica": replica, columns[kind]: offset}
        for ms, kind, replica, offset in rows
    ])  # fmt: skip


def test_the_follower_whose_fetch_moves_the_high_watermark_held_it_back() -> None:
    found = commits(said(
        (0, "position", 1, 5), (100, "position", 1, 7), (110, "position", 2, 7),
        (150, "high_watermark", 1, 7), (151, "position", 3, 7),
    ))  # fmt: skip
    assert [(c.records, c.wait_ms, c.held_by, c.has_left) for c in found] == [(2, 50, 3, False)]


def test_a_follower_that_leaves_held_it_back() -> None:
    found = commits(said(
        (0, "position", 1, 5), (1, "position", 3, 5), (100, "position", 1, 6),
        (110, "position", 2, 6), (4_000, "high_watermark", 1, 6),
    ))  # fmt: skip
    assert [(c.wait_ms, c.held_by, c.has_left) for c in found] == [(3_900, 3, True)]


def test_alone_it_waits_for_nobody_and_what_is_not_committed_is_left_out() -> None:
    found = commits(said((0, "high_watermark", 1, 5), (9, "high_watermark", 1, 6),
                         (20, "position", 1, 8)))  # fmt: skip
    assert [(c.end_offset, c.wait_ms, c.held_by) for c in found] == [(6, 0, NO_FOLLOWER)]


def test_a_paused_follower_is_the_one_that_real_records_waited_for() -> None:
    found = commits(traced("2.4.1"))
    assert sum(commit.records for commit in found) > 1_500
    first_pause = datetime.fromisoformat("2026-11-21T19:41:13Z").timestamp() * 1000
    slow = [c for c in found if c.wait_ms > 2_000 and c.appended_ms < first_pause + 40_000]
    assert slow and {c.held_by for c in slow} == {3} and all(c.has_left for c in slow)


def test_without_trace_it_says_what_to_set(tmp_path) -> None:
    (tmp_path / "server.log").write_text(
        "[2024-07-01 10:00:00,001] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 "
        "(kafka.cluster.Partition)\n"
    )
    with pytest.raises(ValueError, match="TRACE"):
        acks_all.commits_of(str(tmp_path))
