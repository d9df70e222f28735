"""Fleets' notebooks: experiments, tables and pictures of their workbook files, on small fleets."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from isrlab import fleet
from isrlab.events import exact
from isrlab.fleet import load, recovery
from isrlab.fleet.kernel.rows import bucket_starts
from isrlab.fleet.layout import assignment, fetcher_id
from isrlab_book.workbook import choosing_the_lag_limit as lag_limit
from isrlab_book.workbook import rolling_restart as rolling
from isrlab_book.workbook import what_acks_all_costs as acks
from isrlab_book.workbook.whose_fault_is_it import neighbours as fetchers
from isrlab_book.workbook.whose_fault_is_it import stalls as trouble
from isrlab_ops.logs.history.record import Record
from isrlab_ops.logs.incidents.find import find

BASE = rolling.SMALL.with_(restart_s=60.0)
REJOINS = "run broker down_ms up_ms partitions still_out first_ms median_ms last_ms"


def title_of(ax):
    return " ".join(ax.get_title(loc="left").split())


def table(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


# Shared fetchers


def on_the_hot_thread(config):
    """The partitions that share the thread of partition 0; three brokers lead in turn."""
    led, number = range(3, config.partitions, 3), config.num_replica_fetchers
    return [p for p in led if fetcher_id(p, number) == fetcher_id(0, number)]


def test_a_thread_carries_the_partitions_that_hash_to_it():
    """A number of threads that shares a factor with the number of brokers leaves threads idle."""
    drawn = fetchers.draw_threads(fetchers.HOT).parts  # a leader has 16 partitions, a thread 8
    assert re.findall("thread (.*?)<", drawn)[:2] == ["0, load 1.11", "1, load 0.008"]
    assert fetchers.longest_loop_s(fetchers.HOT) == 200 * fetchers.MB / 10_000_000
    configs = [fetchers.HOT.with_(num_replica_fetchers=n) for n in (1, 2, 3, 6)]
    sharing = [on_the_hot_thread(config) for config in configs]
    assert [len(near) for near in sharing] == [15, 7, 15, 7]
    assert sharing[0] == sharing[2]


@pytest.mark.parametrize(("size_mb", "harmed"), [(1, 0), (200, 7)])
def test_only_large_responses_harm_neighbours_and_only_on_the_same_thread(size_mb, harmed):
    config = fetchers.sized(fetchers.HOT, size_mb)
    title = fetchers.draw_threads(config).alt
    assert title.startswith(f"{harmed} of 15 neighbours are evicted")
    sharing = on_the_hot_thread(config)
    left = {out.key.partition for out in exact.evictions(fleet.simulate_local(config))}
    assert left == {0, *(sharing if harmed else [])}


def test_harm_and_symptoms_count_neighbours_apart():
    runs = [fetchers.HOT.with_(name=f"n{n}", num_replica_fetchers=n) for n in (1, 2)]
    left = {"run": ["n1", "n1", "n2"], "partition": [0, 3, 0]}
    knew = {"lag_records": [900, 4, 800], "since_fetch_ms": 21_000, "since_caught_up_ms": 42_000}
    evictions = pd.DataFrame({**left, **knew})
    out = pd.DataFrame({**left, "under_replicated_ms": [120_000, 60_000, 30_000]})
    harm = fetchers.harm(evictions, out, runs)  # of ten minutes, for an hour
    assert harm["neighbour_evictions"].tolist() == [6, 0]
    assert harm["hot_minutes"].tolist() == [12, 3]
    assert title_of(fetchers.plot_harm({"own": harm})) == "1 → 2 threads: own 6 → 0"
    symptoms = fetchers.symptoms(evictions, {"one": runs[0], "two": runs[1]})
    assert symptoms.loc[("one", "other"), "lag_records"] == 4


def test_threads_that_share_a_bandwidth_leave_it_to_those_that_have_work():
    """With a fixed third of the bandwidth per thread, this partition would be hot."""
    mild = fetchers.sized(fetchers.heated(fetchers.HOT, 0.6), 200)
    for number in (1, 2, 3, 4):
        shared = fetchers.sharing(mild.with_(num_replica_fetchers=number))
        assert not exact.evictions(fleet.simulate_local(shared)), number
    two = mild.with_(hot_partitions=4, num_replica_fetchers=2)  # 0 and 3, on two threads
    assert exact.moves(fleet.simulate_local(fetchers.sharing(two)))  # both of 6 MB/s on 10 MB/s


def test_only_topics_that_zookeeper_placed_leave_threads_without_work():
    """Of 48 partitions on 3 brokers, a leader's are equal modulo 3, unless KRaft shuffles them."""
    for number, in_turn in ((3, 2), (6, 4)):
        idle = []
        shuffled = [fetchers.placed(fetchers.HOT.with_(seed=n)) for n in range(30)]
        for config in (fetchers.HOT, *shuffled):
            own = np.flatnonzero(assignment(config)[:, 0] == assignment(config)[0, 0])
            idle.append(number - len({fetcher_id(int(p), number) for p in own}))
        assert idle[0] == in_turn and np.mean(idle[1:]) < 0.5
    assert fetchers.placed(fetchers.HOT.with_(version="2.8")).assigned == ""


# Slow leader or slow follower


@pytest.mark.parametrize(("role", "smallest"), [("leader", 1), ("follower", 2)])
def test_the_small_fleet_has_one_trouble_of_broker_3(role, smallest):
    config = trouble.in_trouble(trouble.SMALL, role, 45, trouble.SMALL.stall_every_s)
    assert [each[:2] for each in trouble.troubles_of(config)] == [(role, 3)]
    events = fleet.simulate_local(config)
    evictions = exact.evictions(events)
    assert {out.leader if role == "leader" else out.replica for out in evictions} == {3}
    assert len(evictions) == 10
    sizes = [len(s.isr) for spans in exact.isr_spans(events).values() for s in spans]
    assert min(sizes) == smallest
    who = "1 leader evicts 5 replicas" if role == "leader" else "5 leaders evict 1 replica"
    assert trouble.draw_pairs(config).alt == f"{who}, 10 times in all"


def test_nobody_is_evicted_in_a_calm_fleet_and_there_are_two_troubles():
    calm = trouble.SMALL.with_(seed=1, minutes=1, stall_every_s=80_000)
    assert trouble.draw_pairs(calm).alt == "No replica is evicted"
    with pytest.raises(ValueError, match="unknown role 'both'; known: leader, follower"):
        trouble.in_trouble(trouble.SMALL, "both", 1, 60)


def test_costs_are_for_each_trouble():
    config = trouble.in_trouble(trouble.SMALL.with_(minutes=240), "leader", 45, 1_200)
    count = len(trouble.troubles_of(config))
    assert count > 1
    costs = trouble.costs(
        [config],
        table("run error produces", (config.run, "NOT_ENOUGH_REPLICAS", 5 * count),
              (config.run, "REQUEST_TIMED_OUT", 3 * count), ("other", "REQUEST_TIMED_OUT", 9)),
        table("run under_min_isr_ms", (config.run, 120_000 * count), ("other", 1)),
    )  # fmt: skip
    assert costs.iloc[0].tolist() == ["slow leader", 30.0, count, 2.0, 5.0, 3.0]


@pytest.mark.parametrize("role", trouble.ROLES)
def test_slow_leaders_and_followers_are_told_apart(role):
    """Every broker leads 20 partitions; sometimes two brokers stall at the same time."""
    config = trouble.SMALL.with_(partitions=60, minutes=60, seed=1)
    config = trouble.in_trouble(config, role, 45, 600)
    events = fleet.simulate_local(config)
    judged = trouble.verdicts(config, events)
    assert len(judged) > 10 and {each.fate for each in judged} == {"right"}
    assert {claimed for each in judged for claimed, _ in each.claims} == {role}
    row = trouble.accuracy(config, judged)
    assert row["right"] == row["incidents"] and row["of these, named"] >= 0.8 * row["faults"]


def cells_of(page):
    return re.findall("<td>(.*?)</td>", page.data)


def test_a_slow_leader_can_hand_over_before_the_shrink_only():
    cells = cells_of(trouble.handed_over("3.7", [0, 5, 35, 44]))
    after, _, sent_again, timed_out, refused, without_s = (cells[place::6] for place in range(6))
    assert after == ["never", "5", "35", "44"] and sent_again[:3] == ["0", "5", "29"]
    assert [number == "0" for number in refused] == [False, True, True, False]
    assert [number == "0" for number in timed_out] == [False, True, False, False]
    assert without_s == ["0", "0", "0", "10"]
    assert cells_of(trouble.handed_over("4.1", [44]))[5] == "0", "with eligible leader replicas"


def test_each_broker_shows_what_it_evicts_as_a_leader():
    config = trouble.in_trouble(trouble.SMALL, "leader", 45, 7_200)
    cells = cells_of(trouble.by_broker([config]))
    assert [cells[place::6][2] for place in range(1, 4)] == ["3", "10", "0"]
    assert cells[3::6] == ["2", "2", "0", "2", "2", "2"]


def test_a_verdict_on_another_role_is_wrong():
    cause = trouble.InjectedStall("leader", 1, 0, 9)
    incident = find(
        Record(fleet.simulate_local(trouble.in_trouble(trouble.SMALL, "follower", 45, 7_200)))
    )[0]
    assert trouble.Judgement(incident, (cause,)).fate == "wrong"
    assert trouble.Judgement(replace(incident, what="link_cut"), (cause,)).fate == "undecided"


def test_the_findings_have_all_three_causes():
    names = "run lag_limit_s troubles evictions under_min_isr_minutes refused timed_out"
    rows = table(names, ("slow leader limit=30s", 30.0, 4, 20.0, 1.5, 66.0, 140.0))
    judged = [SimpleNamespace(fate=fate) for fate in 7 * ["right"] + 2 * ["undecided"] + ["wrong"]]
    names = "run num_replica_fetchers hot_evictions neighbour_evictions"
    harm = table(names, ("a", 1, 12.0, 90.0), ("b", 8, 12.0, 6.0))
    assert trouble.finding({"slow leader": rows}, 30.0, judged) == (
        "Produces that fail in one stall, limit 30 s, slow leader: 66 refused, 140 timed out. "
        "The right broker and role are blamed in 7 of 10 incidents, wrong ones in 1."
    )
    assert fetchers.finding({"large": harm}) == (
        "Evictions per hour, from the fewest to the most threads: large: neighbours 90 → 6, "
        "hot 12 → 12."
    )


# 18: rolling restart


def test_one_restart_has_time_to_come_back_and_a_wait_is_at_least_the_downtime():
    config = rolling.one_restart(BASE, 0.8, 60)
    assert [len(load.restarts(config, broker)[0]) for broker in range(1, 5)] == [1, 0, 0, 0]
    left_s = config.minutes * 60 - config.restart_every_s - 60
    assert left_s > recovery.expected_rejoin_s(config, 1) == pytest.approx(240)
    assert rolling.rolling(BASE, 0.1, 60, 0.25).restart_every_s == 60


@pytest.mark.parametrize(("wait", "is_refused"), [(0.6, True), (1.2, False)])
def test_producers_are_refused_below_the_safe_wait_only(wait, is_refused):
    config = rolling.rolling(BASE, 0.6, 60, wait)
    assert config.restart_every_s == pytest.approx(wait * 150)
    rows = fleet.simulate_local(config).select(["kind", "detail"]).to_pylist()
    errors = [dict(row["detail"])["error"] for row in rows if row["kind"] == "produce_error"]
    assert (errors.count("NOT_ENOUGH_REPLICAS") > 100) is is_refused
    assert bool(errors.count("NOT_ENOUGH_REPLICAS")) is is_refused
    late = title_of(rolling.plot_restart(config).axes[1])
    assert (late == "0 replicas return after the next restart") is not is_refused


def test_a_broker_leads_again_what_it_is_in_sync_for_when_leaders_are_elected():
    config = rolling.one_restart(BASE, 0.5, 60)
    elsewhere = assignment(rolling.led_elsewhere(config))
    assert not (elsewhere[:, 0] == 1).any()
    assert (np.sort(elsewhere) == np.sort(assignment(config))).all()
    back = rolling.leaders_back(config, [-0.1, 0.001, 1, 2])
    led = (assignment(config)[:, 0] == 1).sum()
    while_down, immediately, late, last = back["leads again"]
    assert back["led before"].tolist() == [led] * 4
    assert while_down == immediately == 0 < late <= last == led


@pytest.mark.parametrize("share", [0, 1, 1.5])
def test_a_share_without_spare_is_refused(share):
    with pytest.raises(ValueError, match=f"^share={share} is out of range"):
        rolling.rolling(BASE, share, 60, 1)


def test_rejoins_are_compared_with_the_formula_and_waits_with_the_safe_one():
    config = rolling.one_restart(BASE, 0.5, 60)
    measured = table(REJOINS, (config.run, 1, 0, 60_000, 6, 0, 1_000, 50_000.0, 61_000))
    row = rolling.compared(measured, [config]).iloc[0]
    assert (row["share"], row["down_s"], row["last_s"]) == (pytest.approx(0.5), 60, 61)
    assert row["formula_s"] == pytest.approx(60)
    roll = rolling.rolling(BASE, 0.5, 60, 0.75)
    failed = (roll.run, "NOT_ENOUGH_REPLICAS", 7), (roll.run, "REQUEST_TIMED_OUT", 2)
    under = table("run under_min_isr_ms", (roll.run, 120_000))
    row = rolling.waits([roll], table("run error produces", *failed), under).iloc[0]
    assert row["wait"] == pytest.approx(0.75)
    assert row[["under_min_isr_minutes", "refused", "timed_out"]].tolist() == [2, 7, 2]


@pytest.mark.parametrize(
    ("version", "longest_s", "timed_out"),
    [("0.9.0", (0, 3), 0), ("0.10.2", (0, 3), 0), ("2.8", (0, 3), 0), ("3.3", (20, 30), 1),
     ("3.5", (20, 30), 1), ("3.6", (0, 3), 0)],
)  # fmt: skip
def test_only_from_3_3_to_3_5_produces_wait_for_a_broker_that_has_gone(
    version, longest_s, timed_out
):
    base = fleet.FleetConfig(
        version=version, partitions=24, brokers=4, load="steady", stall_s=0, follower_spread=0,
        batch_every_ms=200, min_insync_replicas=2, seed=1,
    )  # fmt: skip
    events = fleet.simulate_local(rolling.rolling(base, 0.6, 60, 1.3))
    longest = max(wait.latency_ms for wait in exact.waits(events)) / 1000
    assert longest_s[0] <= longest < longest_s[1]
    (row,) = rolling.waits_for_the_gone([version]).itertuples()
    errors = [dict(row["detail"]).get("error") for row in events.to_pylist() if row["detail"]]
    assert bool(errors.count("REQUEST_TIMED_OUT")) == bool(timed_out) == bool(row.timed_out)


def test_headroom_is_what_is_left_of_the_replicas_while_a_broker_is_down():
    designs = [(3, 2), (3, 1), (4, 2)]
    table = rolling.headroom(rolling.SMALL, 0.6, 60, designs).set_index(
        ["replicas", "min.insync.replicas"]
    )
    assert table["headroom"].tolist() == [0, 1, 1]
    assert (table["refused"] == 0).all(), "on min ISR nobody is refused"
    assert (table["two: refused"] > 0).tolist() == [True, False, False]
    assert (table["two: single copy"] > 0).tolist() == [True, True, False]
    tight = table.loc[(3, 2)]
    assert tight["one missing"] == pytest.approx(tight["formula"], rel=0.02)
    assert tight["formula"] == pytest.approx(12 * 2 * 150 / 60)
    assert tight["two: under min ISR"] == tight["two: single copy"]


def test_one_restart_is_loaded_as_asked():
    singles = [rolling.one_restart(BASE, share, 60) for share in (0.3, 0.8)]
    assert [recovery.load_share(config, 1) for config in singles] == pytest.approx([0.3, 0.8])


# What acks=all costs


@pytest.fixture(scope="module")
def seen():
    return fleet.trace(acks.PAIR, 0, sample_ms=1)


def test_waits_of_a_trace_are_those_that_the_fleet_counts(seen):
    each = acks.waits(seen)["wait_ms"]
    counted = acks.histogram(fleet.simulate_local(acks.PAIR)).groupby("latency_ms").sum()
    classes = bucket_starts()[np.searchsorted(bucket_starts(), each, side="right") - 1]
    by_class = pd.Series(classes).value_counts().to_dict()
    assert by_class == counted["count"].to_dict()
    delay = acks.PAIR.fetch_latency_ms
    assert 2 * delay < each.min() < 2 * delay + 5, "a parked fetch: there, written, and back"
    assert 4 * delay < each.max() < 4 * delay + 10, "just missed: one round more"


def test_a_produce_is_drawn_with_the_messages_it_waits_for(seen):
    short, long = acks.plot_produce(seen, 0), acks.plot_produce(seen, 1)
    once = "A fetch was parked: the record waits 21 ms, 2.1 times the one-way delay of 10 ms"
    assert title_of(short) == once
    assert "just been answered: the record waits 44 ms" in title_of(long)
    assert len(long.texts) > len(short.texts), "one round more"


def test_lag_is_rate_times_wait():
    config = acks.PAIR.with_(brokers=3, replication_factor=3, minutes=0.2, batch_every_ms=10)
    rows = acks.lag_rows([config.with_(fetch_latency_ms=ms) for ms in (2, 50)])
    assert rows["lag_records"].tolist() == pytest.approx(rows["rate_x_wait"].tolist(), rel=0.03)
    assert rows["lag_records"][1] > 10 * rows["lag_records"][0]


def test_tails_and_networks_name_their_numbers():
    names = "latency_ms count"
    waited = {"limit 10 s": table(names, (4, 99), (9_000, 1)), "limit 5 s": table(names, (6, 5))}
    ax = acks.plot_tails(waited)
    assert title_of(ax).endswith("waits at least 9 s (limit 10 s), 6 ms (limit 5 s)")
    by_network = table("fetch_latency_ms p50_ms p99_ms", (1, 3, 5), (10, 21, 40))
    expected = "Half of the produces wait 2.1 to 3.0 times the one-way delay or less"
    assert title_of(acks.plot_by_network(by_network)) == expected


def test_the_summary_says_what_each_promise_costs():
    often = acks.SMALL.with_(stall_s=20, minutes=30)
    configs = [often.with_(acks_all_share=0.0)]
    configs += [often.with_(min_insync_replicas=n) for n in (1, 2, 3)]
    summary = acks.summary(configs)
    loose, safe, strict = summary["refused/h"].tolist()[1:]
    assert 0 == loose < safe < strict
    alone = summary["one copy accepts (min/h)"].tolist()
    assert alone[0] == alone[1] > 0 == alone[2] == alone[3]
    assert summary["99.9 % (ms)"].tolist()[0] == 0 < summary["99.9 % (ms)"].tolist()[1]
    twice = summary.assign(**{"refused/h": 2 * summary["refused/h"]})
    finding = acks.finding([summary, twice], 0.1)
    assert f"With min ISR 1 the leader alone acknowledges for {alone[1]:.1f} part" in finding
    assert finding.startswith("Where each broker's fetchers are stalled for 10% of the time, ")
    assert finding.endswith(
        f"with 2 it refuses {safe:,.0f} to {2 * safe:,.0f} attempts instead, "
        f"with 3 {strict:,.0f} to {2 * strict:,.0f}."
    )


def test_produces_that_timed_out_count_as_waits_of_at_least_the_timeout():
    config = fleet.FleetConfig(version="4.1", replica_lag_time_max_ms=30_000)
    rows = table("run latency_ms count", (config.run, 5, 997))
    late = table("run error produces", (config.run, "REQUEST_TIMED_OUT", 3))
    ax = acks.plot_limits(rows, late, [config])
    assert title_of(ax) == "1 in 1,000 produces waits at least 30 s (limit 30 s)"
    assert ax.get_lines()[0].get_ydata().tolist() == pytest.approx([100, 0.3])
    none = late.assign(error="NOT_ENOUGH_REPLICAS")
    assert title_of(acks.plot_limits(rows, none, [config])).endswith("5 ms (limit 30 s)")


def test_settings_are_put_before_a_table_in_the_order_of_the_fleets():
    configs = fleet.sweep(fleet.FleetConfig(version="4.1"), "fetch_latency_ms", [9, 1])
    by_run = table("run p50_ms", (configs[1].run, 3), (configs[0].run, 20))
    settings = acks.with_settings(by_run, configs, "fetch_latency_ms")
    assert settings.values.tolist() == [[9, 20], [1, 3]]


@pytest.mark.parametrize("version", ["2.4", "3.7", "4.1"])
def test_a_longer_limit_lets_a_stalled_follower_lead(version):
    fates = [row["m3 (acks=1)"] for row in lag_limit.successors(version, [10, 30, 60])]
    assert fates == ["kept", "kept", "lost"]
