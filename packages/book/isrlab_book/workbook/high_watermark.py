"""Notebook 01: what a leader does with each fetch, step by step and in numbers."""

from itertools import pairwise

from isrlab.engine import messages as m
from isrlab.engine.model import Broker, Leader
from isrlab.engine.reading import answer
from isrlab.events.wording import counted
from isrlab.world import words
from isrlab.world.cluster import START_MS
from isrlab.world.script import Run


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
            reply = answer(old, fetch)
            text = f"{counted(len(reply.records), 'record')}, HW {reply.high_watermark}"
            row = {
                "ms": after.now_ms - START_MS,
                "fetch of offset": fetch.offset,
                "1 reads": text if reply.records else f"{text}: is parked",
            }
            rows.append(row | _state(new.role, fetch.replica) | _moved(old, new))
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
