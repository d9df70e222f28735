"""What came with this copy of isrlab: its notebooks, its data, and the libraries of each extra.

Theory of operation. In a checkout, `notebooks` and `data` lie beside the package; setup.py puts
them inside the package of a wheel. `give` copies them for a reader and keeps the digest of each
file that it gave: a file that still has this digest is replaced by a newer one, a file that the
reader changed never is. The copies keep the layout of the originals, so `../data` stays valid.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE if (PACKAGE / "data").is_dir() else PACKAGE.parent
DATA, NOTEBOOKS = ROOT / "data", ROOT / "notebooks"
GIVEN = ".isrlab-given.json"  # path: digest of what was given
EXTRAS = {  # a library that only this extra has
    "notebooks": "papermill", "fleet": "numba", "spark": "pyspark", "live": "confluent_kafka",
    "book": "isrlab_book",
}  # fmt: skip


class ExtraMissingError(ImportError):
    """The libraries of an extra are not installed; the message says how to install them."""


def require(*extras: str) -> None:
    """Raise ExtraMissingError unless the library in EXTRAS of each of these is installed."""
    missing = [extra for extra in extras if find_spec(EXTRAS[extra]) is None]
    if missing:
        libraries = " and ".join(EXTRAS[extra] for extra in missing)
        raise ExtraMissingError(f'{libraries} missing: pip install "isrlab[{",".join(missing)}]"')


def give(target: Path) -> dict[str, list[str]]:
    """Copy notebooks and data to `target`. Returns the names of the files that are new, updated,
    or kept because the reader as well as isrlab has changed them.

    Files that the reader deleted are copied again. Raises OSError if `target` cannot be written.
    """
    kept = "kept as you changed it, though isrlab has a newer one"
    names: dict[str, list[str]] = {"new": [], "updated": [], kept: []}
    if target.resolve() == ROOT:
        return names
    target.mkdir(parents=True, exist_ok=True)
    given = _given(target)
    files = (p for folder in (NOTEBOOKS, DATA) for p in sorted(folder.rglob("*")) if p.is_file())
    for source in files:
        name = source.relative_to(ROOT).as_posix()
        copy, digest = target / name, _digest(source)
        there = _digest(copy) if copy.exists() else None
        if there in (None, digest, given.get(name)):
            if there != digest:
                names["updated" if there else "new"].append(name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
            given[name] = digest
        elif digest != given.get(name):
            names[kept].append(name)
    (target / GIVEN).write_text(json.dumps(given, indent=0), encoding="utf-8")
    return names


def _given(target: Path) -> dict[str, str]:
    """The digests that `give` left there; none if they cannot be read."""
    try:
        given = json.loads((target / GIVEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return given if isinstance(given, dict) else {}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def packages() -> list[Path]:
    """The folders of isrlab and of those of its siblings that are installed."""
    specs = [find_spec(f"isrlab_{name}") for name in ("ops", "proof", "book")]
    return [PACKAGE, *(Path(spec.origin).parent for spec in specs if spec and spec.origin)]


def source_digest(*parts: str) -> str:
    """SHA-256 of all Python files of these parts of the package ("engine"); works in a zip."""
    digest = hashlib.sha256()
    root = resources.files("isrlab")
    for part in parts:
        for source in _sources(root.joinpath(part)):
            digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()


def _sources(node: Traversable) -> Iterator[Traversable]:
    if node.is_file():
        yield from [node] if node.name.endswith(".py") else []
    else:
        for child in sorted(node.iterdir(), key=lambda child: child.name):
            yield from _sources(child)
