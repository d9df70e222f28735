"""Print the test folders of what changed since main, and of the packages that depend on it.

`make check` runs them. Changes that are committed count from where this branch left its upstream;
without an upstream, or if nothing changed, all folders are printed.
"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"core": ".", "ops": "packages/ops", "proof": "packages/proof", "book": "packages/book"}
DEPENDENTS = {"core": ("ops", "proof", "book"), "ops": ("book",), "proof": ("book",), "book": ()}


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split("\n")[:-1]


def owners() -> dict[str, str]:
    """The package to which each path belongs, by how the path begins."""
    own = {"isrlab/": "core"}
    for name, folder in FOLDERS.items():
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
        own |= dict.fromkeys(project["tool"]["isrlab"]["data"], name)
        own |= {f"packages/{name}/": name, f"tests/{name}/": name}
    return own


def affected(paths: list[str]) -> list[str]:
    """The packages whose tests must run when these files change; all if a file belongs to none."""
    own, changed = owners(), set[str]()
    for path in paths:
        if path.endswith(".md"):
            continue
        package = next((own[begin] for begin in own if path.startswith(begin)), None)
        if package is None:
            return [*FOLDERS]
        changed |= {package, *DEPENDENTS[package]}
    return [name for name in FOLDERS if name in changed] or [*FOLDERS]


if __name__ == "__main__":
    [left, *_] = [*git("merge-base", "HEAD", "@{upstream}"), ""]
    paths = git("diff", "--name-only", left) if left else []
    paths += git("ls-files", "--others", "--exclude-standard") if left else []
    print(*(f"tests/{name}" for name in affected(paths)), "tests/test_*.py")
