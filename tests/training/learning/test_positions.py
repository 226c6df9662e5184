"""Positions of the tokens of a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import Case, for_each_tokenizer
from tokenization.remi.documents.coordinates import Coordinates
from tokenization.remi.vocabulary import PIANO_FAMILIES
from training.learning.positions import positions_of


@for_each_tokenizer
@given(data=st.data())
def test_each_row_has_the_coordinates_of_its_own_tokens(case: Case, data: st.DataObject) -> None:
    rows = [np.array(data.draw(case.ids), np.int64) for _ in range(2)]
    tokens = torch.zeros(2, max(map(len, rows)), dtype=torch.int64)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = torch.from_numpy(row)
    axes = data.draw(st.integers(2, 5))
    positions = positions_of(tokens, axes, case.remi.families)
    assert positions.shape == (*tokens.shape, axes)
    for row, found in zip(rows, positions.numpy(), strict=True):
        expected, _ = Coordinates.before(row, case.remi.families).read(row)
        np.testing.assert_array_equal(found[: len(row), 0], np.arange(len(row)))
        np.testing.assert_array_equal(found[: len(row), 1:], expected[:, : axes - 1])


def test_models_with_one_axis_share_the_index_among_rows() -> None:
    assert positions_of(torch.ones(3, 5, dtype=torch.int64), 1).tolist() == [
        [[0], [1], [2], [3], [4]]
    ]


@pytest.mark.parametrize(("num_axes", "families"), [(2, None), (6, PIANO_FAMILIES)])
def test_axes_that_tokens_do_not_have_are_refused(num_axes: int, families: object) -> None:
    with pytest.raises(ValueError, match=rf"reads {num_axes} axes of positions, but the tokens"):
        positions_of(torch.ones(1, 5, dtype=torch.int64), num_axes, families)  # type: ignore[arg-type]
