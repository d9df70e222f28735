"""Links from the pages of a report into the playground: scenarios, exercises, incidents.

Theory of operation. A cell's source shows what it plays or reads, as far as constants name it:
names of scenarios, schedules as text, folders of recorded incidents. If a module names the scenario
instead of the cell, a tag `play:NAME` does so. In tables a scenario is known by its name, a
schedule by its first word, `partition`. Of a loop the first turn is played. A link has no address,
and is not shown, until the report has a playground (`python -m isrlab page`).
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

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
_PLAIN = ast.Constant, ast.JoinedStr, ast.BinOp, ast.Name, ast.List
_OF_A_LOOP = ast.List, ast.Tuple, ast.Call, ast.Name
_NO_NUMPY = "It has no link into the playground: this exercise runs a fleet, which needs numpy."


@cache
def fragments() -> dict[str, str]:
    """The fragments of the links to the stored scenarios, by name."""
    paths = sorted(scenario.LIBRARY.glob("*.txt"))
    return {path.stem: link.fragment(path.read_text(encoding="utf-8")) for path in paths}


def of_cell(source: str, known: dict[str, Any]) -> dict[str, str]:
    """The links of a cell: label by fragment. `known` has the values of names, and is extended."""
    head, _, lines = source.partition("\n")
    if head.startswith("%%exercise"):
        names = [each.name for each in challenges() if each.name in head.split()]
        return {f"e.{name}": f"try “{name.replace('_', ' ')}”" for name in names}
    if head.startswith("%%scenario"):
        return {link.fragment(lines, re.findall(r"--version (\S+)", head)): "this scenario"}
    links = dict[str, str]()
    with suppress(SyntaxError):
        for text in _texts(ast.parse(re.sub(r"(?m)^\s*[%!].*", "", source)), known):
            links |= _link(text, known)
    return links


def _link(text: str, known: dict[str, Any]) -> dict[str, str]:
    if text in fragments():
        return {fragments()[text]: text.replace("_", " ")}
    if re.match(r"partition\b.*\n.", text):
        version = [str(known["version"])] if known.get("version") else []
        return {link.fragment(text, version): "this schedule"}
    return {f"i.{n}": f"the logs of {n}" for n in _RECORDED.findall(text) if n in recordings()}


def _texts(node: ast.AST, known: dict[str, Any]) -> Iterator[str]:
    """The strings in a cell that follow from constants and known names; extends `known`."""
    if isinstance(node, _PLAIN):
        yield str(_value(node, known))
        return
    if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        turns = _value(node.iter, known, _OF_A_LOOP)
        known[node.target.id] = next(iter(turns), None) if isinstance(turns, Iterable) else None
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, known)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        known[node.targets[0].id] = _value(node.value, known)


def _value(node: ast.AST, known: dict[str, Any], kinds: Any = _PLAIN) -> Any:
    """The value of a plain expression, else None. The user has just run it, so `eval` is safe."""
    with suppress(Exception):
        if isinstance(node, kinds):
            names = {"__builtins__": {"sorted": sorted, "range": range}}
            names |= {name: value for name, value in known.items() if value is not None}
            return eval(compile(ast.Expression(node), "cell", "eval"), names)
    return None


def add_links(notebook: NotebookNode) -> None:
    """Add links below the outputs of each cell, and to the scenarios named in its tables."""
    known, shown = dict[str, Any](), set[str]()

    def row(match: re.Match[str]) -> str:
        text = html.unescape(match[1])
        anchors = [_anchor(each, text) for each in _link(text.replace("; ", "\n"), known)]
        return f"<td>{anchors[0]}</td>" if anchors else match[0]

    for cell in (each for each in notebook.cells if each.cell_type == "code"):
        for data in (output.get("data", {}) for output in cell.outputs):
            if "text/html" in data:
                data["text/html"] = _IN_A_TABLE.sub(row, "".join(data["text/html"]))
        links = of_cell(cell.source, known)
        for tag in tags(cell):
            links |= _link(tag.removeprefix("play:"), {})
        # Logs are read in many cells: only the first has the link, and no cell of parameters.
        anchors = [_anchor(*each) for each in links.items() if each[0] not in shown]
        if anchors and not {"parameters", "injected-parameters"} & {*tags(cell)}:
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
