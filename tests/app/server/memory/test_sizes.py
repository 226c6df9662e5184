"""Estimates of the memory that music takes."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from app.server.memory.sizes import ITEM_BYTES, MOST_ITEMS, size_of


@dataclass(frozen=True)
class File:
    data: bytes
    notes: np.ndarray


def test_arrays_texts_and_files_count_once_and_long_sequences_are_estimated():
    notes = np.zeros((10, 4), np.int64)
    row = File(b"x" * 50, notes), "abc"
    assert size_of([row]) == 320 + 50 + 3
    assert size_of([row, row, {"again": [row[0]]}]) == 373
    assert size_of([notes[:3], notes[5:]]) == 320  # views keep the whole array
    for kind in (list, tuple, set):
        assert size_of([kind(range(MOST_ITEMS + 1))]) == (MOST_ITEMS + 1) * ITEM_BYTES
        assert size_of([kind(range(MOST_ITEMS))]) == 0
    assert size_of([SimpleNamespace(data=b"x" * 100), None, 5, File]) == 0
