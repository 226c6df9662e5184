"""Ratings: means of conditions for each question, and comparisons of pairs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.listening.report.bootstrap import Bootstrap, Interval
from app.listening.report.comparisons import Comparison, compared, pairs
from app.listening.report.judgements import RATED
from app.listening.report.power import power_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.listening.report.judgements import Judgements, Rating


class Mean(NamedTuple):
    """The ratings of a condition."""

    condition: str
    mean: Interval
    answers: int
    counts: tuple[int, ...]
    """How often each answer was given, 1 to 5; means of several questions are rounded."""


@dataclass(frozen=True)
class Ratings:
    """The results of one question."""

    question: str
    means: list[Mean]
    """Highest first."""
    comparisons: list[Comparison]
    """`estimate` is the difference of means, in points."""


def ratings_of(judged: Judgements, bootstrap: Bootstrap, *, of_interest: float) -> list[Ratings]:
    """Analyse each question for which there are ratings of two conditions or more.

    Args:
        judged: the answers.
        bootstrap: of the listeners and prompts of `judged`.
        of_interest: the smallest difference worth finding, in points.
    """
    of_question: defaultdict[str, list[Rating]] = defaultdict(list)
    for rating in judged.ratings:
        of_question[rating.question].append(rating)
    asked = [name for name in RATED if name in of_question]
    if len(asked) == 2:  # with one question, its mean over questions is the same
        asked = asked[1:]
    return [
        _of_question(name, of_question[name], judged, bootstrap, of_interest)
        for name in asked
        if len({rating.clip.condition for rating in of_question[name]}) > 1
    ]


def _of_question(
    question: str,
    ratings: list[Rating],
    judged: Judgements,
    bootstrap: Bootstrap,
    of_interest: float,
) -> Ratings:
    present = {rating.clip.condition for rating in ratings}
    names = [name for name in judged.conditions if name in present]
    place = {name: index for index, name in enumerate(names)}
    sums, counts = _totals(ratings, judged, place)
    name_pairs = pairs(names)

    def statistic(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = weights.reshape(len(weights), -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            means = (flat @ sums) / (flat @ counts)
        apart = [means[:, place[a]] - means[:, place[b]] for a, b in name_pairs]
        return np.concatenate([means, np.stack(apart, 1)], 1)

    intervals = bootstrap.intervals(statistic)
    means = []
    for name, interval in zip(names, intervals, strict=False):
        given = Counter(round(r.value) for r in ratings if r.clip.condition == name)
        given_counts = tuple(given[number] for number in range(1, 6))
        means.append(Mean(name, interval, sum(given_counts), given_counts))
    means.sort(key=lambda one: (-one.mean.value, one.condition))
    return Ratings(
        question, means, _comparisons(ratings, name_pairs, intervals[len(names) :], of_interest)
    )


def _totals(
    ratings: list[Rating], judged: Judgements, place: dict[str, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sums and counts by listener and prompt in one axis, and condition."""
    listeners = {name: index for index, name in enumerate(judged.listeners)}
    prompts = {name: index for index, name in enumerate(judged.prompts)}
    shape = (len(listeners) * len(prompts), len(place))
    sums, counts = np.zeros(shape), np.zeros(shape)
    for rating in ratings:
        row = listeners[rating.listener] * len(prompts) + prompts[rating.clip.prompt]
        sums[row, place[rating.clip.condition]] += rating.value
        counts[row, place[rating.clip.condition]] += 1
    return sums, counts


def _comparisons(
    ratings: list[Rating],
    name_pairs: list[tuple[str, str]],
    apart: list[Interval],
    of_interest: float,
) -> list[Comparison]:
    """Compare the means of each listener's ratings of two conditions.

    Listeners may rate conditions after different prompts: what a prompt adds to all conditions is
    subtracted. If a listener rated both after the same prompts, this changes nothing.
    """
    of_cell: defaultdict[tuple[str, str], defaultdict[str, list[float]]]
    of_cell = defaultdict(lambda: defaultdict(list))
    of_prompt: defaultdict[str, defaultdict[str, list[float]]]
    of_prompt = defaultdict(lambda: defaultdict(list))
    for rating in ratings:
        clip = rating.clip
        of_cell[clip.condition, rating.listener][clip.prompt].append(rating.value)
        of_prompt[clip.prompt][clip.condition].append(rating.value)
    prompt_means = {
        prompt: fmean(map(fmean, by_condition.values()))
        for prompt, by_condition in of_prompt.items()
    }
    means = {
        key: fmean(fmean(values) - prompt_means[prompt] for prompt, values in cells.items())
        for key, cells in of_cell.items()
    }
    counts = {key: sum(map(len, cells.values())) for key, cells in of_cell.items()}
    by_pair: dict[tuple[str, str], dict[str, list[float]]] = {pair: {} for pair in name_pairs}
    answers: Counter[tuple[str, str]] = Counter()
    for (one, other), of_listener in by_pair.items():
        for listener in {listener for _, listener in means}:
            here, there = (one, listener), (other, listener)
            if here in means and there in means:
                of_listener[listener] = [means[here] - means[there]]
                answers[one, other] += counts[here] + counts[there]
    return compared(
        by_pair, apart, answers, lambda values, tests: power_of(values, of_interest, tests)
    )
