"""The search as a Spark job gives the same numbers as in memory, even if it was stopped once."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from cases.reference_systems import KIP320, Reference
from isrlab_proof.search.breadth_first import BreadthFirst
from isrlab_proof.search.everything import system_of
from isrlab_proof.search.on_spark import SparkSearch

MOVE = """partition replicas=1,2 min.insync.replicas=2
produce 1 acks=all
stabilize
advance 1s
kill 2
elect
stabilize
reassign 3,4
kill 3
stabilize"""


def numbers(end):
    broken = {name: (depth, len(end.schedules[name])) for name, (depth, _) in
              end.progress.broken.items()}  # fmt: skip
    return end.progress.distinct, end.progress.transitions, end.progress.depth, broken, end.ended


@pytest.mark.slow
def test_a_reference_system_has_the_same_states(spark, tmp_path: Path) -> None:
    cases = shutil.make_archive(str(tmp_path / "cases"), "zip", Path(__file__).parents[1], "cases")
    spark.addArtifacts(cases, pyfile=True)
    make = partial(Reference, KIP320, 2, 1, 1, 0)
    end = SparkSearch(spark, make, str(tmp_path / "kept"), "2 1 1 0", stops=False).run()
    assert numbers(end) == numbers(BreadthFirst(make, stops=False).run())
    assert numbers(end)[:1] == (37,)


@pytest.mark.slow
def test_a_loss_is_found_by_a_job_that_was_stopped(spark, tmp_path: Path) -> None:
    promise = ("acknowledged_records_survive",)
    make = partial(system_of, "4.1", MOVE, {"crashes": 1, "reassigns": 2}, 4, True)
    job = partial(SparkSearch, spark, make, str(tmp_path), "a move", promise)
    assert job(most_depth=2).run().ended == "depth"
    end = job().run()
    assert numbers(end) == numbers(BreadthFirst(make, wanted=promise).run())
    assert len(end.schedules[promise[0]]) == 4
    with pytest.raises(ValueError, match="holds another search: a move"):
        SparkSearch(spark, make, str(tmp_path), "another").run()
