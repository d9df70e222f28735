"""The notebook *Judged by Kafka*: what it counts, draws and says about a wrong engine."""

from __future__ import annotations

import pytest

from isrlab import judged
from isrlab.engine.versions import KafkaVersion
from isrlab.workbook import judged_by_kafka as notebook


def test_a_wrong_rule_is_drawn_where_it_first_differs() -> None:
    (other,) = notebook.other_forms(KafkaVersion.of("3.9.2"), "refuses_former_incarnation").values()
    notice = notebook.first_notice("3.9.2", other)
    assert notice is not None
    run = judged.read("partition", "3.9.2")[notice.schedule]
    right = notebook.beside(run, "3.9.2")[notice.place - 1]
    assert not right.differs
    assert right.command == notice.step.command == run.schedule[notice.place - 1]
    assert notice.step.differs["response"][0] == right.engine["response"]
    assert notebook.first_notice("3.9.2", KafkaVersion.of("3.9.2")) is None


def test_what_is_drawn_of_a_step_marks_what_is_new_and_what_differs() -> None:
    before, step = notebook.beside(notebook.one("3.9.2", 0), "3.9.2")[1:3]
    assert step.command == ["append", 1]
    wrong = step._replace(engine=step.engine | {"hw": 7})
    figure = notebook.plot_step(before, wrong, "a title")
    colours = {patch.get_facecolor() for patch in figure.axes[0].patches}
    assert len(colours) >= 3  # same, changed, differs
    assert "7" in {text.get_text() for text in figure.axes[0].texts}


@pytest.mark.parametrize("command", [
    ["fetch", 2, 5, -1, 3, 0], ["order", 2, 2, [1, 3]], ["order", 2, 2, [1, 3], 2], ["check"],
    ["brokers", [2, 1, False]], ["answer", None], ["wait", 30_001], ["produce"], ["append", 1],
    ["zookeeper", True],
])  # fmt: skip
def test_a_command_is_put_into_words(command) -> None:
    assert len(notebook.spoken(command)) > 4
    assert "[" not in notebook.spoken(command)


@pytest.mark.parametrize("name", ["I", "?", "B'"])
def test_a_difference_without_a_scenario_is_refused(name) -> None:
    with pytest.raises(ValueError, match="there are A, B, C, D, E"):
        notebook.shown(name)


def test_every_difference_has_a_scenario_that_exists() -> None:
    for name, entry in judged.found().items():
        if "scenario" in entry:
            assert entry["what"] in notebook.shown(name)


def test_a_schedule_that_is_not_stored_is_refused() -> None:
    with pytest.raises(ValueError, match="there are 0 to"):
        notebook.one("3.9.2", 1000)


def test_rules_are_switched_for_the_releases_that_are_asked_for() -> None:
    words = notebook.power(["3.3.2"])
    assert words["shrink_rule"] == {"3.3.2": "noticed"}
    assert "producer_acks" not in words
    with pytest.raises(ValueError, match="no verdicts of"):
        notebook.power(["3.3"])


def test_what_is_left_is_named_with_its_reason() -> None:
    shown = notebook.found_table()
    left = [entry for entry in judged.found().values() if notebook.is_left(entry)]
    assert sum(row["in the engine"].startswith("otherwise: ") for row in shown) == len(left)
    counts = judged.figures().assign(differ=0)
    assert f"and {len(left)} are left and named" in notebook.finding(
        counts, {"a": {"b": "noticed"}}
    )
