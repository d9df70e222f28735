"""The notebook *Your cluster*: figures and tables of logs, and the alerts that would have fired."""

from __future__ import annotations

import gzip
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from isrlab.events.schema import SCHEMA
from isrlab.show import bands
from isrlab.show.controls import pictured
from isrlab_book.workbook import your_cluster
from isrlab_book.workbook.your_cluster import alerts, compare
from isrlab_ops.logs import recordings
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents.look import CALM, look
from isrlab_ops.logs.incidents.window import window

FOLDER = recordings.folder("3.9")
FAULTS = recordings.known_outages(FOLDER)
HOSTILE = "a$b$_<script>"


@pytest.fixture(scope="module")
def found():
    return look(FOLDER, min_isr=2)


def text_of(figure) -> str:
    pictured(figure)
    return " ".join(figure.get_suptitle().split())


# Figures


def test_the_cluster_is_drawn_with_what_was_done_and_what_is_known(found) -> None:
    figure = your_cluster.plot_cluster(found, FAULTS)
    assert text_of(figure).startswith(f"{len(found.incidents)} incidents, all over; at worst 9 of ")
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert [row for row in rows if ":" in row] == [
        "paused: broker 1", "killed: broker 3", "shut down: broker 2",
    ]  # fmt: skip
    assert {"broker 1", "broker 2", "broker 3"} < set(rows)


def test_an_incident_of_a_moment_in_a_long_log_can_be_seen(found) -> None:
    first, *_ = found.incidents
    short = replace(found, incidents=[replace(first, end_ms=first.start_ms + 1)])
    bars = your_cluster.plot_cluster(short).axes[0].patches
    length_s = (found.record.end_ms - found.record.start_ms) / 1000
    (width_s,) = [bar.get_width() for bar in bars if bar.get_y() < 0]  # of the first row
    assert width_s >= 0.003 * length_s


def test_many_incidents_share_the_row_of_their_kind_and_the_sentence_of_the_finding(found) -> None:
    many = replace(found, incidents=found.incidents * your_cluster.MOST_ROWS)
    rows = [label.get_text() for label in your_cluster.plot_cluster(many).axes[0].get_yticklabels()]
    kinds = {each.what.replace("_", " ") for each in found.incidents}
    assert len(rows) == len(set(rows)) and kinds < set(rows)
    says = max(found.incidents, key=lambda each: each.under_replicated_ms).says.rstrip(".")
    assert your_cluster.finding(many).count(says) == 1
    assert f"{says} (" in your_cluster.finding(many)


def test_a_broker_is_away_only_as_long_as_it_was(found) -> None:
    killed = next(f for f in FAULTS if f.signal == "SIGKILL")
    start_s = found.record.start_ms / 1000
    away = [s for s in your_cluster._presence(found, 3) if s.state == "away"]
    assert max(s.end_s for s in away) < killed.end_ms / 1000 - start_s + 10
    awake = your_cluster._presence(found, 1)[-1]
    assert awake.state == "broker 1"
    assert awake.end_s == pytest.approx(found.record.end_ms / 1000 - start_s)


def test_a_control_keeps_the_window(found) -> None:
    late = look(FOLDER, min_isr=2, window=window("2026-11-20T10:39:00", None, "", None))
    assert 0 < len(late.incidents) < len(found.incidents)
    draw = your_cluster.cluster_player(late).draw_of
    assert text_of(draw(None, None)).startswith(f"{len(late.incidents)} incidents")
    assert text_of(draw("nowhere", 1)).endswith("had no broker 1 in the ISR")
    only = your_cluster.cluster_player(found).draw_of("payments", 3)
    assert text_of(only).startswith("2 incidents, all over; at worst 3 of 3 partitions had no br")


def test_a_replica_that_was_moved_away_has_its_row() -> None:
    moved = look(FOLDER.parent / "moved-392")
    key = next(key for key in moved.partitions if key.partition == 0)
    labels = your_cluster.plot_partition(moved, key).get_yticklabels()
    assert [each.get_text() for each in labels] == [f"broker {n}" for n in (1, 2, 3, 4)]


def test_a_broker_without_a_log_is_hatched() -> None:
    lonely = look(FOLDER / "broker-1")
    spans = your_cluster._presence(lonely, 2)
    assert {span.state for span in spans} <= {"not known", "away"}
    assert lonely.status != CALM


@pytest.mark.parametrize(("size", "full", "state"), [
    (3, 3, "full ISR"), (2, 3, "one missing"), (1, 3, "one copy left"), (1, 2, "one copy left"),
    (1, 1, "full ISR"), (2, 4, "more missing"), (0, 3, "one copy left"),
])  # fmt: skip
def test_what_is_left_of_an_isr_has_a_name(size, full, state) -> None:
    assert bands.size_state(size, full) == state


def test_a_broker_that_did_nothing_is_not_blamed(found) -> None:
    """Each new controller logs earlier fencings again, and is not to blame for them."""
    assert {broker for each in found.incidents for broker in each.blamed} == {1, 3}
    assert [each.what for each in found.incidents if 3 in each.blamed] == ["died_and_back"]


def test_the_finding_says_how_it_stands_and_who_it_was(found) -> None:
    text = your_cluster.finding(found)
    assert text.startswith("Calm. All 9 partitions have every replica in sync when the logs end")
    worst = max(found.incidents, key=lambda each: each.under_replicated_ms)
    assert worst.says.rstrip(".") in text


def test_names_out_of_logs_are_escaped(tmp_path) -> None:
    shrink = "[2024-07-01 08:00:0%d,000] INFO [Partition %s-0 broker=1] Shrinking ISR from 1,2 to 1"
    shrink += ". Leader: (highWatermark: 1, endOffset: 2). Out of sync replicas: (brokerId: 2, "
    shrink += "endOffset: 1). (kafka.cluster.Partition)\n"
    stored = (
        "[2024-07-01 08:00:0%d,100] INFO [Partition %s-0 broker=1] ISR updated to 1 and version "
    )
    stored += "updated to 2 (kafka.cluster.Partition)\n"
    text = shrink % (1, HOSTILE) + stored % (1, HOSTILE)
    (tmp_path / "server.log").write_text(text)
    found = look(tmp_path)
    pages = [your_cluster.incidents_table(found), your_cluster.changes_table(found)]
    assert not any("<script>" in page.data for page in pages)
    for key in found.partitions:
        pictured(your_cluster.plot_partition(found, key))
    pictured(your_cluster.plot_cluster(found))


def test_a_folder_without_events_can_be_drawn(tmp_path) -> None:
    (tmp_path / "server.log").write_text("nothing\n")
    empty = look(tmp_path)
    assert "0 incidents" in text_of(your_cluster.plot_cluster(empty))
    assert "None" in your_cluster.incidents_table(empty).data
    assert not your_cluster.finding(empty).startswith("Calm")
    assert your_cluster.partition_player(empty).children


def test_a_window_is_named_by_its_times() -> None:
    assert window("1970-01-01 00:00:02", "", "t*", 3) == (2_000, None, "t*", 3)
    assert window("1970-01-01T01:00:02+01:00", None, "", None) == (2_000, None, None, None)
    with pytest.raises(ValueError, match="'yesterday' is not a time; write 20"):
        window("yesterday", None, None, None)


def test_a_line_that_cannot_be_is_named(found, tmp_path) -> None:
    clean = your_cluster.verdict_table(found, None, 5.0).data
    assert ": 0 lines that Kafka" in clean
    name = "server.log.2026-11-20-10.gz"
    text = gzip.decompress((FOLDER / "broker-3" / name).read_bytes()).decode()
    line = next(x for x in text.splitlines() if "Shrinking ISR from 3,1,2 to 3,2" in x)
    wrong = text.replace(line, line.replace("to 3,2.", "to 3,1."))  # 1 is named as out of sync
    (tmp_path / "server.log").write_text(wrong)
    page = your_cluster.verdict_table(look(tmp_path), None, None).data
    assert ": 0 lines" not in page and "<td>named</td>" in page


def test_two_sets_of_logs_stand_side_by_side(found) -> None:
    same = compare.compared(found, found)
    assert {row["shows"] for row in same} == {"no difference seen", ""}
    calm = look(FOLDER.parent / "incidents" / "k-412-quiet-control" / "logs")
    rows = {row[""]: row for row in compare.compared(calm, found)}
    assert rows["evictions by leaders"]["was"].startswith("0 in ")
    assert float(rows["longest under-replication of an incident (s)"]["now"]) > 10


# Alerts

STORY = [  # seconds, partition, ISR: an alert sees only the states at its evaluations
    (0, 0, [1, 2, 3]), (0, 1, [1, 2, 3]),
    (20, 0, [1, 2]), (50, 0, [1, 2, 3]),  # under-replicated for 30 s: two evaluations
    (61, 1, [1, 2]), (62, 1, [1]), (63, 1, [1, 2, 3]),  # between two evaluations
    (100, 1, [1, 2]), (110, 1, [1]), (200, 1, [1, 2, 3]),
]  # fmt: skip


@pytest.fixture
def held():
    rows = [
        {"run": "r", "ts_ms": 1_000 * at, "kind": "isr_commit", "broker": 1, "topic": "t",
         "partition": partition, "isr": isr, "partition_epoch": number,
         "detail": [("said_by", "controller")]}
        for number, (at, partition, isr) in enumerate(STORY)
    ]  # fmt: skip
    record = Record(pa.Table.from_pylist(rows, schema=SCHEMA), 240_000)
    return alerts.conditions(record, 2)


def test_conditions_of_alerts_are_those_of_the_gauges(held) -> None:
    short = [(20_000, 50_000), (61_000, 63_000), (100_000, 200_000)]
    assert held[alerts.UNDER_REPLICATED] == short
    assert held[alerts.AT_MIN_ISR] == [(20_000, 50_000), (61_000, 62_000), (100_000, 110_000)]
    assert held[alerts.UNDER_MIN_ISR] == [(62_000, 63_000), (110_000, 200_000)]
    assert held[alerts.SHRINKS] == [], "no leader asked for any of them"


def test_an_alert_fires_after_its_condition_held_at_every_evaluation() -> None:
    assert alerts.firings([(20_000, 50_000)], 0, 15_000) == [(30_000, 60_000)]
    assert alerts.firings([(20_000, 50_000)], 15_000, 15_000) == [(45_000, 60_000)]
    assert alerts.firings([(20_000, 50_000)], 30_000, 15_000) == []
    assert alerts.firings([(20_000, 35_000), (44_000, 46_000)], 1, 15_000) == [(45_000, 60_000)]
    assert alerts.firings([(61_000, 63_000)], 0, 15_000) == [], "between two evaluations"


def test_alerts_are_held_against_the_troubles(held) -> None:
    times = [(10_000, 30_000), (90_000, 120_000)]
    troubles = alerts.lasting(times, held)
    assert troubles == [(10_000, 50_000), (90_000, 200_000)]
    expected = {
        (alerts.UNDER_REPLICATED, 0): (2, 2, 0, 0, 17_500),
        (alerts.UNDER_REPLICATED, 60_000): (1, 1, 0, 1, 75_000),
        (alerts.UNDER_MIN_ISR, 0): (1, 1, 0, 1, 30_000),
    }
    for (alert, for_ms), did in expected.items():
        assert alerts.judged(held[alert], troubles, for_ms, 15_000) == did


def test_the_table_of_alerts_has_a_row_for_each(found) -> None:
    page = your_cluster.alerts_table(found, FAULTS, 2, [0, 60], 15).data
    assert page.count("<tr>") == 1 + 8
    assert "<td>never fires</td>" in page
    assert all(start < end for start, end in alerts.incident_spans(found.incidents, found.record))


def test_a_count_of_two_and_three_shows_no_difference():
    """Two incidents in 2.6 minutes against three in 3.6."""
    rows = compare.compared(look(recordings.folder("4.1")), look(recordings.folder("3.9")))
    assert [row["shows"] for row in rows[:3]] == ["no difference seen"] * 3
    assert rows[0]["was"].startswith("2 in 2 min 3")
    exact = {0: (0, 3.689), 2: (0.2422, 7.225), 10: (4.795, 18.39)}  # Garwood's, from tables
    for count, bounds in exact.items():
        assert compare.interval(count) == pytest.approx(bounds, abs=0.04)


def test_the_player_shows_only_the_absences_of_the_chosen_broker(found):
    draw = your_cluster.cluster_player(found).draw_of
    blocks = {}
    for broker in (None, 3):
        panel = draw(topic="payments", broker=broker).axes[1]
        counts = panel.lines[0].get_ydata()
        blocks[broker] = sum(before == 0 < after for before, after in pairwise(counts))
    assert panel.get_ylabel() == "partitions without broker 3"
    away = {out.start_ms for out in found.record.outs if out.replica == 3}
    assert 0 < blocks[3] < blocks[None] and blocks[3] <= len(away)
