"""Lineage of weights: the runs that produced them, each starting from the previous weights."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from relpe.models.checkpoint import CheckpointError, find_checkpoint
from relpe.models.config import to_plain
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from training.config import build
from training.errors import TrainingError
from training.experiment import is_run
from training.files import read_json, replacing
from training.runs.pointer import PointerFit
from training.runs.record import FirstWeights, PastRun, past_segment, read_run, used_corpora
from training.runs.weights import Origin, load_decoder, model_folder

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
NAME = "training.json"
"""File of a released model that lists its runs."""


def first_weights(model: str | Path, origin: Origin, tokenizer: Remi | None) -> FirstWeights:
    """Origin and lineage of the weights of `--init-from`.

    `tokenizer` is that of the data; None for generated tasks, whose tokens are not compared.

    Raises:
        TrainingError: their vocabulary is not that of the data.
    """
    folder = model_folder(model)
    if tokenizer is None:
        return FirstWeights(path=str(model), digest=origin.digest, history=history(folder, origin))
    before = load_tokenizer(folder)
    if before.vocabulary.hash != tokenizer.vocabulary.hash:
        raise TrainingError(
            f"{folder}: the model has another vocabulary than the data; use weights and data with "
            "the same tokenizer"
        )
    return FirstWeights(path=str(model), digest=origin.digest, history=history(folder, origin))


def history(folder: Path, origin: Origin) -> tuple[PastRun, ...]:
    """The runs that produced the weights of a run or of a released model, first to last.

    `origin` comes from `load_decoder`. A model released by an older version has one unknown run.
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
            device=run.get("device"),
            precision=run["precision"],
            threads=run["threads"],
            sessions=tuple(past_segment(segment) for segment in run["sessions"]),
        )
        return (*_before(run.get("init_from"), folder, last), last)
    if (folder / NAME).is_file():
        return read_history(folder)
    logger.warning(
        "%s: found no %s, so the number of its training tokens is unknown",
        *(folder, NAME),
    )
    return (PastRun(name=folder.resolve().name, weights=origin.digest),)


def _before(held: object, folder: Path, last: PastRun) -> tuple[PastRun, ...]:
    """The runs before `last`; `held` is `init_from` in its run.json."""
    if held is None:
        return ()
    where = f"{folder / 'run.json'}: init_from"
    if not isinstance(held, str):
        return build(FirstWeights, held, where).history
    # run.json of older versions has only the path
    places = _places(held, folder)
    found = [place for place in places if is_run(place) or (place / "model.json").is_file()]
    if not found:
        raise TrainingError(
            f"{where}: found no {held} in the current folder or next to the run. It is needed to "
            "record the origin of the weights; run the command in the folder in which the run was "
            "started"
        )
    place = next((p for p in found if is_run(p) or (p / NAME).is_file()), found[0])
    runs = history(place, load_decoder(place)[1])
    # the model may have been replaced by an export of this run
    released = [run.sessions[:1] == last.sessions[:1] for run in runs]
    return runs[: released.index(True)] if True in released else runs


def _places(name: str, folder: Path) -> Iterator[Path]:
    """Paths that a path given at the start of a run may refer to."""
    yield Path(name)
    for parent in folder.resolve().parents:
        yield parent / name
    try:
        yield find_checkpoint(Path(name).name)
    except CheckpointError:
        return


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
    with replacing(folder / NAME) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")


def total_tokens(runs: Sequence[PastRun]) -> str:
    """Number of tokens of all runs, as text; a lower bound if it is unknown for a run."""
    total = sum(run.tokens or 0 for run in runs)
    known = all(run.tokens is not None for run in runs)
    return f"{total:,}" if known else f"at least {total:,}"
