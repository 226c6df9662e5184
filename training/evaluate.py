"""Measures a model on a split: windows, whole pieces, place in the piece, beside n-grams."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from relpe.checkpoint import load_model
from tokenization.tokenizer import load_tokenizer
from training.config import build
from training.corpus import Corpus, pitch_ids, read_facts
from training.errors import TrainingError
from training.metrics.ngram import SMOOTHINGS, Counts, NGram
from training.metrics.nll_by_position import nll_by_position, plot, write_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from relpe.decoder import Decoder, DecoderState
    from tokenization.tokenizer import Tokenizer

    Nats = list[NDArray[np.float64]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is measured, and on what."""

    model: str
    """Run folder, or checkpoint folder or name."""
    data: Path
    split: str = "test"
    weights: str = "best"
    length: int = 1024
    chunk: int = 1024
    reach: int = 4096
    batch_size: int = 8
    ngram: int | None = None
    output: Path | None = None


def evaluate(options: EvaluateOptions, *, show: bool = True) -> dict[str, Any]:
    """Measure a model; writes results.json, nll_by_position.csv and .png, returns the results.

    Raises:
        TrainingError: data and model do not fit.
    """
    facts = read_facts(options.data)
    tokenizer = load_tokenizer(options.data)
    is_run = (Path(options.model) / "config.yaml").exists()
    folder = options.output or (
        Path(options.model) / "evaluation" if is_run else Path("runs") / Path(options.model).name
    )
    _check_vocabulary(Path(options.model), tokenizer.vocabulary.hash)
    decoder = load_decoder(options.model, options.weights).eval()
    corpus = Corpus.load(options.data, options.split)
    pieces = [corpus.piece(index).astype(np.int64) for index in range(len(corpus))]
    if not pieces:
        raise TrainingError(f"{options.data}: split {options.split!r} holds no pieces")
    notes = sum(int(np.isin(piece[1:], pitch_ids(tokenizer)).sum()) for piece in pieces)
    results: dict[str, Any] = {
        "model": options.model,
        "parameters": sum(parameter.numel() for parameter in decoder.parameters()),
        "data": facts["hash"],
        "split": options.split,
        "pieces": len(pieces),
        "tokens": sum(len(piece) - 1 for piece in pieces),
        "notes": notes,
    }
    started = time.monotonic()
    nats = window_nats(decoder, pieces, options.length, options.batch_size, show=show)
    results[f"windows_{options.length}"] = summary(nats, notes)
    logger.info("windows of %d: %s", options.length, _line(results[f"windows_{options.length}"]))
    nats = streaming_nats(decoder, pieces, options.chunk, options.batch_size, show=show)
    results["streaming"] = summary(nats, notes)
    results["seconds"] = round(time.monotonic() - started, 1)
    logger.info("whole pieces: %s", _line(results["streaming"]))
    bins = nll_by_position(nats, options.reach)
    results["by_position"] = {
        "reach": options.reach,
        "pieces": bins[0].pieces if bins else 0,
        "bins": [bin_._asdict() for bin_ in bins],
    }
    folder.mkdir(parents=True, exist_ok=True)
    if options.ngram is not None:
        models = ngram_nats(options, tokenizer, pieces, show=show)
        results[f"{options.ngram}-gram"] = {
            name: summary(values, notes) for name, values in models.items()
        }
        best = min(results[f"{options.ngram}-gram"].items(), key=lambda i: i[1]["nats_per_token"])
        logger.info("%d-gram, %s: %s", options.ngram, best[0], _line(best[1]))
    if bins:
        write_csv(bins, folder / "nll_by_position.csv")
        plot({Path(options.model).name: bins}, folder / "nll_by_position.png", options.length)
    path = folder / "results.json"
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(results, indent=1) + "\n")
    partial.replace(path)
    return results


def load_decoder(model: str | Path, weights: str = "best") -> Decoder:
    """Decoder of a run folder, or of a released model's folder or name.

    Of a run that averages its weights, the averaged ones.

    Raises:
        TrainingError: the run holds no such checkpoint.
    """
    folder = Path(model)
    if not (folder / "config.yaml").exists():
        return load_model(model, "cpu")
    from training.tasks.music import MusicTask

    stored = yaml.safe_load((folder / "config.yaml").read_text())
    task = build(MusicTask, stored["task"], f"{folder / 'config.yaml'}: task")
    decoder = task.model.build()
    path = folder / f"{weights}.ckpt"
    if not path.exists():
        raise TrainingError(f"{folder}: found no {path.name}; train longer, or take other weights")
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    prefix = "decoder."
    state = {k.removeprefix(prefix): v for k, v in checkpoint["state_dict"].items()}
    decoder.load_state_dict(state)
    mean = checkpoint["average"]["mean"]
    if mean:
        for parameter, value in zip(decoder.parameters(), mean, strict=True):
            parameter.data.copy_(value)
    return decoder


def _check_vocabulary(folder: Path, vocabulary: str) -> None:
    path = folder / "tokenizer.json"
    if path.exists() and load_tokenizer(folder).vocabulary.hash != vocabulary:
        raise TrainingError(
            f"{folder}: learnt another vocabulary than the data have; prepare again"
        )


def summary(nats: Sequence[NDArray[np.float64]], notes: int) -> dict[str, float]:
    """Negative log-likelihood of a split, nats per token and per note."""
    total = float(sum(piece.sum() for piece in nats))
    tokens = sum(len(piece) for piece in nats)
    return {"nats_per_token": total / tokens, "nats_per_note": total / max(notes, 1)}


def _line(values: dict[str, float]) -> str:
    return f"{values['nats_per_token']:.4f} nats per token, {values['nats_per_note']:.3f} per note"


@torch.inference_mode()
def window_nats(
    decoder: Decoder,
    pieces: Sequence[NDArray[np.int64]],
    length: int,
    batch_size: int,
    *,
    show: bool = False,
) -> Nats:
    """Nats of each token but the first of each piece, read in windows without overlap.

    A window's first token is the last one's target: every token but a piece's first is a target
    once, and nothing is remembered from one window to the next.
    """
    nats = [np.zeros(len(piece) - 1) for piece in pieces]
    places = [(i, s) for i, piece in enumerate(pieces) for s in range(0, len(piece) - 1, length)]
    # Windows of like length together, so that little is padding.
    places.sort(key=lambda place: min(length, len(pieces[place[0]]) - 1 - place[1]), reverse=True)
    for rows in _batches(places, batch_size, "windows", show=show):
        parts = [pieces[index][start : start + length + 1] for index, start in rows]
        values, _ = _nats(decoder, parts, 0, decoder.init_state(len(parts)))
        for (index, start), part, row in zip(rows, parts, values, strict=True):
            nats[index][start : start + len(part) - 1] = row[: len(part) - 1]
    return nats


@torch.inference_mode()
def streaming_nats(
    decoder: Decoder,
    pieces: Sequence[NDArray[np.int64]],
    chunk: int,
    batch_size: int,
    *,
    show: bool = False,
) -> Nats:
    """Nats of each token but the first of each piece, read whole: the state is carried on."""
    nats = [np.zeros(len(piece) - 1) for piece in pieces]
    order = sorted(range(len(pieces)), key=lambda index: -len(pieces[index]))
    for rows in _batches(order, batch_size, "whole pieces", show=show):
        state = decoder.init_state(len(rows))
        for start in range(0, len(pieces[rows[0]]) - 1, chunk):
            parts = [pieces[index][start : start + chunk + 1] for index in rows]
            values, state = _nats(decoder, parts, start, state)
            for index, part, row in zip(rows, parts, values, strict=True):
                count = max(0, len(part) - 1)
                nats[index][start : start + count] = row[:count]
    return nats


def _batches(items: list[Any], size: int, name: str, *, show: bool) -> Iterator[list[Any]]:
    starts = range(0, len(items), size)
    for start in tqdm(starts, desc=name, disable=not show, mininterval=2):
        yield items[start : start + size]


def _nats(
    decoder: Decoder, parts: Sequence[NDArray[np.int64]], start: int, state: DecoderState
) -> tuple[NDArray[np.float64], DecoderState]:
    """Nats of all tokens but the first of each part, filled up to the longest: (b, l)."""
    tokens = np.zeros((len(parts), max(map(len, parts))), np.int64)
    for row, part in zip(tokens, parts, strict=True):
        row[: len(part)] = part
    device = next(decoder.parameters()).device
    batch: Tensor = torch.from_numpy(tokens).to(device)
    positions = torch.arange(start, start + tokens.shape[1] - 1, device=device)[None, :, None]
    logits, state = decoder(batch[:, :-1], positions, state)
    values = cross_entropy(logits.float().transpose(1, 2), batch[:, 1:], reduction="none")
    return values.double().cpu().numpy(), state


def ngram_nats(
    options: EvaluateOptions,
    tokenizer: Tokenizer,
    pieces: Sequence[NDArray[np.int64]],
    *,
    show: bool = False,
) -> dict[str, Nats]:
    """Nats of n-gram models trained on the train split, as it is and in all transpositions."""
    train = Corpus.load(options.data, "train")
    size = len(tokenizer.vocabulary.names)
    assert options.ngram is not None

    def count(moved: Callable[[NDArray[np.int32]], NDArray[np.integer] | None]) -> Counts:
        versions = (moved(train.piece(index)) for index in range(len(train)))
        kept = (version for version in versions if version is not None)
        return Counts.of(kept, options.ngram or 1, size)

    plain = count(lambda ids: ids)
    transposed = plain
    for semitones in tqdm([*range(-5, 0), *range(1, 7)], desc="n-grams", disable=not show):
        transposed = transposed + count(lambda ids, s=semitones: tokenizer.transpose(ids, s))
    result: dict[str, Nats] = {}
    for name, counts in (("untransposed", plain), ("12 transpositions", transposed)):
        for smoothing in SMOOTHINGS:
            model = NGram(counts, smoothing)
            result[f"{smoothing}, {name}"] = [model.nats(piece) for piece in pieces]
    return result
