"""A recorded migration from ZooKeeper to KRaft, in whose last phase a broker is killed."""

import json

from isrlab.installed import DATA
from isrlab_ops.logs.incidents.answer import answer_about
from isrlab_ops.logs.incidents.look import WRONG, look

FOLDER = DATA / "recordings" / "392-migration"


def test_a_migration_is_told_by_its_phases_and_a_killed_broker_as_killed():
    true = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
    found = look(FOLDER / "logs")
    commits = [row for row in found.history.rows if row.kind == "isr_commit"]
    told = {(f"{r.topic}-{r.partition}", r.partition_epoch, *sorted(r.isr)) for r in commits}
    assert told == {(name, version, *sorted(isr)) for _, name, version, *_, isr in true["stored"]}
    assert len(commits) == len(told) and found.faults == () and found.status == WRONG
    names = [(each.what, each.who, each.is_over) for each in found.incidents]
    assert names == [
        ("restart", (1, 2, 3), True),
        ("migration", (), True),
        ("session_lost", (2,), True),
        ("controller_restarted", (101,), True),
        ("died", (3,), False),
    ]
    (story,) = (each for each in answer_about(found).stories if each.incident.what == "migration")
    assert [proof.shows for proof in story.proofs] == [
        "the migration is prepared", "the metadata is copied", "the migration ends",
    ]  # fmt: skip
    assert [note[:8] for note in story.incident.notes] == ["Phase 1:", "Phase 2:", "Phase 3:"]
