"""CRC-32C (Castagnoli): by a library in C, or without one (in a browser) by a table."""

import sys
from array import array
from functools import cache

__all__ = ["crc32c"]
_POLYNOMIAL = 0x82F63B78


@cache
def _table() -> list[int]:
    """The effect of each value of two bytes on a checksum."""
    table = [*range(65_536)]
    for _ in range(16):
        table = [(each >> 1) ^ (_POLYNOMIAL * (each & 1)) for each in table]
    return table


def by_table(data: bytes) -> int:
    """The checksum, two bytes at a time."""
    table, crc = _table(), 0xFFFFFFFF
    pairs = array("H", data[: len(data) & ~1])
    if sys.byteorder == "big":
        pairs.byteswap()
    for pair in pairs:
        crc = (crc >> 16) ^ table[(crc ^ pair) & 0xFFFF]
    for byte in data[len(data) & ~1 :]:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL * (crc & 1))
    return crc ^ 0xFFFFFFFF


try:
    from google_crc32c import value as crc32c
except ImportError:
    crc32c = by_table
