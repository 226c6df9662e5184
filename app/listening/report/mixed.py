"""A linear mixed model of the same answers, as a check of the means and preferences.

Conditions are fixed effects. Listeners, prompts, and what each of them adds to a condition are
random effects, so that all sources of variation are estimated together, by REML, instead of
resampled. Answers are treated as normal and intervals as symmetric, which is only an approximation:
a check, not a result of its own.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

from app.listening.report.bootstrap import Interval
from app.listening.report.comparisons import pairs
from app.listening.report.judgements import OVERALL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.listening.report.judgements import Judgements

MOST_COLUMNS = 200
"""Random effects beyond which those of listeners and conditions are left out, for time."""
_LEAST_SQUARES = 1e-9
"""Sum of squares that conditions leave unexplained, below which nothing varies."""


class Effect(NamedTuple):
    """A difference between two conditions."""

    condition: str
    other: str
    estimate: Interval
    """In points, or for preferences the share of wins minus that of losses."""


@dataclass(frozen=True)
class Mixed:
    """A mixed model of ratings or preferences."""

    measure: str
    """`rating` (the mean of the questions) or `preference`."""
    effects: list[Effect]
    """Empty if there are too few answers, or none that differ, to fit the model."""
    variances: dict[str, float]
    """Of the random effects, and of the rest: `residual`."""
    converged: bool


def mixed_models(judged: Judgements) -> list[Mixed]:
    """Return the models of ratings and of preferences, of those that there are."""
    # a cell per listener, prompt and condition or pair: single answers would take seconds
    cells: defaultdict[str, defaultdict[tuple[str, ...], list[float]]]
    cells = defaultdict(lambda: defaultdict(list))
    for r in judged.ratings:
        if r.question == OVERALL:
            cells["rating"][r.listener, r.clip.prompt, r.clip.condition].append(r.value)
    for p in judged.preferences:
        pair = (p.first.condition, p.second.condition)
        cells["preference"][p.listener, p.first.prompt, *pair].append(2.0 * p.first_won - 1)
    models = []
    for measure, of_measure in cells.items():
        keys = sorted(of_measure)
        names = sorted({name for key in keys for name in key[2:]})
        values = np.array([fmean(of_measure[key]) for key in keys])
        sides = np.zeros((len(keys), len(names)))
        for row, key in enumerate(keys):
            for name, weight in zip(key[2:], (1.0, -1.0), strict=False):
                sides[row, names.index(name)] = weight
        if len(names) > 1:
            models.append(_fit(measure, values, sides, names, keys))
    return models


def _fit(
    measure: str,
    values: NDArray[np.float64],
    sides: NDArray[np.float64],
    names: list[str],
    keys: list[tuple[str, ...]],
) -> Mixed:
    """Fit the model.

    `sides` has the weight of each condition in each answer; `keys` begin with listener and prompt.
    """
    # the last condition is the reference; the constant is its mean, or the order of the pair
    fixed = np.column_stack([np.ones(len(values)), sides[:, :-1]])
    squares = np.linalg.lstsq(fixed, values)[1]
    if not squares.size or squares[0] < _LEAST_SQUARES:
        return Mixed(measure, [], {}, converged=False)
    listeners, prompts = (_indicators([key[part] for key in keys]) for part in (0, 1))
    effects = {
        "listener": listeners,
        "prompt": prompts,
        "prompt × condition": _crossed(prompts, sides),
        "listener × condition": _crossed(listeners, sides),
    }
    if measure == "preference":  # both clips of a pair have the same listener and prompt
        del effects["listener"], effects["prompt"]
    if prompts.shape[1] < 2:
        effects = {name: z for name, z in effects.items() if not name.startswith("prompt")}
    if sum(z.shape[1] for z in effects.values()) > MOST_COLUMNS:
        del effects["listener × condition"]
    # all answers are one group, in which the random effects are crossed
    columns = [[[str(column) for column in range(z.shape[1])]] for z in effects.values()]
    crossed = VCSpec(list(effects), columns, [[z] for z in effects.values()])
    model = _Model(values, fixed, groups=np.zeros(len(values)), exog_vc=crossed)
    with warnings.catch_warnings():  # variances of zero are shown, and what did not converge
        warnings.simplefilter("ignore")
        try:  # methods that use gradients stop too early where a variance is zero
            fitted: Any = model.fit(reml=True, method="powell")
        except np.linalg.LinAlgError:
            return Mixed(measure, [], {}, converged=False)
    covariance = fitted.cov_params()[: len(names), : len(names)]
    weights = dict(zip(names, [*np.eye(len(names))[1:], np.zeros(len(names))], strict=True))
    contrasts = []
    for condition, other in pairs(names):
        contrast = weights[condition] - weights[other]
        value = float(contrast @ fitted.fe_params)
        half = 1.959964 * math.sqrt(max(0.0, float(contrast @ covariance @ contrast)))
        contrasts.append(Effect(condition, other, Interval(value, value - half, value + half)))
    variances = dict(zip(effects, map(float, fitted.vcomp), strict=True))
    variances["residual"] = float(fitted.scale)
    return Mixed(measure, contrasts, variances, bool(fitted.converged))


class _Model(MixedLM):
    """A model whose likelihood is almost zero for variances with which it cannot be computed."""

    def loglike(self, params: Any, profile_fe: bool = True) -> float:  # noqa: ANN401
        try:
            return super().loglike(params, profile_fe)
        except np.linalg.LinAlgError:
            return -1e9  # finite, for the interpolation of Powell's method


def _indicators(names: list[str]) -> NDArray[np.float64]:
    levels, index = np.unique(names, return_inverse=True)
    return np.eye(len(levels))[index]


def _crossed(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a column for each pair of columns that occurs."""
    both = (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)
    return both[:, np.abs(both).sum(0) > 0]
