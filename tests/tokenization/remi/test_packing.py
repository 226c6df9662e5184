from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization.remi.packing import Packing

BITS = st.lists(st.integers(1, 21), min_size=3, max_size=5).filter(lambda bits: sum(bits) <= 63)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], np.ndarray]:
    """Bits of fields, and rows of numbers that fit into them."""
    bits = draw(BITS)
    row = st.tuples(*(st.integers(0, (1 << width) - 1) for width in bits))
    return bits, np.array(draw(st.lists(row, max_size=8)), np.int64).reshape(-1, len(bits))


@given(table=tables())
def test_unpacking_restores_the_packed_columns(table):
    bits, rows = table
    packing = Packing(*bits)
    packed = packing.pack(*rows.T)
    np.testing.assert_array_equal(np.stack(packing.unpack(packed), axis=1), rows)
    assert [int(packing.row(*row)) for row in rows.tolist()] == packed.tolist()
    one_by_one = sum(packing.place(column, field) for field, column in enumerate(rows.T))
    np.testing.assert_array_equal(one_by_one, packed)


@given(table=tables())
def test_packed_rows_sort_like_rows(table):
    bits, rows = table
    packing = Packing(*bits)
    packed = np.sort(packing.pack(*rows.T))
    assert np.stack(packing.unpack(packed), axis=1).tolist() == sorted(rows.tolist())
    above = packing.above(packed, 1)
    assert above.tolist() == sorted(rows[:, 0].tolist())


def test_fields_that_do_not_fit_into_an_integer_are_rejected():
    with pytest.raises(ValueError, match="expected at most 63"):
        Packing(32, 31, 1)
