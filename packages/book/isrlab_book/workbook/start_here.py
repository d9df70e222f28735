"""Notebook 00 and the README: the pictures of the first page, all from runs."""

from dataclasses import replace

from isrlab.engine.versions import GENERATIONS
from isrlab.show.replicas import draw_logs
from isrlab.world import scenario
from isrlab_book.explorer import film

_PAIR = """partition replicas=1,2
produce 1 m1 m2
advance 1s
pause 2 fetcher
produce 1 m3 m4"""


def pictures() -> dict[str, str]:
    """The pictures of the first page by name, as SVG, all from runs."""
    shown = {
        "a follower restarts": "lost_step_by_step",
        "a follower joins early": "joined_too_early",
        "the last replica fails": "last_replica_standing",
        "a move is cancelled": "cancelled_and_lost",
    }
    cells = {
        label: {
            rules.releases: scenario.play(scenario.read(name), version=rules).outcome.word
            for rules in GENERATIONS
        }
        for label, name in shown.items()
    }
    members = {
        "broker 3 stalls, and returns": scenario.play(scenario.read("leave_and_return")),
        "broker 2 flaps": scenario.play(scenario.read("flapping")),
    }
    pair = draw_logs(scenario.play(_PAIR).frames[-1])
    return {
        "lost": film.film(scenario.play(scenario.read("lost_step_by_step"))),
        "understand": str(replace(pair, parts=film.style_sheet() + pair.parts)),
        "cluster": film.draw_members(members),
        "change": film.draw_cells(cells),
    }
