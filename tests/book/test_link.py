"""Schedules as links: short, unchanged when read, and harmless whatever they contain."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isrlab.world import scenario
from isrlab.world.actions import does_something
from isrlab.world.script import parse
from isrlab_book.explorer import link

SCENARIOS = {path.stem: path.read_text() for path in sorted(scenario.LIBRARY.glob("*.txt"))}
MOST = 300  # characters


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_short_link_has_every_step_of_a_scenario(name):
    blocks = parse(SCENARIOS[name])
    lines = [c.text.split("#")[0].strip() for block in blocks for c in block.commands]
    opened = link.read(link.fragment(SCENARIOS[name], ("0.10.2", "4.3"), 9))
    assert (opened.versions, opened.at) == (("0.10.2", "4.3"), 9)
    steps = [line for line in lines if line.startswith("partition") or does_something(line)]
    asks = ("consume", "version")
    assert [li for li in opened.text.splitlines() if not li.startswith(asks)] == steps
    assert len(link.fragment(SCENARIOS[name], ("0.10.2", "4.3"), 9)) <= MOST


def test_a_link_of_the_first_form_is_read_forever():
    bounce = link.read("sgziKkBuwusAQi-HYAhqajDCDB5tiSAqERgyOPACLZZzpCyUCcarCSBoA")
    assert scenario.play(bounce.text, version=bounce.versions[0]).outcome.word == "lost"


def packed(text: bytes) -> str:
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return "s" + urlsafe_b64encode(squeezer.compress(text) + squeezer.flush()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("fragment", "problem"),
    [
        ("s" + "A" * 10_000_000, "at most"),
        (packed(b"3.7\n" + b"advance 1s\n" * 100_000), "longer than"),
        (packed(b"\xff\xfe"), "damaged"),
        ("s*", "not a link"),
        ("sgziKkBuwusAQi-HYAhqajDCDB5tiSAqERgy", "end is missing"),
        ("<img src=x onerror=alert(1)>", "not a link"),
        ("", "not a link"),
    ],
)
def test_a_wrong_link_says_what_is_wrong_with_it(fragment, problem):
    with pytest.raises(ValueError, match=problem):
        link.read(fragment)


@given(st.text(max_size=200))
def test_no_link_does_more_than_fail(text):
    try:
        link.read(f"s{text}")
    except ValueError as error:
        assert len(str(error)) < 100


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=200))
def test_what_a_link_says_is_text(text):
    lines = link.read(link.fragment(f"version 3.7\n{text}")).text.splitlines()
    assert lines[0] == "version 3.7"
