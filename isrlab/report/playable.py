"""Links from the pages of a report into the playground: scenarios, exercises, incidents.

Theory of operation. What a cell plays or reads is found in its source, as far as constants say it:
names of scenarios, schedules as text, folders of recorded incidents. A tag `play:NAME` names the
scenario where a module names it for the cell. In tables a scenario is known by its name, a schedule
by its first line. A link is written without an address, and gets one as soon as the report has a
playground beside it (`python -m isrlab page`); until then it is not shown.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

from nbformat import NotebookNode

from isrlab.page.build import PLAY
from isrlab.page.playing import challenges, recordings
from isrlab.report.notebooks import tags
from isrlab.world import link, scenario

LINK = re.compile(r'<a (?:href="[^"]*" )?data-play="([\w.-]+)">')
_IN_A_TABLE = re.compile(r"<td>(\w+|partition [^<]*; [^<]*)</td>")
_EXERCISE, _SCENARIO = re.compile(r"%%exercise (\w+)"), re.compile(r"%%scenario(.*)\n")
_RECORDED = re.compile(r"(?:.*/)?(?:recordings|incidents)/([\w.-]+)(?:/.*)?")
_PLAIN = ast.Constant, ast.JoinedStr, ast.BinOp, ast.Name, ast.List


@cache
def fragments() -> dict[str, str]:
    """The fragments of the links to the stored scenarios, by name."""
    paths = sorted(scenario.LIBRARY.glob("*.txt"))
    return {path.stem: link.fragment(path.read_text(encoding="utf-8")) for path in paths}


def of_cell(source: str, known: dict[str, Any] | None = None) -> dict[str, str]:
    """What can be played of a cell: fragments, and what they open. `known` are the values of names
    so far, and those of the cell are added."""
    if match := _EXERCISE.match(source):
        names = {each.name for each in challenges()} & {match[1]}
        return {f"e.{name}": f"try “{name.replace('_', ' ')}”" for name in names}
    if match := _SCENARIO.match(source):
        version = re.search(r"--version (\S+)", match[1])
        text = source[match.end() :]
        return {link.fragment(text, (version[1],) if version else ()): "this scenario"}
    links, known = dict[str, str](), {} if known is None else known
    with suppress(SyntaxError):
        for text in _texts(ast.parse(re.sub(r"(?m)^\s*[%!].*", "", source)), known):
            links |= _link(text, known)
    return links


def _link(text: str, known: dict[str, Any]) -> dict[str, str]:
    recorded, version = _RECORDED.fullmatch(text), known.get("version")
    if text in fragments():
        return {fragments()[text]: text.replace("_", " ")}
    if recorded and recorded[1] in recordings():
        return {f"i.{recorded[1]}": f"the logs of {recorded[1]}"}
    if text.startswith("partition ") and "\n" in text.strip():
        return {
            link.fragment(text, (version,) if isinstance(version, str) else ()): "this schedule"
        }
    return {}


def _texts(node: ast.AST, known: dict[str, Any]) -> Iterator[str]:
    """The texts of a cell, where constants and names that are known say them whole."""
    value = _value(node, known)
    yield from (each for each in (value if isinstance(value, list) else [value])
                if isinstance(each, str))  # fmt: skip
    if not isinstance(node, _PLAIN):
        for child in ast.iter_child_nodes(node):
            yield from _texts(child, known)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        known[node.targets[0].id] = _value(node.value, known)


def _value(node: ast.AST, known: dict[str, Any]) -> Any:
    """None if it is not plain. The cell is the user's own, who has just run it."""
    with suppress(Exception):
        if isinstance(node, _PLAIN):
            expression = compile(ast.Expression(node), "cell", "eval")
            return eval(
                expression,
                {"__builtins__": {}},
                {name: each for name, each in known.items() if each is not None},
            )
    return None


def add_links(notebook: NotebookNode) -> None:
    """Below the outputs of each cell, what of it can be played; in its tables, each scenario."""
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
        again = {each for each in shown & links.keys() if each.startswith("i.")}
        anchors = [_anchor(*each) for each in links.items() if each[0] not in again]
        if anchors and not {"parameters", "injected-parameters"} & {*tags(cell)}:
            shown |= links.keys()
            page = f'<p class="play">Play in your browser: {", ".join(anchors)}</p>'
            data = NotebookNode({"text/html": page})
            new = NotebookNode(output_type="display_data", data=data, metadata={})
            cell.outputs.append(new)


def _anchor(fragment: str, text: str) -> str:
    return f'<a data-play="{fragment}">{html.escape(text)}</a>'


def linked(page: str, has_playground: bool) -> str:
    """The links of a page lead to the playground, if there is one."""

    def address(match: re.Match[str]) -> str:
        href = f'href="../{PLAY}/index.html#{match[1]}" ' if has_playground else ""
        return f'<a {href}data-play="{match[1]}">'

    return LINK.sub(address, page)
