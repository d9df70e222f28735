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


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_link_leads_somewhere(name) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_notebook_is_on_the_map() -> None:
    names = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert names <= set(re.findall(r"notebooks/(\S+\.ipynb)", README))
