from __future__ import annotations

import numpy as np
import pytest

from benchmarks.relpe.bench_decode import long_sequence, resident_megabytes
from tests.support.small_models import save_tiny_model


def test_memory_that_is_given_back_is_not_counted():
    before = resident_megabytes()
    if before != before:
        pytest.skip("needs /proc")
    block = np.ones(100 * 2**17)
    assert resident_megabytes() > before + 80
    del block
    assert resident_megabytes() < before + 20


def test_a_long_sequence_is_told_at_its_marks(tmp_path):
    save_tiny_model(tmp_path)
    rows = long_sequence(str(tmp_path), [3, 8])
    assert [count for count, _, _ in rows] == [3, 8]
    assert all(milliseconds > 0 for _, milliseconds, _ in rows)
