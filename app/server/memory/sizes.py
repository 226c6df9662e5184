"""How much memory music takes, so that it can be limited."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import is_dataclass

import numpy as np

from app.compose.models import MusicModel

MOST_ITEMS = 1000
"""Longer sequences of objects are estimated."""
ITEM_BYTES = 100


def size_of(things: Iterable[object]) -> int:
    """Return the bytes of arrays, texts and files in some objects, each counted once; an estimate.

    Follows containers and dataclasses, but not models.
    """
    seen: set[int] = set()
    size, left = 0, list(things)
    while left:
        thing = left.pop()
        if isinstance(thing, np.ndarray):
            # a view keeps the whole array
            thing = thing if thing.base is None else thing.base
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            size += thing.nbytes
        elif isinstance(thing, str | bytes | bytearray | memoryview):
            size += len(thing)
        elif isinstance(thing, dict):
            left += thing.values()
        elif isinstance(thing, list | tuple | set | frozenset):
            if len(thing) > MOST_ITEMS:
                size += ITEM_BYTES * len(thing)
            else:
                left += thing
        elif is_dataclass(thing) and not isinstance(thing, MusicModel | type):
            left += vars(thing).values() if hasattr(thing, "__dict__") else ()
    return size
