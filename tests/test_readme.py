"""What the README shows is what happens."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from isrlab.world import scenario

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_ten_lines_print_what_the_readme_says() -> None:
    section = README.split("## Ten lines")[1].split("The restarted follower")[0]
    script, printed = section.split("    $ .venv/bin/python -m isrlab play loss.txt\n")
    script = textwrap.dedent(script[script.index("    version") :])
    assert len(script.strip().splitlines()) == 10
    expected = "\n".join(line.removeprefix("    ") for line in printed.strip("\n").splitlines())
    assert scenario.play(script).printed.rstrip() == expected.rstrip()


PAGES = [ROOT / name / "README.md" for name in ("", "notebooks", "isrlab")]
PAGES += [ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("packages/*/README.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere_and_lines_are_short(page) -> None:
    text = page.read_text(encoding="utf-8")
    links = [each for each in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in each]
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []
    long = [line for line in text.splitlines() if len(line) > 100]
    assert [line for line in long if not line.startswith(("|", "!["))] == []
    assert len(text.splitlines()) <= 180


def test_every_notebook_is_on_the_map() -> None:
    names = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    table = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert names <= {*re.findall(r"\]\((\S+\.ipynb)\)", table)}
