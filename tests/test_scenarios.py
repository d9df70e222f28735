"""Every scenario prints what its file says it prints; `pytest --rewrite` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from isrlab.engine.versions import PRESETS
from isrlab.world import scenario

SCENARIOS = sorted((Path(__file__).parent.parent / "data" / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_scenario_prints_what_it_says(path: Path, request: pytest.FixtureRequest) -> None:
    run = scenario.play(path.read_text())
    if request.config.getoption("--rewrite"):
        path.write_text(run.rewritten)
        return
    if run.first_difference:
        pytest.fail(run.first_difference, pytrace=False)


@pytest.mark.parametrize("version", PRESETS.values(), ids=str)
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_scenario_plays_in_every_version(path: Path, version: object) -> None:
    """The same schedule can be asked of every generation, however it was written for one."""
    run = scenario.play(path.read_text(), version=str(version))
    assert run.cluster.version.name == str(version)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_scenario_twice_gives_the_same(path: Path) -> None:
    first, again = (scenario.play(path.read_text()) for _ in range(2))
    assert first.printed == again.printed
    assert first.frames == again.frames
    assert first.cluster.events == again.cluster.events


def test_rewriting_is_stable() -> None:
    text = "# why\npartition replicas=1,2\nstatus\n----\nwrong\n\nproduce 1 a acks=1\n----\n"
    rewritten = scenario.play(text).rewritten
    again = scenario.play(rewritten)
    assert again.first_difference is None
    assert again.rewritten == rewritten
    assert "# why" in rewritten


@pytest.mark.parametrize(
    ("script", "line", "words"),
    [
        ("frobnicate 1", 1, ("frobnicate", "produce", "stabilize")),
        ("partition replicas=1,2\n\nkill 7", 3, ("'7'", "1,2")),
        ("partition replicas=1,1", 1, ("1,1", "1,2,3")),
        ("partition replicas=1,2 leader=3", 1, ("3", "replicas=1,2")),
        ("partition replicas=1,2 isr=2 leader=1", 1, ("1", "isr=2")),
        ("partition min.isr=1", 1, ("min.isr", "min.insync.replicas")),
        ("partition min.insync.replicas=0", 1, ("min.insync.replicas=0", "at least 1")),
        ("partition unclean.leader.election.enable=yes", 1, ("yes", "true or false")),
        ("version 7.1\npartition", 1, ("7.1", "0.10.2", "3.7-3.9")),
        ("version 3.10\npartition", 1, ("3.10", "3.7-3.9")),
        ("kill 1", 1, ("'partition' line",)),
        ("partition\npartition", 2, ("already",)),
        ("partition\nproduce 1 m1\nproduce 1 m1", 3, ("'m1'",)),
        ("partition\nproduce 1 acks=most", 2, ("most", "all")),
        ("partition\nproduce 1 count=0", 2, ("'0'", "between 1")),
        ("partition\nproduce 1 colour=red", 2, ("colour", "acks")),
        ("partition\nadvance soon", 2, ("soon", "10s")),
        ("partition\nadvance 0x10", 2, ("0x10", "10s")),
        ("partition\nkill 1\nkill 1", 3, ("dead", "2,3")),
        ("partition\nstart 1", 2, ("alive",)),
        ("partition\nresume 1", 2, ("not paused", "none")),
        ("partition\npause 1 disk", 2, ("disk", "fetcher")),
        ("partition\nfetch 1", 2, ("not a follower",)),
        ("partition\ndeliver 1>2", 2, ("0 messages", "none")),
        ("partition\ndeliver 1", 2, ("which link",)),
        ("partition\ncut 1", 2, ("which two",)),
        ("partition\ncut 1 1", 2, ("differ",)),
        ("partition\nelect 2", 2, ("preferred", "'2'")),
        ("partition\ncheck nothing", 2, ("nothing", "logs_agree")),
        ("partition\nproduce 1 'm1", 2, ("quotation",)),
    ],
)
def test_wrong_script_names_its_line_and_the_words(
    script: str, line: int, words: tuple[str, ...]
) -> None:
    with pytest.raises(scenario.ScriptError) as caught:
        scenario.play(script)
    assert caught.value.line == line
    for word in words:
        assert word in str(caught.value)


def test_empty_script_says_what_could_be_in_it() -> None:
    with pytest.raises(scenario.ScriptError, match="known: version, partition"):
        scenario.play("# only a comment\n")
