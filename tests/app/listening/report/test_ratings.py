"""Means of ratings worked out by hand, and mixed models compared with those of statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.formula.api as formulas
from pandas import DataFrame

from app.listening.clips import Clip
from app.listening.report.bootstrap import Bootstrap
from app.listening.report.judgements import OVERALL, Judgements, Rating
from app.listening.report.mixed import mixed_models
from app.listening.report.ratings import ratings_of


def judged(values):
    """Judgements of ratings: (listener, prompt, condition, clip, value)."""
    ratings = [
        Rating(f"l{listener}", OVERALL, Clip(f"{c}{p}-{clip}", f"p{p}", c, 16.0), value)
        for listener, p, c, clip, value in values
    ]
    return Judgements(
        listeners=tuple(sorted({r.listener for r in ratings})),
        prompts=tuple(sorted({r.clip.prompt for r in ratings})),
        conditions=tuple(sorted({r.clip.condition for r in ratings})),
        ratings=ratings,
        preferences=[],
        same_condition=0,
    )


def analysed(values):
    data = judged(values)
    bootstrap = Bootstrap(len(data.listeners), len(data.prompts), draws=200)
    (found,) = ratings_of(data, bootstrap, of_interest=0.5)
    return found


# 4 listeners, 2 prompts; b is better than a by 1, 1, 2 and 0 points
SMALL = [
    *((n, p, "a", 0, 2.0 + p) for n in range(4) for p in (0, 1)),
    *((n, p, "b", 0, 2.0 + p + apart) for n, apart in enumerate((1, 1, 2, 0)) for p in (0, 1)),
]


def test_means_and_comparison_by_hand():
    found = analysed(SMALL)
    assert [(m.condition, m.mean.value, m.answers) for m in found.means] == [
        ("b", 3.5, 8),
        ("a", 2.5, 8),
    ]
    assert found.means[1].counts == (0, 4, 4, 0, 0)
    (one,) = found.comparisons
    assert one.estimate.value == pytest.approx(-1.0)
    # differences −1, −1, −2 and 0: three negative ranks, p = 2 / 2³
    assert (one.p, one.p_holm, one.effect_size, one.listeners) == (0.25, 0.25, -1.0, 4)


def test_what_a_prompt_adds_does_not_matter_if_listeners_rate_it_with_other_conditions():
    """As on the rating page, where listeners rate a part of the clips."""
    values = [
        (n, (n + place) % 2, condition, 0, 2.0 + 2 * ((n + place) % 2) + 0.5 * place)
        for n in range(8)
        for place, condition in enumerate("ab")
    ]
    (one,) = analysed(values).comparisons
    assert one.estimate.value == pytest.approx(-0.5)
    assert (one.listeners, one.answers, one.effect_size) == (8, 16, -1.0)
    assert one.p == pytest.approx(2 / 2**8)


def test_the_mixed_model_is_that_of_statsmodels():
    rng = np.random.default_rng(2)
    listener, prompt = rng.normal(0, 0.6, 8), rng.normal(0, 0.4, 4)
    values = [
        (n, p, c, 0, 3 + listener[n] + prompt[p] + place * 0.7 + rng.normal(0, 0.5))
        for n in range(8)
        for p in range(4)
        for place, c in enumerate("abc")
    ]
    (found,) = mixed_models(judged(values))
    table = DataFrame(
        [(f"l{n}", f"p{p}", c, v) for n, p, c, _, v in values],
        columns=["listener", "prompt", "condition", "value"],
    )
    table["group"] = 1
    parts = {
        "listener": "0 + C(listener)",
        "prompt": "0 + C(prompt)",
        "prompt × condition": "0 + C(prompt):C(condition)",
        "listener × condition": "0 + C(listener):C(condition)",
    }
    with pytest.warns():  # variances of zero
        expected = formulas.mixedlm(
            "value ~ C(condition, Treatment('c'))", table, groups="group", vc_formula=parts
        ).fit(method="powell")  # lbfgs stops before the optimum
    assert found.converged
    assert found.measure == "rating"
    assert [effect.condition + effect.other for effect in found.effects] == ["ab", "ac", "bc"]
    a, b = (float(v) for v in expected.fe_params.iloc[1:])
    assert [e.estimate.value for e in found.effects] == pytest.approx([a - b, a, b], abs=1e-4)
    assert found.variances["residual"] == pytest.approx(float(expected.scale), rel=1e-3)
    half = 1.96 * float(expected.bse_fe.iloc[1])
    assert found.effects[1].estimate.high - a == pytest.approx(half, rel=1e-3)
