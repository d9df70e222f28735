"""What all lessons share: the reader's release, how its rules differ from today's, and the rules
that a reader writes.

Theory of operation. A lesson states the rule of the newest release. Below it, `how_it_was` shows a
line if the reader's release has another one, and the history of the rule, closed until it is
opened. A rule that the reader writes is known by its name in `RULES`: a function plays runs, and
yields for each decision where it was, the rule's arguments, and what the engine decided. The runs
are chosen so that every mistake in `tests/book/test_lesson.py` is found.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from functools import cache
from html import escape
from itertools import pairwise
from typing import Any

from IPython.display import HTML

from isrlab.engine import messages as m
from isrlab.engine import rules
from isrlab.engine.high_watermark import lag
from isrlab.engine.model import Broker, CommittedIsr, Follower, Leader
from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.world import scenario
from isrlab.world.words import START_MS

NEWEST = GENERATIONS[-1].releases.split("-")[-1]
SETTING = "ISRLAB_RELEASE"  # of the environment
STALLED = "partition replicas=1,2\npause 2 fetcher\nproduce 1 m1 acks=1\nadvance 60s"
Answered = tuple[str, tuple[Any, ...], Any]  # where, the arguments of the rule, the engine's answer
# Where, at which ms, a message, and its broker before and after it.
Handled = tuple[str, int, Any, Broker, Broker]


def my_release(given: str = "newest") -> str:
    """The release that a lesson plays: `given`, or for "newest" the one of the environment, if any.

    Raises ValueError for an unknown release.
    """
    name = os.environ.get(SETTING, NEWEST) if given == "newest" else given
    KafkaVersion.of(name)
    return name


def how_it_was(release: str, *changed: str) -> HTML:
    """What some rules are in `release`, if they are not today's; and when each of them changed."""

    def labels(version: KafkaVersion, other: KafkaVersion | None) -> str:
        own = {rule: version.label(rule) for rule in changed}
        return escape("; ".join(t for r, t in own.items() if not other or t != other.label(r)))

    line = labels(KafkaVersion.of(release), GENERATIONS[-1])
    texts = {
        now.releases.split("-")[0]: labels(now, was)
        for was, now in zip((None, *GENERATIONS), GENERATIONS, strict=False)
    }
    items = [f"<li>{name}: {text}</li>" for name, text in texts.items() if text]
    return HTML(
        (f"<p><b>In Kafka {escape(release)}</b>: {line}.</p>" if line else "")
        + f"<details><summary>How it was</summary><ul>{''.join(items)}</ul>"
        '<p>See also <a href="11_all_losses.ipynb">all losses, by release</a>.</p></details>'
    )


def against_engine(rule: Callable[..., Any], name: str = "") -> str:
    """A reader's rule beside the engine's; the answer names the first decision that differs."""
    decisions = _decisions(name or rule.__name__)
    for where, given, engine in decisions:
        yours, names = rule(*given), inspect.signature(rule).parameters
        if yours != engine:
            asked = ", ".join(f"{name}={value}" for name, value in zip(names, given, strict=False))
            return f"✗ {where}: {asked}: yours is {yours}, the engine's {engine}"
    return f"✓ the same as the engine's in all {len(decisions)} decisions: solved"


@cache
def _decisions(rule: str) -> tuple[Answered, ...]:
    return tuple(RULES[rule]())


def _steps(version: str | None, *names: str, **scripts: str) -> Iterator[Handled]:
    texts = {name: scenario.read(name) for name in names} | scripts
    for name, text in texts.items():
        run = scenario.play(text, version=version)
        for before, after in pairwise(run.frames[run.first_frame :]):
            old, new = (frame.brokers.get(after.target) for frame in (before, after))
            at_s = (after.now_ms - START_MS) / 1000
            if old and new:
                where = f"{name.replace('_', ' ')}, broker {after.target} at {at_s:g} s"
                yield where, after.now_ms, after.message, old, new


def _high_watermarks() -> Iterator[Answered]:
    """high_watermark(log end offsets by broker, ISR, high watermark before)"""
    names = "sync_cycle", "sync_cycle_busy", "three_replicas", "one_records_life"
    for where, _, _, old, new in _steps(None, *names, alone=STALLED):
        if isinstance(new.role, Leader):
            ends = {new.id: new.log.log_end_offset}
            ends |= {remote.id: remote.log_end_offset for remote in new.role.remotes}
            given = ends, new.role.maximal_isr, old.log.high_watermark
            yield where, given, new.log.high_watermark


def _evictions() -> Iterator[Answered]:
    """is_out_of_sync(age of the lag clock, limit, missing records), the first two in ms"""
    names = "leave_and_return", "steady_producer", "hidden_follower"
    for where, now_ms, message, old, _ in _steps(NEWEST, *names, at_the_limit=STALLED):
        if not (isinstance(message, m.ExpireIsr) and isinstance(old.role, Leader)):
            continue
        for remote in (each for each in old.role.remotes if each.id in old.role.isr):
            form, (end, own_end, caught_up_ms, _, limit_ms) = (
                old.version.shrink_rule, lag(old, remote, now_ms)
            )  # fmt: skip
            given = now_ms - caught_up_ms, limit_ms, own_end - max(end, 0)
            engine = rules.is_out_of_sync(form, end, own_end, caught_up_ms, now_ms, limit_ms, 0)
            yield f"{where}, follower {remote.id}", given, engine


def _joins() -> Iterator[Answered]:
    """may_join(offset of the fetch, high watermark, epoch start, log end)"""
    names = "join_at_high_watermark", "joined_too_early", "flapping", "new_replica"
    for where, _, fetch, old, new in _steps(NEWEST, *names):
        led, leads, log = old.role, new.role, old.log
        if not (isinstance(fetch, m.Fetch) and isinstance(led, Leader)):
            continue
        assert isinstance(leads, Leader)
        if fetch.replica not in led.isr and isinstance(led.isr_state, CommittedIsr):
            ends = log.high_watermark, led.leader_epoch_start_offset, log.log_end_offset
            yield where, (fetch.offset, *ends), fetch.replica in leads.maximal_isr


def _truncations() -> Iterator[Answered]:
    """truncate_to(own log end, own high watermark, the leader's answer or None)"""
    names = "loss_three_replicas", "epoch_question", "divergence_power_loss", "fast_leader_change"
    for where, _, message, old, new in _steps("0.11", *names):
        is_asked = isinstance(message, m.LeaderAndIsr | m.EpochEndOffset)
        if is_asked and isinstance(new.role, Follower):
            answer = message.end_offset if isinstance(message, m.EpochEndOffset) else None
            given = old.log.log_end_offset, old.log.high_watermark, answer
            yield where, given, new.log.log_end_offset


def _epoch_ends() -> Iterator[Answered]:
    """end_of_epoch(epoch list, epoch asked for, log end): a known epoch, and where it ends"""
    names = "fast_leader_change", "divergence_power_loss", "divergence_unclean", "leader_epochs"
    for where, _, fetch, leader, _ in _steps(NEWEST, *names):
        if isinstance(fetch, m.Fetch) and isinstance(leader.role, Leader):
            given = leader.log.epochs.entries, fetch.last_fetched_epoch, leader.log.log_end_offset
            engine = leader.log.epochs.end_offset_for(*given[1:], leader.version)
            if engine[1] != rules.UNKNOWN_OFFSET:
                yield where, given, engine


def _elrs() -> Iterator[Answered]:
    """next_elr(ELR and ISR before, ISR after, min ISR, the broker back from a crash or None)"""
    for name in ("last_replica_standing", "one_records_life", "drained_and_back", "unclean_return"):
        frames = scenario.play(scenario.read(name), version=NEWEST).frames
        for old, new, asked in (
            (a.controller, b.controller, b.message) for a, b in pairwise(frames)
        ):
            is_back = isinstance(asked, m.RegisterBroker) and not asked.was_clean
            if new.state != old.state:
                given = old.state.elr, old.isr, new.isr, old.settings.min_insync_replicas
                back = getattr(asked, "broker", None) if is_back else None
                yield name.replace("_", " "), (*given, back), new.state.elr


RULES = {
    "high_watermark": _high_watermarks, "is_out_of_sync": _evictions, "may_join": _joins,
    "truncate_to": _truncations, "end_of_epoch": _epoch_ends, "next_elr": _elrs,
}  # fmt: skip
