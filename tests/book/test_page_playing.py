"""What the page asks of Python: stories, links, challenges, curves, and strangers' schedules."""

from __future__ import annotations

import json
import re

import nbformat
import pytest

from isrlab.installed import NOTEBOOKS
from isrlab.world import decided, scenario
from isrlab.world.commands import COMMANDS
from isrlab.world.exploring import Exploration
from isrlab_book import exercise
from isrlab_book.explorer import explained, link
from isrlab_book.explorer.link import MOST_LINK
from isrlab_book.page import playable
from isrlab_book.page.build import FRONT
from isrlab_book.page.playing import MOST_STEPS, OPENING, Playground, challenges, contents

MARKUP = "<img src=x onerror=window.ran=1>"


def ask(playground, **message):
    return json.loads(playground.ask(json.dumps(message)))["view"]


def rest(playground):
    """The answers that come without another message, the last of each kind."""
    pieces = {}
    while piece := playground.more():
        pieces |= json.loads(piece)
    return pieces


def test_what_is_found_is_sent_as_a_link_and_opened_elsewhere():
    here, there = Playground(), Playground()
    ask(here, challenge="lose_m2")
    for line in ("kill 1", "elect", "kill 2", "elect", "stabilize"):
        view = ask(here, play=line)
    pieces = rest(here)
    assert pieces["marks"]["done"] and "shortest" in pieces["marks"]["score"]
    assert {cell["word"] for cell in pieces["cells"]} >= {"lost", "safe"}
    opened = ask(there, link=view["link"])
    assert (opened["text"], opened["versions"]) == (view["text"], ["0.10.2", "0.11"])
    assert opened["panels"] == view["panels"] and opened["link"] == view["link"]


def test_the_opening_story_is_ready_when_it_is_asked_for_and_no_other_is_taken_for_it():
    opening, ready, later = contents()["opening"] | {"at": 3}, Playground(), Playground()
    ask(later, play="kill 1")
    assert ask(ready, **opening) == ask(later, **opening)
    assert ask(Playground(), **opening | {"versions": ["3.7"]})["versions"] == ["3.7"]


@pytest.mark.parametrize("each", challenges(), ids=lambda each: each.name)
def test_a_challenge_is_solved_by_its_solution(each):
    playground = Playground()
    assert not ask(playground, challenge=each.name)["problem"]
    assert not json.loads(playground.more())["marks"]["done"]
    for line in each.sections["solution"].splitlines():
        if line.strip() and not line.startswith("#"):
            ask(playground, play=line)
    marks, _ = exercise.mark(each, each.sections["solution"])
    assert json.loads(playground.more())["marks"]["lines"] == [f"✓ {mark.text}" for mark in marks]


def test_a_curve_is_that_of_a_notebook():
    playground, text = Playground(), scenario.read("loss_bounce")
    ask(playground, story="loss_bounce", at=3)
    message = {"decide": {"promise": "committed_records_survive", "mix": "kill=2"}}
    playground.ask(json.dumps(message))
    curve = rest(playground)["curve"]
    short = link.read(link.fragment(playground.story.text)).text
    same = decided.decided(short, mix=decided.mix_of("kill=2"), count=100)
    assert curve["text"] == same.table and curve["svg"].startswith("<svg")
    assert text


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"link": "s" * 9_000}, "at most 4,000"),
        ({"link": MARKUP}, "not a link to a scenario"),
        ({"open": "partition\n" + "advance 1s\n" * (MOST_STEPS + 1)}, "401 steps"),
        ({"open": "partition\n" + "# \n" * 9_000}, "20,000 characters"),
        ({"open": MARKUP}, "unknown command|begins with"),
        ({"story": "../../etc/passwd"}, "no scenario"),
        ({"challenge": "../lose_m2"}, "no exercise"),
        ({"play": "# nothing"}, "is not a step"),
        ({"go": 9_999}, "no step"),
        ({"decide": {"promise": "x", "mix": "kill=much"}}, "not a weight"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(message, problem):
    playground = Playground()
    before = playground.view()
    view = ask(playground, **message)
    assert re.search(problem, view["problem"])
    assert view["text"] == before["text"] and view["path"] == before["path"]


def test_the_film_shows_the_loss_that_the_page_speaks_of():
    story, shown = Exploration(scenario.read(OPENING), ("4.3", "4.0")), contents()["film"]
    words = [[panel["word"] for panel in each["panels"]] for each in shown.values()]
    assert words[0] == ["safe", "safe"] and words[-1] == ["lost", "safe"]
    assert "m1 m2" in story.run("4.3").violations["acknowledged_records_survive"]
    assert [line.split()[0] for line in story.text.splitlines()].count("kill") == 1
    ends = [(cell["version"], cell["word"]) for cell in shown[len(story.tree) - 1]["cells"]]
    assert ends == [("0.8.2 to 4.0", "safe"), ("4.1 to 4.4", "lost")]
    page = (FRONT / "index.html").read_text(encoding="utf-8")
    assert "Kafka 4.3 loses two records" in page and "4.0 keeps them" in page


def test_each_story_stands_in_a_group_and_has_a_title_of_its_own():
    titles = [title for group in contents()["stories"].values() for title in group.items()]
    assert sorted(n for n, _ in titles) == sorted(p.stem for p in scenario.LIBRARY.glob("*.txt"))
    assert len({title for _, title in titles}) == len(titles)
    assert max(len(title) for _, title in titles) <= 64


def test_a_schedule_is_played_by_the_rules_that_it_names():
    playground = Playground()
    view = ask(playground, open="partition\nkill 1")
    assert view["versions"] == ["4.3", "4.0"]
    assert ask(playground, open=view["text"] + "elect")["versions"] == ["4.3", "4.0"]
    assert ask(playground, open="version 0.10.2\npartition\nkill 1")["versions"] == ["0.10.2"]


def test_a_step_that_never_settles_is_no_step():
    playground = Playground()
    view = ask(playground, play="advance 99999h")
    assert "still in flight" in view["panels"][0]["problem"]


def test_names_of_records_do_not_become_markup_of_a_picture():
    playground = Playground()
    ask(playground, play=f'produce p1 1 "{MARKUP}" acks=1')
    assert all("<img" not in each for p in playground.view()["panels"] for each in p["pictures"])


def test_every_command_is_explained_and_every_word_of_it():
    assert explained.explained().keys() - {explained.KINDS} == COMMANDS.keys()
    words = contents()["words"]
    assert [*words["produce"]["follow"]] == ["count=", "acks=", "every=", "for="]
    texts = [text for each in words.values() for text in each["follow"].values()]
    assert len(texts) > 60 and all(len(text) > 10 for text in texts)
    forms = " ".join(f"{form.words} {form.options}" for form in COMMANDS.values())
    assert {*re.findall(r"\b[A-Z]+\b", forms)} == {
        kind for kind in explained.explained()[explained.KINDS] if kind.isupper()
    }


def test_cells_of_a_notebook_lead_to_the_playground(tmp_path):
    assert playable.of_cell("%%exercise lose_m2\nkill 1", {}) == {"e.lose_m2": "try “lose m2”"}
    assert playable.of_cell("%%exercise flap_idle\n", {}), "its goals are numbers of a scenario"
    assert playable.of_cell("%%exercise far_follower\n", {}) == {}, "it is a fleet"
    (fragment,) = playable.of_cell("%%scenario --version 2.5\npartition\nkill 1\n", {})
    assert link.read(fragment).text == "version 2.5\npartition\nkill 1\n"
    (fragment,) = playable.of_cell('run = scenario.read("loss_bounce")', {})
    page = f'<a data-play="{fragment}">loss bounce</a>'
    assert playable.linked(page, tmp_path) == page
    (tmp_path / "play").mkdir()
    (tmp_path / "play" / "index.html").touch()
    there = playable.linked(page, tmp_path)
    assert f'href="../play/index.html#{fragment}"' in there
    assert playable.linked(there, tmp_path / "elsewhere") == page


def test_schedules_and_parameters_of_a_cell_are_played():
    given = {"version": "4.1", "log_dir": "../data/recordings/incidents/282-link-cut/logs"}
    assert list(playable.of_cell("found = look(log_dir)", given)) == ["i.282-link-cut"]
    assert playable.of_cell("found = look(my_dir)", given) == {}
    (fragment,) = playable.of_cell('play("""partition\nadvance 15ms\nkill 1\n""")', given)
    assert link.read(fragment).text == "version 4.1\npartition\nadvance 15ms\nkill 1\n"


def test_a_notebook_has_a_link_for_each_scenario_exercise_and_incident_that_it_names():
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        said = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
        playable.add_links(notebook)
        outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
        shown = "".join(str(o.get("data", {}).get("text/html")) for o in outputs)
        fleets = set(re.findall(r"%%exercise (\w+)\n", said)) - {e.name for e in challenges()}
        assert shown.count("which needs numpy") == len(fleets), path.name
        exercises = {f"e.{e.name}" for e in challenges() if f"%%exercise {e.name}\n" in said}
        played = {playable.fragments()[name] for name in re.findall(r'read\("(\w+)"\)', said)
                  if name in playable.fragments()}  # fmt: skip
        incidents = {f"i.{name}" for name in re.findall(r"incidents/([\w-]+)", said)}
        links = {*playable.LINK.findall(shown)}
        assert exercises | played | incidents <= links, path.name
        assert all(len(fragment) <= MOST_LINK for fragment in links)
