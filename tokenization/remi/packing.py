"""Packing of columns of small numbers into one integer per row; integers sort like the rows."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray


class Packing:
    """Fields with the given numbers of bits, highest first: at least three fields, at most 63 bits.

    Numbers must be non-negative and fit into their fields.
    """

    def __init__(self, *bits: int) -> None:
        if sum(bits) > 63:
            raise ValueError(f"fields have {bits} bits, expected at most 63")
        # NumPy is twice as fast with arrays of shape () as with Python numbers.
        self._bits = [np.array(width) for width in bits[2:]]
        below = [sum(bits) - above for above in accumulate(bits)]
        self._below = [np.array(shift) for shift in below]
        self._masks = [np.array((1 << width) - 1) for width in bits[1:-1]]
        self._first_bits, self._last_mask = np.array(bits[1]), np.array((1 << bits[-1]) - 1)

    def pack(
        self, first: NDArray[np.int64], second: NDArray[np.int64], *others: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the packed rows (n,) of the columns."""
        packed = first << self._first_bits
        packed |= second
        for bits, column in zip(self._bits, others, strict=True):
            packed <<= bits
            packed |= column
        return packed

    def unpack(self, packed: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the columns of packed rows."""
        columns = [packed >> below for below in self._below[:-1]]
        for column, mask in zip(columns[1:], self._masks, strict=True):
            column &= mask
        return [*columns, packed & self._last_mask]

    def above(self, packed: NDArray[np.int64], field: int) -> NDArray[np.int64]:
        """Return the fields before the given one (n,), still packed."""
        return packed >> self._below[field - 1]

    def place(self, column: NDArray[np.int64], field: int) -> NDArray[np.int64]:
        """Return the packed rows (n,) in which all other fields are 0."""
        return column << self._below[field]

    def row(self, *numbers: int) -> NDArray[np.int64]:
        """Return a packed row () to be added to others; its numbers may be negative."""
        shifted = (n << int(below) for n, below in zip(numbers, self._below, strict=True))
        return np.array(sum(shifted))
