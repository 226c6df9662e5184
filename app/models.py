"""The models that make music: the released ones, or the one that was asked for."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from relpe.checkpoint import CheckpointError, find_checkpoint, load_model, released_models
from tokenization.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from relpe.decoder import Decoder
    from tokenization.score import Score
    from tokenization.tokenizer import Tokenizer

DEFAULT = "piano"
"""The released model that makes music without a prompt."""
_PIANOS = range(8)


@dataclass(frozen=True)
class MusicModel:
    """A model ready to make music."""

    name: str
    decoder: Decoder
    tokenizer: Tokenizer
    device: torch.device
    backend: str = "torch"
    """What computes, as --json says it; there is no other so far."""

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(weights.numel() for weights in self.decoder.parameters())


def load_music_model(name_or_folder: str | Path = "piano", device: str = "auto") -> MusicModel:
    """A released model by name, or any by its folder, with its tokenizer.

    Raises CheckpointError or TokenizerError where the files cannot be used.
    """
    folder = find_checkpoint(name_or_folder)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise CheckpointError(
            "found no CUDA device, expected one for --device cuda; use auto or cpu"
        )
    decoder = load_model(folder, device)
    return MusicModel(folder.name, decoder, load_tokenizer(folder), torch.device(device))


class Models:
    """The released models, or one that was asked for; each is loaded when it is first needed.

    One that is asked for by its folder is known by the folder's name. Raises CheckpointError where
    there is no such model.
    """

    def __init__(self, asked_for: str | Path | None = None, device: str = "auto") -> None:
        if asked_for is None:
            names = [DEFAULT, *(name for name in released_models() if name != DEFAULT)]
            self._places: dict[str, str | Path] = {name: name for name in names}
        else:
            folder = find_checkpoint(asked_for).resolve()
            self._places = {folder.name: folder}
        self.names = tuple(self._places)
        self._device = device
        self._loaded: dict[str, MusicModel] = {}
        self._loading = threading.Lock()

    @classmethod
    def only(cls, model: MusicModel) -> Models:
        """Just this one."""
        models = cls()
        models.names = (model.name,)
        models._loaded = {model.name: model}
        return models

    def load(self, name: str) -> MusicModel:
        """One of `names`. Raises CheckpointError or TokenizerError where it cannot be used."""
        with self._loading:
            if name not in self._loaded:
                self._loaded[name] = load_music_model(self._places[name], self._device)
        return self._loaded[name]

    def to_generate(self) -> MusicModel:
        """The one that makes music from nothing if nothing else is said."""
        return self.load(self.names[0])

    def to_continue(self, score: Score) -> MusicModel:
        """The one for a prompt: of the released ones the one that hears all of it."""
        wanted = suited_to(score)
        return self.load(wanted if wanted in self.names else self.names[0])


def suited_to(score: Score) -> str:
    """The released model for a piece: `groove` with drums or several instruments, else `piano`."""
    playing = [track for track in score.tracks if len(track)]
    programs = {track.program for track in playing if not track.is_drum}
    several = len(programs) > 1 and not programs.issubset(_PIANOS)
    return "groove" if several or any(track.is_drum for track in playing) else "piano"
