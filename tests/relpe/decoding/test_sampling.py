from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from relpe.decoding.sampling import SamplingOptions, draw, kept_tokens
from tests.support.golden_spe import GOLDEN

LOGITS = arrays.arrays(np.float32, st.integers(2, 40), elements=st.floats(-900, 900, width=32))
OPTIONS = st.builds(
    SamplingOptions,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.integers(0, 8),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
)


@given(st.floats(0, 1), st.floats(0, 1))
def test_memory_acts_evenly_on_what_has_the_usual_odds(one, other):
    def probability(memory: float, odds: float = 19.0) -> float:
        factor = SamplingOptions(memory=memory).odds_factor
        return factor * odds / (1 + factor * odds)

    assert probability(one) == pytest.approx(one * probability(1.0))
    low, high = sorted((one, other))
    assert probability(low, 1.0) <= probability(high, 1.0)


def seeded(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def mask(logits: np.ndarray, seed: int) -> np.ndarray:
    """A random mask of allowed tokens, at least one."""
    allowed = seeded(seed).random(len(logits)) < 0.6
    allowed[seed % len(logits)] = True
    return allowed


def probabilities(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    scores = np.where(allowed, logits, -np.inf).astype(float)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def test_the_nucleus_matches_the_original() -> None:
    weights = np.exp(GOLDEN["nuc_logits"].astype(float) / float(GOLDEN["nuc_temp"]))
    np.testing.assert_allclose(weights / weights.sum(), GOLDEN["nuc_probs"], rtol=1e-6, atol=1e-8)
    kept = kept_tokens(weights, SamplingOptions(top_p=float(GOLDEN["nuc_p"])))
    assert sorted(GOLDEN["nuc_candidates"].tolist()) == kept.tolist()


@given(logits=LOGITS, options=OPTIONS, seed=st.integers(0, 99))
def test_drawn_tokens_are_allowed_and_have_a_probability(
    logits: np.ndarray, options: SamplingOptions, seed: int
) -> None:
    allowed = mask(logits, seed)
    token = draw(logits, allowed, options, seeded(seed))
    assert allowed[token]
    assert probabilities(logits / (options.temperature or 1), allowed)[token] > 0


@given(logits=LOGITS, seed=st.integers(0, 99), top_p=st.floats(0, 1))
def test_the_nucleus_ends_with_the_token_that_reaches_top_p(
    logits: np.ndarray, seed: int, top_p: float
) -> None:
    likely = probabilities(logits, mask(logits, seed))
    kept = kept_tokens(likely, SamplingOptions(top_p=top_p))
    left_out = np.setdiff1d(np.flatnonzero(likely), kept)
    assert len(kept)
    if len(left_out):
        assert likely[kept].min() >= likely[left_out].max()
        assert likely[kept].sum() >= top_p - 1e-9
    assert likely[kept].sum() - likely[kept].min() <= top_p + 1e-9


@given(logits=LOGITS, seed=st.integers(0, 99), top_k=st.integers(1, 9), min_p=st.floats(0, 1))
def test_top_k_and_min_p_keep_the_most_likely_tokens(
    logits: np.ndarray, seed: int, top_k: int, min_p: float
) -> None:
    likely = probabilities(logits, mask(logits, seed))
    some = np.flatnonzero(likely >= np.finfo(float).tiny)
    kept = kept_tokens(likely, SamplingOptions(top_k=top_k, top_p=1.0))
    assert 1 <= len(kept) <= min(top_k, len(some))
    assert likely[kept].sum() >= np.sort(likely)[-top_k:].sum() * (1 - 1e-9)
    kept = kept_tokens(likely, SamplingOptions(min_p=min_p, top_p=1.0))
    wanted = some[likely[some] >= min_p * likely.max()]
    assert set(kept) <= set(wanted)
    assert likely[kept].sum() >= likely[wanted].sum() * (1 - 1e-9)


def test_cuts_are_applied_in_order() -> None:
    weights = np.array([1.0, 5.0, 2.0, 0.0, 4.0, 3.0])
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"top_p": 1.0}, [0, 1, 2, 4, 5]),
        ({"top_k": 3, "top_p": 1.0}, [1, 4, 5]),
        ({"top_k": 3, "top_p": 0.7}, [1, 4]),  # 9 of 12, not of 15
        ({"top_p": 0.7}, [1, 4, 5]),
        ({"top_p": 0.7, "min_p": 0.7}, [1, 4]),
        ({"top_p": 0.0}, [1]),
        ({"top_k": 99, "top_p": 1.0, "min_p": 1.0}, [1]),
    ]
    for options, wanted in cases:
        assert kept_tokens(weights, SamplingOptions(**options)).tolist() == wanted
    # of equally likely tokens the first are kept
    assert kept_tokens(np.ones(5), SamplingOptions(top_k=2)).tolist() == [0, 1]


class Points:
    """Fake generator that returns given numbers."""

    def __init__(self, points: list[float]) -> None:
        self.points = iter(points)

    def random(self) -> float:
        return next(self.points)


def test_draws_follow_the_tempered_probabilities_exactly() -> None:
    """By inversion sampling: evenly spaced points yield each token in proportion."""
    logits = np.array([0.0, 1.0, 2.0, 3.0], np.float32)
    allowed = np.array([True, True, False, True])
    options = SamplingOptions(temperature=2.0, top_p=1.0)
    count = 10_000
    points = Points(((np.arange(count) + 0.5) / count).tolist())
    drawn = [draw(logits, allowed, options, points) for _ in range(count)]  # type: ignore[arg-type]
    wanted = probabilities(logits / 2, allowed)
    assert np.abs(np.bincount(drawn, minlength=4) - wanted * count).max() <= 1
    assert drawn == sorted(drawn)


def test_the_last_point_draws_the_last_kept_token() -> None:
    logits = np.array([0.0, 0.0, -2000.0], np.float32)
    points = Points([1 - 2**-53])
    assert draw(logits, np.ones(3, bool), SamplingOptions(top_p=1.0), points) == 1  # type: ignore[arg-type]


def test_temperature_0_takes_the_most_likely_token() -> None:
    logits, allowed = np.array([5.0, 1.0, 3.0], np.float32), np.array([False, True, True])
    assert draw(logits, allowed, SamplingOptions(temperature=0), seeded(0)) == 2


@given(logits=LOGITS, options=OPTIONS, seed=st.integers(0, 99))
def test_each_token_takes_exactly_one_random_number(
    logits: np.ndarray, options: SamplingOptions, seed: int
) -> None:
    generator, counted = seeded(seed), seeded(seed)
    draw(logits, mask(logits, seed), options, generator)
    if options.temperature:
        counted.random()
    assert generator.random() == counted.random()


@given(logits=LOGITS, options=OPTIONS, seed=st.integers(0, 99))
def test_a_bias_is_added_to_the_logits_and_allows_no_other_token(
    logits: np.ndarray, options: SamplingOptions, seed: int
) -> None:
    allowed, bias = mask(logits, seed), 100 * seeded(seed).normal(size=len(logits))
    bias[~allowed] = 1e6
    token = draw(logits, allowed, options, seeded(seed), bias)
    assert allowed[token]
    sums = np.where(allowed, logits + bias, 0)
    assert token == draw(sums, allowed, options, seeded(seed))  # type: ignore[arg-type]
    assert draw(logits, allowed, options, seeded(seed), 0 * bias) == draw(
        logits, allowed, options, seeded(seed)
    )


def test_options_out_of_range_are_refused() -> None:
    for name, number in (
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("memory", 1.5),
    ):
        with pytest.raises(ValueError, match=name):
            SamplingOptions(**{name: number})  # pyright: ignore[reportArgumentType] - of one field
