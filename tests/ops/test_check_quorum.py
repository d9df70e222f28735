"""`check` counts the controllers' quorum; what is not known of it is never SAFE."""

from __future__ import annotations

import lzma
from functools import cache
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from test_check import HEALTHY, OLD, checked, rows_of, text_of
from test_metadata_log import INCIDENTS

from isrlab.__main__ import main
from isrlab_ops.check import outcome, stored
from isrlab_ops.check.answer import roll
from isrlab_ops.check.cluster import CheckError
from isrlab_ops.check.outcome import Shapes
from isrlab_ops.logs.reader.metadata.records import MetadataReader

FOLDER = Path(__file__).parents[2] / "data" / "check"
FILES = sorted(FOLDER.glob("*-combined.jsonl.xz"))
ALONE = text_of(*HEALTHY, configs="min.insync.replicas=1")  # each partition can spare two
STATUS = """LeaderId:               2
MaxFollowerLagTimeMs:   260
CurrentVoters:          [1,2,3]
CurrentObservers:       []
"""
TABLE = """NodeId\tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t
2     \t111         \t0  \t1795546410518     \t1795546410518        \tLeader  \t
1     \t111         \t0  \t1795546410350     \t1795546410350        \tFollower\t
3     \t111         \t0  \t1795546410347     \t1795546410347        \tFollower\t
"""


def test_voters_that_are_not_shown_are_not_known(tmp_path):
    check = checked(ALONE, voters="")
    assert (check.status, check.title, check.roll) == (2, "NOT KNOWN", [])
    assert "voters is not shown: --voters" in rows_of(check)["Unsure"]
    assert "Roll" not in rows_of(check)
    assert checked(ALONE, voters="none").title == "SAFE"
    assert checked(OLD, "3.5", mode=True, voters="").title == "SAFE"  # ZooKeeper
    assert checked(OLD, "2.8", voters="", unclean=False).title == "SAFE"
    assert checked(OLD, "3.5", voters="").title == "NOT KNOWN"
    file = tmp_path / "described"
    file.write_text(ALONE)
    command = ["check", str(file), "--version", "4.1"]
    assert CliRunner().invoke(main, command).exit_code == 2
    (tmp_path / "quorum").write_text(STATUS)
    for voters in ("1,2,3", "none", str(tmp_path / "quorum")):
        assert CliRunner().invoke(main, [*command, "--voters", voters]).exit_code == 0
    for voters in ("x", "1,", "missing"):
        result = CliRunner().invoke(main, [*command, "--voters", voters])
        assert result.exit_code == 2 and "is no list such as 1,2,3" in result.output


@pytest.mark.parametrize("shown", [
    STATUS, TABLE, STATUS + "\n" + TABLE,
    STATUS.replace("[1,2,3]", '[{"id": 1, "directoryId": "AAAAAAAAAAAAAAAAAAAAAQ", "endpoints": '
                   '["CONTROLLER://[::1]:9093"]}, {"id": 2, "endpoints": []}, {"id": 3}]'),
    TABLE.replace("     \t111", "     \tAAAAAAAAAAAAAAAAAAAAAA\t111"),
    TABLE.replace("1795546410", "").replace("518", "0 ms ago").replace("350", "168 ms ago")
    .replace("347", "171 ms ago"),
    "  controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093 sensitive=false synonyms={}\n",
])  # fmt: skip
def test_voters_beside_the_topics_are_read_and_a_stop_of_two_is_blocked(shown):
    check = checked(ALONE + shown, voters="")
    assert check.title == "SAFE" and check.state.quorum.replicas == (1, 2, 3)
    for pair in combinations((1, 2, 3), 2):
        check = checked(shown + ALONE, voters="", restart=frozenset(pair))
        assert [b.why for b in check.asked] == [outcome.NO_MAJORITY] and check.title == "BLOCKED"
    assert rows_of(checked(ALONE + shown, voters="", down={1, 2}))["If down"].endswith(
        "no majority of the voters is up, so no leader is elected and no ISR changes; "
        "3 partitions (t-0, t-1, t-2) refuse acks=all"
    )


def test_a_voter_that_is_behind_or_down_counts_as_down():
    behind = TABLE.replace("1795546410347        ", "1795546407000        ")
    check = checked(ALONE + behind, voters="")
    assert check.state.quorum.isr == (1, 2)
    assert {b: bool(blocks) for b, blocks in check.brokers.items()} == {1: True, 2: True, 3: False}
    never = TABLE.replace("1795546410347        ", "-1                   ")
    assert checked(ALONE + never, voters="").state.quorum.isr == (1, 2)
    for lag in ("80000", "-1"):
        check = checked(ALONE + STATUS.replace("260", lag), voters="")
        assert check.title == "NOT KNOWN" and "a voter is behind" in rows_of(check)["Unsure"]
    dead = text_of("1 1,2,3 1,2", "2 2,3,1 1,2", configs="min.insync.replicas=1")
    check = checked(dead, voters="1,2,3")  # of three voters broker 3 is down
    assert check.title == "BLOCKED" and rows_of(check)["Do"] == "start broker 3"
    assert checked(dead, voters="none").title == "SAFE"
    assert checked(ALONE, voters="1,101,102").title == "BLOCKED"  # are 101 and 102 up?
    assert checked(ALONE, voters="101,102,103").title == "SAFE"


@pytest.mark.parametrize(("shown", "says"), [
    (STATUS + TABLE.replace("3     \t111", "4     \t111"), "two lists of voters"),
    (STATUS.replace("[1,2,3]", "[1,2,2]"), "lists a voter twice"),
    (STATUS.replace("LeaderId:               2", "LeaderId:               9"), "no active contr"),
    (STATUS.split("CurrentVoters")[0], "its text is cut"),
    (TABLE.rpartition("3     ")[0], "lacks broker 3: it may be cut"),
])  # fmt: skip
def test_a_quorum_that_is_cut_or_contradicts_itself_is_refused(shown, says):
    with pytest.raises(CheckError, match=says):
        checked(ALONE + shown, voters="")
    with pytest.raises(CheckError, match="contradicts the voters"):
        checked(ALONE + STATUS, voters="1,2")


def test_the_active_controller_is_the_last_of_a_roll():
    text = text_of("4 4,5,6 4,5,6", "1 1,2,3 1,2,3", "4 4,5,1 4,5,1", configs="")
    state = checked(text + STATUS, voters="").state
    assert roll(state) == [[4], [5], [6], [1], [3], [2]]  # each node once, one at a time
    assert checked(text, voters="100,101,102").roll[-3:] == [[100], [101], [102]]


def test_voters_of_a_metadata_log_and_of_a_checkpoint():
    state = stored.of_files(str(INCIDENTS / "b-412-follower-killed" / "metadata"))
    assert state.quorum.replicas == (1, 2, 3) and state.quorum.leader == 3
    reader, path = MetadataReader(), FOLDER / "voters-4.1.2.checkpoint.xz"
    assert [*reader.segment(lzma.decompress(path.read_bytes()))] == []
    assert sorted(reader.quorum["voters"]) == [7, 8, 9]


@cache
def stops() -> list[dict]:
    lines = (line for file in FILES for line in lzma.decompress(file.read_bytes()).splitlines())
    return [msgspec.json.decode(line) for line in lines]


def before(stop: dict, shown: str, **question):
    return checked(stop["topics"] + stop[shown], stop["version"], voters="", **question)


@pytest.mark.parametrize("shown", ["status", "replication"])
def test_real_stops_without_a_majority_are_refused(shown):
    """A clean stop of both hands the leaders over first; a kill leaves each partition as it was."""
    rows = [stop for stop in stops() if stop["what"] == "without majority"]
    assert len(rows) >= 2 * len(FILES) and len(FILES) >= 3
    for stop in rows:
        check = before(stop, shown, restart=frozenset(stop["stopped"]))
        assert check.title == "BLOCKED" and check.asked[0].why == outcome.NO_MAJORITY
        assert stop["changes"][0] == 0 < stop["changes"][1] and stop["lost_s"] > 10
        if "killed" in stop["ended"].values():
            effect = Shapes(check.state).effect(stop["stopped"], is_stop=False)
            assert stop["refused"] == sorted(effect.refuse) and not stop["then_refused"]
            assert stop["known"] == stop["before"] and not effect.elected


@pytest.mark.parametrize("shown", ["status", "replication"])
def test_the_proposed_roll_works_on_real_clusters(shown):
    rows = [stop for stop in stops() if stop["what"] == "roll"]
    assert len(rows) == 3 * len(FILES)
    for stop in rows:
        check = before(stop, shown)
        assert check.title == "SAFE" and [*map(len, check.roll)] == [1, 1, 1]
        assert stop["refused"] == sorted(Shapes(check.state).effect(stop["stopped"]).refuse) == []
        for p in check.state.partitions:
            after = Shapes(check.state).outcome(p, stop["stopped"])
            leader, isr = stop["known"][p.name]
            assert (leader, len(isr)) == (Shapes(check.state).leader(p, after), after.isr_size)
    for first, last in zip(rows[::3], rows[2::3], strict=True):
        assert [before(first, shown).roll[-1]] == [last["stopped"]]
