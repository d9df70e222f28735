"""Links from the pages of a report into the playground: scenarios, exercises, incidents.

Theory of operation. What stands in a cell is played: names of scenarios in quotes, their text in
triple quotes, folders of recorded incidents. What a cell only computes, a tag `play:NAME` names. In
tables a scenario is known by its name, or by its first word, `partition`. A link has no
address, and is not shown, until the report has a playground (`python -m isrlab page`).
"""

import html
import re
from functools import cache
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_output

from isrlab.report.notebooks import tags
from isrlab.world import scenario
from isrlab_book.explorer import link
from isrlab_book.page.build import PLAY
from isrlab_book.page.playing import challenges, recordings

FILM = "lost_step_by_step"  # the scenario of the first page's picture
LINK = re.compile(r'<a (?:href="[^"]*" )?data-play="([\w.-]+)">')
_IN_A_TABLE = re.compile(r"<td>(\w+|partition [^<]*; [^<]*)</td>")
_RECORDED = re.compile(r"(?:recordings|incidents)/(?!incidents)([\w.-]+)")
_NAMED = re.compile(r'["\'](\w+)["\']')
_SCHEDULE = re.compile(r'"""(partition\b.*?)"""', re.DOTALL)
_GIVEN = re.compile(r'^(\w+) = "([^"]*)"', re.MULTILINE)
_PARAMETERS = {"parameters", "injected-parameters"}
_NO_NUMPY = "It has no link into the playground: this exercise runs a fleet, which needs numpy."


@cache
def fragments() -> dict[str, str]:
    """The fragments of the links to the stored scenarios, by name."""
    paths = sorted(scenario.LIBRARY.glob("*.txt"))
    return {path.stem: link.fragment(path.read_text(encoding="utf-8")) for path in paths}


def of_cell(source: str, given: dict[str, str]) -> dict[str, str]:
    """The links of a cell: label by fragment. `given` has the values of the parameters."""
    head, _, lines = source.partition("\n")
    if head.startswith("%%exercise"):
        names = [each.name for each in challenges() if each.name in head.split()]
        return {f"e.{name}": f"try “{name.replace('_', ' ')}”" for name in names}
    if head.startswith("%%scenario"):
        return {link.fragment(lines, re.findall(r"--version (\S+)", head)): "this scenario"}
    texts = [*_NAMED.findall(source), *_SCHEDULE.findall(source), source]
    texts += [given[word] for word in re.findall(r"\w+", source) if word in given]
    return {fragment: label for text in texts for fragment, label in _link(text, given).items()}


def _link(text: str, given: dict[str, str]) -> dict[str, str]:
    if text in fragments():
        return {fragments()[text]: text.replace("_", " ")}
    if re.match(r"partition\b.*\n.", text):
        version = given.get("version", "")
        return {link.fragment(text, [version] if version else []): "this scenario"}
    return {f"i.{n}": f"the logs of {n}" for n in _RECORDED.findall(text) if n in recordings()}


def add_links(notebook: NotebookNode) -> None:
    """Add links below the outputs of each cell, and to the scenarios named in its tables."""
    given, shown = dict[str, str](), set[str]()

    def row(match: re.Match[str]) -> str:
        text = html.unescape(match[1])
        anchors = [_anchor(each, text) for each in _link(text.replace("; ", "\n"), given)]
        return f"<td>{anchors[0]}</td>" if anchors else match[0]

    for cell in (each for each in notebook.cells if each.cell_type == "code"):
        for data in (output.get("data", {}) for output in cell.outputs):
            if "text/html" in data:
                data["text/html"] = _IN_A_TABLE.sub(row, "".join(data["text/html"]))
        if _PARAMETERS & {*tags(cell)}:
            given |= dict(_GIVEN.findall(cell.source))
            continue
        links = of_cell(cell.source, given)
        for tag in tags(cell):
            links |= _link(tag.removeprefix("play:"), given)
        # Logs are read in many cells: only the first has the link.
        anchors = [_anchor(*each) for each in links.items() if each[0] not in shown]
        if anchors:
            shown |= {each for each in links if each.startswith("i.")}
            page = f'<p class="play">Play in your browser: {", ".join(anchors)}</p>'
            cell.outputs.append(new_output("display_data", {"text/html": page}))
        elif cell.source.startswith("%%exercise") and not links:
            page = f'<p class="play">{_NO_NUMPY}</p>'
            cell.outputs.append(new_output("display_data", {"text/html": page}))


def _anchor(fragment: str, text: str) -> str:
    return f'<a data-play="{fragment}">{html.escape(text)}</a>'


def on_index(out: Path) -> dict[str, str]:
    """For a report's index: the playground, if there is one, and the first picture's fragment."""
    page = f"{PLAY}/index.html" if (out / PLAY / "index.html").exists() else ""
    return {"play": page, "film": fragments()[FILM]}


def linked(page: str, out: Path) -> str:
    """`page` with its links leading to the playground, if there is one."""
    href = rf'href="../{PLAY}/index.html#\1" ' if on_index(out)["play"] else ""
    return LINK.sub(rf'<a {href}data-play="\1">', page)
