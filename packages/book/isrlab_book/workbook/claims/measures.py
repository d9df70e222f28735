"""The measures of claims: times of events in a run, contents of logs, values of rules.

Every public function is a measure: it takes a trial (a script in one release), and the words and
options of the question's line. Times are milliseconds since the start of the run; `block` counts a
script's blocks from 1, and the default is the end of the run. Claims see the range of a list.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from isrlab.engine import messages as m
from isrlab.engine import rules
from isrlab.engine.model import Leader, Settings
from isrlab.engine.versions import RULES, KafkaVersion
from isrlab.events import COLUMNS, DETAIL, KINDS
from isrlab.world import scenario
from isrlab.world.frames import Event, Frame
from isrlab.world.script import Run
from isrlab.world.words import START_MS
from isrlab_book.closeups.segment import Batch, Reader, ReadRules, SegmentedLog

_play = lru_cache(maxsize=128)(scenario.play)  # runs are shared by the statements
_CAUSES = {
    "LeaderAndIsr": "its own high watermark",
    "ListOffsetsResponse": "its fetch was out of range",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A script in one release, the input of a measure."""

    release: str
    version: KafkaVersion
    script: str = ""

    @property
    def run(self) -> Run:
        """The run of the script. Raises ValueError if it cannot be played."""
        if not self.script:
            raise ValueError("which script? script=NAME")
        return _play(self.script, version=self.version)


# Events and messages


def _events(trial: Trial, kind: str, **columns: object) -> list[Event]:
    """The events of a kind with these words in their columns or `detail`, in order."""
    known = [*COLUMNS, *DETAIL.get(kind, ())]
    for name, names in ((kind, KINDS), *((column, known) for column in columns)):
        if name not in names:
            raise ValueError(f"events have no {name!r}; known: {', '.join(names)}")
    return [
        event
        for event in trial.run.cluster.events
        if event.kind == kind and all(str(v) in _words(event, k) for k, v in columns.items())
    ]


def _words(event: Event, column: str) -> list[str]:
    value = getattr(event, column, event.detail.get(column, ""))
    return [",".join(map(str, value))] if isinstance(value, tuple) else str(value).split()


def time(trial: Trial, kind: str, **columns: object) -> float:
    """When the first such event happened; never is NaN, which is not less than any time."""
    return next((event.ts_ms - START_MS for event in _events(trial, kind, **columns)), math.nan)


def happens(trial: Trial, kind: str, **columns: object) -> bool:
    return bool(_events(trial, kind, **columns))


def message(trial: Trial, kind: str, field: str, **fields: object) -> object:
    """A field of the first message of a kind that arrived with these values in its fields."""
    arrived = [frame.message for frame in trial.run.frames if not frame.was_lost]
    kinds = {type(message).__name__ for message in arrived}
    if kind not in kinds:
        raise ValueError(f"no {kind!r} arrived; these did: {', '.join(sorted(kinds))}")
    return next(
        getattr(message, field)
        for message in arrived
        if type(message).__name__ == kind
        and all(getattr(message, key) == value for key, value in fields.items())
    )


def controller_sends(trial: Trial) -> str:
    """The kind of message that the controller sends first after a leader's ISR notification."""
    frames = iter(trial.run.frames)
    next(frame for frame in frames if isinstance(frame.message, m.IsrChangeNotification))
    return next(type(f.message).__name__ for f in frames if f.source == m.CONTROLLER)


def check_period(trial: Trial) -> int:
    """The time between two checks of the ISR by broker 1, in ms."""
    frames = trial.run.frames
    checks = {f.now_ms for f in frames if f.target == 1 and isinstance(f.message, m.ExpireIsr)}
    first, second, *_ = sorted(checks)
    return second - first


def removal_ages(trial: Trial, phases: int = 16, lag_ms: int | None = None) -> list[int]:
    """How long a stopped follower had not been caught up when it was dropped, in ms.

    It stops at {at}, at `phases` moments spread over one lag time.
    """
    lag_ms = lag_ms or trial.version.replica_lag_time_max_ms
    times = [lag_ms + phase * lag_ms // phases + 1 for phase in range(phases)]
    scripts = [trial.script.replace("{at}", f"{at_ms}ms") for at_ms in times]
    shrinks = [_events(replace(trial, script=script), "isr_shrink")[0] for script in scripts]
    return [int(shrink.detail["since_caught_up_ms"]) for shrink in shrinks]


# Logs and records


def _frame(trial: Trial, block: int | None) -> Frame:
    run = trial.run
    return run.frames[-1 if block is None else run.blocks[block - 1].frames[1] - 1]


def high_watermark(trial: Trial, block: int | None = None) -> int:
    """The leader's high watermark."""
    frame = _frame(trial, block)
    return frame.brokers[frame.controller.leader].log.high_watermark


def log_end_offset(trial: Trial, broker: int, block: int | None = None) -> int:
    return _frame(trial, block).disks[broker].log_end_offset


def last_offset(
    trial: Trial, broker: int, reader: str = "follower", block: int | None = None
) -> int:
    """The offset of the last record in a log, or of the last one that a `consumer` can read."""
    log = _frame(trial, block).disks[broker]
    end = log.high_watermark if reader == "consumer" else log.log_end_offset
    return log.log_start_offset + len(log.read(log.log_start_offset, end)) - 1


def member_behind(trial: Trial) -> bool:
    """Whether at some moment an ISR member's log ends before the leader's high watermark."""
    leaders = ((f, f.brokers[f.controller.leader]) for f in trial.run.frames)
    return any(
        frame.disks[member].log_end_offset < leader.log.high_watermark
        for frame, leader in leaders
        if isinstance(leader.role, Leader)
        for member in leader.role.isr
    )


def outcome(trial: Trial) -> str:
    """How the run ended: diverged, lost, offline or safe."""
    return trial.run.outcome.word


def copies_when_acknowledged(trial: Trial, record: str) -> int:
    """How many replicas have a record in the step in which its producer gets the answer."""
    answer = _events(trial, "produce_ack", records=record)[0]
    frame = [frame for frame in trial.run.frames if frame.place < answer.place][-1]
    return sum(record in (r.id for r in log.records) for log in frame.disks.values())


def fate_of(trial: Trial, broker: int) -> str:
    """The fate of a returning broker that was the leader."""
    if _events(trial, "crash", broker=broker, by="halt:"):
        return "its broker stops"
    if trial.run.outcome.diverged:
        return "keeps its record"
    ends = [event.log_end_offset for event in _events(trial, "truncate", broker=broker)]
    return f"truncated to {ends[-1]}" if ends else "keeps its log"


def cause_of_truncation(trial: Trial, broker: int) -> str:
    """Why a broker last truncated its log: by the message with which it did."""
    ends = [(f.message, f.disks[broker].log_end_offset) for f in trial.run.frames]
    causes = [message for (_, end), (message, after) in pairwise(ends) if after < end]
    return _CAUSES[type(causes[-1]).__name__]


def entries_of_own_epoch(trial: Trial, broker: int) -> int:
    """How many entries a broker's leader-epoch cache has for the epoch that it is in."""
    own = trial.run.cluster.brokers[broker]
    return sum(epoch == own.leader_epoch for epoch, _ in own.log.epochs.entries)


# Defaults, names of settings, and the rules themselves: without a run


def default(trial: Trial, name: str) -> object:
    """The value of a field of `KafkaVersion` in a release."""
    return getattr(trial.version, name)


def defaults_raised(trial: Trial, since: str) -> str:
    """The names of the times (in ms) whose defaults differ from an older release's."""
    before, now = KafkaVersion.of(since), trial.version
    names = [name for name in RULES if name.endswith("_ms")]
    return " and ".join(name for name in names if getattr(before, name) != getattr(now, name))


def setting_name(trial: Trial, start: str, end: str) -> str:
    """The full name of the setting with this start and end."""
    names = (name.replace("_", ".") for name in Settings.__annotations__)
    return next(name for name in names if name.startswith(start) and name.endswith(end))


def owner_of(trial: Trial, setting: str) -> str:
    """Where a setting belongs: to the produce request, or to the topic's settings."""
    owners = {"producer": m.Produce, "topic or broker": Settings}
    return next(owner for owner, kind in owners.items() if setting in kind.__annotations__)


def clocks(trial: Trial) -> str:
    """A lag clock of 300 ms after a fetch at 1000 ms: of offset 10, the leader's end; of 5, the
    leader's end at the previous fetch (700 ms); and of 4."""
    form = trial.version.lag_clock
    ends = (rules.last_caught_up_time_ms(form, end, 10, 5, 700, 300, 1000) for end in (10, 5, 4))
    return ", ".join(map(str, ends))


def first_joining_offset(trial: Trial, high_watermark: int) -> int:
    """The smallest end offset that lets a follower into the ISR."""
    form, offsets = trial.version.expand_rule, range(2 * high_watermark)
    return next(o for o in offsets if rules.can_join_isr(form, o, high_watermark, 0))


def most_behind(trial: Trial, limit: int) -> int:
    """The most records that a follower in the ISR may lack, if its clock is fresh."""
    form, end, now_ms, lag_ms = trial.version.shrink_rule, 100, 0, 1000
    return next(
        lacking - 1
        for lacking in range(end)
        if rules.is_out_of_sync(form, end - lacking, end, now_ms, 0, lag_ms, limit)
    )


def read_rules(trial: Trial) -> str:
    """How a release bounds a read, and what it reads of a batch of 500 bytes if asked for 100."""
    log = SegmentedLog.empty(trial.release).append(Batch(0, 9, 500)).append(Batch(10, 19, 500))
    is_whole = log.read(Reader.FOLLOWER, 0, max_bytes=100).batches
    bound = "position" if ReadRules.of(trial.release).bounds_by_position else "offset"
    return f"by {bound}, {'a whole first batch' if is_whole else 'cut to size'}"
