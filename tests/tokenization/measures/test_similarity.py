from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.passages import notes_of
from tokenization.measures.similarity import bar_similarity, repeated_bars, similarity_by_lag


def test_similarity_by_hand():
    """A bar of C and E, one of C and G (an octave higher), silence, the first bar again."""
    rows = [(0, 6, 60), (12, 6, 64), (48, 6, 72), (60, 6, 67), (144, 20, 60), (156, 6, 64)]
    similarity = bar_similarity(notes_of([(*row, 80) for row in rows], bars=4))
    assert similarity[0].tolist() == [1, 1 / 3, 0, 1]
    by_lag = similarity_by_lag(similarity, (1, 2, 3, 4))
    np.testing.assert_allclose(by_lag, [(1 / 3) / 3, (0 + 1 / 3) / 2, 1, np.nan])


def test_drums_have_no_pitch_classes():
    rows = [(0, 1, 36, 80), (48, 1, 48, 80)]
    assert bar_similarity(notes_of(rows, bars=2))[0, 1] == 1
    assert bar_similarity(notes_of(rows, bars=2, drums=True))[0, 1] == 0


@given(st.integers(0, 20), st.integers(1, 4))
def test_repeated_bars_of_the_prompt_are_found(seed, first_bar):
    draw = np.random.default_rng(seed)
    pitches = draw.integers(30, 90, 8).tolist()
    bar = [(6 * place, 6, pitch, 80) for place, pitch in enumerate(pitches)]
    prompt = [(48 * n + on, d, x + n, v) for n in range(first_bar) for on, d, x, v in bar]
    end = 48 * first_bar
    again = [(end + on, 3, x, 50) for on, _, x, _ in bar]
    other = [(end + 48 + on, d, x - 1, v) for on, d, x, v in bar]
    both = [(48 + on, *rest) for on, *rest in other]
    notes = notes_of(prompt + again + other + both, bars=first_bar + 5)
    # repeated; new; repeated; two without notes
    found = repeated_bars(notes, first_bar)
    assert found == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_the_same_bar_in_another_track_is_not_a_repetition():
    first, second = [(0, 6, 60, 80)], [(48, 6, 60, 80)]
    assert repeated_bars(notes_of(first + second, bars=2), 1) == (1, 1)
    assert repeated_bars(notes_of(first, second, bars=2), 1) == (0, 0)
    assert all(math.isnan(share) for share in repeated_bars(notes_of(first, bars=4), 1))
