from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization.analysis.accidents import Accidents, Place
from tokenization.measures.continuation import measure_continuation
from tokenization.measures.takes import Judge, Take, distinct, judge, rank, take_seed
from tokenization.score import Score, Track

CLEAN = Accidents(False, False, False, False, False)
FLAWED = CLEAN._replace(hole=True, places=(Place("a bar without a note", 9, 10),))
TAKES = st.lists(
    st.builds(
        Take,
        st.just(Score(12)),
        st.sampled_from([-1.5, 0.0, 0.5, 2.0]),
        st.sampled_from([CLEAN, FLAWED]),
        st.sampled_from([0.5, 1.0]),
    ),
    min_size=1,
    max_size=8,
)


def piece(pitches: list[int], programs: int = 1) -> Score:
    """Quarter notes in 4/4, played by one track or several."""
    rows = [(12 * beat, 12, pitch, 80) for beat, pitch in enumerate(pitches)]
    tracks = tuple(Track.of(rows, program=10 * number) for number in range(programs))
    return Score(12, tracks, end_ticks=12 * len(pitches))


@given(TAKES)
def test_takes_without_accidents_are_first_then_what_returns_as_asked_then_likeness(takes):
    ranking = rank(takes, 8, 12)
    ordered = [takes[index] for index in ranking.order]
    assert sorted(ranking.order) == list(range(len(takes)))
    keys = [(take.accidents.any, -take.returned, -take.likeness) for take in ordered]
    assert keys == sorted(keys)
    choice = ranking.choose()
    assert choice.best == ranking.order[0]
    assert choice.likenesses == tuple(take.likeness for take in takes)
    flawed = sum(take.accidents.any for take in takes)
    line = choice.line()
    assert line.startswith(f"take {choice.best + 1} of {len(takes)} ")
    assert (f"{flawed} of them" in line) == (flawed > 0)
    is_likest = choice.likenesses[choice.best] == max(choice.likenesses)
    assert is_likest == ("music (" in line)
    assert is_likest or "of those that have no accidents" in line or "return as asked" in line
    # a take that is added at the end and is no better changes nothing
    assert rank([*takes, takes[0]], 8, 12).order[0] == choice.best


def test_a_score_is_the_log_odds_of_the_standardised_measures():
    columns = (np.array([1.0, 2.0]), np.array([0.5, 2.0]), np.array([3.0, -1.0]))
    made_up = Judge(("a", "b"), *columns, 0.25)
    assert made_up.score({"a": 1.5, "b": 4.0}) == pytest.approx(3 - 1 + 0.25)
    # undefined measures count as their mean, and none outweighs all others
    assert made_up.score({"a": float("nan"), "b": 2.0}) == 0.25
    assert made_up.score({"a": 1e9, "b": 2.0}) == pytest.approx(4 * 3 + 0.25)


@pytest.mark.parametrize("programs", [1, 2])
def test_the_released_judges_know_all_measures_and_prefer_varied_returns_to_a_stuck_bar(programs):
    phrase = [60, 64, 67, 64, 65, 69, 72, 69, 67, 71, 74, 71, 72, 67, 64, 60]
    varied = [60, 64, 67, 72, 65, 69, 72, 77, 67, 71, 74, 67, 72, 71, 67, 60]
    takes = [
        judge(piece([*phrase, *phrase, *new], programs), 8, 16)
        for new in ([*varied, *phrase], [60] * 32)
    ]
    assert rank(takes, 8, 16).order[0] == 0
    kind = "band" if programs > 1 else "piano"
    assert set(Judge.of(kind).names) <= set(measure_continuation(piece(phrase), 2, 4))


def test_variations_are_different_pieces():
    one, other = piece([60, 62, 64, 65] * 12), piece([60, 62, 64, 65] * 8 + [72, 71, 69, 67] * 4)
    takes = [Take(one, 2.0, CLEAN), Take(other, 1.0, CLEAN)]
    first, second = rank(takes, 8, 12), rank(takes[::-1], 8, 12)
    assert distinct([first, second, first]) == [0, 0, 0]
    # the best take of the third variation is a twin of the first, and so is its other one
    assert distinct([first]) == [0]
    assert distinct([second, second]) == [1, 0]
    # bars that were asked to return do not count
    returns = {8: 0, 9: 1}
    assert distinct([rank(takes, 8, 12, returns)] * 2) == [0, 0]
    assert judge(one, 8, 12, returns).returned == 1
    assert judge(other, 8, 12, returns).returned == 0
    assert judge(piece([60, 62, 64, 65] * 9 + [60, 62, 64, 66]), 8, 10, returns).returned == 0.8


@given(st.integers(0, 2**31 - 1))
def test_takes_of_neighbouring_seeds_have_different_seeds(seed):
    seeds = [take_seed((seed + near) % 2**31, take) for near in range(32) for take in range(32)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert take_seed(seed, 0) == seed
