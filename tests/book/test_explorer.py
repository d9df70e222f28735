"""The explorer without a browser: what was tried, what is drawn, and what the front end is sent."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from isrlab.engine.choices import Truncation
from isrlab.engine.versions import GENERATIONS, KafkaVersion
from isrlab.show.replicas import draw_logs
from isrlab.world import scenario
from isrlab.world.actions import play_line
from isrlab.world.exploring import Exploration
from isrlab.world.script import Run
from isrlab_book.explorer.explorer import Explorer, page_of
from isrlab_book.explorer.explorer_view import actions_of, cells_of, view_of

BOUNCE = scenario.read("loss_bounce")
TWO = "partition replicas=1,2 min.insync.replicas=1"
HOSTILE = "<script>alert(1)</script>&\x01"


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter() if each.text]


def test_two_versions_play_the_same_steps_and_part_at_the_truncation():
    story = Exploration(BOUNCE, ("0.10.2", "0.11"))
    assert (story.word("0.10.2"), story.word("0.11")) == ("lost", "safe")
    assert story.tree[story.differs()].line == "deliver controller>2 all"
    assert story.tree[story.differs()].captions["0.10.2"] == "Broker 2 truncates m2."
    (lost,) = [n for n in range(len(story.tree)) if story.broken("0.10.2", n)]
    assert story.tree[lost].captions["0.10.2"].endswith("committed m2 is lost.")


def test_a_tree_keeps_each_branch_and_a_step_that_was_tried_is_entered_again():
    story = Exploration(TWO)
    for line in ("produce 1", "kill 2"):
        story.play(line)
    story.go(1)
    story.play("kill  1  # another branch")
    assert [tried.parent for tried in story.tree] == [0, 0, 1, 1]
    story.go(1)
    story.play("kill 2")
    assert (story.current, len(story.tree), story.tree[1].last) == (2, 4, 2)
    assert story.path(2) == [0, 1, 2]
    assert story.text == f"version 3.7\n{TWO}\nproduce 1\nkill 2\n"


@pytest.mark.parametrize("name", ["loss_bounce", "fast_leader_change", "eligible_but_gone",
                                  "cancelled_and_lost", "last_replica_standing"])  # fmt: skip
def test_a_scenario_that_is_opened_ends_as_it_does_when_it_is_played(name):
    text = scenario.read(name)
    story, run = Exploration(text), scenario.play(text)
    assert story.word(story.versions[0]) == run.outcome.word
    again = scenario.play(story.text)
    assert again.outcome == run.outcome
    assert Exploration(text, at=1).current == 1


def test_a_line_that_a_version_cannot_play_does_nothing_there_and_says_why():
    story = Exploration(f"{TWO}\nkill 2\nkill 2", ("2.5",))
    assert "dead" in story.problem("2.5", 2) and not story.problem("2.5", 1)
    assert story.word("2.5") == "impossible"
    assert view_of(story)["panels"][0]["problem"] in view_of(story)["announced"]


@pytest.mark.parametrize("wrong", ["status", "", "# nothing", "partition replicas=1"])
def test_what_is_no_step_is_refused(wrong):
    story = Exploration(TWO)
    with pytest.raises(ValueError, match="is not a step"):
        story.play(wrong)
    with pytest.raises(ValueError, match="no step 7"):
        story.go(7)
    with pytest.raises(ValueError, match="begins with a 'partition' line"):
        Exploration("produce 1")


def test_the_picture_says_what_is_not_committed_other_and_gone():
    story = Exploration(BOUNCE)
    told = [t.captions.get("0.10.2", "") for t in story.tree]
    here = next(n for n, caption in enumerate(told) if "truncates m2" in caption)
    before, after = (story.run("0.10.2", n).frames[-1] for n in (here - 1, here))
    svg = str(draw_logs(after, before=before))
    assert {"1 Leader", "2 Follower of 1", "LEO 2", "LEO 1", "HW 1", "HW 2"} <= set(texts(svg))
    assert svg.count('stroke-dasharray="2"') == 1, "m2 is crossed out on one broker"
    assert 'stroke-dasharray="2"' not in str(draw_logs(after))
    written = Exploration(scenario.read("loss_then_write"))
    last = str(draw_logs(written.run(written.versions[0]).frames[-1]))
    assert any(text.startswith("≠") for text in texts(last)), "two records at one offset"


def test_messages_are_drawn_once_with_their_count_and_the_lost_ones_as_such():
    story = Exploration(f"{TWO}\nproduce 1 acks=1\ndrop 1>2 any\nadvance 45s", ("3.7",))
    (panel,) = view_of(story)["panels"]
    assert texts(panel["heads"]) == ["client", "1", "2"]
    shown = texts(panel["messages"])
    assert any(text.endswith("LOST") for text in shown)
    assert any("×" in text for text in shown) and len(shown) < 40


def test_hostile_names_are_text_in_pictures_and_on_the_page():
    story = Exploration(f"{TWO}\nproduce 1 '{HOSTILE}'\nstabilize", ("3.7",))
    (panel,) = view_of(story)["panels"]
    for svg in (*panel["pictures"], panel["heads"], panel["messages"]):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
        assert tags <= {"svg", "defs", "pattern", "rect", "path", "text", "line", "polygon"}
    assert "<script" not in page_of(story) and not story.problem("3.7", 1)


def test_the_front_end_is_answered_and_a_wrong_line_changes_nothing():
    explorer = Explorer(TWO, ("0.10.2", "0.11"))
    for asked in ({"play": "produce 1 acks=1"}, {"play": "kill 2"}, {"go": 1}):
        explorer._heed(explorer, asked, [])
    assert explorer.view["path"] == [0, 1] and explorer.view["next"] == 2
    for wrong in ({"play": "status"}, {"go": 99}, {"open": "nonsense"}, {"go": "x"}, {"who": 1}):
        explorer._heed(explorer, wrong, [])
        assert explorer.view["path"] == [0, 1]
    explorer._heed(explorer, {"versions": ["4.3", ""]}, [])
    assert explorer.view["versions"] == ["4.3"] and len(explorer.view["tree"]) == 3
    explorer._heed(explorer, {"open": BOUNCE}, [])
    assert explorer.view["panels"][0]["word"] == "safe" and len(explorer.view["tree"]) == 16
    ends = [(cell["version"], cell["word"]) for cell in explorer.cells]
    assert ends == [("0.8.2 to 0.10.2", "lost"), ("0.11 to 4.4", "safe")]


def test_every_release_can_be_chosen_and_a_name_for_several_says_so():
    view = view_of(Exploration(TWO, ("4.4", "3.9")))
    assert [panel["version"] for panel in view["panels"]] == ["4.3-4.4", "3.9"]
    assert [*view["names"]] == [version.name for version in GENERATIONS]


def contrast(colour: str) -> float:
    """Of a colour on white, by WCAG 2.1."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def test_text_in_pictures_can_be_read_and_does_not_run_into_records():
    ids = ",".join(str(number) for number in range(101, 106))
    story = Exploration(f"partition replicas={ids}\nproduce 101\nkill 105\nelect", ("4.3",))
    (panel,) = view_of(story)["panels"]
    for svg in (*panel["pictures"], panel["heads"], panel["messages"]):
        for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
            assert contrast(text.get("fill")) >= 4.5, text.text
    root = ElementTree.fromstring(panel["pictures"][0])
    boxes = [float(box.get("x")) for box in root.iter() if box.get("height") == "32"]
    (isr,) = [text for text in texts(panel["pictures"][0]) if text.startswith("ISR")]
    assert min(boxes) >= 6 + 6.4 * len(isr) > 118


def test_buttons_are_grouped_by_machine_and_name_their_message():
    story = Exploration(f"{TWO}\nproduce 1 acks=1", ("3.7",))
    groups = {group["name"]: group["actions"] for group in actions_of(story.run("3.7"))}
    assert list(groups) == ["Broker 2", "Broker 1", "Controller", "Time"]
    labels = [action["label"] for action in groups["Broker 2"]]
    assert "deliver FetchResponse base=0 count=1 hw=0 from 1" in labels
    assert any(label.startswith("lose FetchResponse") for label in labels)


def test_without_a_kernel_the_page_has_each_step_and_its_picture():
    story = Exploration(BOUNCE, at=3)
    page = page_of(story)
    assert page.count("<details") == page.count("data:image/svg+xml;base64,") == len(story.tree)
    assert "<script" not in page and page.count("<details open>") == 1
    assert "✗ committed_records_survive" in page
    data, _ = Explorer(TWO)._repr_mimebundle_()
    assert "Kafka" in data["text/html"] or "step by step" in data["text/html"]


def test_a_topic_has_a_picture_for_each_partition_and_its_buttons_name_them():
    story = Exploration("partition replicas=1,2\npartition p1 replicas=2,1\nproduce p1 2", ("4.3",))
    view = view_of(story)
    assert len(view["panels"][0]["pictures"]) == 2
    lines = [action["line"] for group in view["actions"] for action in group["actions"]]
    assert "produce p0 1 acks=1" in lines and "kill 1" in lines
    assert len(lines) == len(set(lines))
    for line in lines:
        run = Exploration(story.text).run("4.3")
        assert isinstance(run, Run) and play_line(run, line) is None
    assert cells_of(story)


def test_a_rule_that_is_switched_by_hand_stands_beside_its_release() -> None:
    base = KafkaVersion.of("0.11")
    without = base.with_(truncation=Truncation.HIGH_WATERMARK)
    explorer = Explorer(scenario.read("loss_three_replicas"), (without, base))
    assert [panel["word"] for panel in explorer.view["panels"]] == ["lost", "safe"]
    explorer._heed(explorer, {"versions": ["0.11", without.name]}, [])
    assert [panel["word"] for panel in explorer.view["panels"]] == ["safe", "lost"]
    assert explorer.story.text.startswith("version 0.11\n")
