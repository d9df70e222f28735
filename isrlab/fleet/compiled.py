"""How the kernel's functions are compiled, and where the machine code is kept between processes.

numba keeps a compiled function until *its own* file changes. The kernel inlines the rules of
`engine/rules.py`, so a changed rule would silently not reach a cached kernel. Therefore the cache
lives in a folder named after a digest of every source that goes into the machine code. Where no
folder can be written, or the package comes out of a zip that Spark shipped, each process compiles
again (about ten seconds); nothing else changes.
"""

from __future__ import annotations

import hashlib
import os
import pkgutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])

SOURCES = (
    ("isrlab.engine", "rules.py"),
    ("isrlab.engine", "versions.py"),
    ("isrlab.fleet", "cellstate.py"),
    ("isrlab.fleet", "leader.py"),
    ("isrlab.fleet", "kernel.py"),
)


def compiled(function: F, forceinline: bool = False) -> F:
    """The function as machine code, from the cache where there is one.

    `_nrt=False` leaves out numba's reference counts: nothing compiled here may allocate.
    """
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE
    try:
        return numba.njit(cache=bool(_CACHE), forceinline=forceinline, _nrt=False)(function)
    finally:
        numba.config.CACHE_DIR = before


def inlined(function: F) -> F:
    """The function as machine code that is copied to where it is called.

    A call that passes tuples of arrays costs more than most of these functions do.
    """
    return compiled(function, forceinline=True)


def source_digest() -> str:
    """A short digest of all sources that end up in the kernel, also inside a zip."""
    digest = hashlib.sha256(numba.__version__.encode())
    for package, name in SOURCES:
        digest.update(pkgutil.get_data(package, name) or b"")
    return digest.hexdigest()[:16]


def cache_folder() -> str:
    """A writable folder for this very kernel, or "" if there is none (or no source file)."""
    if not Path(__file__).exists():
        return ""
    candidates = [
        os.environ.get("NUMBA_CACHE_DIR"),
        os.environ.get("XDG_CACHE_HOME"),
        str(Path.home() / ".cache"),
        tempfile.gettempdir(),
    ]
    for base in filter(None, candidates):
        folder = Path(base) / "isrlab" / f"kernel-{source_digest()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return str(folder)
        except OSError:
            continue
    return ""


_CACHE = cache_folder()
