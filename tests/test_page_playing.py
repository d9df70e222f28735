"""What the page asks of Python: stories, links, challenges, curves, and strangers' schedules."""

from __future__ import annotations

import json
import re

import pytest

from isrlab import exercise
from isrlab.page.playing import MOST_STEPS, Playground, challenges, contents
from isrlab.report import playable
from isrlab.world import decided, explained, link, scenario
from isrlab.world.commands import COMMANDS

MARKUP = "<img src=x onerror=window.ran=1>"


def ask(playground, **message):
    return json.loads(playground.ask(json.dumps(message)))["view"]


def rest(playground):
    """All that comes by itself, the last of each kind."""
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


@pytest.mark.parametrize("each", challenges(), ids=lambda each: each.name)
def test_a_challenge_is_solved_by_its_solution(each):
    playground = Playground()
    assert not ask(playground, challenge=each.name)["problem"]
    assert not rest(playground)["marks"]["done"]
    for line in each.sections["solution"].splitlines():
        if line.strip() and not line.startswith("#"):
            ask(playground, play=line)
    marks, _ = exercise.mark(each, each.sections["solution"])
    assert rest(playground)["marks"]["lines"] == [f"✓ {mark.text}" for mark in marks]


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
        ({"link": MARKUP}, "not a link to a schedule"),
        ({"open": "partition\n" + "advance 1s\n" * (MOST_STEPS + 1)}, "401 steps"),
        ({"open": "partition\n" + "# \n" * 9_000}, "20,000 characters"),
        ({"open": MARKUP}, "unknown command|begins with"),
        ({"story": "../../etc/passwd"}, "no scenario"),
        ({"challenge": "../lose_m2"}, "no exercise"),
        ({"play": "# nothing"}, "is not a step"),
        ({"go": 9_999}, "no step"),
        ({"decide": {"promise": "x", "mix": "kill=much"}}, "no weight"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(message, problem):
    playground = Playground()
    before = playground.view()
    view = ask(playground, **message)
    assert re.search(problem, view["problem"])
    assert view["text"] == before["text"] and view["path"] == before["path"]


def test_a_step_that_never_settles_is_no_step():
    playground = Playground()
    view = ask(playground, play="advance 99999h")
    assert "still busy" in view["panels"][0]["problem"]


def test_names_of_records_do_not_become_markup_of_a_picture():
    playground = Playground()
    ask(playground, play=f'produce p1 1 "{MARKUP}" acks=1')
    assert all("<img" not in each for p in playground.view()["panels"] for each in p["pictures"])


def test_every_command_is_explained():
    assert explained.EXPLAINED.keys() == COMMANDS.keys()
    assert contents()["words"]["produce"]["follow"] == ["count=", "acks=", "every=", "for="]


def test_cells_of_a_notebook_lead_to_the_playground():
    assert playable.of_cell("%%exercise lose_m2\nkill 1") == {"try “lose m2”": "e.lose_m2"}
    assert playable.of_cell("%%exercise flap_idle\n") == {}, "its goals are numbers"
    (fragment,) = playable.of_cell("%%scenario --version 2.5\npartition\nkill 1\n").values()
    assert link.read(fragment).text == "version 2.5\npartition\nkill 1\n"
    (fragment,) = playable.of_cell('run = scenario.read("loss_bounce")').values()
    page = f'<a data-play="{fragment}">loss bounce</a>'
    there = playable.linked(page, True)
    assert f'href="../play/index.html#{fragment}"' in there
    assert playable.linked(there, False) == page
