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
from tokenization.plan import BarPlan, Chord, Plan, PlannedChord
from tokenization.remi.documents.coordinates import NO_CHORD, Coordinates
from tokenization.remi.vocabulary import BAR
from tokenization.score import Score, Tempo, TimeSignature, Track

CHORDS = np.arange(MULTITRACK.families.chord, MULTITRACK.families.bass)


@for_each_tokenizer
@given(data=st.data())
def test_any_split_equals_the_whole(case: Case, data: st.DataObject) -> None:
    remi = case.remi
    ids = np.array(data.draw(canonical_ids(remi, write=True) | any_ids(remi)), np.int64)
    state = one = Coordinates.before(ids, remi.families)
    whole, end = state.read(ids)
    for token, row in zip(ids.tolist(), whole.tolist(), strict=True):
        one = one.advance(token)
        assert [one.bar, one.place, one.chord, one.section] == row
    assert one == end
    assert whole.shape == (len(ids), 4)
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
    for token, (bar, place, *_) in zip(ids[:-1].tolist(), table.tolist(), strict=False):
        state = state.advance(token)
        assert (bar, place) == (max(state.bar - 1, 0), max(state.position, 0))


@for_each_tokenizer
@given(data=st.data())
def test_later_tokens_change_no_coordinates(case: Case, data: st.DataObject) -> None:
    """They may say where the gap of an infilling begins, from which bars are counted."""
    remi = case.remi
    ids = np.array(data.draw(canonical_ids(remi) | any_ids(remi)), np.int64)
    start = Coordinates.before(ids, remi.families)
    count = data.draw(st.integers(0, len(ids)))
    others = np.array(data.draw(any_ids(remi)), np.int64)
    changed, _ = start.read(np.concatenate([ids[:count], others]))
    np.testing.assert_array_equal(changed[:count], start.read(ids)[0][:count])


def test_chords_and_sections_are_those_of_the_plan() -> None:
    tune = Track.of([(24 * half, 12, 60 + half, 64) for half in range(12)])
    score = Score(12, (tune,), (Tempo(0, 120),), (TimeSignature(0, 4, 4),), 6 * 48)
    c, g = Chord(0, 0), Chord(7, 0)
    one, two = (PlannedChord(0, c),), (PlannedChord(0, g), PlannedChord(2, c))
    bars = ((0, one), (0, two), (2, one), (1, two), (3, one), (0, ()))
    plan = Plan(tuple(BarPlan(source, chords) for source, chords in bars))
    ids = np.array(MULTITRACK.encode(score, plan).ids, np.int64)
    families = MULTITRACK.families
    table, _ = Coordinates.before(ids, families).read(ids)
    is_note = (ids >= families.pitch) & (ids < families.drum)
    of_c, of_g = (int(id_) - families.chord for id_ in ids[np.isin(ids, CHORDS)][:2])
    assert of_c != of_g
    halves = [of_c, of_c, of_g, of_c, of_c, of_c, of_g, of_c, of_c, of_c, NO_CHORD, NO_CHORD]
    assert table[is_note, 2].tolist() == halves
    assert table[is_note, 3].tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 5, 5]
    assert set(table[ids == BAR, 2].tolist()) == {NO_CHORD}
    assert table[ids == BAR, 3].tolist() == [*range(6)]


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
