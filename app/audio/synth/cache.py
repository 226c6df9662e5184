"""A least-recently-used cache of waveforms and envelopes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

CACHE_BYTES = 64 << 20
"""Maximum size of all cached arrays together."""
_FIRST_SIZE = 1 << 14


class ToneCache:
    """Keeps the most recently used arrays, up to `max_bytes`; thread-safe."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._arrays: OrderedDict[Hashable, tuple[NDArray[np.float32], bool]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, count: int, make: Callable[[int], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return a read-only array of at least `count` items, or of all items if there are fewer.

        If necessary, it is made by `make(n)`, which returns the first n items, or all if fewer.
        """
        with self._lock:
            array, is_whole = self._arrays.get(key, (None, False))
            if array is not None and (is_whole or len(array) >= count):
                self._arrays.move_to_end(key)
                return array
        size = _FIRST_SIZE
        while size < count:
            size = size * 3 // 2
        if 4 * size > self.max_bytes // 8:
            size = count  # an array that is not cached needs no spare items
        array = make(size)
        array.setflags(write=False)
        if array.nbytes <= self.max_bytes // 8:
            self._put(key, array, is_whole=len(array) < size)
        return array

    def _put(self, key: Hashable, array: NDArray[np.float32], *, is_whole: bool) -> None:
        with self._lock:
            old = self._arrays.pop(key, None)
            if old is not None:
                self.num_bytes -= old[0].nbytes
            self._arrays[key] = array, is_whole
            self.num_bytes += array.nbytes
            while self.num_bytes > self.max_bytes:
                _, (dropped, _) = self._arrays.popitem(last=False)
                self.num_bytes -= dropped.nbytes
