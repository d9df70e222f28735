"""acks and min.insync.replicas: what each of them decides. Rows 17 and 18."""

from __future__ import annotations

from dataclasses import fields

from isrlab.engine.messages import Produce
from isrlab.engine.model import Settings
from isrlab.workbook.claims import runs
from isrlab.workbook.claims.model import Claim, Finding
from isrlab.world import scenario
from isrlab.world.script import Run

THEME = "durability settings"


def waiting(acks: str, least: int) -> str:
    """A write while the only follower, still in the ISR, stands still."""
    return (
        f"partition replicas=1,2 min.insync.replicas={least}\npause 2 fetcher\n"
        f"produce 1 m1 acks={acks}\nstabilize\nstatus"
    )


def _answer(acks: str, least: int) -> str:
    run = runs.play(waiting(acks, least), "2.5")
    return "waits" if runs.acknowledged_ms(run, "m1") is None else "at once"


def _owner() -> str:
    """Who says min.insync.replicas: a field of the request, or a setting of the topic."""
    name = "min_insync_replicas"
    is_sent = name in set(Produce.__struct_fields__)
    is_set = name in {f.name for f in fields(Settings)}
    return "producer" if is_sent else "topic or broker" if is_set else "nobody"


def _min_isr() -> Finding:
    table = {(acks, least): _answer(acks, least) for least in (1, 2) for acks in ("1", "all")}
    cases = (
        (f"acks={acks} with min ISR {least}", "at once" if least == 1 else "waits", shown)
        for (acks, least), shown in table.items()
    )
    return Finding(
        (
            runs.situations("it says when the answer comes", *cases),
            runs.situations("whose setting it is", ("2.5", "producer", _owner())),
        ),
        "With a follower that stands still: "
        + "; ".join(f"acks={a}, min ISR {m}: {word}" for (a, m), word in table.items())
        + ". The answer follows acks alone.",
    )


SMALL_ISR = (
    "partition replicas=1,2,3 min.insync.replicas=2\nkill 3\nelect\nstabilize\n"
    "produce 1 m1 acks=all\nstabilize\nstatus"
)


def copies_when_acknowledged(run: Run) -> int:
    """How many replicas have m1 at the moment of the answer."""
    row = runs.rows(run, "produce_ack")[0]
    return runs.copies(runs.cause_of(run, row), "m1")


def _enough_copies() -> Finding:
    slow = runs.library("claim_slow_member", "2.5")
    waited = runs.copies(runs.after_block(slow, 0), "m1")
    at = runs.acknowledged_ms(slow, "m1")
    return Finding(
        (
            runs.situations(
                "answered with 2 copies",
                ("ISR of 2", 2, copies_when_acknowledged(runs.play(SMALL_ISR, "2.5"))),
                ("ISR of 3", 2, copies_when_acknowledged(slow)),
            ),
        ),
        f"ISR of 3, min.insync.replicas=2: {waited} copies exist at 1000 ms; the answer comes at "
        f"{at} ms, with {copies_when_acknowledged(slow)}.",
    )


CLAIMS = (
    Claim(
        17,
        THEME,
        "article 004, sections 1.1 and 1.2",
        "min.insync.replicas is a setting of the producer; with 1 a write succeeds once the leader "
        "has it.",
        "acks=1 and acks=all, with 1 and 2, while the follower stands still (2.5).",
        _min_isr,
        waiting("all", 1),
        "2.5",
    ),
    Claim(
        18,
        THEME,
        "article 004, section 3.1",
        "With min.insync.replicas=2 and acks=-1 the producer has its answer when two replicas have "
        "the record.",
        "ISR of three, one of them slow; ISR of two (2.5).",
        _enough_copies,
        scenario.read("claim_slow_member"),
        "2.5",
    ),
)
