"""Frozen, the base of this package's messages and states; `replace` makes a changed copy.

A struct of msgspec: slots, comparison and hash as in a frozen dataclass, created in a fraction of
the time. Nothing frozen can refer to itself, so the garbage collector need not look at it.
"""

from __future__ import annotations

from typing import dataclass_transform

from msgspec import Struct, field
from msgspec.structs import replace

__all__ = ["Frozen", "replace"]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, frozen=True, gc=False):
    """A record whose fields are set once."""
