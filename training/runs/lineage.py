"""Lineage of weights: the runs that produced them, each starting from the previous weights."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from relpe.files import write_text
from relpe.models.config import to_plain
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from training.config import build
from training.errors import TrainingError
from training.experiment import is_run
from training.files import read_json
from training.runs.pointer import PointerFit
from training.runs.record import FirstWeights, PastRun, past_segment, read_run, used_corpora
from training.runs.weights import Origin, model_folder

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
NAME = "training.json"
"""File of a released model that lists its runs."""


def first_weights(model: str | Path, origin: Origin, tokenizer: Remi | None) -> FirstWeights:
    """Return the origin and lineage of the weights of `--init-from`.

    `tokenizer` is that of the data; None for generated tasks, whose tokens are not compared.

    Raises:
        TrainingError: their vocabulary is not that of the data.
    """
    folder = model_folder(model)
    used = None if tokenizer is None else tokenizer.vocabulary.hash
    if used is not None and load_tokenizer(folder).vocabulary.hash != used:
        raise TrainingError(
            f"{folder}: the model has another vocabulary than the data; use weights and data with "
            "the same tokenizer"
        )
    return FirstWeights(path=str(model), digest=origin.digest, history=history(folder, origin))


def history(folder: Path, origin: Origin) -> tuple[PastRun, ...]:
    """Return the runs that produced the weights of a run or of a released model, first to last.

    `origin` comes from `load_decoder`. A model that `save_model` wrote has one unknown run.
    """
    if is_run(folder):
        run = read_run(folder)
        last = PastRun(
            name=folder.resolve().name,
            steps=origin.step,
            tokens=origin.tokens,
            weights=origin.digest,
            source=run["data"].get("source"),
            data=run["data"].get("hash"),
            corpora=used_corpora(run["data"]),
            device=run["device"],
            precision=run["precision"],
            threads=run["threads"],
            sessions=tuple(past_segment(segment) for segment in run["sessions"]),
        )
        if run["init_from"] is None:
            return (last,)
        first = build(FirstWeights, run["init_from"], f"{folder / 'run.json'}: init_from")
        return (*first.history, last)
    if (folder / NAME).is_file():
        return read_history(folder)
    logger.warning(
        "%s: found no %s, so the number of its training tokens is unknown",
        *(folder, NAME),
    )
    return (PastRun(name=folder.resolve().name, weights=origin.digest),)


def read_history(folder: Path) -> tuple[PastRun, ...]:
    """Read training.json of a released model.

    Raises:
        TrainingError: the file is damaged or was written by a newer version.
    """
    path = folder / NAME
    content = read_json(path, ("format_version", "history"), "download the model again")
    if content["format_version"] != FORMAT_VERSION:
        raise TrainingError(
            f"{path}: format {content['format_version']}, expected {FORMAT_VERSION}; update this "
            "program"
        )
    return build(tuple[PastRun, ...], content["history"], f"{path}: history")


def write_history(runs: Sequence[PastRun], folder: Path, pointer: PointerFit | None = None) -> None:
    """Write training.json of a released model, with the fit of its pointer if it has one."""
    content = {"format_version": FORMAT_VERSION, "history": to_plain(tuple(runs))}
    if pointer is not None:
        content["pointer"] = to_plain(pointer)
    write_text(folder / NAME, json.dumps(content, indent=1) + "\n")


def total_tokens(runs: Sequence[PastRun]) -> str:
    """Return the number of tokens of all runs, as text.

    The number is a lower bound if that of a run is unknown.
    """
    total = sum(run.tokens or 0 for run in runs)
    is_exact = all(run.tokens is not None for run in runs)
    return f"{total:,}" if is_exact else f"at least {total:,}"
