"""Which brokers share partitions, and how likely some partition fails when several brokers do.

partitions = placement.describe(text)                   # the output of kafka-topics --describe
partitions = placement.placed("kraft", racks, topics)   # or as an algorithm places them
units = placement.units_of(racks)
placement.chance(placement.bad_sets(partitions, units, "offline"), len(units), failures=2)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from isrlab.placement.describe import DescribedPartition, describe, racks_of

__all__ = ["DescribedPartition", "describe", "racks_of"]
_MODULES = {
    "place": "ALGORITHMS placed",
    "risk": "FATES Chance bad_sets chance expected hits partners units_of",
}


def __getattr__(name: str) -> Any:
    """Import a name that needs numpy on its first use: a description is read without it."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(f"isrlab.placement.{module}"), name)
    raise AttributeError(f"isrlab.placement has no {name!r}; it has {', '.join(_MODULES.values())}")
