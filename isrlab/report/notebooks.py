"""The notebooks of the workbook: their names, their parameters, and the runs that are asked for.

Theory of operation. A notebook declares its parameters in its one cell tagged `parameters`. `plan`
turns names and parameter texts into runs, and refuses errors before anything has run: an unknown
notebook or parameter, a value of another type than the default, or outside the range ("1 to 600")
in its comment. A value is text until the type of the default determines how to read it; it is never
evaluated.
"""

import ast
import hashlib
import io
import itertools
import json
import math
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbconvert.preprocessors import ClearOutputPreprocessor, Preprocessor

from isrlab.engine.versions import release
from isrlab.installed import NOTEBOOKS

KINDS = {bool: "true or false", int: "a whole number", float: "a number", list: "a list"}
USES_SPARK = re.compile(
    r"(?m)^\s*(?:(from|import) isrlab\.|from isrlab import\s*(\([^)]*|[^\n#]*)\b)spark\b"
)
WIDGET = "application/vnd.jupyter.widget-view+json"
RANGE = re.compile(r"(?:^|[;,:]|any from|each) (\d[\d.,]*)(?: \([^)]*\))? to (\d[\d.,]*\d|\d)\b")
GRID_KEYS = ("notebook", "title", "grid")
MOST_POINTS = 100  # of a grid; each takes up to a minute
MOST_COLUMNS = 6


class NotebookError(Exception):
    """The request cannot be run; the message has the given value and the valid ones."""


@dataclass(frozen=True)
class Parameter:
    """One assignment of the parameters cell."""

    name: str
    default: Any
    comment: str


@dataclass(frozen=True)
class Notebook:
    """A notebook and its declared parameters."""

    path: Path
    node: nbformat.NotebookNode
    parameters: dict[str, Parameter]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def title(self) -> str:
        prose = "\n".join(c.source for c in self.node.cells if c.cell_type == "markdown")
        heading = re.search(r"^#+\s+(.+)$", prose, re.MULTILINE)
        return re.sub(r"[*`]", "", heading.group(1)).strip() if heading else self.name

    @property
    def needs_spark(self) -> bool:
        """Whether a cell imports `isrlab.spark`."""
        return any(USES_SPARK.search(c.source) for c in self.node.cells if c.cell_type == "code")

    def own(self, name: str) -> str:
        """Its own name of a parameter: "release" and "version" stand for each other."""
        other = {"release": "version", "version": "release"}.get(name, name)
        return other if name not in self.parameters and other in self.parameters else name


@dataclass(frozen=True)
class NotebookRun:
    """A notebook with the given parameters; the others keep their defaults."""

    notebook: Notebook
    given: dict[str, Any]

    @property
    def parameters(self) -> dict[str, Any]:
        return {p.name: p.default for p in self.notebook.parameters.values()} | self.given

    @property
    def slug(self) -> str:
        """The name of the run's files: readable, unique, a plain file name."""
        if not self.given:
            return self.notebook.name
        text = json.dumps(self.given, sort_keys=True)
        words = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:40]
        return f"{self.notebook.name}-{words}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


@dataclass(frozen=True)
class Grid:
    """Runs of one notebook with every combination of some values; the last axis changes first."""

    name: str
    title: str
    axes: dict[str, list[Any]]
    slugs: list[str]

    @property
    def columns(self) -> int:
        """How many runs a row shows: of several axes all values of the last, if they fit."""
        width = len(list(self.axes.values())[-1])
        return width if len(self.axes) > 1 and width <= MOST_COLUMNS else min(width, 3)

    @property
    def page(self) -> str:
        return f"grid-{self.name}.html"


def find(folder: Path, names: Iterable[str] = ()) -> list[Notebook]:
    """A folder's notebooks but the index, or those named "02", "data_loss" or "02_data_loss".

    Raises NotebookError for an unknown name, an unreadable file, or a folder without notebooks.
    """
    paths = sorted(folder.glob("[0-9]*_*.ipynb"))
    known = {path.stem: path for path in paths if path.stem != "00_start_here"}  # the index
    if not known:
        raise NotebookError(f"no notebooks (NN_name.ipynb) in {folder}")
    chosen = set()
    for name in names:
        full = [k for k in known if name in (k, k.partition("_")[0], k.partition("_")[2])]
        if not full:
            raise NotebookError(f"unknown notebook {name!r}; known: {', '.join(known)}")
        chosen.add(full[0])
    return [read(known[name]) for name in sorted(chosen or known)]


def read(path: Path) -> Notebook:
    """One notebook without stored outputs. Raises NotebookError if it cannot be read."""
    try:
        node = nbformat.read(path, as_version=4)
        ClearOutputPreprocessor().preprocess(node, {})
        cells = [cell.source for cell in node.cells if "parameters" in tags(cell)]
        parameters = {p.name: p for cell in cells for p in read_parameters(cell)}
    except (OSError, ValueError, AttributeError, SyntaxError) as error:
        raise NotebookError(f"cannot read notebook {path}: {error}") from error
    return Notebook(path, node, parameters)


def read_parameters(source: str) -> Iterator[Parameter]:
    """The `name = literal  # comment` lines of a parameters cell.

    papermill's own reader skips a line whose comment has an equals sign, hence this one.
    """
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            comment = comments.get(statement.end_lineno or 0, "")
            yield Parameter(statement.targets[0].id, ast.literal_eval(statement.value), comment)


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


class KeepPlayers(Preprocessor):
    """Removes widgets of which a notebook has a player: the kernel with their models is gone."""

    def preprocess(self, notebook: Any, resources: Any) -> tuple[Any, Any]:
        for output in (out for cell in notebook["cells"] for out in cell.get("outputs", [])):
            if "text/html" in output.get("data", {}):  # the player, which needs no kernel
                output["data"].pop(WIDGET, None)
        return notebook, resources


def save_players(model: dict[str, Any], **_: Any) -> None:
    """JupyterLab's pre-save hook: a stored widget would be shown as an error when opened again."""
    if model["type"] == "notebook":
        KeepPlayers().preprocess(model["content"], {})


def _load_jupyter_server_extension(server: Any) -> None:
    """The extension that `isrlab lab` adds to JupyterLab: notebooks are saved without widgets, and
    isrlab's own, as installed, are trusted, so that their stored players run."""
    server.contents_manager.register_pre_save_hook(save_players)
    for path in NOTEBOOKS.glob("*.ipynb"):
        server.contents_manager.notary.sign(nbformat.read(path, as_version=4))


def plan(
    notebooks: list[Notebook], options: Sequence[tuple[str, str]] = (), file: Path | None = None
) -> list[NotebookRun]:
    """One run for each notebook, or one for each choice where a parameter has several values.

    `options` are (name, text) and override the file. The file has parameters for every notebook
    that knows them and, under a notebook's name, those for it alone; a list means one run for each
    of its values. Raises NotebookError for an unknown notebook or parameter, or a wrong value.
    """
    typed = {
        name: [_found_here(name, text) for other, text in options if other == name]
        for name, _ in options
    }
    general, nested = read_yaml(file) if file else {}, {}
    for name in [name for name, value in general.items() if isinstance(value, dict)]:
        (notebook,) = find(notebooks[0].path.parent, [name])
        nested[notebook.name] = _named(general.pop(name), [notebook])
    _named(general | typed, notebooks)
    runs = []
    for notebook in notebooks:
        choices = general | nested.get(notebook.name, {}) | typed
        choices = {notebook.own(name): each for name, each in choices.items()}
        axes = {name: choices[name] for name in notebook.parameters if name in choices}
        runs += _combinations(notebook, axes)
    return runs


def _found_here(name: str, text: str) -> str:
    """`text`; for a parameter "_file" or "_dir", the absolute path if there is such a file."""
    is_path = text and ("_file" in name or "_dir" in name)
    return str(Path(text).absolute()) if is_path and Path(text).exists() else text


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; all values are text, so that `version: 2.10` stays 2.10."""
    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise NotebookError(f"cannot read {file}: {error}") from error
    if not isinstance(loaded, dict):
        raise NotebookError(f"{file} must hold `name: value` lines")
    return loaded


def read_grid(file: Path, folder: Path) -> tuple[Grid, list[NotebookRun]]:
    """The grid of a YAML file, and its runs. The file has `notebook`, `grid` (by parameter a value,
    or a list of values), and optionally `title`.

    Raises NotebookError for anything wrong in the file, and for more than MOST_POINTS combinations.
    """
    loaded = read_yaml(file)
    for key in loaded.keys() - set(GRID_KEYS):
        raise NotebookError(f"{file}: unknown key {key!r}; known: {', '.join(GRID_KEYS)}")
    (notebook,) = find(folder, [str(loaded.get("notebook", ""))])
    given = loaded.get("grid") or {}
    if not isinstance(given, dict):
        raise NotebookError(f"{file}: grid must hold `name: value` lines")
    given = {notebook.own(k): v for k, v in _named(given, [notebook]).items()}
    axes = {k: v for k, v in given.items() if isinstance(v, list)}
    points = math.prod(map(len, axes.values()))
    if not axes or not 1 <= points <= MOST_POINTS:
        sizes = " x ".join(f"{len(values)} {name}" for name, values in axes.items()) or "no values"
        raise NotebookError(f"{file}: {sizes} give {points} points; valid: 1 to {MOST_POINTS}")
    runs = _combinations(notebook, given)
    slugs = [run.slug for run in runs]
    if len(set(slugs)) < len(slugs):
        raise NotebookError(f"{file}: a value occurs twice")
    typed = {k: [parse(each, notebook.parameters[k]) for each in axes[k]] for k in axes}
    name = re.sub(r"[^\w.-]+", "-", file.stem)
    return Grid(name, str(loaded.get("title") or notebook.title), typed, slugs), runs


def _named(values: dict[str, Any], notebooks: list[Notebook]) -> dict[str, Any]:
    """`values`, if each is a parameter of at least one notebook.

    Raises NotebookError with the parameters of each notebook, their defaults and comments.
    """
    unknown = [name for name in values if not any(n.own(name) in n.parameters for n in notebooks)]
    if not unknown:
        return values
    lines = [f"unknown parameter {unknown[0]!r}; known:"]
    for notebook in notebooks:
        lines.append(f"  {notebook.name}" + ("" if notebook.parameters else " has none"))
        for p in notebook.parameters.values():
            lines.append(f"    {p.name} = {p.default!r}  # {p.comment}".removesuffix("  # "))
    raise NotebookError("\n".join(lines))


def _combinations(notebook: Notebook, axes: dict[str, Any]) -> list[NotebookRun]:
    """A run for every combination of values, the last axis changing first."""
    axes = {name: v if isinstance(v, list) else [v] for name, v in axes.items()}
    typed = [[parse(each, notebook.parameters[name]) for each in axes[name]] for name in axes]
    return [
        NotebookRun(notebook, dict(zip(axes, v, strict=True))) for v in itertools.product(*typed)
    ]


def parse(value: Any, parameter: Parameter) -> Any:
    """A text (or a list of texts) as the type of the parameter's default.

    Raises NotebookError if it is of another type, or outside the range.
    """
    default = parameter.default
    hint = f"default {default!r}; {parameter.comment}".removesuffix("; ")
    try:
        if isinstance(default, list):
            items = value if isinstance(value, list) else yaml.load(value, yaml.BaseLoader)
            like = replace(parameter, default=default[0] if default else None)
            return [parse(item, like) for item in {list: items}[type(items)]]
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if default is None:
            scalar = yaml.safe_load(value)
            parsed = scalar if isinstance(scalar, bool | int | float | None) else value
        else:
            parsed = type(default)({str: value}[type(value)])
    except (ValueError, KeyError, AttributeError, yaml.YAMLError) as error:
        text = f"parameter {parameter.name}: {value!r} is not {KINDS.get(type(default), 'text')}"
        raise NotebookError(f"{text} ({hint})") from error
    if not _is_in_range(parsed, parameter):
        raise NotebookError(f"parameter {parameter.name}: {value} is out of its range ({hint})")
    return parsed


def _is_in_range(value: Any, parameter: Parameter) -> bool:
    """Whether a number, or a release of Kafka, is in the last range of the comment."""
    ranges, is_number = RANGE.findall(parameter.comment), isinstance(value, int | float)
    is_release = re.search("release|version", f"{parameter.name} {parameter.comment}")
    is_named = value == "" or f'"{value}"' in parameter.comment
    if not ranges or is_named or not (is_release or is_number):
        return True
    low, high = ranges[-1]
    if is_number:
        return float(low.replace(",", "")) <= value <= float(high.replace(",", ""))
    try:
        return release(low, 0) <= release(value) and release(value, 0) <= release(high)
    except ValueError:
        return False
