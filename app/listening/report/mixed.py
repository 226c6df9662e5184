"""A linear mixed model of the same answers, as a check of the means and preferences.

Conditions are fixed effects. Listeners, prompts, and what each of them adds to a condition are
random effects, so that all sources of variation are estimated together, by REML, instead of
resampled. Answers are treated as normal and intervals as symmetric, which is only an approximation:
a check, not a result of its own.

Source: Bates, Mächler, Bolker and Walker (2015), Fitting linear mixed-effects models using lme4.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import linalg, optimize

from app.listening.report.bootstrap import Interval
from app.listening.report.comparisons import pairs
from app.listening.report.judgements import OVERALL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.listening.report.judgements import Judgements

MOST_COLUMNS = 400
"""Random effects beyond which those of listeners and conditions are left out, for time."""


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
    """Empty if the equations of the model cannot be solved."""
    variances: dict[str, float]
    """Of the random effects, and of the rest: `residual`."""
    converged: bool


def mixed_models(judged: Judgements) -> list[Mixed]:
    """The models of ratings and of preferences, of those that there are."""
    found = []
    rated = [r for r in judged.ratings if r.question == OVERALL]
    if len({r.clip.condition for r in rated}) > 1:
        # a cell per listener, prompt and condition: the model takes seconds with single answers
        cells: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        for r in rated:
            cells[r.listener, r.clip.prompt, r.clip.condition].append(r.value)
        keys = sorted(cells)
        names = sorted({condition for _, _, condition in keys})
        values = np.array([math.fsum(cells[key]) / len(cells[key]) for key in keys])
        sides = np.eye(len(names))[[names.index(condition) for _, _, condition in keys]]
        found.append(_fit("rating", values, sides, names, [key[:2] for key in keys]))
    if judged.preferences:
        told: defaultdict[tuple[str, str, str, str], list[float]] = defaultdict(list)
        for p in judged.preferences:
            clips = (p.first.condition, p.second.condition)
            value = 1.0 if p.first_won else -1.0
            told[p.listener, p.first.prompt, *clips].append(value)
        keys = sorted(told)
        names = sorted({name for key in keys for name in key[2:]})
        values = np.array([math.fsum(told[key]) / len(told[key]) for key in keys])
        sides = np.zeros((len(keys), len(names)))
        for row, (_, _, first, second) in enumerate(keys):
            sides[row, names.index(first)], sides[row, names.index(second)] = 1.0, -1.0
        found.append(_fit("preference", values, sides, names, [key[:2] for key in keys]))
    return found


def _fit(
    measure: str,
    values: NDArray[np.float64],
    sides: NDArray[np.float64],
    names: list[str],
    of: list[tuple[str, str]],
) -> Mixed:
    """Fits the model; `sides` has the weight of each condition in each answer."""
    listeners, prompts = (_indicators([key[part] for key in of]) for part in (0, 1))
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
    # the last condition is the reference; the constant is its mean, or the order of the pair
    fixed = np.column_stack([np.ones(len(values)), sides[:, :-1]])
    fitted = _fitted(values, fixed, effects)
    if not np.isfinite(fitted.estimates).all():
        return Mixed(measure, [], {}, converged=False)
    place = {name: index + 1 for index, name in enumerate(names[:-1])}
    found = []
    for condition, other in pairs(names):
        contrast = np.zeros(fixed.shape[1])
        contrast[place[condition]] = 1
        if other in place:
            contrast[place[other]] = -1
        value = float(contrast @ fitted.estimates)
        half = 1.959964 * math.sqrt(max(0.0, float(contrast @ fitted.covariance @ contrast)))
        found.append(Effect(condition, other, Interval(value, value - half, value + half)))
    variances = fitted.variances | {"residual": fitted.residual}
    return Mixed(measure, found, variances, fitted.converged)


class _Fitted(NamedTuple):
    estimates: NDArray[np.float64]
    covariance: NDArray[np.float64]
    variances: dict[str, float]
    residual: float
    converged: bool


def _fitted(
    values: NDArray[np.float64],
    fixed: NDArray[np.float64],
    effects: dict[str, NDArray[np.float64]],
) -> _Fitted:
    """Fits by REML; nan without convergence if the equations cannot be solved.

    The criterion is that of Bates et al. (2015), section 3.4, a function of the variances divided
    by that of the residual. These have bounds, so that a variance of zero is found exactly.
    """
    columns = np.concatenate(list(effects.values()), 1)
    of_column = np.repeat(np.arange(len(effects)), [z.shape[1] for z in effects.values()])
    among, to_fixed, to_values = columns.T @ columns, columns.T @ fixed, columns.T @ values
    fixed_among, fixed_to_values = fixed.T @ fixed, fixed.T @ values
    count = len(values) - fixed.shape[1]

    def solved(
        ratios: NDArray[np.float64],
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64], float]:
        """The criterion, estimates, their covariance and the variance of the residual."""
        scale = np.sqrt(ratios)[of_column]
        factor = np.linalg.cholesky(scale[:, None] * among * scale + np.eye(len(scale)))
        explained = linalg.solve_triangular(factor, scale * to_values, lower=True)
        shared = linalg.solve_triangular(factor, scale[:, None] * to_fixed, lower=True)
        left = np.linalg.cholesky(fixed_among - shared.T @ shared)
        rest = fixed_to_values - shared.T @ explained
        estimates = linalg.cho_solve((left, True), rest)
        squares = values @ values - explained @ explained - estimates @ rest
        logs = np.log(np.diag(factor)).sum() + np.log(np.diag(left)).sum()
        residual = max(float(squares), np.finfo(float).tiny) / count
        covariance = residual * linalg.cho_solve((left, True), np.eye(len(left)))
        return 2 * logs + count * math.log(residual), estimates, covariance, residual

    try:
        found = optimize.minimize(
            lambda ratios: solved(ratios)[0],
            np.full(len(effects), 0.5),
            method="L-BFGS-B",
            jac="3-point",
            bounds=[(0, None)] * len(effects),
        )
        _, estimates, covariance, residual = solved(found.x)
    except np.linalg.LinAlgError:
        nothing = np.full(fixed.shape[1], math.nan)
        return _Fitted(nothing, np.diag(nothing), dict.fromkeys(effects, 0.0), math.nan, False)
    variances = dict(zip(effects, (residual * found.x).tolist(), strict=True))
    return _Fitted(estimates, covariance, variances, residual, bool(found.success))


def _indicators(names: list[str]) -> NDArray[np.float64]:
    known, index = np.unique(names, return_inverse=True)
    return np.eye(len(known))[index]


def _crossed(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """A column for each pair of columns that occurs."""
    both = (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)
    return both[:, np.abs(both).sum(0) > 0]
