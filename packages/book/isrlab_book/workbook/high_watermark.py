"""Notebook 01: what a leader does with each fetch, step by step and in numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from isrlab.engine import messages as m
from isrlab.engine.model import Broker, Leader
from isrlab.engine.reading import answer
from isrlab.events.wording import counted
from isrlab.world import scenario, words
from isrlab.world.cluster import START_MS
from isrlab.world.script import Run

ALONE = "partition replicas=1,2\npause 2 fetcher\nproduce 1 m1 acks=1\nadvance 60s"


def fetch_steps(run: Run) -> list[dict[str, object]]:
    """A row for each fetch of a follower that its leader handled; times are ms since the start.

    The columns follow the leader's steps: what it read, the follower's state after
    updateFetchState, the ISR, the high watermark, and which waiting requests were answered.
    """
    rows = list[dict[str, object]]()
    for before, after in pairwise(run.frames):
        fetch, number = after.message, after.target
        if not isinstance(fetch, m.Fetch) or number not in before.brokers:
            continue
        old, new = before.brokers[number], after.brokers[number]
        if isinstance(old.role, Leader) and isinstance(new.role, Leader):
            row = {"ms": after.now_ms - START_MS, "fetch of offset": fetch.offset}
            reply = answer(old, fetch)
            text = f"{counted(len(reply.records), 'record')}, HW {reply.high_watermark}"
            read: dict[str, object] = {"1 reads": text + ": is parked" * (not reply.records)}
            rows.append(row | read | _state(new.role, fetch.replica) | _moved(old, new))
    return rows


def _state(role: Leader, replica: int) -> dict[str, object]:
    known = role.remote(replica)
    assert known is not None
    return {
        "2 remote LEO": known.log_end_offset,
        "lastFetchLeaderLogEndOffset": known.last_fetch_leader_end_offset,
        "lastFetchTimeMs": known.last_fetch_time_ms - START_MS,
        "lastCaughtUpTimeMs": known.last_caught_up_time_ms - START_MS,
    }


def _moved(old: Broker, new: Broker) -> dict[str, object]:
    assert isinstance(old.role, Leader)
    assert isinstance(new.role, Leader)
    isrs = [words.ids(role.maximal_isr) for role in (old.role, new.role)]
    ends = [str(broker.log.high_watermark) for broker in (old, new)]
    done = [d for d in old.role.delayed if d not in new.role.delayed]
    records = [words.names(new.log.read(d.base_offset, d.required_offset)) for d in done]
    return {
        "3 ISR": " → ".join(dict.fromkeys(isrs)),
        "4 HW": " → ".join(dict.fromkeys(ends)),
        "5 answers": f"produce of {', '.join(records)}" if records else "no request",
    }


def against_engine(rule: Callable[[dict[int, int], tuple[int, ...], int], int]) -> str:
    """A reader's rule for a leader's high watermark beside the engine's, after every message.

    `rule` takes the log end offsets that the leader knows, by broker (with its own), the maximal
    ISR, and the high watermark before. The answer names the first difference.
    """
    names = "sync_cycle", "sync_cycle_busy", "three_replicas", "one_records_life"
    count = 0
    scripts = {name.replace("_", " "): scenario.read(name) for name in names} | {"alone": ALONE}
    for name, run in ((name, scenario.play(script)) for name, script in scripts.items()):
        for before, after in pairwise(run.frames[run.first_frame :]):
            leader = after.controller.leader
            old, new = before.brokers.get(leader), after.brokers.get(leader)
            if not (old and isinstance(old.role, Leader) and new and isinstance(new.role, Leader)):
                continue
            ends = {leader: new.log.log_end_offset}
            ends |= {remote.id: remote.log_end_offset for remote in new.role.remotes}
            given = ends, new.role.maximal_isr, old.log.high_watermark
            yours, engine = rule(*given), new.log.high_watermark
            if yours != engine:
                shown = f"{name}, {after.now_ms - START_MS} ms"
                asked = f"LEOs {ends}, ISR {words.ids(given[1])}, high watermark before {given[2]}"
                return f"✗ {shown}: {asked}: yours is {yours}, the engine's {engine}"
            count += 1
    return f"✓ the same as the engine's after each of {count} messages: solved"
