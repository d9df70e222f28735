"""What claims measure in a run: when something happened, what a log held, what became of records.

Each measure is a function of a trial (a script in one release) and of the words and options of the
line that asks. Times are milliseconds since the start of the run; `block` counts a script's blocks
from 1, and without it the end of the run is meant.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from isrlab.engine import messages as m
from isrlab.engine.model import Leader, RemoteReplica
from isrlab.events import COLUMNS, KINDS, exact
from isrlab.workbook.claims.asking import Trial, measure
from isrlab.world.frames import Frame
from isrlab.world.words import START_MS

_CAUSES = {
    "LeaderAndIsr": "its own high watermark",
    "ListOffsetsResponse": "its fetch was out of range",
}


# Events


def events(trial: Trial, kind: str, **columns: object) -> list[dict[str, Any]]:
    """The events of a kind with these values in their columns, in order."""
    for name, known in ((kind, KINDS), *((column, COLUMNS) for column in columns)):
        if name not in known:
            raise ValueError(f"events have no {name!r}; known: {', '.join(known)}")
    rows = trial.run.events().to_pylist()
    return [r for r in rows if r["kind"] == kind and all(r[k] == v for k, v in columns.items())]


@measure
def time(trial: Trial, kind: str, **columns: object) -> int | None:
    """When the first such event happened."""
    return next((row["ts_ms"] - START_MS for row in events(trial, kind, **columns)), None)


@measure
def happens(trial: Trial, kind: str, **columns: object) -> bool:
    return bool(events(trial, kind, **columns))


@measure
def acknowledged(trial: Trial, record: str) -> int | None:
    """When the producer of a record had its answer."""
    rows = events(trial, "produce_ack")
    times = (r["ts_ms"] for r in rows if record in dict(r["detail"])["records"].split())
    return next((ts_ms - START_MS for ts_ms in times), None)


@measure
def joined(trial: Trial, replica: int) -> int | None:
    """When a replica first came into the stored ISR."""
    return _moved(trial, replica, joined=True)


@measure
def left(trial: Trial, replica: int) -> int | None:
    return _moved(trial, replica, joined=False)


def _moved(trial: Trial, replica: int, joined: bool) -> int | None:
    moves = exact.moves(trial.run.events())
    times = (m.ts_ms for m in moves if (m.replica, m.joined) == (replica, joined))
    return next((ts_ms - START_MS for ts_ms in times), None)


# States


def _frame(trial: Trial, block: int | None = None) -> Frame:
    run = trial.run
    return run.frames[-1 if block is None else run.blocks[block - 1].frames[1] - 1]


def remote(frame: Frame, follower: int) -> RemoteReplica:
    """A follower as its leader sees it."""
    role = frame.brokers[frame.controller.leader].role
    assert isinstance(role, Leader)
    return next(replica for replica in role.remotes if replica.id == follower)


@measure
def high_watermark(trial: Trial, block: int | None = None) -> int:
    """The leader's."""
    frame = _frame(trial, block)
    return frame.brokers[frame.controller.leader].log.high_watermark


@measure
def log_end_offset(trial: Trial, broker: int, block: int | None = None) -> int:
    return _frame(trial, block).disks[broker].log_end_offset


@measure
def last_offset(trial: Trial, broker: int, block: int | None = None) -> int:
    """The offset of the last record in a log."""
    log = _frame(trial, block).disks[broker]
    return log.log_start_offset + len(log.records) - 1


@measure
def last_readable(trial: Trial, block: int | None = None) -> int:
    """The last offset that a consumer can read."""
    log = _frame(trial, block).disks[_frame(trial, block).controller.leader]
    return log.log_start_offset + len(log.read(log.log_start_offset, log.high_watermark)) - 1


@measure
def readable(trial: Trial, offset: int, block: int | None = None) -> bool:
    return offset <= last_readable(trial, block)


@measure
def remote_end(trial: Trial, follower: int, block: int | None = None) -> int:
    """A follower's log end offset as its leader knows it."""
    return remote(_frame(trial, block), follower).log_end_offset


@measure
def leader_end_at_joining(trial: Trial, replica: int) -> int:
    """The leader's log end offset when it asks for the ISR with that replica."""
    return events(trial, "isr_expand", replica=replica)[0]["log_end_offset"]


@measure
def clock_age_at_joining(trial: Trial, replica: int) -> int:
    """How long ago a follower had last caught up when it came into the ISR, in ms."""
    at_ms = START_MS + joined(trial, replica)
    frame = next(frame for frame in trial.run.frames if frame.now_ms == at_ms)
    return at_ms - remote(frame, replica).last_caught_up_time_ms


@measure
def member_behind(trial: Trial) -> bool:
    """Whether at some moment an ISR member's log ends before the leader's high watermark."""
    leaders = ((f, f.brokers[f.controller.leader]) for f in trial.run.frames)
    return any(
        frame.disks[member].log_end_offset < leader.log.high_watermark
        for frame, leader in leaders
        if isinstance(leader.role, Leader)
        for member in leader.role.isr
    )


@measure
def check_period(trial: Trial) -> int:
    """The time between two checks of the ISR by broker 1, in ms."""
    frames = trial.run.frames
    times = sorted(
        {f.now_ms for f in frames if f.target == 1 and isinstance(f.message, m.ExpireIsr)}
    )
    return times[1] - times[0]


@measure
def removal_range(trial: Trial, phases: int = 16, lag_ms: int | None = None) -> str:
    ages = removal_ages(trial, phases, lag_ms)
    return f"{min(ages)} to {max(ages)}"


def removal_ages(trial: Trial, phases: int = 16, lag_ms: int | None = None) -> list[int]:
    """How long a stopped follower had not been caught up when it was dropped, in ms.

    It stops at {at}, at `phases` moments spread over one lag time.
    """
    ages = []
    lag_ms = lag_ms or trial.version.replica_lag_time_max_ms
    for phase in range(phases):
        stopped = trial.filled({"at": f"{lag_ms + phase * lag_ms // phases + 1}ms"})
        dropped_ms = events(stopped, "isr_shrink")[0]["ts_ms"]
        frame = next(f for f in reversed(stopped.run.frames) if f.now_ms <= dropped_ms)
        ages.append(dropped_ms - remote(frame, 2).last_caught_up_time_ms)
    return ages


# Records


@measure
def outcome(trial: Trial) -> str:
    """diverged, lost, offline or safe."""
    return trial.run.outcome.word


@measure
def committed(trial: Trial, record: str) -> bool:
    return record in trial.run.cluster.observer.committed


@measure
def copies(trial: Trial, record: str, block: int | None = None) -> int:
    """How many replicas have a record."""
    return _copies(_frame(trial, block), record)


def _copies(frame: Frame, record: str) -> int:
    return sum(record in (r.id for r in log.records) for log in frame.disks.values())


@measure
def copies_when_acknowledged(trial: Trial, record: str) -> int:
    """How many replicas have a record in the step in which the first producer has its answer."""
    events = trial.run.cluster.events
    answer = next(event for event in events if event.kind == "produce_ack")
    frames = (frame for frame in reversed(trial.run.frames) if frame.place < answer.place)
    return _copies(next(frames), record)


@measure
def fate_of(trial: Trial, broker: int) -> str:
    """What becomes of a broker that was the leader, when it returns."""
    details = (dict(row["detail"] or ()) for row in events(trial, "crash", broker=broker))
    if any(detail.get("by", "").startswith("halt") for detail in details):
        return "its broker stops"
    if trial.run.outcome.diverged:
        return "keeps its record"
    ends = [row["log_end_offset"] for row in events(trial, "truncate", broker=broker)]
    return f"truncated to {ends[-1]}" if ends else "keeps its log"


@measure
def cause_of_truncation(trial: Trial, broker: int) -> str:
    """Why a broker last truncated its log: by the message with which it did."""
    ends = [(f.message, f.disks[broker].log_end_offset) for f in trial.run.frames]
    causes = [message for (_, end), (message, after) in pairwise(ends) if after < end]
    return _CAUSES[type(causes[-1]).__name__]


# Epochs and messages


@measure
def epoch_answer(trial: Trial) -> int:
    """The end offset in the last answer to a question about a leader epoch."""
    return _messages(trial, m.EpochEndOffset)[-1].end_offset


@measure
def epoch_entries(trial: Trial, broker: int) -> str:
    """The (epoch, start offset) entries that a broker has noted."""
    return " ".join(str(entry) for entry in trial.run.cluster.brokers[broker].log.epochs.entries)


@measure
def entries_of_own_epoch(trial: Trial, broker: int) -> int:
    own = trial.run.cluster.brokers[broker]
    return sum(epoch == own.leader_epoch for epoch, _ in own.log.epochs.entries)


@measure
def carries_high_watermark(trial: Trial, offset: int, base: int) -> bool:
    """Whether the first fetch response with that base offset carries that high watermark."""
    responses = _messages(trial, m.FetchResponse)
    return next(r for r in responses if r.base_offset == base).high_watermark == offset


def _messages(trial: Trial, kind: type) -> list[Any]:
    """The messages of a kind that arrived."""
    frames = (frame for frame in trial.run.frames if not frame.was_lost)
    return [frame.message for frame in frames if isinstance(frame.message, kind)]


@measure
def controller_sends(trial: Trial) -> str:
    """What the controller sends after it was told of an ISR change, if a leader tells it."""
    frames = iter(trial.run.frames)
    if not any(isinstance(frame.message, m.IsrChangeNotification) for frame in frames):
        return "nothing"
    return next(type(f.message).__name__ for f in frames if f.source == m.CONTROLLER)
