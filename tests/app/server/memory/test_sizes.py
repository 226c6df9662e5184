"""Estimates of the memory that music takes."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from app.server.memory.sizes import ITEM_BYTES, size_of


@dataclass(frozen=True)
class File:
    data: bytes
    notes: np.ndarray


class Row(NamedTuple):
    file: File
    name: str


def test_arrays_texts_and_files_count_once():
    notes = np.zeros((10, 4), np.int64)
    row = Row(File(b"x" * 50, notes), "abc")
    assert size_of([row]) == 320 + 50 + 3
    assert size_of([row, row, {"again": [row.file]}]) == 373
    seen: set[int] = set()
    assert size_of([row], seen) == 373
    assert size_of([row], seen) == 0


def test_a_view_counts_as_its_array():
    notes = np.zeros(1000, np.int8)
    assert size_of([notes[:3], notes[5:]]) == 1000


@pytest.mark.parametrize("kind", [list, tuple, set])
def test_long_sequences_are_estimated(kind):
    assert size_of([kind(range(5000))]) == 5000 * ITEM_BYTES


def test_other_objects_are_not_followed():
    assert size_of([SimpleNamespace(data=b"x" * 100), None, 5, File]) == 0
