"""What claims measure without a run: defaults, names of settings, and the rules themselves."""

from __future__ import annotations

from isrlab.closeups.segment import Batch, Reader, ReadRules, SegmentedLog
from isrlab.engine import rules
from isrlab.engine.messages import Produce
from isrlab.engine.model import Settings
from isrlab.engine.versions import RULES, KafkaVersion
from isrlab.workbook.claims.asking import Trial, measure


@measure
def default(trial: Trial, name: str) -> object:
    """What a release has in a field of `KafkaVersion`."""
    return getattr(trial.version, name)


@measure
def setting_name(_: Trial, start: str, end: str) -> str:
    """The full name of the setting that starts and ends so."""
    names = (name.replace("_", ".") for name in Settings.__annotations__)
    return next(name for name in names if name.startswith(start) and name.endswith(end))


@measure
def owner_of(_: Trial, setting: str) -> str:
    """Who decides a setting: a field of the produce request, or of the topic's settings."""
    owners = {"producer": Produce, "topic or broker": Settings}
    return next(owner for owner, kind in owners.items() if setting in kind.__annotations__)


@measure
def defaults_raised(trial: Trial, since: str) -> str:
    """The times (in ms) whose defaults differ from an older release."""
    before, now = KafkaVersion.of(since), trial.version
    names = [name for name in RULES if name.endswith("_ms")]
    return " and ".join(name for name in names if getattr(before, name) != getattr(now, name))


@measure
def clocks(trial: Trial) -> str:
    """The lag clock after fetches at 1000 ms of offset 10, the leader's end; of 5, its end at the
    fetch before (700 ms); and of 4. It stood at 300 ms."""
    form = trial.version.lag_clock
    ends = (rules.last_caught_up_time_ms(form, end, 10, 5, 700, 300, 1000) for end in (10, 5, 4))
    return ", ".join(map(str, ends))


@measure
def first_joining_offset(trial: Trial, high_watermark: int) -> int:
    """The smallest end offset that lets a follower into the ISR."""
    form, offsets = trial.version.expand_rule, range(2 * high_watermark)
    return next(o for o in offsets if rules.can_join_isr(form, o, high_watermark, 0))


@measure
def most_behind(trial: Trial, limit: int) -> int:
    """The most records that a follower in the ISR may lack, if its clock is fresh."""
    form, end, now_ms, lag_ms = trial.version.shrink_rule, 100, 0, 1000
    return next(
        lacking - 1
        for lacking in range(end)
        if rules.is_out_of_sync(form, end - lacking, end, now_ms, 0, lag_ms, limit)
    )


@measure
def read_rules(trial: Trial) -> str:
    """How a release bounds a read, and what it reads of a batch of 500 bytes if asked for 100."""
    log = SegmentedLog.empty(trial.release).append(Batch(0, 9, 500)).append(Batch(10, 19, 500))
    is_whole = log.read(Reader.FOLLOWER, 0, max_bytes=100).batches
    bound = "position" if ReadRules.of(trial.release).bounds_by_position else "offset"
    return f"by {bound}, {'a whole first batch' if is_whole else 'cut to size'}"
