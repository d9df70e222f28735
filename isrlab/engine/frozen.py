"""Frozen, the base of this package's messages and states; `replace` makes a changed copy.

A struct of msgspec: slots, comparison and hash as in a frozen dataclass, created in a fraction of
the time. Nothing frozen can refer to itself, so the garbage collector need not look at it. A value
never changes, so `copy.deepcopy` of a run shares its values, and copies only what can change.
"""

from __future__ import annotations

from typing import Self, TypeVar, dataclass_transform

from msgspec import Struct, field
from msgspec.structs import replace

__all__ = ["Frozen", "Shared", "SharedDict", "SharedList", "replace"]
K = TypeVar("K")
T = TypeVar("T")


class Shared:
    """The base of what never changes."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Self:
        return self


class SharedList(list[T]):
    """A list of values, which its copy shares."""

    def __deepcopy__(self, memo: object) -> SharedList[T]:
        return SharedList(self)


class SharedDict(dict[K, T]):
    """A dictionary of values, which its copy shares."""

    def __deepcopy__(self, memo: object) -> SharedDict[K, T]:
        return SharedDict(self)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, Shared, frozen=True, gc=False):
    """A record whose fields are set once."""
