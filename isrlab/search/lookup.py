"""Arrays that grow, and look-ups of many keys at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

BITS = 21  # of a number in a key
MOST = (1 << BITS) - 1
_MIX, _EMPTY = np.uint64(0x9E3779B97F4A7C15), np.int64(-1)


class Growing:
    """An array to which numbers are added."""

    def __init__(self, kind: Any = np.int64) -> None:
        self.all, self.count = np.zeros(1024, kind), 0

    def append(self, number: int) -> None:
        if self.count == len(self.all):
            self.all = np.resize(self.all, 2 * self.count)
        self.all[self.count] = number
        self.count += 1


class Hashed:
    """Numbered by keys, with open addressing; what is missing is computed, once."""

    def __init__(self, compute: Callable[[int], int], size: int = 1 << 10) -> None:
        self.compute, self.count = compute, 0
        self._resize(size)

    def _resize(self, size: int) -> None:
        self.keys, self.values = np.full(size, _EMPTY), np.zeros(size, np.int32)
        self.shift, self.mask = np.uint64(64 - size.bit_length() + 1), size - 1

    def __call__(self, keys: np.ndarray) -> np.ndarray:
        at, wrong = self._find(keys)
        if len(wrong):
            missing = np.unique(keys[wrong])
            self._put(missing, np.array([self.compute(key) for key in missing.tolist()], np.int32))
            at, _ = self._find(keys)
        return self.values[at]

    def _find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where they are; and which of them are nowhere."""
        at = ((keys.view(np.uint64) * _MIX) >> self.shift).view(np.int64)
        stored = self.keys[at]
        wrong = np.flatnonzero(stored != keys)
        nowhere = []
        while len(wrong):
            is_empty = self.keys[at[wrong]] == _EMPTY
            if is_empty.any():
                nowhere.append(wrong[is_empty])
                wrong = wrong[~is_empty]
            at[wrong] = (at[wrong] + 1) & self.mask
            wrong = wrong[self.keys[at[wrong]] != keys[wrong]]
        return at, np.concatenate(nowhere) if nowhere else wrong

    def _put(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.count += len(keys)
        if 3 * self.count > len(self.keys):
            is_full = self.keys != _EMPTY
            keys = np.concatenate([keys, self.keys[is_full]])
            values = np.concatenate([values, self.values[is_full]])
            self._resize(1 << int(4 * self.count).bit_length())
        while len(keys):  # one of those that want a place gets it
            at, _ = self._find(keys)
            self.keys[at] = keys
            is_in = self.keys[at] == keys
            self.values[at[is_in]] = values[is_in]
            keys, values = keys[~is_in], values[~is_in]


class Numbered:
    """Values by number, and numbers by value."""

    def __init__(self, *known: Hashable) -> None:
        self.values: list[Any] = []
        self.numbers: dict[Hashable, int] = {}
        for value in known:
            self(value)

    def __call__(self, value: Hashable, key: Hashable = None) -> int:
        key = value if key is None else key
        number = self.numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            if number > MOST:
                raise MemoryError(f"a search has at most {MOST:,} different components")
            self.values.append(value)
        return number
