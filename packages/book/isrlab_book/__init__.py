"""isrlab for who learns: the notebooks' own code, the explorer, the playground, the exercises.

In a notebook, `%load_ext isrlab_book` brings cells that begin with `%%scenario` or `%%exercise`.
Tab completes what may stand there, `%%scenario?` lists the commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext isrlab_book` brings the cell magics `%%scenario` and `%%exercise`."""
    import_module("isrlab_book.magic").load_ipython_extension(shell)
