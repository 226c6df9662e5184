from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.guided import rule_of, sample
from tokenization.constraints.density import MOST, MOST_CROWD, Density
from tokenization.remi.grammar import After, RemiGrammar
from tokenization.remi.vocabulary import BAR, PIANO_FAMILIES, POSITION, TEMPO


def notes_of_bars(tokens: list[int]) -> np.ndarray:
    """Number of notes in each bar that is followed by a Bar token."""
    array = np.array(tokens)
    is_note = (array >= PIANO_FAMILIES.pitch) & (array < PIANO_FAMILIES.velocity)
    bars = np.cumsum(array == BAR)
    return np.bincount(bars[is_note], minlength=bars[-1] + 1)[: bars[-1]]


def test_density_moves_the_notes_of_a_bar_both_ways():
    free, sparse, dense = (
        notes_of_bars(sample(rule_of(*biases, bars=40, four_four=True))[0]).mean()
        for biases in ([], [Density(5)], [Density(25)])
    )
    assert 8 < free < 12
    assert 3 < sparse < 7
    assert 21 < dense < 29


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 99), density=st.floats(0.1, 200))
def test_the_bias_is_bounded_and_applies_only_to_times_and_notes(seed, density):
    rule = rule_of(Density(density), bars=40, four_four=True).advance(PIANO_FAMILIES.return_)
    _, rule = sample(rule, seed, most=seed)
    bias = rule.bias
    if not rule.grammar.allowed[BAR]:
        assert bias is None
        return
    if rule.grammar.after <= After.LAST:  # see `ConstrainedGrammar.bias`
        return
    assert bias is not None
    assert isinstance(rule.grammar, RemiGrammar)
    assert np.abs(bias).max() <= MOST + 1e-9
    notes = bias[PIANO_FAMILIES.pitch : PIANO_FAMILIES.velocity]
    assert not bias[TEMPO : PIANO_FAMILIES.pitch].any()
    assert not bias[PIANO_FAMILIES.velocity : PIANO_FAMILIES.return_].any()
    assert np.ptp(notes) == 0
    assert abs(notes[0]) <= MOST_CROWD
    times = bias[POSITION + max(rule.grammar.position, 0) + 1 : POSITION + 48]
    steps = np.diff([0, *times, bias[BAR]])
    np.testing.assert_allclose(steps, steps[0], atol=1e-9)
