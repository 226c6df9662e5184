"""Bradley-Terry strengths and comparisons of pairs."""

from __future__ import annotations

import numpy as np
import pytest

from app.listening.clips import Clip
from app.listening.report.bootstrap import Bootstrap
from app.listening.report.judgements import Judgements, Preference
from app.listening.report.preferences import bradley_terry, preferences_of, probability

# A. Agresti, Categorical Data Analysis (2nd edition, 2002), table 10.10: baseball in the American
# League, 1987; wins of the row against the column, in the order Milwaukee, Detroit, Toronto, New
# York, Boston, Cleveland, Baltimore. Estimates relative to Baltimore: section 10.6.2.
BASEBALL = np.array(
    [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ],
    float,
)
AGAINST_BALTIMORE = [1.581, 1.436, 1.294, 1.248, 1.108, 0.684, 0.0]


def test_published_strengths():
    found = bradley_terry(BASEBALL)
    assert found - found[-1] == pytest.approx(AGAINST_BALTIMORE, abs=2e-3)
    assert bradley_terry(BASEBALL[::-1, ::-1]) == pytest.approx(found[::-1], abs=1e-6)
    assert bradley_terry(BASEBALL.T) == pytest.approx(-found, abs=1e-6)  # worse, not better


def test_two_conditions_have_the_share_of_wins():
    one, other = bradley_terry(np.array([[0.0, 30.0], [10.0, 0.0]]))
    assert probability(one - other) == pytest.approx(0.75, abs=1e-4)


def test_a_condition_that_always_won_has_a_finite_strength():
    found = bradley_terry(np.array([[0.0, 20.0, 20.0], [0.0, 0.0, 10.0], [0.0, 10.0, 0.0]]))
    assert np.isfinite(found).all()
    assert found[0] - found[1] > 5
    assert found[1] == pytest.approx(found[2])


def judged(choices, prompts=2):
    """Judgements of listeners; `choices` are (listener, prompt, first, second, first won)."""
    preferences = [
        Preference(
            f"l{listener}",
            Clip(f"{first}{prompt}", f"p{prompt}", first, 16.0),
            Clip(f"{second}{prompt}", f"p{prompt}", second, 16.0),
            won,
            confidence,
        )
        for listener, prompt, first, second, won, confidence in choices
    ]
    names = {p.first.condition for p in preferences} | {p.second.condition for p in preferences}
    return Judgements(
        listeners=tuple(sorted({p.listener for p in preferences})),
        prompts=tuple(f"p{n}" for n in range(prompts)),
        conditions=tuple(sorted(names)),
        ratings=[],
        preferences=preferences,
        same_condition=0,
    )


def analysed(choices, *, weighted=False):
    data = judged(choices)
    bootstrap = Bootstrap(len(data.listeners), len(data.prompts), draws=200)
    found = preferences_of(data, bootstrap, of_interest=0.65, weighted=weighted)
    assert found
    return found


def drawn():
    rng = np.random.default_rng(0)
    worth = {"a": 0.8, "b": 0.0, "c": -0.5}
    return [
        (n, prompt, *pair, bool(rng.random() < probability(worth[pair[0]] - worth[pair[1]])), 3.0)
        for n in range(8)
        for prompt in range(2)
        for pair in ("ab", "ca", "bc")
    ]


def test_sides_swapped_give_the_same_results_and_the_mirrored_order():
    choices = drawn()
    before = analysed(choices)
    after = analysed([(n, p, two, one, not won, sure) for n, p, one, two, won, sure in choices])
    assert after.strengths == before.strengths
    assert after.comparisons == before.comparisons
    assert after.first == pytest.approx(1 - before.first)


def test_confidence_counts_in_the_strengths_only_if_it_is_asked_for():
    sure = [
        (n, p, "a", "b", n % 2 == 0, 5.0 if n % 2 == 0 else 1.0) for n in range(6) for p in (0, 1)
    ]
    plain, weighted = analysed(sure).comparisons[0], analysed(sure, weighted=True).comparisons[0]
    assert plain.estimate.value == pytest.approx(0.5)
    assert weighted.estimate.value == pytest.approx(5 / 6, abs=1e-4)
    assert weighted.p == plain.p
