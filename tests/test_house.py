"""The architecture: which module may import which, what the engine may not use, and sizes.

Each package has a budget of lines (data/budget.toml); a commit that raises it changes nothing else.
`python tests/test_house.py` prints how many lines each has.
"""

from __future__ import annotations

import ast
import graphlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from isrlab.installed import PACKAGE, packages

ROOT = Path(__file__).parent.parent
BOOK, OPS = ROOT / "packages/book/isrlab_book", ROOT / "packages/ops/isrlab_ops"
FILES = [path for package in packages() for path in sorted(package.rglob("*.py"))]
BUDGET = tomllib.loads((ROOT / "data" / "budget.toml").read_text(encoding="utf-8"))
PUBLIC = "isrlab", "isrlab.fleet", "isrlab.churn", "isrlab_ops", "isrlab_proof", "isrlab_book"
NOTEBOOKS = {path.stem.partition("_")[2]: path for path in (ROOT / "notebooks").glob("*.ipynb")}

APPENDIX_OF = {  # appendices, and the notebooks whose workbook files they also use
    "how_the_rules_changed": ("leaving_the_isr", "joining_the_isr"),
    "when_was_it_decided": ("data_loss", "log_divergence"),
    "the_high_watermark_in_detail": ("high_watermark",),
    "when_zookeeper_held_the_isr": ("telling_the_cluster",),
    "hot_partitions": ("whose_fault_is_it",),
    "which_alerts": ("your_cluster",),
    "how_logs_are_read": ("your_cluster",),
    "under_min_isr": ("last_replica_standing",),
    "restarts_in_detail": ("rolling_restart",),
    "waits_in_detail": ("what_acks_all_costs", "choosing_the_lag_limit"),
}
CLAIMS = "claims"  # the folder of the workbook whose name differs from its notebook's
CLAIMS_READER = "what_the_sources_say"
COLOURS = ("isrlab/show/colours.py",)  # where colours may be written as numbers
CLOCK_CHANCE_AND_IO = {
    "asyncio", "datetime", "io", "logging", "numpy.random", "os", "pathlib", "random", "secrets",
    "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
# How many type names of the package may be defined in two files.
MOST_AMBIGUOUS = 4
EMPTY_NAMES = {"one", "some", "found", "told", "seen", "said", "little"}  # say nothing
MOST_LINES = 400  # of a file of the package
MAX_BODY_LINES = 50
MAX_COLUMNS = 100
MAX_ARGUMENTS = 5
# Files that need long lists of scalars or arrays: the rules, and functions that numba compiles.
FLAT = (
    "isrlab/engine/rules.py", "isrlab/fleet/kernel/batches.py", "isrlab/fleet/kernel/clock.py",
    "isrlab_proof/search/compiled.py",
)  # fmt: skip


def name_of(path: Path) -> str:
    """isrlab/engine/rules.py, and isrlab_ops/check/risks.py without the folder of its package."""
    return re.sub(r"^packages/\w+/", "", path.relative_to(ROOT).as_posix())


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports_of(path: Path) -> set[str]:
    """The full names of all modules that a file imports, also within functions."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and "import_module" in vars(node.func).values():
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in nodes_of(path) if isinstance(node, kinds)]


def every(check: Callable[[Path], None]) -> Callable[[], None]:
    """One test for all files that names each failing file; a test per file took ten seconds."""

    def test() -> None:
        wrong = []
        for path in FILES:
            try:
                check(path)
            except AssertionError as error:
                wrong.append(f"{name_of(path)}: {error}")
        assert not wrong, "\n".join(wrong)

    return test


@pytest.mark.parametrize("path", sorted((BOOK / "workbook").glob("[!_]*")), ids=name_of)
def test_a_file_of_the_workbook_belongs_to_one_notebook(path):
    own = CLAIMS_READER if path.name in (CLAIMS, "__pycache__") else path.stem
    assert own in NOTEBOOKS, f"workbook/{path.name} is named like no notebook"


@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_a_notebook_imports_its_own_code_and_what_is_public(name):
    cells = json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    own = {name, *APPENDIX_OF.get(name, ())} | ({CLAIMS} if name == CLAIMS_READER else set())
    for module, text in re.findall(r"(?m)^from (isrlab[\w.]*) import (\([^)]*|.*)", code):
        names = set(re.findall(r"(\w+)(?: as \w+)?", text))
        if module.startswith("isrlab_book.workbook"):
            assert ({*module.split(".")[2:3]} or names) <= own
        elif not module.startswith("isrlab_book.closeups"):
            assert module in PUBLIC and names <= {*import_module(module).__all__}, module


@pytest.mark.parametrize("module", PUBLIC)
def test_what_is_public_is_there(module):
    assert all(resolve_name(f"{module}.{name}") for name in import_module(module).__all__)


@every
def test_workbook_files_are_imported_by_no_module(path):
    """Except by files of the same notebook, which are in a folder with its name."""
    used = {m.split(".")[2] for m in imports_of(path) if m.startswith("isrlab_book.workbook.")}
    own = {part.removesuffix(".py") for part in Path(name_of(path)).parts[2:3]}
    assert used <= (own | {CLAIMS} if CLAIMS_READER in own else own)


def test_modules_do_not_import_in_circles():
    modules = {name_of(path)[:-3].replace("/", "."): path for path in FILES}
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
    assert len(lines) <= MOST_LINES, f"{name_of(path)}: split it, or say less"
    assert [line for line in lines if len(line) > MAX_COLUMNS] == []
    for function in functions_of(path):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        size = body[-1].end_lineno - body[0].lineno + 1 if body else 0
        assert size <= MAX_BODY_LINES, f"{function.name}: {size} lines"
        if name_of(path) not in FLAT:
            names = [a.arg for a in function.args.posonlyargs + function.args.args]
            count = len([name for name in names if name not in ("self", "cls")])
            assert count <= MAX_ARGUMENTS, f"{function.name}: {count} arguments"


def types_of(path: Path) -> set[str]:
    """The classes and type aliases that a file defines."""
    body = ast.parse(path.read_text()).body
    targets = [t for n in body if isinstance(n, ast.Assign) for t in n.targets]
    targets += [n.target for n in body if isinstance(n, ast.AnnAssign)]
    names = {t.id for t in targets if isinstance(t, ast.Name)}
    aliases = {name for name in names if re.match("[A-Z].*[a-z]", name)}
    return aliases | {node.name for node in body if isinstance(node, ast.ClassDef)}


def test_a_type_name_stands_for_one_thing():
    places = {}
    for path in FILES:
        for name in types_of(path):
            places.setdefault(name, []).append(name_of(path))
    ambiguous = {name: files for name, files in sorted(places.items()) if len(files) > 1}
    assert len(ambiguous) <= MOST_AMBIGUOUS, ambiguous


@every
def test_names_say_what_they_hold(path):
    fields = {node.target for node in nodes_of(path) if isinstance(node, ast.AnnAssign)}
    names = {node for node in nodes_of(path) if isinstance(node, ast.Name)} - fields
    assigned = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    assigned |= {node.arg for node in nodes_of(path) if isinstance(node, ast.arg)}
    assert not assigned & EMPTY_NAMES


def kind_of(path: Path) -> str:
    """The kind of lines in the budget to which a file belongs; "" if it is not text."""
    parts = path.relative_to(ROOT).parts
    if path.suffix == ".py":
        is_package = path in FILES
        return "package" if is_package else "tests" if parts[0] == "tests" else "tools"
    if path.suffix == ".java":
        return "java"
    is_no_data = path.suffix in (".gz", ".xz", ".png") or path.name == "pyproject.toml"
    is_no_data |= path.suffix == ".md" and parts[0] != "data"
    return "" if is_no_data else "data"


@cache
def costs() -> dict[str, int]:
    """The lines of each package. A file belongs to the longest pattern that it matches."""
    lines = dict.fromkeys(BUDGET["package"], 0)
    for path in FILES:
        name = path.relative_to(ROOT)
        owners = [
            (len(pattern), package)
            for package, limits in BUDGET["package"].items()
            for pattern in limits["of"]
            if any(part.match(pattern) for part in (name, *name.parents))
        ]
        lines[max(owners)[1]] += len(path.read_text("utf-8").splitlines())
    return lines


@cache
def totals() -> dict[str, int]:
    """The lines of each kind: of all packages, tests, tools, Java and text data."""
    folders = [ROOT / name for name in ("isrlab", "packages", "data", "tests", "tools")]
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    lines = Counter[str]()
    for path in paths:
        if kind_of(path) and not re.search(r"__pycache__|/build/|egg-info", str(path)):
            lines[kind_of(path)] += len(path.read_text("utf-8").splitlines())
    return lines


@pytest.mark.parametrize("package", BUDGET["package"])
def test_a_package_keeps_its_budget(package):
    most = BUDGET["package"][package]["most"]
    assert costs()[package] <= most, (
        f"{package} has {costs()[package]:,} lines, {costs()[package] - most:,} more than its "
        "budget: delete some, or raise it in a commit of its own that gives the reason"
    )


@pytest.mark.parametrize("kind", BUDGET["total"])
def test_the_whole_keeps_its_budget(kind):
    assert totals()[kind] <= BUDGET["total"][kind], f"{totals()[kind]:,} lines of {kind}"


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


if __name__ == "__main__":
    for name, lines in [*costs().items(), *totals().items()]:
        print(f"{name:<10} {lines:>7,}")
