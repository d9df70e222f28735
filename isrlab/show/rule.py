"""A rule as it stands in the package: a notebook shows the very lines that decided."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from IPython.display import Markdown


def rule(*functions: Callable[..., Any]) -> Markdown:
    """The source of some functions, with what their docstrings cite."""
    return Markdown("\n\n".join(f"```python\n{inspect.getsource(each)}```" for each in functions))
