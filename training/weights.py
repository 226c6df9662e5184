"""Weights of a run or of a released model, and where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import yaml

from relpe.checkpoint import find_checkpoint, load_model
from training.config import build
from training.errors import TrainingError
from training.tasks.music import MusicTask

if TYPE_CHECKING:
    from relpe.decoder import Decoder


class Origin(NamedTuple):
    """Which weights they are; a released model knows its files alone."""

    file: str
    """Names within the folder."""
    step: int | None = None
    """Steps that they have learnt for."""
    tokens: int | None = None
    """Tokens that these steps have read, padding included."""
    commit: str | None = None
    """Commit of the run's last session."""


def load_decoder(model: str | Path, weights: str = "best") -> tuple[Decoder, Origin]:
    """Decoder of a run folder, or of a released model's folder or name.

    Of a run that averages its weights, the averaged ones.

    Raises:
        TrainingError: the run holds no such checkpoint.
    """
    folder = Path(model)
    if not (folder / "config.yaml").exists():
        decoder = load_model(model)
        description = json.loads((find_checkpoint(model) / "model.json").read_text())
        return decoder, Origin(", ".join(description["weights"]))
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
    step = checkpoint["global_step"]
    commit = json.loads((folder / "run.json").read_text())["commit"]
    return decoder, Origin(path.name, step, step * task.tokens_per_step, commit)
