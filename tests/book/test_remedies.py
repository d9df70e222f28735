"""Remedies for an exposed partition: real brokers ended as the engine does, on it and on others."""

from __future__ import annotations

import pytest

from isrlab.engine.versions import KafkaVersion
from isrlab.world import scenario
from isrlab_book.workbook.data_loss_today import ended
from isrlab_ops.recordings.reassigned import ADVICE, Tally, counts

# On a partition with a right ELR, whose leader then fails
BACK = "resume 2\nresume 3\nadvance 10s"
GOOD = """partition leader=1 replicas=1,2,3 min.insync.replicas={least}
produce 1 m1 acks=all
stabilize
pause 2 fetcher
pause 3 fetcher
produce 1 m2 acks=1
advance 50s
{remedy}
{failure} 1
elect
{back}
start 1
advance 60s"""
CHANGED = "configure topic min.insync.replicas=3\nadvance 1s\nconfigure topic min.insync.replicas=2"
CLUSTER = "configure cluster min.insync.replicas=2"
WITH = {  # the end of a variant's name: in the engine
    "": "advance 1s", "-topic": "configure topic min.insync.replicas=2", "-changed": CHANGED,
    "-cluster": CLUSTER, "-started": "start 2\nstart 3\nadvance 30s",
    "-undone": "reassign cancel\nstabilize", "-finished": "resume 1\nadvance 30s",
}  # fmt: skip
# On one that is exposed
DRAINED = """partition leader=1 replicas=1,2,3 min.insync.replicas=2
produce 1 m1 acks=all
advance 1s
kill 3
elect
kill 2
elect
reassign 4,2,3
advance 1s
pause 1 fetcher
reassign 1,2,3
stabilize
{remedy}
kill 4
elect
advance 20s
{starts}
advance 60s"""


ALIKE = "C", "good", "killed", "min-one", "metadata", "release-version", "restart"


def remedied(variant: str) -> str:
    """The schedule of a variant."""
    name, _, end = variant.partition("-")
    is_back, end = end == "started", f"-{end}" if end else ""
    if name == "C":
        starts = "start 4" if is_back else "start 2\nstart 3\nstart 4"
        return DRAINED.format(remedy=WITH[end], starts=starts)
    return GOOD.format(
        least=1 if name == "min" else 2, remedy=BACK if is_back else WITH.get(end, "advance 1s"),
        failure={"killed": "kill", "restart": "clean_shutdown"}.get(name, "power_loss"),
        back="advance 1s" if is_back else BACK,
    )  # fmt: skip


REMEDIED = [
    tally for tally in [*counts(), *counts("restart", ADVICE)]
    if {tally.variant, tally.variant.rpartition("-")[0]} & {*ALIKE}
    and tally.variant not in ("good-undone", "good-finished") and "feature" not in tally.variant
    and (tally.elr or tally.variant != "C")  # in one release all was copied before the failure
]  # fmt: skip


@pytest.mark.parametrize("tally", REMEDIED, ids=lambda t: f"{t.release}-elr{t.elr:d}-{t.variant}")
def test_a_remedy_did_on_ten_topics_of_real_brokers_what_it_does_in_the_engine(tally: Tally):
    rules = KafkaVersion.of(tally.release).with_(eligible_leader_replicas=tally.elr)
    run = scenario.play(remedied(tally.variant), version=rules)
    is_lost = tally.variant == "restart" and run.outcome.lost_acknowledged
    word = "lost" if is_lost else ended(run)
    word = "stranded" if word == "leaderless" and not run.outcome.has_leader else word
    assert tally.tries >= 10
    assert getattr(tally, word, tally.tries) == tally.tries, word
