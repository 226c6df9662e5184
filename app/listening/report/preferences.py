"""Preferences: strengths of conditions (Bradley-Terry), and comparisons of pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.listening.report.bootstrap import Bootstrap, Interval
from app.listening.report.comparisons import Comparison, compared, pairs, wilcoxon
from app.listening.report.power import power_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.listening.report.judgements import Judgements, Preference

_PRIOR = 1e-4
"""Precision of a normal prior of each strength. It keeps the strength of a condition that always
won finite, and changes those of others by less than a thousandth."""
_MOST_STEPS = 50
"""Of Newton's method; it stops earlier at a step of `_SMALLEST_STEP` in all strengths."""
_SMALLEST_STEP = 1e-9


class Strength(NamedTuple):
    """How often a condition is preferred."""

    condition: str
    wins: float
    answers: int
    strength: Interval
    """Natural logarithm of its worth; the mean over conditions is 0."""

    @property
    def preferred(self) -> Interval:
        """Probability that it is preferred to a condition of average strength."""
        return self.strength.through(probability)


@dataclass(frozen=True)
class Preferences:
    """The results of the pairs of a test."""

    strengths: list[Strength]
    """Strongest first."""
    comparisons: list[Comparison]
    """`estimate` is the probability that `condition` is preferred to `other`, by Bradley-Terry."""
    wins: dict[tuple[str, str], int]
    """How often the first condition was preferred to the second."""
    first: float
    """Share of answers that prefer the clip presented first."""
    first_p: float
    """Of Wilcoxon's test that this share is a half."""
    unbounded: tuple[str, ...]
    """Conditions that won or lost all their pairs, whose strength has no limit on one side."""


def probability(difference: float) -> float:
    """Return the probability of being preferred, from a difference of strengths."""
    return 1 / (1 + math.exp(-difference))


def bradley_terry(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit strengths by maximum likelihood and Newton's method (Bradley and Terry, 1952).

    Args:
        wins: how often i was preferred to j, (…, conditions, conditions); may be weighted.

    Returns:
        Natural logarithms of the worths, (…, conditions), whose mean is 0.
    """
    count = wins.shape[-1]
    met = wins + np.swapaxes(wins, -1, -2)
    won = wins.sum(-1)
    strength = np.zeros(wins.shape[:-1])
    diagonal = np.arange(count)
    for _ in range(_MOST_STEPS):
        p = 1 / (1 + np.exp(np.clip(strength[..., None, :] - strength[..., None], -60, 60)))
        gradient = won - (met * p).sum(-1) - _PRIOR * strength
        weight = met * p * (1 - p)
        hessian = -weight
        hessian[..., diagonal, diagonal] += weight.sum(-1) + _PRIOR
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        # a step of Newton's may be too long where a condition wins nearly always
        strength += np.clip(step, -2.0, 2.0)
        if np.abs(step).max(initial=0.0) < _SMALLEST_STEP:
            break
    return strength - strength.mean(-1, keepdims=True)


def preferences_of(
    judged: Judgements, bootstrap: Bootstrap, *, of_interest: float, weighted: bool
) -> Preferences | None:
    """Analyse the preferences; None if there are none.

    Args:
        judged: the answers.
        bootstrap: of the listeners and prompts of `judged`.
        of_interest: the smallest probability of a preference worth finding, such as 0.65.
        weighted: whether an answer counts as much as its confidence; the mean weight is 1. It
            changes the strengths, not the tests.
    """
    if not judged.preferences:
        return None
    present = {clip.condition for p in judged.preferences for clip in (p.first, p.second)}
    names = [name for name in judged.conditions if name in present]
    index = {name: number for number, name in enumerate(names)}
    table = _table(judged, index, weighted=weighted)
    name_pairs = pairs(names)

    def statistic(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        wins = np.einsum("blp,lpcd->bcd", weights, table, optimize=True)
        strengths = bradley_terry(wins)
        differences = [strengths[:, index[a]] - strengths[:, index[b]] for a, b in name_pairs]
        return np.concatenate([strengths, np.stack(differences, 1)], 1)

    intervals = bootstrap.intervals(statistic)
    won: defaultdict[tuple[str, str], int] = defaultdict(int)
    for preference in judged.preferences:
        won[preference.winner.condition, preference.loser.condition] += 1
    strengths = [
        Strength(
            name,
            sum(won[name, other] for other in names),
            sum(won[name, other] + won[other, name] for other in names),
            interval,
        )
        for name, interval in zip(names, intervals, strict=False)
    ]
    strengths.sort(key=lambda row: (-row.strength.value, row.condition))
    first_share, first_p = _order(judged.preferences)
    return Preferences(
        strengths=strengths,
        comparisons=_comparisons(judged, name_pairs, intervals[len(names) :], of_interest),
        wins=dict(won),
        first=first_share,
        first_p=first_p,
        unbounded=tuple(s.condition for s in strengths if s.wins in (0, s.answers)),
    )


def _table(judged: Judgements, index: dict[str, int], *, weighted: bool) -> NDArray[np.float64]:
    """Return the wins by listener, prompt, winner and loser; `index` is that of a condition."""
    listeners = {name: index for index, name in enumerate(judged.listeners)}
    prompts = {name: index for index, name in enumerate(judged.prompts)}
    table = np.zeros((len(listeners), len(prompts), len(index), len(index)))
    mean = fmean(p.confidence for p in judged.preferences)
    for p in judged.preferences:
        weight = p.confidence / mean if weighted else 1.0
        row = (listeners[p.listener], prompts[p.first.prompt])
        table[(*row, index[p.winner.condition], index[p.loser.condition])] += weight
    return table


def _comparisons(
    judged: Judgements,
    name_pairs: list[tuple[str, str]],
    differences: list[Interval],
    of_interest: float,
) -> list[Comparison]:
    """Compare the conditions of each pair by how often each listener preferred the first one."""
    by_pair: dict[tuple[str, str], defaultdict[str, list[float]]] = {
        pair: defaultdict(list) for pair in name_pairs
    }
    for p in judged.preferences:
        pair = (p.winner.condition, p.loser.condition)
        if pair in by_pair:
            by_pair[pair][p.listener].append(1.0)
        else:
            by_pair[pair[1], pair[0]][p.listener].append(-1.0)
    # a probability is the mean of 0 and 1, the values are -1 and 1
    size = round(2 * of_interest - 1, 9)
    comparisons = compared(
        by_pair,
        differences,
        {pair: sum(map(len, numbers.values())) for pair, numbers in by_pair.items()},
        lambda values, tests: power_of(values, size, tests, are_shares=True),
    )
    return [c._replace(estimate=c.estimate.through(probability)) for c in comparisons]


def _order(preferences: list[Preference]) -> tuple[float, float]:
    """Return the share of answers for the first clip, and p of the test that it is a half."""
    of_listener: defaultdict[str, list[float]] = defaultdict(list)
    for preference in preferences:
        of_listener[preference.listener].append(float(preference.first_won))
    shares = [fmean(of_listener[name]) for name in sorted(of_listener)]
    share = sum(preference.first_won for preference in preferences) / len(preferences)
    return share, wilcoxon(np.array(shares) - 0.5)
