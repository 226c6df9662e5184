"""Fits what generation adds to a pointer, so that as much comes back as in real music."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from relpe.files import write_text
from relpe.models.config import to_plain
from relpe.models.pointer.config import MOST_ODDS, BalanceConfig
from tokenization.measures.bars import BarNotes
from tokenization.measures.form import ROOT_LAGS, form
from tokenization.measures.similarity import repeated_bars
from tokenization.remi.remi import Remi
from training.continuations import continuations, in_bars
from training.data.corpus import Corpus
from training.errors import TrainingError
from training.evaluation.subject import Subject, load_subject
from training.experiment import is_run
from training.files import read_json
from training.runs.pointer import read_pointer, write_pointer
from training.tuning.fit_pointer import changed_balance, changed_temperature
from training.tuning.options import FitBalanceOptions

STEPS = {
    "run": 0.2,
    "plan": 0.75,
    "near": 1.0,
    "temperature": 0.1,
    "strength": 0.6,
    "most_generated": 0.8,
}
"""First changes of each value that is fitted; `temperature` is that of Chord and Return."""
MEASURES = (
    *("bars_of_any_earlier", "bars_of_prompt", "most_similar_earlier", "like_bar_before"),
    *(f"self_similarity_{lag}" for lag in ROOT_LAGS),
    *(f"melody_similarity_{lag}" for lag in ROOT_LAGS),
    *(f"roots_over_chance_{lag}" for lag in ROOT_LAGS),
    *("harmonic_period", "static_chord", "falling_fifths"),
)
"""Measures of continuations that are compared with those of the real ones."""
_LEAST_DEVIATION = 0.05
_GAIN = 0.95
"""A change is kept if the distance falls below this part of it: less is chance."""


class Prompts(NamedTuple):
    """Beginnings of pieces, and measures of how these really go on."""

    bars: int
    """Bars of each prompt."""
    new_bars: int
    ids: list[NDArray[np.int64]]
    means: NDArray[np.float64]
    """Of the real continuations, by `MEASURES`."""
    deviations: NDArray[np.float64]


@dataclass(frozen=True)
class FittedBalance:
    """A balance, and how far generated music is from real music with it."""

    balance: BalanceConfig
    before: float
    """Mean squared distance of the measures in standard deviations, with the model's balance."""
    after: float


def fit_balance(options: FitBalanceOptions) -> FittedBalance:
    """Fit the balance of a model's pointer, and store it in the model's or the run's folder.

    Continuations of prompts of a held-out split are compared with the real ones by `MEASURES`. One
    value after the other is changed and kept if the distance falls; `rounds` times, with half of
    the changes in each further round.

    Raises:
        TrainingError: the model has no pointer, or no piece is long enough.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    subject = load_subject(options.model, options.data, "best")
    pointer = subject.decoder.config.pointer
    if pointer is None:
        raise TrainingError(
            f"{subject.place}: the model has no pointer; run relpe-train fit-pointer first"
        )
    corpus = Corpus.load(options.data, options.split, options.corpora)
    prompts = [
        _prompts(corpus, subject.tokenizer, bars, new, options) for bars, new in options.pairs
    ]

    def distance(balance: BalanceConfig) -> float:
        subject.decoder.config = replace(
            subject.decoder.config, pointer=replace(pointer, balance=balance)
        )
        return float(np.mean([_distance(subject, group, options) for group in prompts]))

    best = pointer.balance
    with tqdm(total=1 + 2 * len(STEPS) * options.rounds, desc="fit", unit="try") as bar:
        before = after = distance(best)
        bar.update()
        for round_ in range(options.rounds):
            for name, step in STEPS.items():
                for change in (step / 2**round_, -step / 2**round_):
                    tried = _changed(best, name, change, subject)
                    reached = distance(tried)
                    bar.update()
                    bar.set_postfix(distance=f"{min(after, reached):.3f}")
                    if reached < _GAIN * after:
                        best, after = tried, reached
                        break
    _store(subject, best)
    return FittedBalance(best, before, after)


def _prompts(
    corpus: Corpus, tokenizer: Remi, bars: int, new_bars: int, options: FitBalanceOptions
) -> Prompts:
    sizes = np.array([len(corpus.piece_bars(index)) for index in range(len(corpus))])
    long = np.flatnonzero(sizes >= bars + new_bars)
    if not len(long):
        raise TrainingError(
            f"{options.data}: the split {options.split!r} has no piece of {bars + new_bars} bars; "
            "choose other --lengths"
        )
    count = min(options.prompts, len(long))
    pieces = [
        np.asarray(corpus.piece(int(long[i * len(long) // count])), np.int64) for i in range(count)
    ]
    rows = np.array([_measures(piece, tokenizer, bars, new_bars) for piece in pieces])
    return Prompts(
        bars,
        new_bars,
        [np.asarray(tokenizer.crop(piece, 0, bars), np.int64) for piece in pieces],
        _mean(rows),
        np.maximum(_mean((rows - _mean(rows)) ** 2) ** 0.5, _LEAST_DEVIATION),
    )


def _mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the defined values of each column; NaN where there are none."""
    is_known = np.isfinite(rows)
    counts = is_known.sum(0)
    sums = np.where(is_known, rows, 0.0).sum(0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _measures(ids: NDArray[np.int64], tokenizer: Remi, bars: int, new_bars: int) -> list[float]:
    notes = BarNotes.of(in_bars(tokenizer.crop(ids, 0, bars + new_bars), tokenizer).score)
    repeated = repeated_bars(notes, bars)
    measures = form(notes, bars) | {
        "bars_of_any_earlier": repeated.of_any_earlier,
        "bars_of_prompt": repeated.of_prompt,
    }
    return [measures[name] for name in MEASURES]


def _distance(subject: Subject, prompts: Prompts, options: FitBalanceOptions) -> float:
    new = continuations(
        subject.decoder,
        subject.tokenizer,
        prompts.ids,
        bars=prompts.new_bars,
        seeds=range(options.seed, options.seed + options.per_prompt),
    )
    rows = np.array(
        [_measures(ids, subject.tokenizer, prompts.bars, prompts.new_bars) for ids in new]
    )
    squares = ((_mean(rows) - prompts.means) / prompts.deviations) ** 2
    return float(squares[np.isfinite(squares)].mean())


def _changed(balance: BalanceConfig, name: str, change: float, subject: Subject) -> BalanceConfig:
    """Return `balance` with one of the values of `STEPS` changed."""
    vocabulary = subject.tokenizer.vocabulary
    if name == "temperature":
        factors = dict(zip(subject.tokenizer.families.first_ids, balance.temperature, strict=False))
        texts = [f"{key}={factors.get(key, 1.0) + change}" for key in ("Chord", "Return")]
        return changed_temperature(balance, texts, vocabulary)
    if name in ("run", "plan"):
        first_ids = list(subject.tokenizer.families.first_ids)
        values, family = (balance.run, "Pitch") if name == "run" else (balance.proposed, "Chord")
        old = values[first_ids.index(family)] if values else 0.0
        least = 0.0 if name == "run" else -10.0
        return changed_balance(balance, [f"{name}={max(old + change, least)}"], vocabulary)
    value = min(max(getattr(balance, name) + change, -MOST_ODDS), MOST_ODDS)
    return changed_balance(balance, [f"{name}={value}"], vocabulary)


def _store(subject: Subject, balance: BalanceConfig) -> None:
    """Write the balance into the pointer of a run or a released model."""
    if is_run(subject.place):
        fitted = read_pointer(subject.place)
        assert fitted is not None  # the model has a pointer
        pointer = replace(fitted.pointer, balance=balance)
        write_pointer(replace(fitted, pointer=pointer), subject.place)
        return
    path = Path(subject.place) / "model.json"
    description = read_json(path, ("decoder",), "download the model again")
    description["decoder"]["pointer"]["balance"] = to_plain(balance)
    write_text(path, json.dumps(description, indent=2) + "\n")


def balance_table(fitted: FittedBalance) -> Sequence[str]:
    """Return the distance before and after, and the balance, as lines."""
    single = {
        name: value
        for name, value in to_plain(fitted.balance).items()
        if not isinstance(value, list | tuple)
    }
    return [
        f"distance from real music: {fitted.before:.3f} before, {fitted.after:.3f} after",
        ", ".join(f"{name} {value:g}" for name, value in single.items()),
    ]
