"""Print the libraries that the four distributions and their tests need, for `make lock`."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_LOCKED = ("java", "judge", "record")  # extras


def requirements() -> set[str]:
    """All of them, without the distributions themselves."""
    found: set[str] = set()
    for path in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {})
        parts = [project["dependencies"], *(extras[n] for n in extras if n not in NOT_LOCKED)]
        found |= {each for part in parts for each in part if not each.startswith("isrlab")}
    return found


if __name__ == "__main__":
    print(*sorted(requirements()), sep="\n")
