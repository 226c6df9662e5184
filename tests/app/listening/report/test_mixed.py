"""Mixed models against the analysis of variance of balanced ratings."""

import numpy as np
import pytest

from app.listening.clips import JudgedClip
from app.listening.report import mixed
from app.listening.report.judgements import OVERALL, Judgements, Rating
from app.listening.report.mixed import mixed_models

LISTENERS, PROMPTS, CONDITIONS = 6, 5, 3


def test_balanced_ratings_have_the_variances_of_their_mean_squares():
    """S. R. Searle, G. Casella and C. E. McCulloch, Variance Components (1992), section 4.5.

    For balanced data whose estimates are positive, REML gives those of the analysis of variance.
    """
    rng = np.random.default_rng(1)
    shape = (LISTENERS, PROMPTS, CONDITIONS)
    values = 0.5 * rng.normal(size=shape) + np.arange(CONDITIONS) / 2
    for size in ((LISTENERS, 1, 1), (1, PROMPTS, 1), (1, *shape[1:]), (LISTENERS, 1, CONDITIONS)):
        values += rng.normal(size=size)
    squares = {}
    for axes in ((0,), (1,), (2,), (0, 2), (1, 2)):
        means = values.mean(tuple({0, 1, 2} - set(axes)), keepdims=True) - values.mean()
        squares[axes] = values.size / means.size * (means**2).sum()
    total = ((values - values.mean()) ** 2).sum()
    of_listeners = squares[0, 2] - squares[0,] - squares[2,]
    of_prompts = squares[1, 2] - squares[1,] - squares[2,]
    freedom = (LISTENERS - 1) * (CONDITIONS - 1), (PROMPTS - 1) * (CONDITIONS - 1)
    rest = total - squares[0,] - squares[1,] - squares[2,] - of_listeners - of_prompts
    rest /= values.size - 1 - (LISTENERS - 1) - (PROMPTS - 1) - (CONDITIONS - 1) - sum(freedom)
    of_listeners, of_prompts = of_listeners / freedom[0], of_prompts / freedom[1]
    wanted = {
        "listener": (squares[0,] / (LISTENERS - 1) - of_listeners) / PROMPTS / CONDITIONS,
        "prompt": (squares[1,] / (PROMPTS - 1) - of_prompts) / LISTENERS / CONDITIONS,
        "prompt × condition": (of_prompts - rest) / LISTENERS,
        "listener × condition": (of_listeners - rest) / PROMPTS,
        "residual": rest,
    }
    assert min(wanted.values()) > 0
    (model,) = mixed_models(judged(values))
    assert model.converged
    assert model.variances == pytest.approx(wanted, rel=0.02)
    effect = model.effects[0]
    assert (effect.condition, effect.other) == ("a", "b")
    assert effect.estimate.value == pytest.approx(values[..., 0].mean() - values[..., 1].mean())
    error = np.sqrt(2 * (of_listeners + of_prompts - rest) / (LISTENERS * PROMPTS))
    half = (effect.estimate.high - effect.estimate.low) / 2
    assert half == pytest.approx(1.959964 * error, rel=0.01)


def test_effects_that_cannot_be_told_apart_or_take_long_are_left_out(monkeypatch):
    values = np.random.default_rng(1).normal(size=(4, 2, CONDITIONS))
    (two,) = mixed_models(judged(values))
    (one,) = mixed_models(judged(values[:, :1]))
    assert two.variances.keys() - one.variances.keys() == {"prompt", "prompt × condition"}
    monkeypatch.setattr(mixed, "MOST_COLUMNS", 4 + 2 + (4 + 2) * CONDITIONS - 1)
    (quick,) = mixed_models(judged(values))
    assert two.variances.keys() - quick.variances.keys() == {"listener × condition"}


def judged(values):
    names = [[f"{letter}{n}" for n in range(9)] for letter in "lp"]
    ratings = [
        Rating(names[0][one], OVERALL, JudgedClip("", names[1][other], "abc"[place], 16.0), value)
        for (one, other, place), value in np.ndenumerate(values)
    ]
    return Judgements(
        listeners=tuple(names[0][:LISTENERS]),
        prompts=tuple(names[1][:PROMPTS]),
        conditions=("a", "b", "c"),
        ratings=ratings,
        preferences=[],
        same_condition=0,
    )
