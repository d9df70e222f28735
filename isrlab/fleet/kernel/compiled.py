"""How the kernel's functions are compiled, and where the machine code is kept between processes.

numba keeps a compiled function until *its own* file changes. The kernel inlines the rules of
`engine/rules.py`, so a changed rule would silently not reach a cached kernel. Therefore the cache
is a folder named after a digest of every source that can go into the machine code, and nothing
else is asked: a worker that has the sources out of a zip finds what another process compiled.
Where no folder can be written, each process compiles again (some twenty seconds).

That takes a locator of our own, put into numba's cache by hand: `njit(cache=True)` asks for each
function's file and place, and NUMBA_CACHE_LOCATOR_CLASSES applies to all functions of a process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache

from isrlab.installed import source_digest

F = TypeVar("F", bound=Callable[..., object])

# Whatever is compiled, and what that imports (a test compares).
SOURCES = ("engine/choices.py", "engine/rules.py", "fleet/kernel", "fleet/recorded/partitioner.py")


def entry(function: F) -> F:
    """The function as machine code that Python may call, from the cache where there is one.

    `_nrt=False` leaves out numba's reference counts: nothing compiled here may allocate.
    """
    dispatcher = numba.njit(_nrt=False, no_cfunc_wrapper=True)(function)
    if _CACHE:
        dispatcher._cache = _Cache(function)
    return dispatcher


def compiled(function: F, forceinline: bool = False) -> F:
    """The function as machine code for others that are compiled; Python may not call it.

    What wraps it for Python would be most of the work, and the entry's code has it inside.
    """
    within = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(forceinline=forceinline, _nrt=False, **within)(function)


def inlined(function: F) -> F:
    """The function as machine code that is copied to where it is called.

    A call that passes tuples of arrays costs more than most of these functions do.
    """
    return compiled(function, forceinline=True)


def merged(function: F) -> F:
    """The function as lines of its only caller, with which it is compiled.

    So it is optimised once, not alone and then again in the caller.
    """
    return numba.njit(inline="always", _nrt=False)(function)


def is_ready(function: Any) -> bool:
    """Machine code is at hand, here or from another process."""
    name = function.py_func.__qualname__
    return bool(function.signatures or list(Path(_CACHE).glob(f"*.{name}-*.nbc")))


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Other processes that need it wait in the meantime, and then find it in the cache."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # where nothing can be locked, all compile
            import fcntl

            file = stack.enter_context(Path(_CACHE or os.devnull, "lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cache_folder() -> str:
    """A writable folder for this very kernel, or "" if there is none."""
    decides = f"{numba.__version__} {source_digest(*SOURCES)}"
    kernel = hashlib.sha256(decides.encode()).hexdigest()[:16]
    asked = [os.environ.get(name) for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")]
    for base in filter(None, [*asked, str(Path.home() / ".cache"), tempfile.gettempdir()]):
        folder = Path(base) / "isrlab-kernels" / kernel
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return str(folder)
        except OSError:
            continue
    return ""


class _Place:
    """Tells numba where a function's machine code is; the folder's name is stamp enough."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        self.get_disambiguator = lambda: str(function.__code__.co_firstlineno)

    from_function = classmethod(lambda cls, function, file: cls(function, file))
    ensure_cache_path = staticmethod(lambda: Path(_CACHE).mkdir(parents=True, exist_ok=True))
    get_cache_path = staticmethod(lambda: _CACHE)
    get_source_stamp = staticmethod(lambda: "")


class _CacheFiles(CompileResultCacheImpl):
    _locator_classes: ClassVar = [_Place]


class _Cache(FunctionCache):
    _impl_class = _CacheFiles


_CACHE: str = _cache_folder()
