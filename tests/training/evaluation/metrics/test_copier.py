from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import scores
from tokenization.measures.bars import BarNotes
from tokenization.measures.form import exact_similarity, form
from tokenization.measures.similarity import repeated_bars
from tokenization.score import Score, TimeSignature, Track
from training.evaluation.metrics.copier import copier

ANY = scores(max_beats=40, programs=(0, 0, 33))


def tune(bars, seed=0):
    """Random quavers in 4/4."""
    pitches = np.random.default_rng(seed).integers(36, 96, 8 * bars).tolist()
    track = Track.of([(6 * i, 6, pitch, 80) for i, pitch in enumerate(pitches)])
    return BarNotes.of(Score(12, (track,), end_ticks=48 * bars))


@settings(max_examples=20, deadline=None)
@given(ANY, st.data())
def test_the_prompt_is_kept_and_notes_are_in_order_and_in_their_bars(score, data):
    notes = BarNotes.of(score)
    first = data.draw(st.integers(1, max(notes.num_bars, 1)))
    found = copier(notes, first, data.draw(st.integers(1, first)))
    for before, after in zip(notes.between(0, first), found.between(0, first), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(found.lines, notes.lines)
    assert (np.diff(found.onsets) >= 0).all()
    assert (found.positions >= 0).all()
    assert (found.bars < notes.num_bars).all()


def test_every_new_bar_copies_the_one_at_the_distance():
    notes = tune(60)  # real music is not a copy
    assert repeated_bars(notes, 20).of_any_earlier == 0
    assert form(notes, 20)["most_similar_earlier"] < 0.5
    found = copier(notes, 20)
    similarity = exact_similarity(found)
    assert all(similarity[bar, bar - 16] == 1 for bar in range(20, 60))
    assert repeated_bars(found, 20).of_any_earlier == 1
    figures = form(found, 20)
    assert figures["most_similar_earlier"] == figures["self_similarity_16"] == 1
    assert figures["like_bar_before"] < 0.2


def test_notes_beyond_the_end_of_a_shorter_bar_are_dropped():
    track = Track.of([(0, 6, 60, 80), (40, 6, 62, 80), (48, 6, 64, 80)])
    metre = (TimeSignature(0, 4, 4), TimeSignature(48, 3, 4))
    found = copier(BarNotes.of(Score(12, (track,), (), metre, end_ticks=84)), 1, 1)
    assert found.onsets.tolist() == [0, 40, 48]
    assert found.pitches.tolist() == [60, 62, 60]


def test_a_distance_beyond_the_prompt_is_refused():
    with pytest.raises(ValueError, match="8 bars cannot be continued with what stood 16 before"):
        copier(tune(10), 8)
