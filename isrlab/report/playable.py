"""Links from the pages of a report into the playground: scenarios, exercises, differences.

Theory of operation. What a cell names is found in its source, and in the tables below it. A link is
written without an address, and gets one as soon as the report has a playground beside it
(`python -m isrlab page`); until then it is not shown.
"""

from __future__ import annotations

import html
import re
from functools import cache

from nbformat import NotebookNode

from isrlab.page.build import PLAY
from isrlab.page.playing import challenges
from isrlab.world import link, scenario

LINK = re.compile(r'<a (?:href="[^"]*" )?data-play="([\w.-]+)">')
_NAME = re.compile(r'"(\w+)"')
_IN_A_TABLE = re.compile(r"<td>(\w+)</td>")
_EXERCISE, _SCENARIO = re.compile(r"%%exercise (\w+)"), re.compile(r"%%scenario(.*)\n")


@cache
def _fragments() -> dict[str, str]:
    """The links to the stored scenarios, by name."""
    paths = sorted(scenario.LIBRARY.glob("*.txt"))
    return {path.stem: link.fragment(path.read_text(encoding="utf-8")) for path in paths}


def of_cell(source: str) -> dict[str, str]:
    """What can be played of a cell, as text and fragment."""
    if match := _EXERCISE.match(source):
        names = {each.name for each in challenges()} & {match[1]}
        return {f"try “{name.replace('_', ' ')}”": f"e.{name}" for name in names}
    if match := _SCENARIO.match(source):
        version = re.search(r"--version (\S+)", match[1])
        text = source[match.end() :]
        return {"this scenario": link.fragment(text, (version[1],) if version else ())}
    known = _fragments()
    return {name.replace("_", " "): known[name] for name in _NAME.findall(source) if name in known}


def add_links(notebook: NotebookNode) -> None:
    """Below the outputs of each cell, what of it can be played; in its tables, each scenario."""
    for cell in (each for each in notebook.cells if each.cell_type == "code"):
        for output in cell.outputs:
            shown = output.get("data", {})
            if "text/html" in shown:
                shown["text/html"] = _IN_A_TABLE.sub(_row, "".join(shown["text/html"]))
        links = [_anchor(fragment, text) for text, fragment in of_cell(cell.source).items()]
        if links:
            page = f'<p class="play">Play in your browser: {", ".join(links)}</p>'
            data = NotebookNode({"text/html": page})
            new = NotebookNode(output_type="display_data", data=data, metadata={})
            cell.outputs.append(new)


def _row(match: re.Match[str]) -> str:
    name, fragment = match[1], _fragments().get(match[1])
    return f"<td>{_anchor(fragment, name)}</td>" if fragment else match[0]


def _anchor(fragment: str, text: str) -> str:
    return f'<a data-play="{fragment}">{html.escape(text)}</a>'


def linked(page: str, has_playground: bool) -> str:
    """The links of a page lead to the playground, if there is one."""

    def address(match: re.Match[str]) -> str:
        href = f'href="../{PLAY}/index.html#{match[1]}" ' if has_playground else ""
        return f'<a {href}data-play="{match[1]}">'

    return LINK.sub(address, page)
