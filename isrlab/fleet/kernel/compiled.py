"""How the kernel's functions are compiled, and where the machine code is kept between processes.

numba keeps a compiled function until the function's own file changes. The kernel inlines the rules
of `engine/rules.py`, so numba would miss a changed rule and use the old machine code. Therefore the
cache folder is named after a digest of all sources that go into the machine code, and nothing else
is compared: a worker that imports the sources from a zip finds what another process compiled.
If no folder is writable, each process compiles the kernel itself (about twelve seconds).

This needs a cache locator of our own, installed by hand: `njit(cache=True)` uses each function's
file and location, and NUMBA_CACHE_LOCATOR_CLASSES applies to all functions of a process.

Nor has numba a setting for the other thing done by hand here: in Python an index below zero counts
from the end, and numba's test for that at every access is a quarter of the kernel's time. In this
package's functions no index is negative (NUMBA_BOUNDSCHECK=1 refuses one), so it is left out there.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numba
from numba.core import config, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler import Compiler
from numba.np import arrayobj

from isrlab.installed import source_digest

F = TypeVar("F", bound=Callable[..., object])

# The compiled modules, and those they import (a test compares).
SOURCES = ("engine/choices.py", "engine/rules.py", "fleet/kernel", "fleet/recorded/partitioner.py")


class _Scalar(Compiler):
    """numba's compiler without vector instructions, which slow loops over two or three replicas."""

    def compile_extra(self, function: Any) -> Any:
        before, config.LOOP_VECTORIZE = config.LOOP_VECTORIZE, 0
        try:
            return super().compile_extra(function)
        finally:
            config.LOOP_VECTORIZE = before


def entry(function: F) -> F:
    """Compile a function that Python calls, or load it from the cache if there is one.

    `_nrt=False` turns off numba's reference counting: no function compiled here may allocate.
    """
    dispatcher = numba.njit(_nrt=False, no_cfunc_wrapper=True, pipeline_class=_Scalar)(function)
    if _CACHE:
        dispatcher._cache = _Cache(function)
    return dispatcher


def compiled(function: F, forceinline: bool = False) -> F:
    """Compile a function that only compiled functions call; Python cannot call it.

    Compiling its wrapper for Python would take most of the time, and entries contain its code.
    """
    within = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(forceinline=forceinline, _nrt=False, **within)(function)


def inlined(function: F) -> F:
    """Compile a function whose machine code is copied into every caller.

    To pass the arrays of a `State` costs some 50 ns, more than most of these functions take.
    """
    return compiled(function, forceinline=True)


def is_ready(function: Any) -> bool:
    """Whether a function is compiled already, by this process or another one."""
    name = function.py_func.__qualname__
    return bool(function.overloads or list(Path(_CACHE).glob(f"*.{name}-*.nbc")))


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Compile under a lock: other processes wait, then find the machine code in the cache."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):  # without a lock, all compile
            import fcntl

            file = stack.enter_context(Path(_CACHE or os.devnull, "lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cache_folder() -> str:
    """A writable cache folder for exactly these sources, or "" if there is none."""
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
    """Gives numba the cache folder; the folder's name makes a time stamp unnecessary."""

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


def _index(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
    """The place of an index in an array, for numba: here the index itself."""
    if "6isrlab" in builder.function.name:  # mangled, with its length: not isrlab_proof
        return context.cast(builder, index, kind, types.intp)
    return _NUMBAS_INDEX(context, builder, kind, index, size)


_NUMBAS_INDEX = arrayobj.fix_integer_index
arrayobj.fix_integer_index = _index
