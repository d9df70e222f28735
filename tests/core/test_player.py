"""A player has a view for each choice, or for some if there are many, and trusts no text."""

from __future__ import annotations

import html
import io
import json
import re
from itertools import pairwise

import matplotlib.pyplot as plt
import pytest
from PIL import Image
from PIL.ImageColor import getrgb

from isrlab.show import controls, style
from isrlab.show.player import SVG, PlayerImage, small
from isrlab.world import scenario


def shown(box) -> dict:
    """The data that the script of a player reads."""
    (data,) = re.findall(r'data-player="([^"]*)"', box.player())
    return json.loads(html.unescape(data))


def drawn_by(*inputs, draw=lambda *values: plt.plot([1, *values])[0].axes):
    return controls.LiveFigure(inputs, draw)


def test_a_player_has_all_combinations_the_last_slider_first_to_change():
    box = drawn_by(controls.choice("a", (1, 2), 2), controls.pick("b", [("x", 5), ("y", 6)], 6))
    data = shown(box)
    assert [text for _, text in data["frames"]] == ["a 1, b x", "a 1, b y", "a 2, b x", "a 2, b y"]
    assert [slider["at"] for slider in data["sliders"]] == [1, 1]
    assert [box.children[0].value, box.children[1].value] == [2, 6], "as before"
    assert not box.children[0].continuous_update, "redraws when let go"


@pytest.mark.parametrize(
    ("sizes", "kept"), [((19,), 19), ((60,), 24), ((5, 5), 20), ((3, 11, 7), 18)]
)
def test_of_many_combinations_some_are_kept_and_always_where_the_sliders_stand(sizes, kept):
    inputs = [controls.choice(str(n), range(size), size // 2 + 1) for n, size in enumerate(sizes)]
    data = shown(drawn_by(*inputs, draw=lambda *at: PlayerImage(b"%r" % (at,), "", "", SVG)))
    assert len(data["frames"]) == kept
    for slider, size in zip(data["sliders"], sizes, strict=True):
        assert slider["values"][slider["at"]] == str(size // 2 + 1)
        assert len(slider["values"]) < 3 or {"0", str(size - 1)} <= {*slider["values"]}


def test_equal_pictures_are_stored_once():
    box = controls.step_slider(scenario.play(scenario.read("sync_cycle")))
    places = {place for place, _ in shown(box)["frames"]}
    assert box.player().count("<img") == len(places) < len(shown(box)["frames"])


def test_of_a_long_run_the_steps_that_change_the_picture_are_shown():
    run = scenario.play(scenario.read("leave_and_return"))
    places = [place for place, _ in shown(controls.step_slider(run))["frames"]]
    assert 10 < len(places) <= controls.MOST_STEPS
    assert all(a != b for a, b in pairwise(places))


def test_text_of_a_log_stays_text():
    hostile = """"><script>alert('1')</script>"""
    page = drawn_by(controls.pick(hostile, [hostile, 2], 2)).player()
    assert page.count("<script>") == 1
    assert hostile not in page


def test_a_small_picture_keeps_the_colours_of_a_legend() -> None:
    """Of few pixels, beside large areas of a neighbouring colour and of many shades."""
    picture = Image.linear_gradient("L").resize((900, 600)).convert("RGB")
    picture.paste(style.ORANGE, (0, 0, 900, 200))
    picture.paste(style.VERMILION, (10, 300, 30, 308))
    data = io.BytesIO()
    picture.save(data, "PNG")
    kept = Image.open(io.BytesIO(small(data.getvalue()))).convert("RGB")
    for at, colour in (((5, 5), style.ORANGE), ((20, 304), style.VERMILION)):
        pairs = zip(kept.getpixel(at), getrgb(colour), strict=True)
        assert max(abs(is_ - was) for is_, was in pairs) < 20
