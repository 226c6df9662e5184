from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization.measures.takes import (
    BINS,
    FEWEST_BARS,
    HISTOGRAMS,
    Form,
    Take,
    choose,
    form_of,
    form_of_prompt,
    take_seed,
)
from tokenization.score import Score, TimeSignature, Track

SHARES = st.floats(0, 1)


def shares(place: int) -> np.ndarray:
    """Histograms in which all notes are in one bin."""
    return np.tile(np.eye(BINS)[place], (HISTOGRAMS, 1))


FORMS = st.builds(Form, SHARES, SHARES, SHARES, st.integers(0, BINS - 1).map(shares))
TAKES = st.lists(st.builds(Take, st.floats(0, 5), FORMS), min_size=1, max_size=8)
PLAIN = Form(0.0, 0.2, 0.0, shares(3))


def score(*bars: str) -> Score:
    """Bars of quarter notes, one letter for each; a bar may be empty."""
    notes = [
        [1920 * bar + 480 * place, 480, ord(letter), 80]
        for bar, letters in enumerate(bars)
        for place, letter in enumerate(letters)
    ]
    track = Track(np.array(notes, np.int64).reshape(-1, 4))
    return Score(480, (track,), (), (TimeSignature(0, 4, 4),), 1920 * len(bars))


def test_the_form_of_bars_counts_equal_and_empty_bars():
    whole = score("ABCD", "ABCD", "EF", "", "ABCD", "ABCE")
    assert form_of(whole, 1, 6)[:3] == (0.2, 0.4, 0.2)
    assert form_of(whole, 0, 1)[:3] == (0, 0, 0)
    assert form_of(score("AB", "AB", "", ""), 2, 4)[:3] == (0, 0, 1)
    # bars at the end without notes may be missing in the score
    assert form_of(score("AB"), 1, 3)[:3] == (0, 0, 1)


def test_histograms_are_shares_of_the_notes_of_these_bars():
    classes, places, lengths, pitches, velocities = form_of(score("XYZ", "AAAN"), 1, 2).histograms
    assert classes[ord("A") % 12] == 0.75
    assert classes[ord("N") % 12] + classes[ord("A") % 12] == 1
    assert np.flatnonzero(places).tolist() == [0, 4, 8, 12]
    assert lengths.tolist().count(1.0) == 1
    assert pitches[ord("A") // 4] == 0.75
    assert velocities[80 // 4] == 1
    assert not form_of(score("AB", "", "C"), 1, 2).histograms.any()


def test_a_short_prompt_is_no_standard():
    bars = ["ABCD"] * FEWEST_BARS
    assert form_of_prompt(score(*bars[1:]), FEWEST_BARS - 1) is None
    form = form_of_prompt(score(*bars), FEWEST_BARS)
    assert form is not None
    assert form[:3] == (1, 1, 0)


@given(TAKES, st.none() | FORMS, st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_takes(takes, prompt, random):
    chosen = choose(takes, prompt)
    assert chosen.penalties[chosen.best] == min(chosen.penalties)
    assert min(chosen.penalties) >= 0
    others = random.sample(takes, len(takes))
    assert min(choose(others, prompt).penalties) == pytest.approx(min(chosen.penalties), abs=1e-5)
    assert choose(takes[:1], prompt).best == 0


@pytest.mark.parametrize("prompt", [None, PLAIN])
def test_takes_at_either_end_are_not_chosen(prompt):
    good = [Take(1.0, PLAIN), Take(1.02, PLAIN), Take(0.98, PLAIN)]
    worse = (
        Take(0.1, PLAIN),  # far too likely
        Take(3.0, PLAIN),  # far too unlikely
        Take(1.0, PLAIN._replace(loops=0.6)),
        Take(1.0, PLAIN._replace(returns=0.9)),
        Take(1.0, PLAIN._replace(silence=0.4)),
        Take(1.0, PLAIN._replace(histograms=shares(4))),
        Take(1.0, PLAIN._replace(histograms=0 * shares(0))),
    )
    for number, bad in enumerate(worse):
        place = number % 4
        chosen = choose([*good[:place], bad, *good[place:]], prompt)
        assert chosen.best != place
        assert chosen.penalties[place] == max(chosen.penalties)
        assert f"take {chosen.best + 1} of 4" in chosen.line()


def test_the_standard_is_the_prompt_not_the_majority():
    looped = PLAIN._replace(loops=0.5)
    takes = [Take(1.0, looped), Take(1.0, looped), Take(1.0, PLAIN)]
    assert choose(takes, PLAIN).best == 2
    assert choose(takes, looped).best == 0


@given(st.integers(0, 2**31 - 1))
def test_takes_of_neighbouring_seeds_have_different_seeds(seed):
    seeds = [take_seed((seed + near) % 2**31, take) for near in range(64) for take in range(64)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= one < 2**31 for one in seeds)
    assert take_seed(seed, 0) == seed
