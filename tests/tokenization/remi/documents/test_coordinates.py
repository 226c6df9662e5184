from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import (
    MULTITRACK,
    Case,
    any_ids,
    canonical_ids,
    for_each_tokenizer,
)
from tokenization.document import Selection
from tokenization.remi.documents.coordinates import Coordinates
from tokenization.remi.vocabulary import BAR
from tokenization.score import Score, Tempo, TimeSignature, Track


@for_each_tokenizer
@given(data=st.data())
def test_any_split_equals_the_whole(case: Case, data: st.DataObject) -> None:
    remi = case.remi
    ids = np.array(data.draw(canonical_ids(remi, write=True) | any_ids(remi)), np.int64)
    state = one = Coordinates.before(ids, remi.families)
    whole, end = state.read(ids)
    for token, row in zip(ids.tolist(), whole.tolist(), strict=True):
        one = one.advance(token)
        assert [one.bar, one.place] == row
    assert one == end
    assert whole.shape == (len(ids), 2)
    assert whole.dtype == np.int64
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=4)))
    parts = []
    for part in np.split(ids, cuts):
        made, state = state.read(part)
        parts.append(made)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert state == end


@for_each_tokenizer
@given(data=st.data())
def test_coordinates_are_those_of_the_grammar(case: Case, data: st.DataObject) -> None:
    remi, ids = case.remi, data.draw(case.ids)
    table, _ = Coordinates.before(ids, remi.families).read(ids)
    state = remi.grammar()
    for token, (bar, place) in zip(ids[:-1].tolist(), table.tolist(), strict=False):
        state = state.advance(token)
        assert (bar, place) == (max(state.bar - 1, 0), max(state.position, 0))


@pytest.mark.parametrize("without_new", [False, True])
def test_bars_of_an_infilling_are_counted_from_the_gap(without_new: bool) -> None:
    tune = Track.of([(48 * bar + 12, 12, 60 + bar, 64) for bar in range(6)])
    score = Score(12, (tune,), (Tempo(0, 120),), (TimeSignature(0, 4, 4),), 6 * 48)
    ids = MULTITRACK.encode(score, selection=Selection(2, 4)).ids
    if without_new:  # what a model reads before it generates
        ids = MULTITRACK.split_at_written(ids)[0]
    table, _ = Coordinates.before(ids, MULTITRACK.families).read(ids)
    ends = np.append(np.flatnonzero(ids == BAR)[1:], len(ids)) - 1
    assert table[ends, 0].tolist() == [2, 3, -2, -1, 0, 1][: len(ends)]
    assert set(table[:, 1].tolist()) == {0, 12}
