"""isrlab: how Apache Kafka keeps replicas in sync, version by version."""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"
__all__ = ["__version__", "load_ipython_extension"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext isrlab` brings the cell magics `%%scenario` and `%%exercise`."""
    from isrlab.magic import load_ipython_extension as load

    load(shell)
