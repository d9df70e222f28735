"""Which brokers share partitions, and how likely some partition fails when several brokers do.

partitions = placement.describe(text)                   # what kafka-topics --describe prints
partitions = placement.placed("kraft", racks, topics)   # or as an algorithm places them
units = placement.units_of(racks)
placement.chance(placement.bad_sets(partitions, units, "offline"), len(units), failures=2)
"""

# ruff: noqa: F401, I001
from isrlab.placement.describe import DescribedPartition, describe, racks_of
from isrlab.placement.place import ALGORITHMS, placed
from isrlab.placement.risk import FATES, Chance, bad_sets, chance, expected, hits
from isrlab.placement.risk import partners, units_of
