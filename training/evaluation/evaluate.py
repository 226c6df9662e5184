"""Evaluation of a model on a split: likelihood of real music and quality of generated music."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.decoding.choose import why_not_compiled
from relpe.files import write_text
from relpe.models.decoder import Decoder
from relpe.models.pointer.config import PointerConfig
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR, Families
from training.data.corpus import Corpus, read_facts
from training.errors import TrainingError, check_range
from training.evaluation.costs import costs
from training.evaluation.generated_music import measure_music, plain
from training.evaluation.goals import goals
from training.evaluation.likelihood import (
    Advance,
    Nats,
    pointer_nats,
    predicted,
    streaming_nats,
    token_bar,
    window_nats,
)
from training.evaluation.metrics.by_corpus import nats_by_corpus
from training.evaluation.metrics.by_family import FamilyNats, nats_by_family, nats_by_part
from training.evaluation.metrics.loops import loop_nats, loops
from training.evaluation.metrics.ngram import greatest_order, ngram_nats
from training.evaluation.metrics.nll_by_position import (
    Bin,
    beyond_training,
    nll_by_position,
    write_csv,
)
from training.evaluation.metrics.relative import relativity
from training.evaluation.options import EvaluateOptions
from training.evaluation.plots import draw_by_position, draw_results
from training.evaluation.report import figure, write_table
from training.evaluation.results import WHOLE, is_music
from training.evaluation.subject import MeasuredPieces, load_split, load_subject
from training.experiment import is_run, read_experiment
from training.files import read_json
from training.learning.seeding import draw_seeds
from training.runs.device import choose_device
from training.runs.pointer import pointer_digest
from training.runs.weights import Origin, model_folder

logger = logging.getLogger(__name__)

BATCH_SIZE = 8
"""Pieces or windows per batch, unless others are asked for."""


@dataclass(frozen=True)
class _Subject:
    """The evaluated model and its data."""

    name: str
    decoder: Decoder
    """Its weights are rounded as for a release."""
    origin: Origin
    tokenizer: Remi
    corpus: Corpus
    pieces: MeasuredPieces
    trained_length: int | None
    folder: Path
    """Folder of the results."""


def evaluate(options: EvaluateOptions) -> dict[str, Any]:
    """Evaluate a model; write results.json, a table and plots, and return the results.

    Weights are rounded to bfloat16 as for a release; computation is in float32. Music is generated
    as in the application, with compiled steps if the model supports them.

    Raises:
        TrainingError: the data and the model do not match.
    """
    data = options.data
    if data is None:
        model_folder(options.model)  # raises an error if there is no such model
        raise TrainingError(
            f"{options.model}: a model of music is measured on a prepared corpus; give it with "
            "--data"
        )
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device, "--device")
    facts = read_facts(data)
    subject = _subject(options, data)
    results = _describe(options, subject, device, facts["hash"])
    subject.folder.mkdir(parents=True, exist_ok=True)
    before = _measured_before(subject.folder, results)
    if options.music_only:  # earlier results keep their settings
        results |= before
    else:
        results |= {name: before[name] for name in before if is_music(name)}
        subject.decoder.to(device)
        _measure_likelihood(options, data, subject, results)
        _measure_decoder(options, subject, results)
    if options.music:
        # compiled steps run on the CPU; on a GPU, prompts would be processed one by one
        decoder = subject.decoder.to("cpu")
        if why_not_compiled(decoder) is not None:
            decoder.to(device)
        train = Corpus.load(data, "train")
        for music in options.music:
            results[music.key] = measure_music(
                decoder,
                subject.tokenizer,
                subject.corpus,
                train,
                music,
                names=subject.corpus.names,
                folder=subject.folder,
            )
    checked_goals = goals(results)
    results["goals"] = [goal._asdict() for goal in checked_goals]
    write_text(subject.folder / "results.json", json.dumps(results, indent=1) + "\n")
    write_table({subject.name: results}, subject.folder / "evaluation.md")
    draw_results({subject.name: results}, subject.folder / "evaluation.png")
    for goal in checked_goals:
        logger.info("%s", goal.line())
    return results


def _subject(options: EvaluateOptions, data: Path) -> _Subject:
    """Load the model and data. Raises TrainingError if they do not match."""
    size = len(load_tokenizer(data).vocabulary)
    check_range("--ngram", options.ngram, 1, greatest_order(size))
    place, decoder, origin, tokenizer = load_subject(options.model, data, options.weights)
    corpus = load_split(data, options.split, only=options.corpora)
    pieces = MeasuredPieces.of(corpus, tokenizer)
    name = place.resolve().name
    trained_length = options.trained_length
    if is_run(place):
        folder = options.output or place / "evaluation"
        trained_length = trained_length or read_experiment(place).task.length
    else:
        folder = options.output or Path("evaluation") / name
    return _Subject(name, decoder, origin, tokenizer, corpus, pieces, trained_length, folder)


def _describe(
    options: EvaluateOptions, subject: _Subject, device: str, data: str
) -> dict[str, Any]:
    """Return the first part of the results, which identifies weights and data."""
    ids, hidden, notes = subject.pieces
    return {
        "model": options.model,
        "weights": subject.origin._asdict(),
        "pointer": pointer_digest(subject.decoder.config.pointer),
        "precision": "weights rounded to bfloat16 as they are released, likelihood in float32",
        "device": device,
        "draws": options.draws,
        "parameters": sum(parameter.numel() for parameter in subject.decoder.parameters()),
        "data": data,
        "split": options.split,
        "corpora": [*options.corpora],
        "pieces": len(ids),
        "tokens": sum(int(np.count_nonzero(~of_piece[1:])) for of_piece in hidden),
        "notes": sum(notes),
        "bars": sum(int(np.count_nonzero(piece[1:] == BAR)) for piece in ids),
        "trained_length": subject.trained_length,
    }


def _measured_before(folder: Path, results: dict[str, Any]) -> dict[str, Any]:
    """Return earlier results for the same model and data, without the model's name; else empty."""
    path = folder / "results.json"
    before = read_json(path, (), "evaluate again without --music-only") if path.is_file() else {}
    same = ("weights", "pointer", "data", "split", "pieces", "tokens")
    if any(before.get(name) != results[name] for name in same):
        return {}
    return {name: before[name] for name in before if name != "model"}


def _measure_likelihood(
    options: EvaluateOptions, data: Path, subject: _Subject, results: dict[str, Any]
) -> None:
    """Add the likelihood of real music to results; write nll_by_position.csv and .png."""
    units = {"nats_per_note": results["notes"], "nats_per_bar": results["bars"]}
    nats = _measure_readings(options, subject, units, results)
    pieces, _, notes = subject.pieces
    corpora = [corpus["name"] for corpus in subject.corpus.corpora]
    if len(corpora) > 1:
        results["by_corpus"] = nats_by_corpus(
            [corpora[subject.corpus.facts(index).corpus] for index in range(len(pieces))],
            notes,
            nats,
        )
    beyond = beyond_training(nats["streaming"], subject.trained_length or 0, options.reach)
    results["beyond_training"] = None if beyond is None else plain(beyond._asdict())
    if options.ngram is not None:
        results[f"{options.ngram}-gram"] = _ngrams(options.ngram, data, subject, units)


def _measure_readings(
    options: EvaluateOptions, subject: _Subject, units: Mapping[str, int], results: dict[str, Any]
) -> dict[str, Nats]:
    """Add the likelihood in windows and of whole pieces to results; return the nats by reading."""
    decoder, folder = subject.decoder, subject.folder
    pieces, all_hidden, _ = subject.pieces
    families = subject.tokenizer.families
    rows = options.batch_size or BATCH_SIZE
    seeds = draw_seeds(decoder.config.noise_seed, options.draws)

    def measure(
        name: str,
        read: Callable[[int, Advance], Nats],
        hidden: Sequence[NDArray[np.bool_]] = all_hidden,
    ) -> tuple[list[Nats], dict[str, float]]:
        """Return the nats of each token for each draw, and their summary."""
        with token_bar(name, sum(len(piece) - 1 for piece in hidden) * len(seeds)) as bar:
            draws = [predicted(read(seed, bar.update), hidden) for seed in seeds]
        values = summary(draws, units)
        logger.info("%s: %s", name, _line(values))
        return draws, values

    started = time.monotonic()
    windows = f"windows_{options.length}"
    in_windows, results[windows] = measure(
        f"windows of {options.length}",
        lambda seed, advance: window_nats(
            decoder, pieces, options.length, rows, seed, advance, families
        ),
    )
    draws, results["streaming"] = measure(
        "whole pieces",
        lambda seed, advance: streaming_nats(
            decoder, pieces, options.chunk, rows, seed, advance, families
        ),
    )
    results["seconds"] = round(time.monotonic() - started, 1)
    whole = {"streaming": _mean(draws)}
    bins = nll_by_position(whole["streaming"], options.reach)
    results["by_position"] = _by_position(bins, options.reach)
    if bins:
        write_csv(bins, folder / "nll_by_position.csv")
        draw_by_position(
            {subject.name: bins}, folder / "nll_by_position.png", subject.trained_length
        )
    if decoder.config.pointer is not None:
        mixed = _with_pointer(decoder.config.pointer, pieces, draws)
        results["streaming_pointer"] = summary(mixed, units)
        logger.info("whole pieces, with pointer: %s", _line(results["streaming_pointer"]))
        whole["streaming_pointer"] = _mean(mixed)
        results["by_position_pointer"] = _by_position(
            nll_by_position(whole["streaming_pointer"], options.reach), options.reach
        )
    results["by_family"] = _by_family(subject, whole)
    results["by_part"] = {
        key: nats_by_part(nats_of_families(subject, nats), results["notes"])
        for key, nats in whole.items()
    }
    is_kept = [without_plan(piece, families) for piece in pieces]
    pieces_without_plan = [piece[kept] for piece, kept in zip(pieces, is_kept, strict=True)]
    without_plan_draws, results["streaming_without_plan"] = measure(
        WHOLE["streaming_without_plan"],
        lambda seed, advance: streaming_nats(
            decoder, pieces_without_plan, options.chunk, rows, seed, advance, families
        ),
        [hidden[kept] for hidden, kept in zip(all_hidden, is_kept, strict=True)],
    )
    whole["streaming_without_plan"] = _mean(without_plan_draws)
    return {windows: _mean(in_windows), **whole}


def _measure_decoder(options: EvaluateOptions, subject: _Subject, results: dict[str, Any]) -> None:
    """Add to results what the decoder costs, and how it uses repetitions and positions."""
    decoder = subject.decoder
    longest = max(subject.pieces.ids, key=len)[: options.length + 1]
    results["costs"] = costs(
        decoder,
        lambda: window_nats(
            decoder, [longest], options.length, 1, families=subject.tokenizer.families
        ),
        len(longest) - 1,
        "token",
    )
    results["loops"] = _loops(subject)
    seeds = draw_seeds(decoder.config.noise_seed, options.draws)
    results["relativity"] = _relativity(decoder, options.map_length, seeds)


def _ngrams(
    order: int, data: Path, subject: _Subject, units: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Return the likelihood under n-gram models of the training split, by their names."""
    ids, hidden, _ = subject.pieces
    models = ngram_nats(order, Corpus.load(data, "train"), subject.tokenizer, ids)
    summaries = {
        name: summary([predicted(values, hidden)], units) for name, values in models.items()
    }
    name, best = min(summaries.items(), key=lambda item: item[1]["nats_per_token"])
    logger.info("%d-gram, %s: %s", order, name, _line(best))
    return summaries


def _mean(draws: Sequence[Nats]) -> Nats:
    """Return the nats of each token, averaged over draws."""
    return [np.mean(piece, 0) for piece in zip(*draws, strict=True)]


def _by_position(bins: Sequence[Bin], reach: int) -> dict[str, Any]:
    return {
        "reach": reach,
        "pieces": bins[0].pieces if bins else 0,
        "bins": [plain(bin_._asdict()) for bin_ in bins],
    }


def _with_pointer(
    pointer: PointerConfig, pieces: Sequence[NDArray[np.int64]], draws: Sequence[Nats]
) -> list[Nats]:
    """Return the nats of each token with the pointer, for each draw."""
    nats = [np.stack(of_piece) for of_piece in zip(*draws, strict=True)]
    with token_bar("pointer", sum(len(piece) - 1 for piece in pieces)) as bar:
        mixed = pointer_nats(pointer, pieces, nats, bar.update)
    return [list(of) for of in zip(*mixed, strict=True)]


def without_plan(ids: NDArray[np.int64], families: Families) -> NDArray[np.bool_]:
    """Return which ids of a piece (l,) belong to the same document without its plan."""
    is_plan = (ids >= families.return_) & (ids < families.later)
    return ~(is_plan | ((ids >= families.key) & (ids < families.plays)))


def nats_of_families(subject: _Subject, nats: Nats) -> dict[str, FamilyNats]:
    """Return the mean nats of each family of predicted tokens."""
    return nats_by_family(subject.tokenizer.vocabulary, subject.pieces.ids, nats)


def _by_family(subject: _Subject, whole: Mapping[str, Nats]) -> dict[str, dict[str, float]]:
    """Return the tokens of each family, and their nats per token in each reading."""
    families: dict[str, dict[str, float]] = {}
    for key, nats in whole.items():
        for name, family in nats_of_families(subject, nats).items():
            families.setdefault(name, {"tokens": family.tokens})[key] = family.nats_per_token
    return families


def _loops(subject: _Subject) -> dict[str, Any]:
    """Return the loss on a repeated bar; no figures if no bar is suitable."""
    repetitions = loops(subject.pieces.ids, subject.tokenizer)
    ids = [loop.ids for loop in repetitions]
    with token_bar("loops", sum(len(loop) - 1 for loop in ids)) as bar:
        families = subject.tokenizer.families
        nats = streaming_nats(subject.decoder, ids, 1024, 8, advance=bar.update, families=families)
    nats_by_time = loop_nats(nats, repetitions)
    return {
        "pieces": len(repetitions),
        "nats_per_token": {str(time): nats_by_time[time] for time in nats_by_time},
    }


def _relativity(decoder: Decoder, length: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Measure how invariant and how monotonic the maps are: means, and values of each head."""
    try:
        statistics = relativity(decoder, length, token=BAR, seeds=seeds)
    except ValueError as error:  # no map for this encoding
        logger.warning("position maps not measured: %s; try a --map-length below %d", error, length)
        return {"length": length, "why_not": str(error)}
    return {"length": length} | {
        name: {"mean": float(values.mean()), "by_layer_and_head": values.mean(0).tolist()}
        for name, values in statistics._asdict().items()
    }


def summary(draws: Sequence[Nats], units: Mapping[str, int]) -> dict[str, float]:
    """Return the nats of a split per token and per unit, averaged over draws.

    `units` maps the name of each result to the number of its units in the split. With several
    draws, the standard deviation over draws is added. Nats are NaN for tokens that are not
    predicted, which are not counted.
    """
    totals = np.array([sum(np.nansum(piece) for piece in nats) for nats in draws])
    num_tokens = sum(int(np.count_nonzero(~np.isnan(piece))) for piece in draws[0])
    counts = {"nats_per_token": num_tokens, **units}
    values = {name: float(totals.mean() / max(count, 1)) for name, count in counts.items()}
    if len(draws) > 1:
        spread = totals.std(ddof=1)
        values |= {f"{n}_deviation": float(spread / max(count, 1)) for n, count in counts.items()}
    return values


def _line(values: dict[str, float]) -> str:
    token, note = figure(values, "nats_per_token", 4), figure(values, "nats_per_note", 3)
    return f"{token} nats per token, {note} per note"
