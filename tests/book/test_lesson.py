"""What a reader writes is held against the engine: the right rule passes, each wrong one differs.

A lesson plays the reader's release, and shows a line where its rules are not today's.
"""

from __future__ import annotations

import pytest

from isrlab.engine.versions import GENERATIONS, RULES
from isrlab_book import lesson


def least_of(ends, isr):
    return min(ends[broker] for broker in isr)


def first_after(epochs, epoch, log_end):
    return min((start for each, start in epochs if each > epoch), default=log_end)


def known_of(epochs, epoch):
    return max((each for each, _ in epochs if each <= epoch), default=epoch)


def elr_of(elr, was, isr, min_isr, back):
    return () if len(isr) >= min_isr else tuple(sorted({*elr, *was} - {*isr, back}))


WRITTEN = {  # by rule: what a reader writes, and the run in which it first differs
    "high_watermark": {
        "right": (lambda ends, isr, before: max(before, least_of(ends, isr)), ""),
        "counts every replica": (lambda ends, isr, before: min(ends.values()), "three"),
        "may fall": (lambda ends, isr, before: least_of(ends, isr), "one records"),
        "leaves out the leader": (
            lambda ends, isr, before: min((ends[b] for b in isr if b not in (1, 101)),
                                          default=before),
            "one records",
        ),
    },
    "is_out_of_sync": {
        "right": (lambda age, limit, missing: age > limit and missing > 0, ""),
        "counts records": (lambda age, limit, missing: missing > 3, "leave and return"),
        "has no exemption": (lambda age, limit, missing: age > limit, "hidden"),
        "leaves at the limit": (
            lambda age, limit, missing: age >= limit and missing > 0, "at the limit",
        ),
    },
    "may_join": {
        "right": (lambda at, hw, start, end: at >= max(hw, start), ""),
        "forgets the epoch start": (lambda at, hw, start, end: at >= hw, "joined too early"),
        "forgets the high watermark": (lambda at, hw, start, end: at >= start, "join at"),
        "waits for one more": (lambda at, hw, start, end: at > hw and at >= start, "join at"),
        "waits for the log end": (lambda at, hw, start, end: at >= end, "join at"),
        "is nearly at the log end": (lambda at, hw, start, end: at >= end - 1, "flapping"),
    },
    "truncate_to": {
        "right": (lambda end, hw, told: end if told is None else min(end, told), ""),
        "up to 0.10.2": (lambda end, hw, told: hw, "loss three replicas"),
        "keeps all": (lambda end, hw, told: end, "divergence power loss"),
        "does not wait for an answer": (
            lambda end, hw, told: hw if told is None else min(end, told), "loss three replicas",
        ),
        "grows": (lambda end, hw, told: end if told is None else told, "fast leader change"),
        "keeps the committed": (
            lambda end, hw, told: end if told is None else max(hw, min(end, told)),
            "divergence power loss",
        ),
    },
    "end_of_epoch": {
        "right": (lambda *a: (known_of(*a[:2]), first_after(*a)), ""),
        "one question": (lambda *a: (a[1], first_after(*a)), "fast leader change"),
        "names the log end": (lambda *a: (known_of(*a[:2]), a[2]), "fast leader change"),
        "an earlier epoch": (lambda *a: (known_of(a[0], a[1] - 1), first_after(*a)), "fast"),
    },
    "next_elr": {
        "right": (lambda *a: elr_of(*a), ""),
        "forgets who left before": (lambda elr, *a: elr_of((), *a), "last replica"),
        "keeps it above the minimum": (lambda *a: elr_of(*a[:3], 99, a[4]), "last replica"),
        "keeps who is in sync": (lambda *a: elr_of(*a[:2], (), *a[3:]), "last replica"),
        "trusts who crashed": (lambda *a: elr_of(*a[:4], None), "unclean return"),
    },
}  # fmt: skip


@pytest.mark.parametrize(("rule", "name"), [(r, name) for r in WRITTEN for name in WRITTEN[r]])
def test_a_readers_rule_is_held_against_the_engine(rule, name):
    written, differs = WRITTEN[rule][name]
    said = lesson.against_engine(written, rule)
    assert said.startswith(f"✗ {differs}" if differs else "✓ the same"), said


def test_every_rule_has_wrong_ones():
    assert WRITTEN.keys() == lesson.RULES.keys()


def test_the_release_is_the_readers_or_the_newest(monkeypatch):
    assert lesson.my_release("2.5") == "2.5"
    assert lesson.my_release("newest") == GENERATIONS[-1].releases.split("-")[-1]
    monkeypatch.setenv(lesson.SETTING, "3.7")
    assert (lesson.my_release("newest"), lesson.my_release("2.5")) == ("3.7", "2.5")
    monkeypatch.setenv(lesson.SETTING, "17.0")
    with pytest.raises(ValueError, match=r"17\.0"):
        lesson.my_release("newest")


@pytest.mark.parametrize("version", GENERATIONS, ids=str)
def test_a_line_says_where_a_release_has_another_rule_than_today(version):
    differs = any(version.label(r) != GENERATIONS[-1].label(r) for r in RULES)
    shown = lesson.how_it_was(version.name, *RULES).data
    assert shown.startswith("<p><b>In Kafka") == differs == (version is not GENERATIONS[-1])
    assert shown.count("<li>") == len(GENERATIONS)
