"""The measures: a function for each row's `measure`, of a generation and the row's values.

Results are JSON values. The engine is deterministic; a fleet gets its seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

from hold.claims import Cell, Claim, cells
from hold.results import holds
from isrlab import fleet
from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.versions import KafkaVersion
from isrlab.events import exact
from isrlab.events.measures import measures
from isrlab.fleet import evictions, load, recovery
from isrlab.fleet.config import FleetConfig
from isrlab.installed import DATA
from isrlab.show import membership
from isrlab.show.messages import high_watermark_delays
from isrlab.world import scenario
from isrlab.world.words import START_MS
from isrlab_book.workbook import (
    all_losses,
    data_loss,
    data_loss_today,
    isr_churn,
    joining_the_isr,
    last_replica_standing,
    leaving_the_isr,
    parked_fetches,
    reading_a_log,
    rolling_restart,
    telling_the_cluster,
    what_if,
)
from isrlab_book.workbook.whose_fault_is_it import neighbours, stalls
from isrlab_book.workbook.your_cluster import rules

MEASURES: dict[str, Callable[..., Any]] = {}


def measured(function: Callable[..., Any]) -> Callable[..., Any]:
    MEASURES[function.__name__] = function
    return function


def measure(name: str, cell: Cell) -> Any:
    """The result of a measure in a cell. Raises KeyError for an unknown measure."""
    named = {"version": cell.version} if cell.version else {}
    seeds = {"seed": cell.seed} if cell.seed else {}
    return MEASURES[name](**named, **cell.values, **seeds)


def sample(claims: Iterable[Claim], most_cells: int = 12) -> Iterator[tuple[Claim, Cell, bool]]:
    """For each quick claim one setting, always the same, and whether the claim holds there."""
    for claim in claims:
        every = [*cells(claim)]
        chosen = every[crc32(claim.name.encode()) % len(every)]
        if claim.seeds > most_cells or claim.slow:
            continue
        same = [cell for cell in every if cell[:2] == chosen[:2]]
        try:
            results = [measure(claim.measure, cell) for cell in same]
        except Exception as error:
            error.add_note(f"in the sample, {claim.name}: {chosen}")
            raise
        yield claim, chosen, holds(claim, chosen, results)


# 01 to 03: the high watermark, leaving, joining


@measured
def follower_knows_ms(version: str, wait_ms: int, latency_ms: int) -> int:
    """How long after its leader a follower knows a high watermark, with an idle producer."""
    head = f"partition replicas=1,2 replica.fetch.wait.max.ms={wait_ms} latency={latency_ms}"
    text = f"{head}\nadvance 1s\nproduce 1 m1\nadvance {3 * wait_ms + 1_000}ms"
    run = scenario.play(text, version=version)
    return high_watermark_delays(run.frames[run.first_frame :])[-1]


@measured
def behind_while_busy(version: str) -> list[int]:
    """How many records a follower's high watermark is behind, at the end of each round."""
    busy = scenario.play(scenario.read("sync_cycle_busy"), version=version)
    disks = [busy.at(f"Round {number}").disks for number in (1, 2, 3)]
    return [each[1].high_watermark - each[2].high_watermark for each in disks]


@measured
def stopped_follower(version: str) -> dict[str, bool]:
    """Whether m8 is refused before the stopped follower leaves the ISR, or acknowledged."""
    printed = scenario.play(scenario.read("three_replicas"), version=version).blocks[-1].printed
    refused, out = (printed.find(text) for text in ("m8 refused", "asks for isr"))
    return {"refused_first": 0 <= refused < out, "acknowledged": "m8 acknowledged" in printed}


@measured
def evicted_after(version: str, lag_s: float, samples: int) -> dict[str, float]:
    """The shortest and longest time from a stall to the smaller ISR, in lag limits, for stalls that
    begin at phases spread over the check."""
    lag_ms = round(lag_s * 1000)
    times = [ms / lag_ms for ms in leaving_the_isr.eviction_times(version, samples, lag_ms)]
    return {"least": round(min(times), 3), "most": round(max(times), 3)}


@measured
def hidden_until_election_s(version: str) -> float:
    """Seconds from an election to the eviction of a follower that hung before it; -1: before it."""
    run = scenario.play(scenario.read("hidden_follower"), version=version)
    return max(-1, membership.spans(run)[1].start_s - 601)


@measured
def joins_at(version: str) -> dict[str, int]:
    """The offset of the fetch with which a replica comes back, and the leader's numbers then."""
    run = scenario.play(scenario.read("join_at_high_watermark"), version=version)
    text = joining_the_isr.fetches(run).splitlines()[-1].split()
    return {"offset": int(text[2]), "high_watermark": int(text[5]), "log_end": int(text[8])}


@measured
def copying(version: str, rate: int, fetch_bytes: int) -> dict[str, float]:
    """The longest wait (ms) with acks=all while a new replica copies, and whether it joins."""
    given = {"fetch.max.bytes=10240": f"fetch.max.bytes={fetch_bytes}",
             "count=10 acks=all": f"count={rate} acks=all"}  # fmt: skip
    run = scenario.play(_with("new_replica", given), version=version)
    joined = [m.ts_ms for m in exact.moves(run.events()) if m.joined and m.replica == 2]
    waits = [int(e.detail["latency_ms"]) for e in run.cluster.events
             if e.kind == "produce_ack" and (not joined or e.ts_ms < joined[0])]  # fmt: skip
    return {"wait_ms": max(waits, default=0), "joined": bool(joined)}


@measured
def catches_up_under_load(version: str, every_ms: int, waits_for_fresh: bool) -> bool:
    """Whether the replica is back before the producer stops."""
    known = KafkaVersion.of(version)
    if not waits_for_fresh:
        known = known.with_(high_watermark_set=HighWatermarkSet.ISR)
    run = scenario.play(_with("catching_up", {"every=100ms": f"every={every_ms}ms"}), version=known)
    return any(m.joined and m.replica == 2 and m.ts_ms - START_MS < 50_000
               for m in exact.moves(run.events()))  # fmt: skip


@measured
def ends(version: str, schedule: str) -> str:
    """How the schedule ends: diverged, lost, offline or safe."""
    return scenario.play(scenario.read(schedule), version=version).outcome.word


@measured
def flaps(version: str, rate: int, latency_ms: int, lag_s: int, repaired: bool) -> int:
    """How often a slow follower under min ISR changes its membership in a minute."""
    given = {"count=10": f"count={rate}", "1 2 400ms": f"1 2 {latency_ms}ms",
             "max.ms=10000": f"max.ms={lag_s * 1000}"}  # fmt: skip
    known = KafkaVersion.of(version).with_(expand_waits_under_min_isr=repaired)
    return membership.changes(scenario.play(_with("flapping", given), version=known))


def _with(name: str, given: Mapping[str, str]) -> str:
    """A scenario with words replaced. Raises ValueError for words that it does not contain."""
    text = scenario.read(name)
    for old, new in given.items():
        if old not in text:
            raise ValueError(f"{name} has no {old!r}")
        text = text.replace(old, new)
    return text


# 04: telling the cluster


@measured
def heard_after_ms(version: str, load: str) -> dict[str, float]:
    """The shortest and longest time from storing an ISR until every broker knows it."""
    if load.startswith("churn"):
        waits = telling_the_cluster.churn_delays(version, int(load.split()[1]))
    else:
        waits = telling_the_cluster.single_delays(version)[load]
    return {"least": min(waits), "most": min(max(waits), 1e9)}


@measured
def leaders_that_wait(version: str) -> list[str]:
    """The issues in which a leader waits forever: the line that ends its wait is not printed."""
    joined = r"(with isr=1,2$|\d +isr=1,2 is stored)"
    ends = {"shrink_stall": "m1 ack", "error_not_retried": "m2 ack", "change_never_sent": joined}
    printed = {n: scenario.play(scenario.read(n), version=version).printed for n in ends}
    waits = [not re.search(rf"(?m)^ *\d+ms .*{end}", printed[name]) for name, end in ends.items()]
    issues = "KAFKA-13091", "KAFKA-14010", "KAFKA-12686"
    return [issue for issue, is_waiting in zip(issues, waits, strict=True) if is_waiting]


# 06: a log read


@measured
def scanned(version: str, interval: int) -> dict[str, float]:
    """How many batches are read to find an offset, with the index and without."""
    first = reading_a_log.twenty_batches(version, interval).segments[0]
    lengths = reading_a_log.scan_lengths(first)
    return {"index": float(np.mean(lengths)), "linear": sum(range(1, 21)) / 20}


# 07 and 09 to 11: losses


@measured
def broken(version: str) -> dict[str, str]:
    """The outcome of each schedule of notebook 07 that does not end safe."""
    words = {
        label: scenario.play(text, version=version).outcome.word
        for label, text in data_loss.in_every_version().items()
    }
    return {label: word for label, word in words.items() if word != "safe"}


@measured
def lost_by_settings(version: str) -> list[str]:
    """The outcomes of all schedules under all settings of acks and min.insync.replicas."""
    rows = data_loss.by_settings(version).values()
    return sorted({word for row in rows for word in row.values()})


@measured
def failures_that_lose(version: str, acks: str, least: int) -> int:
    """How many of eight failures lose records."""
    words = (last_replica_standing.word(last_replica_standing.trial(version, acks, least, failure))
             for failure in last_replica_standing.FAILURES)  # fmt: skip
    return sum("lost" in word for word in words)


@measured
def outages_without_leader(version: str, session_s: int, lag_s: int) -> int:
    """How many lengths of an outage, of 5 to 70 s, leave no replica that may lead."""
    runs = last_replica_standing.outages(version, session_s, lag_s)
    return sum(run.outcome.word == "offline" for _, run in runs)


def _repaired(version: str, repair: str) -> KafkaVersion:
    return KafkaVersion.of(version).with_(**data_loss_today.REPAIRS[repair] if repair else {})


@measured
def reassigned_losses(version: str, repair: str) -> int:
    """How many of the six schedules of notebook 10 lose acknowledged records."""
    known = _repaired(version, repair)
    return sum(row[""] == "lost" for row in data_loss_today.outcomes({"": known}).values())


@measured
def random_losses(version: str, repair: str, seed: int) -> int:
    """How many of 150 random schedules lose records: seed 1 plays 0 to 149, 2 plays 150 to 299."""
    known, first = _repaired(version, repair), (seed - 1) * 150
    return sum(bool(data_loss_today._losing(known, n)) for n in range(first, first + 150))


@measured
def flaws_that_lose(version: str) -> list[str]:
    """What each known loss or divergence that the release still has needs in order to happen."""
    names = [flaw.scenario for flaw in all_losses.FLAWS]
    return [all_losses.needs(name) for name in names
            if all_losses.play(name, version).outcome.word in all_losses.RECORDS]  # fmt: skip


# 18: the same hours again


@cache
def _hours(
    folder: str, limit_ms: int, rate: float, least: int, partitions: int
) -> what_if.LogReplay:
    base = FleetConfig(
        version="2.8", replica_lag_time_max_ms=limit_ms, records_per_s=rate, burst_records=0,
        min_insync_replicas=least, load="steady", partitions=partitions, minutes=20,
    )  # fmt: skip
    return what_if.replay_logs(str(DATA / "recordings" / "incidents" / folder / "logs"), base)


@measured
def longer_limit(
    rate: float, least: int, limit_s: int, partitions: int, seed: int
) -> dict[str, float]:
    """What another limit than 6 s changes in the recorded pause of 15 s, in minutes."""
    real = _hours("e-282-follower-paused", 6_000, rate, least, partitions)
    was, now = (
        what_if.outcomes(real.config.with_(seed=seed, **more), 1)[0].cost
        for more in ({}, {"replica_lag_time_max_ms": limit_s * 1000})
    )
    return {"seen": real.recorded.cost.missing_minutes, "was": was.missing_minutes,
            "now": now.missing_minutes, "waited": was.waiting_minutes,
            "waits": now.waiting_minutes}  # fmt: skip


# 15 to 17: what a limit and a restart cost


@measured
def waits_for_stalled(version: str, lag_s: int, least: int, phases: int) -> dict[str, float]:
    """The least and longest time from a follower's stall to an acks=all answer, in lag limits."""
    head = f"partition replicas=1,2,3 min.insync.replicas={least}"
    waits = []
    for phase in range(phases):
        text = f"{head} replica.lag.time.max.ms={lag_s}s\nproduce 1 m1\nstabilize\n"
        text += f"advance {phase * lag_s * 1000 // phases}ms\npause 2 fetcher\n"
        text += f"produce 1 m2 acks=1\nadvance 1ms\nproduce 1 m3 acks=all\nadvance {3 * lag_s}s"
        events = scenario.play(text, version=version).cluster.events
        begun_ms = [e.ts_ms for e in events if e.kind == "produce_ack"][1]
        ended = [e.ts_ms for e in events if e.kind in ("produce_ack", "produce_error")][2:]
        waits.append(((ended or [events[-1].ts_ms])[0] - begun_ms) / (lag_s * 1000))
    return {"least": round(min(waits), 3), "most": round(max(waits), 3)}


@measured
def acks_one_after(version: str, limit_s: int, stalled_s: int, replicas: str) -> str:
    """Whether a record with acks=1 outlives its leader, `stalled_s` after the next broker in the
    list has stalled; another follower has copied it."""
    text = f"partition replicas={replicas} replica.lag.time.max.ms={limit_s}s\n"
    text += "produce 1 m1 acks=1\nstabilize\npause 2 fetcher\nproduce 1 m2 acks=1\n"
    text += f"advance {stalled_s}s\nproduce 1 m3 acks=1\nadvance 1s\nkill 1\nresume 2\nelect\n"
    run = scenario.play(text + "advance 10s\nstabilize", version=version)
    return "lost" if "m3" in run.outcome.lost_acknowledged else "kept"


@measured
def back_after(
    version: str, share: float, down_s: float, partitions: int, brokers: int, seed: int
) -> float:
    """The time from a broker's start until it is back in its last ISR, divided by the formula's."""
    small = rolling_restart.SMALL.with_(
        version=version, partitions=partitions, brokers=brokers, seed=seed
    )
    config = rolling_restart.one_restart(small, share, down_s)
    up_ms = int(load.restarts(config, 1)[1][0])
    moves = exact.moves(fleet.simulate_local(config))
    back = [m.ts_ms - up_ms for m in moves if m.joined and m.replica == 1 and m.ts_ms > up_ms]
    return round(max(back) / 1000 / recovery.expected_rejoin_s(config, 1), 3)


@measured
def refused_while_rolling(version: str, share: float, brokers: int, seed: int) -> float:
    """Produces refused with half the safe wait between restarts, less those with 1.3 times it."""
    small = rolling_restart.SMALL.with_(version=version, brokers=brokers, seed=seed)
    refused = []
    for wait in (0.5, 1.3):
        config = rolling_restart.rolling(small, share, 60.0, wait)
        numbers = measures(fleet.simulate_local(config), 3, 2, (0, config.duration_ms))
        refused.append(numbers["refused"])
    return refused[0] - refused[1]


# Parked fetches


@measured
def knows_after_ms(version: str, gap_ms: int, latency_ms: int, wait_ms: int) -> int:
    """The longest time until a follower knows a high watermark, with a record every `gap_ms`."""
    head = f"partition replicas=1,2 latency={latency_ms} replica.fetch.wait.max.ms={wait_ms}\n"
    steady = head + f"produce 1 count=1\nadvance {gap_ms}ms\n" * 6
    run = scenario.play(steady, version=version)
    return max(high_watermark_delays(run.frames[run.first_frame :]))


@measured
def touches(digits: int, tick_ms: int, seed: int) -> dict[str, int]:
    """The moves of a task with a random timeout, its first wheel, and how early it runs (ms)."""
    delay_ms = random.Random(seed).randrange(10 ** (digits - 1), 10**digits)
    moves = parked_fetches.moves_of(delay_ms, tick_ms=tick_ms)
    return {"count": len(moves), "wheels": moves[0].target[0] + 1 if moves[0].target else 0,
            "early_ms": delay_ms - moves[-1].at_ms}  # fmt: skip


# A day at scale: bursts, and moves


@measured
def burst_as_told(version: str, seed: int, **values: int) -> dict[str, Any]:
    """What the first screen of ISR churn says of a burst, with numbers drawn, and the evictions."""
    draw = random.Random(seed).choice
    burst = isr_churn.TYPICAL._replace(
        **values, version=version, length_s=draw([2, 5, 15, 30, 60, 120]),
        steady_mb_per_s=draw([1, 5, 20, 60]), share=draw([0.1, 0.25, 0.5, 1]),
        threads=draw([1, 2, 3, 4]), fetch_mib=draw([0.25, 1, 10]),
        response_mib=draw([2, 10, 50]), latency_ms=draw([2, 25, 100]),
    )  # fmt: skip
    config, limits = isr_churn.fleet_of(burst), isr_churn.waits_s(burst) / burst.limit_s
    (hit,) = isr_churn.bursts(config).values()
    out = evictions.judged(config, fleet.simulate_local(config))["partition"].isin(hit).sum()
    told = (limits >= 1) + (limits > 1.5)
    return {"told": ["stays", "either", "evicted"][told], "evicted": int(out)}


@measured
def evicted_beside_a_hot_partition(
    version: str, threads: int, times: int, response_mib: int, seed: int
) -> dict[str, int]:
    """Evictions from the hot partition, and from all others; fetch sizes are Kafka's defaults,
    but for the limit of a whole response."""
    config = neighbours.placed(
        neighbours.HOT.with_(
            version=version, num_replica_fetchers=threads, hot_times=times, seed=seed,
            replica_fetch_max_bytes=2**20, replica_fetch_response_max_bytes=response_mib * 2**20,
        )
    )  # fmt: skip
    out = [e.key.partition for e in exact.evictions(fleet.simulate_local(config))]
    hot = sum(partition < config.hot_partitions for partition in out)
    return {"hot": hot, "others": len(out) - hot}


@measured
def evicted_in_trouble(
    version: str, role: str, stall_s: float, brokers: int, seed: int
) -> dict[str, int]:
    """Evictions by (or of) the broker that was stalled at the time, and all others."""
    small = stalls.SMALL.with_(version=version, brokers=brokers, minutes=20, seed=seed)
    config = stalls.in_trouble(small, role, stall_s, 600)
    times = {(t.broker, t.from_ms, t.to_ms + config.lag_time_ms)
             for t in stalls.troubles_of(config) if t.role == role}  # fmt: skip
    out = [(e.leader if role == "leader" else e.replica, e.start_ms)
           for e in exact.evictions(fleet.simulate_local(config))]  # fmt: skip
    true = sum(any(b == broker and a <= ms <= z for b, a, z in times) for broker, ms in out)
    return {"true": true, "others": len(out) - true}


@measured
def failed_while_stopped(version: str, share: float, brokers: int, seed: int) -> list[int]:
    """Produces refused or timed out while no broker, one, or two are shut down. Every leader sends
    its followers this share of what it can when no broker is down."""
    small = stalls.SMALL.with_(
        version=version, brokers=brokers, partitions=5 * brokers, seed=seed,
        records_per_s=200, follower_bytes_per_s=50_000_000,
    )  # fmt: skip
    sent = 2 * 5 * small.records_per_s * small.record_bytes
    failed = []
    for downs in ("", "down 3 60-180", "down 3 60-180, down 4 90-180"):
        config = small.with_(leader_bytes_per_s=round(sent / share), pauses=downs)
        numbers = measures(fleet.simulate_local(config), 3, 2, (0, config.duration_ms))
        failed.append(int(numbers["refused"] + numbers["timed_out"]))
    return failed


# 13, 19 and 20: alerts on recordings, articles, and what another seed changes


@cache
def _recordings() -> list[rules.FaultRecording]:
    return [*rules.recorded(DATA / "recordings")]


@measured
def paged(for_s: float, every_s: float) -> dict[str, int]:
    """Pages for nothing and missed grave faults of all rules that page, over all recordings."""
    row = rules.judged(_recordings(), for_s, every_s).iloc[-1]
    missed = next(value for name, value in row.items() if str(name).startswith("grave"))
    return {"for_nothing": int(row["pages for nothing"]), "grave_missed": int(missed)}


@measured
def always_one_fetch_behind(version: str, latency_ms: int, share: float, lag_s: float) -> bool:
    """Whether a lagging follower is evicted, with a record every `share` of a round trip."""
    text = (
        f"partition replicas=1,2 latency={latency_ms}ms replica.lag.time.max.ms={lag_s}s\n"
        f"produce 1 acks=1 every={2 * share * latency_ms:.0f}ms for={4 * lag_s:g}s"
    )
    return any(e.kind == "isr_shrink" for e in scenario.play(text, version=version).cluster.events)


def finer(config: FleetConfig) -> FleetConfig:
    """The fleet with a tenth of the time step: all its times longer, all rates lower."""
    values = {name: value for name, value in asdict(config).items() if value}
    longer = {n: v * 10 for n, v in values.items() if n.endswith(("_ms", "_s", "minutes"))}
    lower = {n: type(v)(v / 10) for n, v in values.items() if n.endswith("per_s")}
    return config.with_(**(longer | lower))


@measured
def shrinks_changed(version: str, check: str, partitions: int, limit_s: int, seed: int) -> float:
    """Three times the effect of a check of notebook 20 on the number of evictions, minus the
    effect of the next seed; both without sign, in percent of this seed's evictions."""
    base = FleetConfig(
        version=version, partitions=partitions, minutes=60, seed=seed, burst_every_s=600,
        stall_every_s=600, replica_lag_time_max_ms=limit_s * 1000,
    )  # fmt: skip
    small = base.with_(record_bytes=50, records_per_s=50, burst_records=300_000)
    forms = {"t": finer(base), "r": small, "b": base.with_(burst_s=0)}
    runs = base, forms[check[0]], base.with_(seed=seed + 1)
    usual, changed, other = (len(exact.evictions(fleet.simulate_local(each))) for each in runs)
    return round(100 * (3 * abs(changed - usual) - abs(other - usual)) / max(1, usual), 2)
