"""The exhaustive search over the engine: its findings, replayed in the clocked world."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isrlab.__main__ import main
from isrlab.engine.choices import Truncation
from isrlab.engine.safety import PROPERTIES
from isrlab.engine.versions import KafkaVersion
from isrlab.world import scenario
from isrlab_proof.search.breadth_first import BreadthFirst
from isrlab_proof.search.everything import system_of, try_all


def search(*words: str) -> Result:
    return CliRunner().invoke(main, ["search", "--all", *words])


def is_broken(text: str, promise: str, version: str | KafkaVersion | None = None) -> bool:
    run = scenario.play(text, version=version)
    view = run.cluster.observer.view()
    return promise in run.violations or PROPERTIES[promise](view) is not None


def test_it_finds_the_loss_of_kip_101_and_prints_a_scenario_that_plays() -> None:
    result = search("--version", "0.10.2", "produces=1", "crashes=2")
    assert result.exit_code == 0, result.output
    assert "committed_records_survive is broken after 9 actions, not sooner (" in result.output
    assert is_broken(result.stdout, "committed_records_survive")
    assert not is_broken(result.stdout, "committed_records_survive", "0.11")
    later = search("--version", "0.11", "produces=1", "crashes=2")
    assert later.exit_code == 1, later.output
    assert "no schedule within these budgets breaks" in later.output


def test_a_promise_that_is_weakened_by_hand_is_broken(monkeypatch) -> None:
    """The weakened promise: nothing is ever committed."""
    monkeypatch.setitem(
        PROPERTIES, "logs_agree", lambda view: "something is committed" if view.committed else None
    )
    searching = BreadthFirst(lambda: system_of("3.7", "partition replicas=1,2", {"produces": 1}))
    (actions,) = searching.run().schedules.values()
    assert actions == ["produce 1 acks=1", "deliver 1>2", "deliver 2>1"]


def test_a_rule_that_is_switched_off_by_hand_is_caught() -> None:
    """0.11 with the truncation of before KIP-101."""
    rules = KafkaVersion.of("0.11").with_(truncation=Truncation.HIGH_WATERMARK)
    verdict = try_all(rules, "partition replicas=1,2", {"produces": 1, "crashes": 2})
    assert (verdict.holds, len(verdict.actions)) == (False, 9)
    assert str(verdict).startswith(
        "committed_records_survive is broken after 9 actions, not sooner"
    )
    assert verdict.text is not None
    assert is_broken(verdict.text, "committed_records_survive", rules)
    assert not is_broken(verdict.text, "committed_records_survive", "0.11")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["crash=1"], "no budget 'crash'; known: produces, acks_all, crashes"),
        (["crashes=many"], "crashes=many: a budget is a count up to 9: crashes=1"),
        (["--version", "9.9"], "unknown Kafka version '9.9'"),
        (["--property", "luck"], "no property 'luck'; known: "),
        (["--partition", "partition replicas=1,1"], "1,1"),
        (["--brokers", "7"], "7 is not in the range 0<=x<=5"),
        (["crashes=1", "crashes=2"], "crashes is given twice"),
        (["--resume", "--saves", "nowhere"], "no search is saved in nowhere"),
        (["--unless", "2.0"], "--unless excludes --all"),
        (["--seeds", "9"], "--seeds excludes --all"),
    ],
)
def test_a_wrong_question_says_what_would_be_right(words: list[str], problem: str) -> None:
    result = search(*words)
    assert result.exit_code == 2
    assert problem in result.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["crashes=1"], "'crashes=1': a BUDGET needs --all"),
        (["0.10.2"], "a release --version"),
        (["--workers", "2"], "--workers needs --all"),
        (["--resume"], "--resume needs --all"),
    ],
)
def test_what_has_no_effect_without_all_is_refused(words: list[str], problem: str) -> None:
    result = CliRunner().invoke(main, ["search", *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


LONG = "--version", "2.4", "produces=2", "crashes=3"  # a second
MAIN = "from isrlab import __main__ as m, progress as p; p.QUIET_S = p.EVERY_S = 0.1; m.main()"


@pytest.fixture(scope="module")
def whole() -> Result:
    return search(*LONG)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_search_that_is_interrupted_goes_on_from_what_it_saved(
    how: signal.Signals, whole: Result, tmp_path: Path
) -> None:
    words = [*LONG, "--saves", str(tmp_path / "saved")]
    command = [sys.executable, "-c", MAIN, "search", "--all", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    next((line for line in process.stderr if line.startswith("depth 1") and line[7] != ":"), "")
    process.send_signal(how)
    out, _ = process.communicate(timeout=600)
    if process.returncode != 1:  # it was not ready sooner
        assert process.returncode == 3, out
        assert "--resume continues it" in out
        resumed = search(*words, "--resume", "--workers", "2")
        ours, theirs = (
            result.stdout.splitlines()[1].split(", depth")[0] for result in (resumed, whole)
        )
        assert ours == theirs
