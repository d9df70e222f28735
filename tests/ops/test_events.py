"""The events table: every producer fills it with keys that the schema lists, and no other."""

from __future__ import annotations

import pytest

from isrlab import fleet
from isrlab.events import exact, table
from isrlab.events.names import _CELLS, DETAIL, KINDS
from isrlab.fleet.config import FleetConfig
from isrlab.world import scenario
from isrlab.world.cluster import START_MS
from isrlab_ops.logs.reader.formats import FORMATS
from isrlab_ops.logs.reader.layout import Layout
from isrlab_ops.logs.reader.lines import LineReader, expanded

ROW = {"run": "r", "ts_ms": 0, "kind": "isr_shrink"}


def test_a_scenario_names_its_run() -> None:
    run = scenario.play("partition replicas=1,2")
    assert set(run.events("mine")["run"].to_pylist()) == {"mine"}


def test_an_eviction_of_a_scenario_says_what_its_leader_knew() -> None:
    text = "advance 1s\npause 2 fetcher\nproduce 1 m1 acks=all\nadvance 20s\nresume 2\nadvance 5s"
    run = scenario.play(f"partition replicas=1,2 replica.lag.time.max.ms=10000\n{text}")
    (eviction,) = exact.evictions(run.events())
    assert (eviction.replica, eviction.leader, eviction.lag_records) == (2, 1, 1)
    assert eviction.start_ms - START_MS == 15_000
    assert eviction.since_caught_up_ms > 10_000
    assert eviction.end_ms is not None
    (wait,) = exact.waits(run.events())
    assert (wait.latency_ms, wait.produces) == (14_000, 1)


def test_keys_of_fleets_are_listed() -> None:
    config = FleetConfig(
        "2.5", partitions=6, brokers=4, minutes=12, stall_s=45, stall_every_s=90,
        restart_s=40, restart_every_s=120, min_insync_replicas=3, delivery_timeout_ms=5_000,
    )  # fmt: skip
    events = fleet.simulate_local(config)
    assert {"isr_shrink", "isr_commit", "notify", "metadata", "produce_error"} <= set(
        events["kind"].to_pylist()
    )
    assert table(events.to_pylist()) == events


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f"{f.kind} {f.since}")
def test_keys_of_log_lines_are_listed(form) -> None:
    line = f"[2024-07-01 10:00:00,000] {form.level} {form.example} ({form.logger})"
    (event,) = LineReader(None, Layout.of([line])).read(line)
    place = {"file": "server.log", "line": "1"}
    table([e | {"run": "r", "detail": e["detail"] | place} for e in expanded(event)])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"kind": "isr_shrunk"}, "'isr_shrunk'; known: isr_shrink"),
        ({"leaders": 1}, "event column 'leaders'; known: run, ts_ms"),
        ({"detail": {"lag": "5"}}, "detail of isr_shrink 'lag'; known: .*lag_records"),
    ],
)
def test_what_is_not_listed_is_refused(row: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        table([ROW | row])


def test_listed_keys_are_of_known_kinds() -> None:
    assert {kind for _, kinds, _ in _CELLS for kind in kinds.split()} <= {*KINDS, "*"}
    assert all(all(meanings.values()) for meanings in DETAIL.values())
