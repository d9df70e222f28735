"""The house: who may import whom, what the engine may not touch, how much may stand in it.

Sizes are a budget (data/budget.toml): to raise a number there needs its reason beside it.
"""

from __future__ import annotations

import ast
import graphlib
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import isrlab

PACKAGE = Path(isrlab.__file__).parent
ROOT = Path(__file__).parent.parent
FILES = sorted(PACKAGE.rglob("*.py"))
BUDGET = tomllib.loads((ROOT / "data" / "budget.toml").read_text(encoding="utf-8"))
NOTEBOOKS = {path.stem.partition("_")[2]: path for path in (ROOT / "notebooks").glob("*.ipynb")}

# Ground floor first: a module imports only from floors below its own. A new module needs a floor.
FLOORS = (
    "installed", "engine", "judged", "closeups", "events", "evidence", "verdict", "java", "spark",
    "churn", "world", "placement", "fleet", "brokerlogs", "incidents", "show", "exercise", "magic",
    "workbook", "report", "__main__",
)  # fmt: skip
# Floors that may not import all that lies below them. The questions know events and not who made
# them; a picture is given what it draws, it plays and simulates nothing.
ONLY = {
    "churn": ("churn", "events", "spark"),
    "show": ("show", "engine", "events", "closeups", "world.frames", "world.words", "world.script"),
}
CLAIMS = "claims"  # the one folder of the workbook: of the notebook what_the_sources_say
CLAIMS_READER = "what_the_sources_say"
COLOURS = ("show/style.py",)  # where a colour may be written as a number
CLOCK_CHANCE_AND_IO = {
    "asyncio", "datetime", "io", "logging", "numpy.random", "os", "pathlib", "random", "secrets",
    "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
MAX_BODY_LINES = 50
MAX_COLUMNS = 100
MAX_ARGUMENTS = 5
# A list of scalars or arrays is the point there: the rules, and what numba compiles.
MANY_ARGUMENTS = ("engine/rules.py", "fleet/kernel/batches.py", "fleet/kernel/clock.py")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def floor_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports_of(path: Path) -> set[str]:
    """The full names of all modules that a file imports, wherever in it."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in nodes_of(path) if isinstance(node, kinds)]


every = pytest.mark.parametrize("path", FILES, ids=name_of)
MODULES = {name_of(path)[:-3].replace("/", ".").removesuffix(".__init__") for path in FILES}


@every
def test_imports_only_from_floors_below(path):
    if path == PACKAGE / "__init__.py":
        return  # the roof: it shows what is in the house
    own = floor_of(path)
    assert own in FLOORS, f"{own} has no floor: add it to FLOORS (and to the house in the README)"
    for module in imports_of(path):
        package, floor, *_ = (*module.split("."), "")
        if package != "isrlab" or floor in ("", own):
            continue
        assert floor in FLOORS, f"{name_of(path)} imports {module}, which has no floor"
        assert FLOORS.index(floor) < FLOORS.index(own), f"{own} imports from {floor}, above it"


@every
def test_some_floors_import_only_what_they_need(path):
    allowed = ONLY.get(floor_of(path))
    for module in imports_of(path) if allowed else ():
        package, _, rest = module.partition(".")
        if package == "isrlab" and rest in MODULES:
            is_allowed = any(f"{rest}.".startswith(f"{name}.") for name in allowed)
            is_door = any(name.startswith(f"{rest}.") for name in allowed)
            assert is_allowed or is_door, f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "workbook").glob("[!_]*")), ids=name_of)
def test_a_file_of_the_workbook_belongs_to_one_notebook(path):
    own = CLAIMS_READER if path.name in (CLAIMS, "__pycache__") else path.stem
    assert own in NOTEBOOKS, f"workbook/{path.name} is named like no notebook"


@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_a_notebook_imports_its_own_workbook_file_only(name):
    text = NOTEBOOKS[name].read_text(encoding="utf-8")
    used = set(re.findall(r"isrlab\.workbook(?:\.| import )(\w+)", text))
    assert used <= {name} | ({CLAIMS} if name == CLAIMS_READER else set())


@every
def test_workbook_files_are_imported_by_no_module(path):
    used = {m.split(".")[2] for m in imports_of(path) if m.startswith("isrlab.workbook.")}
    is_of_claims = CLAIMS in path.parts or path.stem == CLAIMS_READER
    assert used <= ({CLAIMS} if is_of_claims else set())


def test_modules_of_one_floor_do_not_import_in_circles():
    modules = {"isrlab." + name_of(path)[:-3].replace("/", "."): path for path in FILES}
    graph = {name: imports_of(path) & modules.keys() for name, path in modules.items()}
    list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", sorted((PACKAGE / "engine").glob("*.py")), ids=name_of)
def test_engine_has_no_clock_no_chance_and_no_io(path):
    assert not imports_of(path) & CLOCK_CHANCE_AND_IO
    calls = [node for node in nodes_of(path) if isinstance(node, ast.Call)]
    called = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
    assert not called & {"print", "open", "input", "exec", "eval", "globals"}


@every
def test_sizes_and_names(path):
    assert path.stem not in {"utils", "util", "helpers", "helper", "manager", "data", "common"}
    lines = path.read_text().splitlines()
    assert len(lines) <= BUDGET["file"]["lines"], f"{name_of(path)}: split it, or say less"
    assert [line for line in lines if len(line) > MAX_COLUMNS] == []
    for function in functions_of(path):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        size = body[-1].end_lineno - body[0].lineno + 1 if body else 0
        assert size <= MAX_BODY_LINES, f"{function.name}: {size} lines"
        if name_of(path) not in MANY_ARGUMENTS:
            names = [a.arg for a in function.args.posonlyargs + function.args.args]
            count = len([name for name in names if name not in ("self", "cls")])
            assert count <= MAX_ARGUMENTS, f"{function.name}: {count} arguments"


@pytest.mark.parametrize("part", [part for part in BUDGET if part != "file"])
def test_the_budget_is_kept(part):
    limit = BUDGET[part]
    paths = {path for folder in limit["of"] for path in (ROOT / folder).rglob("*.py")}
    paths -= {path for folder in limit.get("but", ()) for path in (ROOT / folder).rglob("*.py")}
    count = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    assert count <= limit["lines"], (
        f"{part} has {count:,} lines, {count - limit['lines']:,} more than its budget of "
        f"{limit['lines']:,}: delete some, or raise the number in data/budget.toml and give the "
        "reason beside it"
    )


@every
def test_colours_come_from_the_one_table(path):
    if name_of(path) not in COLOURS:
        assert re.findall(r"[\"']#[0-9A-Fa-f]{3,8}[\"']", path.read_text()) == []


def test_show_lists_its_concepts_and_draws_each_once():
    paths = [path for path in (PACKAGE / "show").glob("*.py") if path.stem != "__init__"]
    listed = re.findall(r"^(\w+)  ", (PACKAGE / "show" / "__init__.py").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in paths)
    names = [f.name for path in paths for f in functions_of(path) if f.name.startswith("plot_")]
    assert len(names) == len(set(names))
