"""What the README shows is what happens."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

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


def test_the_sixty_lines_and_the_engine_tell_the_same_story() -> None:
    """Broker 3 stops fetching while records arrive, leaves the ISR, and comes back."""
    page = (ROOT / "isrlab" / "README.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    followers = [names["Follower"](), names["Follower"]()]
    leader, script, now_ms, shown = names["Leader"](followers), "partition replicas=1,2,3\n", 0, []
    turns = ("m1 m2", 2, 2), ("m3", 61, 1), ("m4 m5", 5, 1), ("m6", 3, 2)  # records, s, fetching
    ends = "pause 3 fetcher", "", "resume 3", ""
    for (records, seconds, fetching), end in zip(turns, ends, strict=True):
        leader.produce(*records.split())
        for _ in range(2 * seconds):
            now_ms += 500
            if now_ms % (names["LIMIT_MS"] // 2) == 0:
                leader.expire(now_ms)
            for follower in followers[:fetching]:
                follower.fetch(leader, now_ms)
        script += f"produce 1 {records} acks=1\nadvance {seconds}s\nstatus\n{end}\n----\n\n"
        logs = [leader, *followers]
        isr = [1, *(n for n, each in enumerate(followers, 2) if each in leader.isr)]
        shown.append((isr, [(len(each.log), each.high_watermark) for each in logs]))
    run = scenario.play(script)
    for block, (isr, expected) in zip(run.blocks, shown, strict=True):
        frame = run.frames[block.frames[1] - 1]
        logs = [frame.brokers[number].log for number in (1, 2, 3)]
        assert list(frame.controller.state.isr) == isr
        assert [(log.log_end_offset, log.high_watermark) for log in logs] == expected
