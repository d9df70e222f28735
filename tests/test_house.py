"""The house: who may import whom, what the engine may not touch, and the sizes of style.md."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

import isrlab

PACKAGE = Path(isrlab.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Ground floor first: a module imports only from floors below its own. A new module needs a floor.
FLOORS = (
    "engine",
    "closeups",
    "events",
    "spark",
    "churn",
    "world",
    "fleet",
    "brokerlogs",
    "show",
    "magic",
    "workbook",
    "report",
    "__main__",
)
CLOCK_CHANCE_AND_IO = {
    "asyncio", "datetime", "io", "logging", "numpy.random", "os", "pathlib", "random", "secrets",
    "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
MAX_FILE_LINES = 400
MAX_BODY_LINES = 50
MAX_COLUMNS = 100
MAX_ARGUMENTS = 5
# A list of scalars or arrays is the point there: the rules, and what numba compiles.
MANY_ARGUMENTS = ("engine/rules.py", "fleet/kernel/clock.py")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def floor_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports_of(path: Path) -> set[str]:
    """The full names of all modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_only_from_floors_below(path):
    if path == PACKAGE / "__init__.py":
        return  # the roof: it shows what is in the house
    own = floor_of(path)
    assert own in FLOORS, f"{own} has no floor: add it to FLOORS (and to the house in the README)"
    for module in imports_of(path):
        package, _, rest = module.partition(".")
        floor = rest.partition(".")[0]
        if package != "isrlab" or not floor or floor == own:
            continue
        assert floor in FLOORS, f"{name_of(path)} imports {module}, which has no floor"
        assert FLOORS.index(floor) < FLOORS.index(own), f"{own} imports from {floor}, above it"


def test_modules_of_one_floor_do_not_import_in_circles():
    modules = {"isrlab." + name_of(path)[:-3].replace("/", "."): path for path in FILES}
    graph = {name: imports_of(path) & modules.keys() for name, path in modules.items()}
    list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", sorted((PACKAGE / "engine").glob("*.py")), ids=name_of)
def test_engine_has_no_clock_no_chance_and_no_io(path):
    assert not imports_of(path) & CLOCK_CHANCE_AND_IO
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    called = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
    assert not called & {"print", "open", "input", "exec", "eval", "globals"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_sizes(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= MAX_FILE_LINES
    assert [line for line in lines if len(line) > MAX_COLUMNS] == []
    for function in functions_of(path):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        size = body[-1].end_lineno - body[0].lineno + 1 if body else 0
        assert size <= MAX_BODY_LINES, f"{function.name}: {size} lines"
        if name_of(path) not in MANY_ARGUMENTS:
            names = [a.arg for a in function.args.posonlyargs + function.args.args]
            count = len([name for name in names if name not in ("self", "cls")])
            assert count <= MAX_ARGUMENTS, f"{function.name}: {count} arguments"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_names_say_what_is_inside(path):
    assert path.stem not in {"utils", "util", "helpers", "helper", "manager", "data", "common"}


def test_package_exports_few_names():
    assert len(getattr(isrlab, "__all__", [])) <= 15
