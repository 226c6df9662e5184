"""Fits the judge that chooses the best of several takes, and tests it on songs it has not seen.

Run from the top of the repository: `python -m benchmarks.training.fit_takes piano piano --data
data/pop909 data/classical`: kind of music, model, prepared corpora. The model continues prompts of
pieces of the training split, and a logistic regression learns to tell these continuations from the
real ones by `measure_continuation`; both classes have the same weight. Writes its weights into
`tokenization/measures/takes.json`. Then prints, for the test split and by numbers of bars of prompt
and continuation, the area under the curve of real against generated: 1 if every real continuation
has a higher score than every generated one, 0.5 if they cannot be told apart. --corpora chooses
corpora of a mixture.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from tqdm import tqdm

from benchmarks.timing import run, table_output
from relpe.files import write_text
from tokenization.measures.continuation import measure_continuation
from tokenization.measures.takes import WEIGHTS, Judge
from tokenization.score import Score
from training.continuations import continuations, in_bars
from training.evaluation.subject import MeasuredPieces, load_split, load_subject

LENGTHS = {"piano": ((8, 32), (16, 16), (40, 16)), "band": ((8, 16), (24, 16))}
"""Bars of prompt and of continuation."""
PREFIXES = (4, 8, 16, 32)
"""Bars of a continuation that are judged."""
_PENALTY = 0.003
_SEED = 700


class MeasuredMusic(NamedTuple):
    """The measures of a real or generated continuation."""

    lengths: tuple[int, int]
    """Bars of prompt and continuation."""
    is_real: bool
    measures: dict[str, float]


def main(
    kind: str,
    model: str,
    /,
    *,
    data: list[str],
    corpora: str = "",
    pieces: int = 240,
    test_pieces: int = 60,
    draws: int = 3,
) -> None:
    """Fit and test a judge."""
    given = {"corpora": corpora, "seeds": range(_SEED, _SEED + draws)}
    lengths = LENGTHS[kind]
    judge = fit(_examples(continued(model, data, lengths, split="train", pieces=pieces, **given)))
    stored = json.loads(WEIGHTS.read_text("utf-8")) if WEIGHTS.is_file() else {}
    rows = zip(judge.means, judge.scales, judge.weights, strict=True)
    stored[kind] = {
        "constant": round(judge.constant, 5),
        "measures": {
            name: [float(f"{x:.5g}") for x in row]
            for name, row in zip(judge.names, rows, strict=True)
        },
    }
    write_text(WEIGHTS, json.dumps(stored, indent=1) + "\n")
    Judge.of.cache_clear()
    tested = _examples(continued(model, data, lengths, split="test", pieces=test_pieces, **given))
    table = table_output("bars of prompt", "new bars", "prompts", "AUC")
    for sizes in sorted({example.lengths for example in tested}):
        alike = [example for example in tested if example.lengths == sizes]
        scores = np.array([Judge.of(kind).score(example.measures) for example in alike])
        is_real = np.array([example.is_real for example in alike])
        table(*sizes, int(is_real.sum()), f"{area_under_curve(scores, is_real):.3f}")


def area_under_curve(scores: NDArray[np.float64], is_real: NDArray[np.bool_]) -> float:
    """Return the probability that a real one of `scores` (n,) is above a generated one."""
    pairs = scores[is_real][:, None] - scores[~is_real]
    return float((pairs > 0).mean() + (pairs == 0).mean() / 2)


class Continued(NamedTuple):
    """A piece, and continuations of its beginning; scores of prompt and new bars."""

    prompt_bars: int
    bars: int
    real: Score
    new: list[Score]
    ids: Sequence[NDArray[np.integer]]
    """Of all of them, the real one first."""


def continued(
    model: str,
    data: Sequence[str],
    lengths: Sequence[tuple[int, int]],
    *,
    corpora: str,
    split: str,
    pieces: int,
    seeds: Sequence[int],
) -> Iterator[Continued]:
    """Continue evenly spaced pieces of each corpus, at most `pieces` in all, for all lengths."""
    only = [name for name in corpora.split(",") if name]
    for folder in map(Path, data):
        subject = load_subject(model, folder, "best")
        tokenizer, corpus = subject.tokenizer, load_split(folder, split, only=only)
        tokens = MeasuredPieces.of(corpus, tokenizer).ids
        sizes = np.array([len(corpus.piece_bars(index)) for index in range(len(corpus))])
        for first, bars in lengths:
            long = np.flatnonzero(sizes >= first + bars)
            count = min(pieces // len(data), len(long))
            prompts = [tokens[long[i * len(long) // count]] for i in range(count)]
            total = count * len(seeds) * bars
            with tqdm(total=total, desc=f"{split} {first}+{bars}", unit="bar") as progress:
                new = continuations(
                    subject.decoder,
                    tokenizer,
                    [tokenizer.crop(piece, 0, first) for piece in prompts],
                    bars=bars,
                    seeds=seeds,
                    advance=progress.update,
                )
            for place, piece in enumerate(prompts):
                group = [piece, *new[place * len(seeds) : (place + 1) * len(seeds)]]
                group = [tokenizer.crop(ids, 0, first + bars) for ids in group]
                real, *scores = (in_bars(ids, tokenizer).score for ids in group)
                yield Continued(first, bars, real, scores, group)


def _examples(groups: Iterable[Continued]) -> list[MeasuredMusic]:
    return [
        MeasuredMusic(
            (group.prompt_bars, size),
            row == 0,
            measure_continuation(score, group.prompt_bars, group.prompt_bars + size),
        )
        for group in groups
        for row, score in enumerate((group.real, *group.new))
        for size in PREFIXES
        if size <= group.bars
    ]


def fit(examples: Sequence[MeasuredMusic]) -> Judge:
    """Fit a logistic regression with a quadratic penalty; both classes have the same weight."""
    names = tuple(examples[0].measures)
    values = np.array([list(example.measures.values()) for example in examples])
    values[~np.isfinite(values)] = np.nan
    is_real = np.array([example.is_real for example in examples])
    means, scales = np.nanmean(values, 0), np.nanstd(values, 0)
    judge = Judge(names, means, np.maximum(scales, 1e-6), np.zeros(len(names)), 0.0)
    z = judge.standardised(values)
    signs = np.where(is_real, 1.0, -1.0)
    shares = 0.5 / np.where(is_real, is_real.sum(), (~is_real).sum())

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = parameters[:-1]
        margins = signs * (z @ weights + parameters[-1])
        slopes = -shares * signs / (1 + np.exp(margins))
        value = (shares * np.logaddexp(0, -margins)).sum() + _PENALTY * weights @ weights
        return float(value), np.append(z.T @ slopes + 2 * _PENALTY * weights, slopes.sum())

    best = minimize(loss, np.zeros(len(names) + 1), jac=True, method="L-BFGS-B").x
    return judge._replace(weights=best[:-1], constant=float(best[-1]))


if __name__ == "__main__":
    run(main)
