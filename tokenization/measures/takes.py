"""The best of several takes: continuations of the same music with different seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.accidents import Accidents, accidents, twins
from tokenization.measures.bars import BarNotes
from tokenization.measures.continuation import measure_continuation
from tokenization.measures.form import exact_similarity
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR, Families
from tokenization.score import Score

WEIGHTS: Final = Path(__file__).with_name("takes.json")
"""Weights of `Judge`, written by `python -m benchmarks.training.fit_takes`."""
_SEED_STRIDE = 1_000_003
"""Distance of the seeds of takes, so that those of neighbouring seeds differ."""
_SEEDS = 2**31
_FARTHEST = 4.0
"""Standardised measures are clipped at this value, so that none outweighs all others."""
_NO_RETURNS: Final[Mapping[int, int]] = MappingProxyType({})


class Judge(NamedTuple):
    """A logistic regression that tells real continuations from generated ones; columns (n,)."""

    names: tuple[str, ...]
    """Measures of `measure_continuation`."""
    means: NDArray[np.float64]
    """Means of the measures; an undefined measure counts as its mean."""
    scales: NDArray[np.float64]
    """Standard deviations of the measures."""
    weights: NDArray[np.float64]
    constant: float

    @classmethod
    @cache
    def of(cls, kind: str) -> Judge:
        """Return the released judge of one kind of music, `piano` or `band`."""
        stored = json.loads(WEIGHTS.read_text("utf-8"))[kind]
        names = tuple(stored["measures"])
        means, scales, weights = np.array(list(stored["measures"].values()), np.float64).T
        return cls(names, means, scales, weights, stored["constant"])

    def score(self, measures: Mapping[str, float]) -> float:
        """Return log-odds that a continuation with these measures is real, if half of all are."""
        values = np.array([measures[name] for name in self.names])
        return float(self.standardised(values) @ self.weights + self.constant)

    def standardised(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return measures (..., n) less their means in standard deviations; 0 if undefined."""
        z = np.clip((values - self.means) / self.scales, -_FARTHEST, _FARTHEST)
        return np.where(np.isfinite(z), z, 0.0)


class Take(NamedTuple):
    """What is known of a take when the best is chosen."""

    score: Score
    """Prompt and continuation."""
    likeness: float
    """Log-odds that it is real music, by `Judge`."""
    accidents: Accidents
    returned: float = 1.0
    """How similar the bars that were asked to return are to their sources, in tenths."""


class Choice(NamedTuple):
    """The chosen one of several takes, and why."""

    best: int
    """Its index."""
    likenesses: tuple[float, ...]
    """`Take.likeness` of each take."""
    accidents: tuple[Accidents, ...]
    """Of each take."""
    among: str = ""
    """What sets it apart from takes that are more like real music."""

    def line(self) -> str:
        """Return the reason in one line."""
        flawed = sum(flaws.any for flaws in self.accidents)
        take = f"take {self.best + 1} of {len(self.likenesses)}"
        accidents = f"; {flawed} of them {'has' if flawed == 1 else 'have'} accidents"
        return (
            f"{take} is most like real music{self.among} (log-odds "
            f"{self.likenesses[self.best]:+.1f}, median of the takes "
            f"{median(self.likenesses):+.1f}{accidents if flawed else ''})"
        )


class Ranking(NamedTuple):
    """The order of several takes."""

    order: tuple[int, ...]
    """Indices of the takes, the best one first."""
    takes: tuple[Take, ...]
    first_bar: int
    """Bar of each score in which the new music begins."""
    stop_bar: int
    """The bar after the last one of the longest take."""
    returns: Mapping[int, int] = _NO_RETURNS
    """See `judge`."""

    def choose(self, index: int | None = None) -> Choice:
        """Choose the take of this index, or the best one."""
        best = self.order[0] if index is None else index
        chosen, lacking = self.takes[best], dict[str, None]()
        for take in self.takes:
            if take.likeness > chosen.likeness:
                if take.accidents.any > chosen.accidents.any:
                    lacking["have no accidents"] = None
                elif take.returned < chosen.returned:
                    lacking["return as asked"] = None
                else:
                    lacking["are another piece than the variations before"] = None
        return Choice(
            best,
            tuple(take.likeness for take in self.takes),
            tuple(take.accidents for take in self.takes),
            f" of those that {' and '.join(lacking)}" if lacking else "",
        )


def take_seed(seed: int, take: int) -> int:
    """Return the seed of a take, from 0; that of take 0 is `seed` itself."""
    return (seed + take * _SEED_STRIDE) % _SEEDS


def judge(
    score: Score, first_bar: int, stop_bar: int, returns: Mapping[int, int] = _NO_RETURNS
) -> Take:
    """Judge the bars from `first_bar` up to but not including `stop_bar`, at least one.

    `score` has the prompt, the bars before `first_bar`, and the continuation. `returns` are new
    bars that were asked to return, and the earlier bars that they are to repeat.
    """
    playing = [track for track in score.tracks if len(track)]
    kind = "band" if len(playing) > 1 or any(track.is_drum for track in playing) else "piano"
    measures = measure_continuation(score, first_bar, stop_bar)
    likeness = round(Judge.of(kind).score(measures), 6)
    flaws = accidents(score, first_bar, stop_bar, returns)
    return Take(score, likeness, flaws, _returned(score, stop_bar, returns))


def _returned(score: Score, stop_bar: int, returns: Mapping[int, int]) -> float:
    pairs = [(bar, source) for bar, source in returns.items() if bar < stop_bar]
    if not pairs:
        return 1.0
    notes = BarNotes.of(score).padded(stop_bar).between(0, stop_bar)
    similarity = exact_similarity(notes)[tuple(zip(*pairs, strict=True))]
    return round(float(np.nan_to_num(similarity, nan=1.0).mean()), 1)


def rank(
    takes: Sequence[Take],
    first_bar: int,
    stop_bar: int,
    returns: Mapping[int, int] = _NO_RETURNS,
) -> Ranking:
    """Order takes: those without accidents first, then by what returns as asked, then by likeness.

    Equal ones stay as they are.
    """

    def rank_of(index: int) -> tuple[bool, float, float]:
        take = takes[index]
        return take.accidents.any, -take.returned, -take.likeness

    order = sorted(range(len(takes)), key=rank_of)
    return Ranking(tuple(order), tuple(takes), first_bar, stop_bar, returns)


def rank_ids(
    context: NDArray[np.integer],
    takes: Sequence[Sequence[int]],
    tokenizer: Remi,
    *,
    has_prompt: bool,
    returns: Mapping[int, int] = _NO_RETURNS,
) -> Ranking:
    """Order takes of token ids, each of whole bars; `returns` as in `judge`.

    `context` (l,) are the ids before them: those of a prompt and of the beginning of the new bar,
    or of the beginning of a piece.
    """
    first = bars_before(context, tokenizer.families, has_prompt=has_prompt)
    stops = [first + has_prompt + list(tokens).count(BAR) for tokens in takes]
    stops = [max(stop, first + 1) for stop in stops]
    scores = [tokenizer.decode(np.append(context, tokens).astype(np.int64)) for tokens in takes]
    judged = [judge(score, first, stop, returns) for score, stop in zip(scores, stops, strict=True)]
    return rank(judged, first, max(stops), returns)


def bars_before(context: NDArray[np.integer], families: Families, *, has_prompt: bool) -> int:
    """Return the number of bars before the new ones.

    The bars after a gap come before them in the ids.
    """
    later = int(np.count_nonzero(context == families.later))
    return int(np.count_nonzero(context == BAR)) - later - has_prompt


def distinct(rankings: Sequence[Ranking]) -> list[int]:
    """Choose a take of each of several variations, so that no two are the same piece.

    Each is the best one that is no twin of those before it; without any, the best one.
    """
    indices: list[int] = []
    scores: list[Score] = []
    for ranking in rankings:
        span = ranking.first_bar, ranking.stop_bar, ranking.returns
        fresh = (
            index
            for index in ranking.order
            if not any(twins([score, ranking.takes[index].score], *span) for score in scores)
        )
        indices.append(next(fresh, ranking.order[0]))
        scores.append(ranking.takes[indices[-1]].score)
    return indices
