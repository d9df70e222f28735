"""Notebook 03: at which fetch a replica joins the ISR, and how long producers wait until then."""

from itertools import pairwise

from isrlab.engine import messages as m
from isrlab.engine.model import Leader
from isrlab.events import exact
from isrlab.show.style import duration
from isrlab.world.script import Run
from isrlab.world.words import START_MS


def fetches(run: Run, replica: int = 2) -> str:
    """The fetches of a replica outside the ISR, a line each, and whether the leader let it join."""
    lines = []
    for before, after in pairwise(run.frames):
        leader, fetch = before.brokers.get(after.target), after.message
        if not isinstance(fetch, m.Fetch) or fetch.replica != replica or leader is None:
            continue
        now = after.brokers[after.target].role
        if isinstance(leader.role, Leader) and replica not in leader.role.maximal_isr:
            assert isinstance(now, Leader)
            log, start = leader.log, leader.role.leader_epoch_start_offset
            lines.append(
                f"fetch at {fetch.offset}   high watermark {log.high_watermark}   "
                f"log end {log.log_end_offset}   epoch start {start}   "
                f"{'joins' if replica in now.maximal_isr else 'stays out'}"
            )
    return "\n".join(lines)


def waits(run: Run, replica: int = 2) -> str:
    """The longest wait of an acknowledged produce before the replica joined, and after."""
    moves = exact.moves(run.events())
    joined = [move.ts_ms for move in moves if move.joined and move.replica == replica]
    longest, refused = [0, 0], 0
    for event in run.cluster.events:
        if event.kind == "produce_ack":
            is_late = not joined or event.ts_ms > joined[0]
            longest[is_late] = max(longest[is_late], int(event.detail["latency_ms"]))
        refused += event.kind == "produce_error"
    at_s = f"{(joined[0] - START_MS) / 1000:g} s" if joined else "never"
    before, after = map(duration, longest)
    return (
        f"joins: {at_s}; acks=all waits at most {before} before, {after} after; {refused} refused"
    )
