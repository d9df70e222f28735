"""In a page the answer to a prediction stays folded until the reader has chosen."""

from __future__ import annotations

from dataclasses import replace

import nbformat
import pytest
from test_browser import ROOT, chromium  # noqa: F401

from isrlab.report import gallery, notebooks, run

PATH = ROOT / "notebooks" / "00_the_life_of_a_record.ipynb"
PICTURES = ".output_html > img"


def page_of(**given: str) -> str:
    notebook = nbformat.read(PATH, as_version=4)
    (planned,) = notebooks.plan([notebooks.read(PATH)], list(given.items()))
    return gallery.page(replace(run.blank_record(planned), status="ok"), notebook)


@pytest.fixture
def opened(chromium, tmp_path):  # noqa: F811
    (tmp_path / "page.html").write_text(page_of(), encoding="utf-8")
    page = chromium.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    yield page
    page.close()


def test_keys_choose_an_answer_and_a_screen_reader_hears_the_count(opened):
    pictures = opened.locator(PICTURES)
    answers = opened.get_by_text("After nine silent")
    assert pictures.count() == 6 and not any(p.is_visible() for p in pictures.all())
    assert not answers.is_visible()
    opened.get_by_role("button", name="No: a message is missing.").press("Enter")
    assert pictures.nth(0).is_visible() and not pictures.nth(1).is_visible()
    for wrong in ("Immediately", "After 30", "Broker 2 leads, and a committed", "Broker 2 adopts"):
        opened.get_by_role("button", name=wrong).press("Space")
    assert answers.is_visible()
    said = opened.get_by_role("status")
    assert said.all_text_contents()[:2] == ["✓ Right.", "✗ No: it is 2."]
    assert said.last.text_content() == "You were right in 1 of 5 predictions; 1 are left."
    right = opened.get_by_role("button", name="It is refused.")
    right.press("Enter")
    right.press("Enter")
    assert said.last.text_content() == "You were right in 2 of 6 predictions."
    assert right.get_attribute("aria-pressed") == "true"
    assert opened.get_by_role("button", name="It waits").is_disabled()
    assert opened.complaints == []


def test_it_can_be_opened_without_a_choice_and_is_not_counted(opened):
    opened.locator("summary", has_text="What happens").first.click()
    assert opened.locator(PICTURES).first.is_visible()
    assert opened.locator(".tally").text_content() == ""


def test_a_run_with_parameters_of_its_own_shows_everything():
    assert gallery.CHOICES in page_of()
    assert "<script" not in page_of(version="4.1")
