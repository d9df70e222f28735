"""The leader's high watermark: who it waits for, and when it moves. Rows 4, 5, 9, 11 and 27."""

from __future__ import annotations

from isrlab.engine.choices import HighWatermarkSet
from isrlab.engine.model import Leader
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import Claim, Finding
from isrlab.world import scenario
from isrlab.world.frames import Frame
from isrlab.world.script import Run

THEME = "high watermark"


# Rows 4 and 5: a follower that catches up


def mark_while_catching_up(version: KafkaVersion) -> int:
    run = runs.library("claim_catching_up", version)
    return runs.high_watermark(runs.after_block(run, 1))


def _who_counts() -> Finding:
    old, new = (KafkaVersion.of(v) for v in ("0.9.0", "0.10.2"))
    frame = runs.after_block(runs.library("claim_catching_up", old), 1)
    end, behind = frame.disks[1].log_end_offset, runs.remote(frame, 2).log_end_offset
    return Finding(
        (
            runs.over("001, the ISR alone", end, mark_while_catching_up),
            runs.over("000 and 003, also who is in time", end - 1, mark_while_catching_up),
        ),
        f"ISR = {{1}}, the leader's end is {end}, and the follower, catching up, has confirmed "
        f"{behind}: the high watermark is {mark_while_catching_up(old)} in 0.9.0 and "
        f"{mark_while_catching_up(new)} in 0.10.2.",
    )


def _without_the_rule(version: KafkaVersion) -> Run:
    plain = version.with_(high_watermark_set=HighWatermarkSet.ISR)
    return runs.library("claim_catching_up", plain)


def _has_member_behind(run: Run) -> bool:
    """At some moment an ISR member's log ends before the leader's high watermark."""
    return any(_is_member_behind(frame) for frame in run.frames)


def _is_member_behind(frame: Frame) -> bool:
    leader = frame.brokers.get(frame.controller.leader)
    if leader is None or not isinstance(leader.role, Leader):
        return False
    ends = [frame.disks[member].log_end_offset for member in leader.role.isr]
    return min(ends) < leader.log.high_watermark


def _joined(run: Run) -> bool:
    return bool(runs.rows(run, "isr_expand", replica=2))


def _why_it_waits() -> Finding:
    span = runs.releases("0.10.2", "2.6")
    with_rule = runs.library("claim_catching_up", "2.5")
    joined = runs.rows(with_rule, "isr_expand", replica=2)[0]
    end = _without_the_rule(span[0]).frames[-1].disks[1].log_end_offset
    return Finding(
        (
            runs.over(
                "003, else the high watermark passes an ISR member",
                True,
                lambda v: _has_member_behind(_without_the_rule(v)),
                span,
            ),
            runs.over(
                "000, else a follower never comes back",
                False,
                lambda v: _joined(_without_the_rule(v)),
                span,
            ),
        ),
        f"With the rule off the follower is still out when the leader has {end} records, and no "
        f"ISR member is ever behind the high watermark; with it, it is in when the leader has "
        f"{joined.log_end_offset}.",
    )


# Row 9: too few in sync


def _mark_under_min_isr(version: KafkaVersion) -> int:
    return runs.high_watermark(runs.library("claim_under_min_isr", version).frames[-1])


def _under_min_isr() -> Finding:
    end = runs.library("claim_under_min_isr", "3.6").frames[-1].disks[1].log_end_offset
    marks = {v: _mark_under_min_isr(KafkaVersion.of(v)) for v in ("3.6", "3.7")}
    return Finding(
        (runs.over("it moves with the ISR, however small", end, _mark_under_min_isr),),
        f"min.insync.replicas=2, ISR = {{1}}, {end} records in the leader's log: the high "
        f"watermark is {marks['3.6']} in 3.6 and {marks['3.7']} in 3.7.",
    )


# Row 11: the formula

IN_SYNC = "partition replicas=1,2,3\nproduce 1 m1 acks=1\nstabilize\n"
DEAD_THIRD = IN_SYNC + "kill 3\nelect\nstabilize\nproduce 1 m2 acks=1\nstabilize\n"
ALONE = (
    "partition replicas=1,2\nproduce 1 m1 acks=1\nstabilize\nkill 2\nelect\nstabilize\n"
    "produce 1 m2 acks=1\nstabilize\n"
)


def _formula(text: str) -> tuple[int, int]:
    """What max(current, min over the remote list) gives at the end, and the high watermark."""
    run = runs.play(text, "2.5")
    frame = run.frames[-1]
    role = frame.brokers[1].role
    assert isinstance(role, Leader)
    marks = [0, *(row.high_watermark for row in runs.rows(run, "high_watermark", broker=1))]
    current = int(str(marks[-2]))
    told = max(current, min(r.log_end_offset for r in role.remotes))
    return told, runs.high_watermark(frame)


def _minimum() -> Finding:
    cases = {
        "all replicas in the ISR": _formula(IN_SYNC),
        "a dead third replica": _formula(DEAD_THIRD),
        "the leader alone": _formula(ALONE),
    }
    told, shown = cases["a dead third replica"]
    return Finding(
        (runs.situations("the formula", *((k, *v) for k, v in cases.items())),),
        f"With a dead third replica the formula stays at {told}, the high watermark goes to "
        f"{shown}: the minimum is over the leader and those that count, not over all it knows of.",
    )


# Row 27: after the shrink


def is_committed_by_the_shrink(version: KafkaVersion) -> bool:
    """The request that waited is answered before the next record comes."""
    run = runs.library("claim_after_shrink", version)
    first, second = (runs.acknowledged_ms(run, name) for name in ("m1", "m2"))
    return first is not None and second is not None and first < second


def _after_the_shrink() -> Finding:
    told = {}
    for name in ("2.6", "2.8", "3.1"):
        run = runs.library("claim_after_shrink", name)
        told[name] = runs.acknowledged_ms(run, "m1")
    stored = runs.when(runs.library("claim_after_shrink", "2.8"), "isr_commit")
    return Finding(
        (
            runs.over(
                "the shrink takes effect when it is stored",
                True,
                is_committed_by_the_shrink,
                runs.releases("2.7"),
            ),
        ),
        f"The smaller ISR is stored at {stored} ms. The waiting record is acknowledged at "
        + ", ".join(f"{ms} ms in {name}" for name, ms in told.items())
        + ": in 2.8 only because another record came.",
    )


CLAIMS = (
    Claim(
        4,
        THEME,
        "articles 000 (section 3), 001 (2) and 003 (2)",
        "Whose end offsets the high watermark is the minimum of: the ISR's (001, in words), or "
        "also those of replicas that are in time (000, 003).",
        "ISR = {1}, and a follower that catches up while the producer goes on, in every release.",
        _who_counts,
        scenario.read("claim_catching_up"),
        "0.9.0",
    ),
    Claim(
        5,
        THEME,
        "article 003, section 2; article 000, section 3",
        "Why replicas outside the ISR count: else the high watermark could pass an ISR member "
        "(003); else a follower could never come back under steady writes (000).",
        "The same run with that one rule switched off (0.10.2 to 2.6).",
        _why_it_waits,
        scenario.read("claim_catching_up"),
        "0.10.2",
    ),
    Claim(
        9,
        THEME,
        "articles 000 to 004 (none mentions a lower bound)",
        "The high watermark follows the ISR, even when that is smaller than min.insync.replicas.",
        "min.insync.replicas=2, only the leader in the ISR, acks=1, in every release.",
        _under_min_isr,
        scenario.read("claim_under_min_isr"),
        "3.7",
    ),
    Claim(
        11,
        THEME,
        "article 003, section 2",
        "The leader's high watermark becomes the larger of what it was and the minimum of all the "
        "remote end offsets that it keeps.",
        "The formula beside the run: all in sync, a dead third replica, the leader alone (2.5).",
        _minimum,
        DEAD_THIRD + "status",
        "2.5",
    ),
    Claim(
        27,
        THEME,
        "article 000, section 3",
        "Since 2.7 the leader asks the controller, and the inconsistencies are gone.",
        "acks=all waits for a stopped follower; the ISR shrinks; no more records (2.7 and later).",
        _after_the_shrink,
        scenario.read("claim_after_shrink"),
        "2.8",
    ),
)
