"""The source of a rule: a notebook shows the exact lines that decide."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from IPython.display import Markdown


def rule(*functions: Callable[..., Any]) -> Markdown:
    """The source of some functions, with their docstrings, which cite Kafka's source."""
    sources = (textwrap.dedent(inspect.getsource(each)) for each in functions)
    return Markdown("\n\n".join(f"```python\n{source}```" for source in sources))
