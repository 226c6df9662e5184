"""Weights of a run or of a released model: loading, storing, hashing."""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from relpe.files import atomic_write
from relpe.models.checkpoint import AnyModel, find_checkpoint, load_model
from relpe.models.classifier.model import Classifier
from relpe.models.config import to_plain
from relpe.models.decoder import Decoder
from relpe.models.growth import can_grow, grow
from tokenization.remi.remi import Remi
from training.errors import TrainingError
from training.experiment import is_run, read_experiment
from training.runs.pointer import NAME, read_pointer
from training.runs.record import differences, read_run

logger = logging.getLogger(__name__)

RELEASED = torch.bfloat16
"""Precision of released weights, as written by `relpe.models.checkpoint.save_model`."""
_KEYS = (
    *("state_dict", "global_step", "callbacks", "optimizer_states"),
    *("elapsed_seconds", "skipped", "average", "encoding_start"),
)


class Origin(NamedTuple):
    """Identity of weights; for a released model, only files and digest are known."""

    file: str
    """Names of the files in the model's folder."""
    digest: str
    """SHA-256 as returned by `digest`."""
    step: int | None = None
    """Number of training steps."""
    tokens: int | None = None
    """Tokens in these steps, padding included."""
    commit: str | None = None
    """Commit with which the run was last started or resumed."""


def model_folder(model: str | Path) -> Path:
    """Return the folder of a run or of a released model, which may be given by its name.

    Raises:
        CheckpointError: there is no such model.
    """
    return Path(model) if is_run(Path(model)) else find_checkpoint(model)


def load_decoder(model: str | Path, weights: str = "best") -> tuple[Decoder, Origin]:
    """Load a decoder from the folder of a run, or from the folder or name of a released model.

    See `load_run` for the weights and the pointer of a run.

    Raises:
        TrainingError: the run has no such checkpoint, or it is damaged.
    """
    folder = Path(model)
    if not is_run(folder):
        decoder = load_model(model)
        description = json.loads((find_checkpoint(model) / "model.json").read_text("utf-8"))
        return decoder, Origin(", ".join(description["weights"]), digest(decoder))
    decoder, origin = load_run(folder, weights)
    if not isinstance(decoder, Decoder):
        kind = "a classifier" if isinstance(decoder, Classifier) else "an encoder-decoder"
        raise TrainingError(f"{model}: the run of {kind}, expected one of a decoder")
    return decoder, origin


def load_run(folder: Path, weights: str = "best") -> tuple[AnyModel, Origin]:
    """Load the model of a run, with the averaged weights if there are any, and its pointer.

    The pointer is that of pointer.json, if it was fitted to these weights.

    Raises:
        TrainingError: the run has no such checkpoint, or it is damaged.
    """
    task = read_experiment(folder).task
    decoder: AnyModel = task.decoder_config(folder).build()
    is_name = weights in ("best", "last")
    path = folder / f"{weights}.ckpt" if is_name else Path(weights)
    if not is_name and not path.is_file():
        raise TrainingError(f"--weights {weights}: no such file, expected best, last or a file")
    if not path.exists():
        why = (
            "there was no validation yet" if weights == "best" else "no checkpoint was written yet"
        )
        raise TrainingError(
            f"{folder}: found no {path.name}, since {why}; train longer, or choose other weights "
            "with --weights"
        )
    other = "last" if weights == "best" else "best"
    checkpoint = read_checkpoint(path, f"use --weights {other}, or train again")
    fill(decoder, checkpoint, path)
    step = checkpoint["global_step"]
    commit = read_run(folder)["sessions"][-1]["commit"]
    origin = Origin(path.name, digest(decoder), step, step * task.tokens_per_step, commit)
    fitted = read_pointer(folder) if isinstance(decoder, Decoder) else None
    if isinstance(decoder, Decoder) and fitted and fitted.fit.weights == origin.digest:
        decoder.config = replace(decoder.config, pointer=fitted.pointer)
    elif fitted is not None:
        logger.warning(
            "%s was fitted to other weights than %s and is not used; run relpe-train fit-pointer "
            "with --weights %s",
            *(folder / NAME, origin.file, weights),
        )
    return decoder, origin


def write_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Replace a checkpoint of a run, atomically.

    Raises:
        TrainingError: it cannot be written, for example on a full disk.
    """
    try:
        with atomic_write(path) as partial, partial.open("wb") as stream:
            torch.save(checkpoint, stream)
    except (OSError, RuntimeError) as error:
        # after a failed write, torch closes its archive, which raises another error
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise TrainingError(
            f"{path}: cannot be written ({cause.strerror or cause}). The previous checkpoint is "
            "unchanged; free some disk space, then run the command again to resume from it"
        ) from error


def read_checkpoint(path: Path, remedy: str) -> dict[str, Any]:
    """Read a checkpoint of a run.

    Raises:
        TrainingError: the file is damaged, no checkpoint, or of an earlier version; the message
            ends with `remedy`.
    """
    try:
        # torch does not verify the checksums of the archive
        with zipfile.ZipFile(path) as archive:
            changed = archive.testzip()
        if changed is not None:
            raise ValueError(f"the checksum of {changed} differs")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (
        *(RuntimeError, EOFError, ValueError, LookupError, TypeError, AttributeError),
        *(pickle.UnpicklingError, zipfile.BadZipFile),
    ) as error:
        raise TrainingError(f"{path}: the checkpoint is damaged; {remedy}") from error
    missing = [key for key in _KEYS if not isinstance(checkpoint, dict) or key not in checkpoint]
    if missing:
        raise TrainingError(
            f"{path}: found no {missing[0]}, so it is no checkpoint of relpe-train, or one of an "
            f"earlier version; {remedy}"
        )
    return checkpoint


def fill(
    decoder: AnyModel, checkpoint: dict[str, Any], where: Path, *, averaged: bool = True
) -> None:
    """Load the weights of a checkpoint into a decoder: if `averaged`, their average, if any.

    Raises:
        TrainingError: the weights belong to another model.
    """
    state = {k.removeprefix("decoder."): v for k, v in checkpoint["state_dict"].items()}
    try:
        decoder.load_state_dict(state)
    except RuntimeError as error:
        first = " ".join(str(error).splitlines()[1].split())
        raise TrainingError(f"{where} has the weights of another model: {first}") from error
    if averaged and (mean := checkpoint["average"]["mean"]):
        for parameter, value in zip(decoder.parameters(), mean, strict=True):
            parameter.data.copy_(value)


def start_from(decoder: Decoder, first: Decoder, where: str | Path) -> None:
    """Initialise a decoder with the weights of another one.

    A shallower model is grown: see `relpe.models.growth`.

    Raises:
        TrainingError: the weights belong to another model, of which a setting is named.
    """
    try:
        if can_grow(decoder.config, first.config):
            grow(decoder, first)
            return
        decoder.load_state_dict(first.state_dict())
    except RuntimeError as error:
        theirs, ours = (
            to_plain(replace(config, pointer=None, noise_seed=0))
            for config in (first.config, decoder.config)
        )
        name, their_value, our_value = next(differences(theirs, ours))
        raise TrainingError(
            f"{where} has the weights of another model: its {name} is {their_value}, that of the "
            f"config is {our_value}; use the config with which it was trained, or leave out "
            "--init-from"
        ) from error


@torch.no_grad()
def keep_styles(decoder: Decoder, before: Remi, after: Remi) -> None:
    """Give each style of `after` the weights that it has in a decoder of the tokenizer `before`.

    Styles are numbered in the order of their names, so that a new one changes the numbers of
    others. New styles get those of styles that are gone, or of unused numbers.
    """
    old, new = before.config.styles, after.config.styles
    if old == new:
        return
    styles = slice(after.families.style, after.families.key)
    count = styles.stop - styles.start
    unused = [number for number in range(count) if number >= len(old) or old[number] not in new]
    numbers = [old.index(name) if name in old else unused.pop(0) for name in new] + unused
    layers = [decoder.embedding, decoder.project_out]
    layers += [] if decoder.events is None else [decoder.events.embedding]
    for layer in layers:
        layer.weight[styles] = layer.weight[styles][numbers]


def round_as_released(decoder: AnyModel) -> None:
    """Round the weights of a decoder to the precision of released weights."""
    for tensor in decoder.state_dict().values():
        tensor.copy_(tensor.to(RELEASED))


def digest(decoder: AnyModel) -> str:
    """Return the SHA-256 of all tensors in the precision of released weights, with their names."""
    total = hashlib.sha256()
    for name, tensor in sorted(decoder.state_dict().items()):
        released = tensor.detach().to("cpu", RELEASED).contiguous()
        total.update(f"{name} {tuple(released.shape)}\n".encode())
        total.update(released.view(torch.int16).numpy().tobytes())
    return total.hexdigest()
