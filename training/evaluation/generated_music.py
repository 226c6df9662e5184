"""Comparison of generated music with the real music that its prompts come from."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from relpe.decoding.choose import choose_steps
from relpe.files import atomic_write
from relpe.models.decoder import Decoder
from tokenization.analysis.accidents import KINDS, accidents, twins
from tokenization.measures.bars import BarNotes, new_music
from tokenization.measures.form import form
from tokenization.measures.similarity import LAGS
from tokenization.remi.remi import Remi
from tokenization.score import Score
from training.continuations import continuations, in_bars, write_sample
from training.data.corpus import Corpus
from training.errors import TrainingError
from training.evaluation.metrics.copier import COPIED_BARS, copier
from training.evaluation.metrics.copies import NoteIndex, copies
from training.evaluation.metrics.structure import (
    histograms,
    jensen_shannon,
    pool,
    structure,
    stuck_notes,
)
from training.evaluation.metrics.style import Form as StyleForm
from training.evaluation.metrics.style import mean_style, style_by_quarter
from training.evaluation.options import GenerationOptions

FORMS: tuple[StyleForm, ...] = ("exact", "compat")
_QUARTERS = 4
STUCK_BARS = 4
"""A note is stuck if it is longer than this many bars and longer than every note of its prompt.

No test piece of either corpus has a stuck note.
"""


class Material(NamedTuple):
    """The prompts to continue, the same for all models."""

    pieces: tuple[int, ...]
    """Index of each piece in the split."""
    per_prompt: int
    """Number of continuations of each prompt."""


def choose_pieces(num_bars: NDArray[np.int64], options: GenerationOptions) -> Material:
    """Choose pieces for prompts, evenly spaced over the pieces of a split that are long enough.

    A piece is long enough if it has `bars` bars after the prompt or, if there is no such piece,
    half of them. `num_bars` (pieces,) is the number of bars of each piece.

    Raises:
        TrainingError: no piece is long enough.
    """
    num_new_bars = num_bars - options.prompt_bars
    fewest = options.bars
    if not (num_new_bars >= fewest).any():
        fewest = max(options.bars // 2, 1)
    long = np.flatnonzero(num_new_bars >= fewest).tolist()
    if not long:
        raise TrainingError(
            f"the split's longest piece has {int(num_bars.max(initial=0))} bars, expected at least "
            f"{options.prompt_bars + fewest} for a prompt and half of the new bars; lower "
            "--prompt-bars or --bars"
        )
    per_prompt = max(options.per_prompt, math.ceil(options.continuations / len(long)))
    count = math.ceil(options.continuations / per_prompt)
    return Material(tuple(long[i * len(long) // count] for i in range(count)), per_prompt)


class Passage(NamedTuple):
    """A whole piece on the grid, with measures of the music after the prompt."""

    score: Score
    notes: BarNotes
    figures: dict[str, float]
    faults: dict[str, int]
    """Number of stuck notes, and for each other fault whether it occurs, 0 or 1."""

    @classmethod
    def of(cls, ids: NDArray[np.integer], tokenizer: Remi, prompt_bars: int, bars: int) -> Passage:
        """Measure the `bars` bars that follow the prompt in a piece of token ids."""
        first = prompt_bars
        score = in_bars(tokenizer.crop(ids, 0, first + bars), tokenizer).score
        notes = BarNotes.of(score)
        figures = figures_of(notes, first)
        stuck = stuck_notes(notes, first, STUCK_BARS).longer_than_both
        accident = accidents(score, first, notes.num_bars)
        faults = {
            "stuck_notes": stuck,
            "silent_instruments": int(figures["still_playing"] < 1),
            "accident": int(accident.any),
            **{kind: int(kind in accident.kinds) for kind in KINDS},
        }
        return cls(score, notes, figures, faults)


def figures_of(notes: BarNotes, first_bar: int) -> dict[str, float]:
    """Return all measures of the music from `first_bar` on: those of `structure` and `form`."""
    figures = structure(notes, first_bar) | form(notes, first_bar)
    return {name: float(value) for name, value in figures.items()}


def measure_music(
    decoder: Decoder,
    tokenizer: Remi,
    corpus: Corpus,
    train: Corpus,
    options: GenerationOptions,
    *,
    names: Sequence[str] = (),
    folder: Path | None = None,
    show: bool = True,
) -> dict[str, Any]:
    """Continue prompts from a split, and measure the continuations and the real pieces.

    Comparisons with real music use only as many new bars as the real piece has; style by quarter
    and faults use all of them. `differences` are the differences of each figure from the real
    continuation of the same prompt. If prompts have enough bars, figures of a baseline, `copier`,
    are added. `train` is searched for copied notes. Writes a table into `folder`, such as
    `continuations_8_32.csv` for 8 bars of prompt and 32 new bars, with one row per continuation and
    the `names` of the split's pieces. Returns plain values; undefined ones are None.

    Raises:
        TrainingError: no piece of the split is long enough.
    """
    num_bars = np.array([len(corpus.piece_bars(index)) for index in range(len(corpus))], np.int64)
    indices, per_prompt = choose_pieces(num_bars, options)
    pieces = [np.asarray(corpus.piece(index), np.int64) for index in indices]
    prompt_bars = options.prompt_bars
    prompts = [tokenizer.crop(piece, 0, prompt_bars) for piece in pieces]
    seeds = range(options.seed, options.seed + per_prompt)
    generated_ids = _generate(decoder, tokenizer, prompts, seeds, options, show=show)
    origins = [(label, seed) for label in _labels(indices, names) for seed in seeds]
    if options.samples_output is not None:
        _write_samples(
            options.samples_output, generated_ids, origins, tokenizer, prompt_bars, show=show
        )
    real = [Passage.of(piece, tokenizer, prompt_bars, options.bars) for piece in pieces]
    new: list[Passage] = []
    # as long as the real music: with more bars, a repeated bar is more likely
    new_cut: list[Passage] = []
    for row, ids in enumerate(tqdm(generated_ids, "measures", disable=not show, mininterval=2)):
        real_bars = int(real[row // per_prompt].figures["bars"])
        passage = Passage.of(ids, tokenizer, prompt_bars, options.bars)
        new.append(passage)
        if passage.figures["bars"] != real_bars:
            passage = Passage.of(ids, tokenizer, prompt_bars, real_bars)
        new_cut.append(passage)
    if folder is not None:
        name = f"{options.key.replace('music', 'continuations')}.csv"
        _write_table(folder / name, origins, new)
    scores = [in_bars(piece, tokenizer).score for piece in pieces]
    index = NoteIndex.of_corpus(train, tokenizer)
    protocol = {
        **{key: value for key, value in asdict(options).items() if key != "samples_output"},
        "prompts": len(prompts),
        "pieces": list(indices),
        "per_prompt": per_prompt,
        "continuations": len(generated_ids),
        "real_bars": float(np.mean([passage.figures["bars"] for passage in real])),
        "several_tracks": any(len(passage.notes.keys) > 1 for passage in real),
        "steps": choose_steps(decoder).name,
    }
    result = {
        "protocol": protocol,
        **_compare(new_cut, real, index, prompt_bars),
        "style": {kind: _style(scores, new, real, options, kind) for kind in FORMS},
        "faults": {"generated": _count_faults(new), "real": _count_faults(real)},
        "twins": _twins([passage.score for passage in new], per_prompt, options),
    }
    return plain(result)


def _compare(
    generated: Sequence[Passage], real: Sequence[Passage], index: NoteIndex, prompt_bars: int
) -> dict[str, Any]:
    """Compare continuations with as many bars of the real pieces that their prompts come from."""
    groups = {"generated": generated, "real": real}
    summaries = {name: _summary([p.figures for p in group]) for name, group in groups.items()}
    similarity = {
        name: [summary[f"similarity_lag_{lag}"]["mean"] for lag in LAGS]
        for name, summary in summaries.items()
    }
    figures = dict(summaries)
    if prompt_bars >= COPIED_BARS:  # the baseline copies what stood that many bars before
        copied = [figures_of(copier(passage.notes, prompt_bars), prompt_bars) for passage in real]
        figures["copier"] = _summary(copied)
    return {
        "figures": figures,
        "differences": _differences([p.figures for p in generated], [p.figures for p in real]),
        "histograms": _histograms(groups, prompt_bars),
        "self_similarity": {"lags": list(LAGS), **similarity},
        "copies": {
            name: _copies(index, [new_music(p.score, prompt_bars) for p in group])
            for name, group in groups.items()
        },
    }


def _count_faults(passages: Sequence[Passage]) -> dict[str, int]:
    """Return the number of passages with each fault."""
    return {
        fault: sum(passage.faults[fault] > 0 for passage in passages)
        for fault in passages[0].faults
    }


def _write_samples(
    folder: Path,
    generated_ids: Sequence[NDArray[np.integer]],
    origins: Sequence[tuple[str, int]],
    tokenizer: Remi,
    prompt_bars: int,
    *,
    show: bool,
) -> None:
    """Write a MIDI file and a piano roll of each continuation, named for its piece and seed."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = zip(generated_ids, origins, strict=True)
    for ids, (label, seed) in tqdm(
        rows, "samples", len(generated_ids), disable=not show, mininterval=2
    ):
        write_sample(ids, tokenizer, folder / f"{label}.{seed}", prompt_bars)


def _generate(
    decoder: Decoder,
    tokenizer: Remi,
    prompts: Sequence[NDArray[np.integer]],
    seeds: range,
    options: GenerationOptions,
    *,
    show: bool,
) -> Sequence[NDArray[np.integer]]:
    """Continue each prompt with each seed; return ids of prompts with their new bars."""
    total = len(prompts) * len(seeds) * options.bars
    with tqdm(total=total, desc="music", unit="bar", disable=not show, mininterval=2) as bar:
        return continuations(
            decoder,
            tokenizer,
            prompts,
            bars=options.bars,
            seeds=seeds,
            takes=options.takes,
            temperature=options.temperature,
            top_p=options.top_p,
            presence=options.presence,
            recall=options.recall,
            memory=options.memory,
            advance=bar.update,
        )


def _write_table(
    path: Path, origins: Sequence[tuple[str, int]], passages: Sequence[Passage]
) -> None:
    """Write the measures of continuations, a row each with its piece and seed."""
    with atomic_write(path) as beside, beside.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["piece", "seed", *passages[0].faults, *passages[0].figures])
        for origin, passage in zip(origins, passages, strict=True):
            writer.writerow([*origin, *passage.faults.values(), *passage.figures.values()])


def _labels(indices: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return distinct file names of pieces: the last part of their names, else their numbers."""
    stems = [PurePosixPath(names[i]).stem if i < len(names) else str(i) for i in indices]
    return [
        stem if stems.count(stem) == 1 else f"{stem}.{index}"
        for stem, index in zip(stems, indices, strict=True)
    ]


def _twins(scores: Sequence[Score], per_prompt: int, options: GenerationOptions) -> int:
    """Return the number of continuations that are the same piece as another one of their prompt."""
    first, stop = options.prompt_bars, options.prompt_bars + options.bars
    groups = (scores[at : at + per_prompt] for at in range(0, len(scores), per_prompt))
    return sum(len({*chain(*twins(group, first, stop))}) for group in groups)


def _summary(passages: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return mean and standard deviation of each figure, over the passages where it is defined."""
    summary: dict[str, dict[str, float]] = {}
    for name in passages[0]:
        values = np.array([figures[name] for figures in passages])
        values = values[np.isfinite(values)]
        mean = float(values.mean()) if len(values) else math.nan
        deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        summary[name] = {"mean": mean, "deviation": deviation}
    return summary


def _differences(
    generated: Sequence[Mapping[str, float]], real: Sequence[Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Return the mean difference of each figure from the real continuation of the same prompt.

    The continuations of a prompt are averaged first, so that the standard error is over prompts.
    Prompts with an undefined figure on either side are left out.
    """
    per_prompt = len(generated) // len(real)
    differences: dict[str, dict[str, float]] = {}
    for name in real[0]:
        by_prompt = np.array([figures[name] for figures in generated]).reshape(
            len(real), per_prompt
        )
        counts = np.isfinite(by_prompt).sum(1)
        sums = np.where(np.isfinite(by_prompt), by_prompt, 0).sum(1)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        values = means - np.array([figures[name] for figures in real])
        values = values[np.isfinite(values)]
        count = len(values)
        differences[name] = {
            "mean": float(values.mean()) if count else math.nan,
            "standard_error": float(values.std(ddof=1) / count**0.5) if count > 1 else math.nan,
            "prompts": count,
        }
    return differences


def _histograms(
    groups: Mapping[str, Sequence[Passage]], first_bar: int
) -> dict[str, dict[str, Any]]:
    """Return the counts of both groups and their divergence, for each histogram.

    The divergence between two halves of the real pieces is returned too, for comparison.
    """
    counts = {
        name: [histograms(passage.notes.between(first_bar)) for passage in group]
        for name, group in groups.items()
    }
    new, real = pool(counts["generated"]), pool(counts["real"])
    halves = (pool(counts["real"][0::2]), pool(counts["real"][1::2] or counts["real"]))
    return {
        name: {
            "divergence": jensen_shannon(new[name], real[name]),
            "divergence_of_real_halves": jensen_shannon(halves[0][name], halves[1][name]),
            "generated": new[name].tolist(),
            "real": real[name].tolist(),
        }
        for name in new
    }


def _style(
    pieces: Sequence[Score],
    new: Sequence[Passage],
    real: Sequence[Passage],
    options: GenerationOptions,
    style_form: StyleForm,
) -> dict[str, Any]:
    """Return means and medians over pieces of the similarity by quarter, for each profile."""
    per_prompt = len(new) // len(real)
    rows: dict[str, dict[str, list[NDArray[np.float64]]]] = {}
    for number, (piece, passage) in enumerate(zip(pieces, real, strict=True)):
        continuations_of_piece = new[number * per_prompt : (number + 1) * per_prompt]
        groups = {
            "generated": [continuation.score for continuation in continuations_of_piece],
            "real": [passage.score],
        }
        for group, scores in groups.items():
            styles = style_by_quarter(
                piece, scores, options.prompt_bars, quarters=_QUARTERS, form=style_form
            )
            for profile, similarities in mean_style(styles).items():
                rows.setdefault(profile, {}).setdefault(group, []).append(similarities)
    return {
        profile: {
            group: {"mean": np.mean(values, 0).tolist(), "median": np.median(values, 0).tolist()}
            for group, values in of_profile.items()
        }
        for profile, of_profile in rows.items()
    }


def _copies(index: NoteIndex, scores: Sequence[Score]) -> dict[str, Any]:
    """Return how much of the scores is copied from the pieces of an index."""
    copy_statistics = copies(index, scores)
    shares = {str(size): share for size, share in copy_statistics.shares.items()}
    longest, notes = copy_statistics.longest, copy_statistics.num_notes
    return {"shares": shares, "longest": longest, "notes": notes}


def plain(value: Any) -> Any:  # noqa: ANN401 - values of JSON
    """Return a value with None in place of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
