"""pyproject.toml is the one list of dependencies; environment.yml and all imports agree with it."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import isrlab
from requirements import requirements
from test_house import imports_of, nodes_of

ROOT = Path(__file__).parent.parent
SIBLINGS = ("ops", "proof", "book")
PROJECTS = {
    name: tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    for name, folder in {"isrlab": ".", **{n: f"packages/{n}" for n in SIBLINGS}}.items()
}
PROJECT = PROJECTS["isrlab"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
OWN = ("isrlab", "packages", "tests", "tools", "benchmarks")
own_names = cache(lambda: {path.stem for name in OWN for path in (ROOT / name).rglob("*")})
distributions_of = cache(packages_distributions)
NOT_PYTHON_LIBRARIES = {"python", "openjdk", "make", "pip"}


def distribution(requirement: str) -> str:
    """The normalized name in "Jupyter_Client>=8.6"."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement).group()
    return re.sub(r"[-_.]+", "-", name).lower()


FOR_WORK = ("test", "judge", "record")  # on isrlab itself


def listed(*names: str, work: bool = False) -> set[str]:
    """The libraries that these distributions name, in their extras too."""
    every: list[str] = []
    for project in map(PROJECTS.get, names):
        extras = project.get("optional-dependencies", {})
        parts = [extras[name] for name in extras if work or name not in FOR_WORK]
        every += [each for part in (project["dependencies"], *parts) for each in part]
    return {distribution(each) for each in every if not each.startswith("isrlab")}


CORE = listed("isrlab")
ALL, WORK = listed(*PROJECTS), listed(*PROJECTS, work=True)


def test_the_four_distributions_have_one_version():
    for name in SIBLINGS:
        assert PROJECTS[name]["version"] == isrlab.__version__
    for project in PROJECTS.values():
        extras = project.get("optional-dependencies", {}).values()
        for each in (r for part in (project["dependencies"], *extras) for r in part):
            if each.startswith("isrlab-") or "==" in each:
                assert each.endswith(f"=={isrlab.__version__}"), each


def test_environment_lists_no_library_but_installs_the_project():
    plain = [d for d in ENVIRONMENT["dependencies"] if isinstance(d, str)]
    assert {distribution(d) for d in plain} == NOT_PYTHON_LIBRARIES
    assert [d for d in ENVIRONMENT["dependencies"] if not isinstance(d, str)] == [
        {"pip": ["-e .[all,test]", *(f"-e packages/{name}" for name in SIBLINGS)]}
    ]


def test_environment_has_the_python_of_the_project_and_a_java_that_spark_runs_on():
    assert f"python{PROJECT['requires-python']}" in ENVIRONMENT["dependencies"]
    java = next(d for d in ENVIRONMENT["dependencies"] if str(d).startswith("openjdk"))
    assert java == "openjdk=17"
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert 'java-version: "17"' in workflow
    assert all("openjdk-17-" in (ROOT / name).read_text() for name in ("Dockerfile", ".ci/run"))


def test_container_and_its_editor_install_with_the_same_command():
    command = "make install LOCKED=1"
    assert f"RUN {command}\n" in (ROOT / "Dockerfile").read_text()
    editor = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert editor["postCreateCommand"] == command


def test_the_lock_names_public_places_and_every_library():
    lock = (ROOT / "pylock.toml").read_text()
    assert set(re.findall(r"https?://([^/]+)/", lock)) == {"files.pythonhosted.org"}
    locked = set(re.findall(r'(?m)^name = "(.+)"$', lock))
    needed = {distribution(each) for each in requirements()}
    assert needed <= locked


def test_the_citation_and_the_changes_are_of_this_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == isrlab.__version__
    assert f"\n## {isrlab.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("folder, allowed", [
    ("isrlab", CORE), ("packages/ops/isrlab_ops", CORE | listed("ops")), ("tools", WORK),
    ("packages/proof/isrlab_proof", CORE | listed("proof")), ("packages", WORK), ("tests", WORK),
    ("packages/book/isrlab_book", ALL), ("benchmarks", WORK),
])  # fmt: skip
def test_every_imported_library_is_listed(folder, allowed):
    extras = {"jpype": ["jpype1"], "confluent_kafka": ["confluent-kafka"]}  # may be missing
    distributions, own = {**extras, **distributions_of()}, own_names() | set(OWN)
    files = [p for p in (ROOT / folder).rglob("*.py") if p.name not in ("setup.py", "with_data.py")]
    for path in sorted(files):
        modules = {name.partition(".")[0] for name in imports_of(path)}
        nodes_of.cache_clear()  # kept, they make the search for garbage longer
        for module in modules - own - sys.stdlib_module_names:
            names = {distribution(name) for name in distributions.get(module, [module])}
            assert names & allowed, f"{path.name} imports {module}: add it to pyproject.toml"
