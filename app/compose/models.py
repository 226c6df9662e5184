"""Loads models with their tokenizers, and chooses the model for a piece."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

import torch

from app.compose.fill.passage import music_like
from app.compose.options import MusicOptions
from app.compose.plan.asked import lacks_style, styles_of
from relpe.decoding.base import Backend, Precision, StepsMaker
from relpe.decoding.choose import choose_steps, why_not_compiled
from relpe.forks import use_threads
from relpe.models.checkpoint import (
    CheckpointError,
    find_checkpoint,
    load_model,
    released_model,
    released_models,
)
from relpe.models.decoder import Decoder
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from tokenization.score import Score

if TYPE_CHECKING:
    from app.compose.fill.passage import Passage

_LOG = logging.getLogger(__name__)
DEFAULT = "piano"
"""The released model that generates music without a prompt."""
_PIANOS = range(8)
PLAIN = MusicOptions()
"""Nothing is asked for."""

AskedFor: TypeAlias = str | Path | Sequence[str | Path] | None
"""A model by name or folder, several of them, or the released ones (None)."""
LOADING_SECONDS = 1.5
"""Time until `preparing` first yields; usually enough to load code compiled earlier."""
PREPARING_SECONDS = 0.2
"""Interval at which `preparing` yields after that."""
PREPARING_NOTICE = "compiling the model, which takes half a minute the first time"
"""What the command line prints while `preparing` yields."""
_PREPARING = threading.Lock()
_PREPARED: WeakKeyDictionary[Decoder, Future[None]] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """Device, backend and precision. Tokens may differ between backends and precisions."""

    device: str = "auto"
    """auto, cpu or cuda."""
    backend: Backend = "auto"
    """auto uses compiled steps if they support the model and the machine, otherwise torch."""
    precision: Precision = "int8"
    """Precision of the weights in compiled steps."""


@dataclass(frozen=True)
class MusicModel:
    """A loaded model with its tokenizer."""

    name: str
    decoder: Decoder
    tokenizer: Remi
    device: torch.device
    steps: StepsMaker
    """Makes the steps, which compute the logits of one token after another."""
    sha256: str = ""
    """Hash of its files: the output of `sha256sum model.json WEIGHTS | sha256sum` in its folder."""
    compute: ComputeOptions = ComputeOptions()

    @property
    def backend(self) -> str:
        """Backend, precision and processor, as in the output of --json."""
        return self.steps.name

    def with_decoder(self, decoder: Decoder) -> MusicModel:
        """Return this model with other weights, computed in the same way."""
        steps = choose_steps(
            decoder, self.compute.backend, self.compute.precision, threads=threads()
        )
        return replace(self, decoder=decoder, steps=steps)

    def preparing(self) -> Iterator[None]:
        """Compile the steps if necessary, and yield at intervals until they are ready."""
        use_threads()
        with _PREPARING:
            work = _PREPARED.get(self.decoder)
            if work is None or (work.done() and work.exception() is not None):
                work = _PREPARED[self.decoder] = Future()
                threading.Thread(target=_prepare, args=(self, work), daemon=True).start()
        seconds = LOADING_SECONDS
        while wait([work], seconds).not_done:
            yield
            seconds = PREPARING_SECONDS
        work.result()

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(weights.numel() for weights in self.decoder.parameters())


def _prepare(model: MusicModel, work: Future[None]) -> None:
    try:
        model.steps.warm_up()
    except BaseException as error:  # noqa: BLE001 - raised in `preparing`
        work.set_exception(error)
    else:
        work.set_result(None)


def threads() -> int:
    """Return the number of threads: OMP_NUM_THREADS, or the cores of this process."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def load_music_model(
    name_or_folder: str | Path = "piano", compute: ComputeOptions | None = None
) -> MusicModel:
    """Load a released model by name, or any model by its folder.

    Raises CheckpointError or TokenizerError if the files cannot be used.
    """
    compute = compute or ComputeOptions()
    folder, device = find_checkpoint(name_or_folder), compute.device
    if device == "cuda" and not torch.cuda.is_available():
        raise CheckpointError("found no CUDA device for --device cuda; use auto or cpu")
    decoder = load_model(folder, "cpu")
    if device == "auto":
        # compiled steps are faster than a GPU except for many rows
        compiled = compute.backend != "torch" and why_not_compiled(decoder) is None
        device = "cuda" if torch.cuda.is_available() and not compiled else "cpu"
    decoder = decoder.to(device)
    try:
        steps = choose_steps(decoder, compute.backend, compute.precision, threads=threads())
    except ValueError as error:
        raise CheckpointError(f"{folder.name} with --backend compiled: {error}") from error
    if steps.fell_back is not None:
        _LOG.warning("%s generates with PyTorch, which is slower: %s", folder.name, steps.fell_back)
    tokenizer = load_tokenizer(folder)
    return MusicModel(
        folder.name, decoder, tokenizer, torch.device(device), steps, files_sha256(folder), compute
    )


def find_model(name: str, sha256: str = "") -> Path:
    """Return the folder of the model of a piece, from its name and the hash of its files, if known.

    It is a folder of this name in the current folder, or a released model.

    Raises CheckpointError if there is none of this name, or none with these files.
    """
    folder = find_checkpoint(name)
    for place in (folder, released_model(name)):
        if place is not None and sha256 in ("", files_sha256(place)):
            return place
    raise CheckpointError(f"the piece was generated with other weights than those in {folder}")


def files_sha256(folder: Path) -> str:
    """See `MusicModel.sha256`."""
    names = ["model.json", *json.loads((folder / "model.json").read_text("utf-8"))["weights"]]
    hashes = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names)
    lines = (f"{of_file}  {name}\n" for of_file, name in zip(hashes, names, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Models:
    """The released models, or chosen ones; each is loaded when it is first used.

    A model chosen by its folder has the name of the folder. Raises CheckpointError if a model does
    not exist, or if two models have the same name.
    """

    def __init__(self, asked_for: AskedFor = None, compute: ComputeOptions | None = None) -> None:
        self._places: dict[str, str | Path] = {}
        if asked_for is None:
            self._places = {folder.name: folder for folder in released()}
        else:
            several = [asked_for] if isinstance(asked_for, str | Path) else asked_for
            for folder in (find_checkpoint(one).resolve() for one in several):
                other = self._places.setdefault(folder.name, folder)
                if other != folder:
                    raise CheckpointError(
                        f"{other} and {folder} have the same name, expected a different one for "
                        "each model; rename a folder"
                    )
        self.names = tuple(self._places)
        self.compute = compute
        self._loaded: dict[str, MusicModel] = {}
        self._tokenizers: dict[str, Remi] = {}
        self._loading = threading.Lock()

    @classmethod
    def only(cls, model: MusicModel) -> Models:
        """Return a single model that is already loaded."""
        models = cls(())
        models.names = (model.name,)
        models._loaded = {model.name: model}
        return models

    def load(self, name: str) -> MusicModel:
        """Load one of `names`. Raises CheckpointError or TokenizerError if it cannot be used."""
        with self._loading:
            if name not in self._loaded:
                self._loaded[name] = load_music_model(self._places[name], self.compute)
        return self._loaded[name]

    def folder(self, name: str) -> Path | None:
        """Return the folder of one of `names`; None: the model was not loaded from a folder."""
        try:
            return find_checkpoint(self._places[name])
        except (CheckpointError, KeyError):
            return None

    def tokenizer(self, name: str) -> Remi:
        """Return the tokenizer of one of `names`, without loading its weights.

        Raise the errors of `load`.
        """
        if name in self._loaded:
            return self._loaded[name].tokenizer
        if name not in self._tokenizers:
            self._tokenizers[name] = load_tokenizer(find_checkpoint(self._places[name]))
        return self._tokenizers[name]

    def to_generate(self, options: MusicOptions = PLAIN) -> MusicModel:
        """Return the automatic choice for music without a prompt: see `suited`."""
        return self.load(self.suited(music_like(options.band), options.style or ""))

    def to_continue(self, score: Score, style: str = "") -> MusicModel:
        """Return the automatic choice for a prompt: see `suited`."""
        return self.load(self.suited(score, style))

    def suited(self, score: Score | None, style: str = "") -> str:
        """Return the name of the automatic choice for a prompt, or for music without one.

        The usual one for such music, unless it lacks the style that is asked and another one has
        it. Music of several instruments needs a model that distinguishes them. For a style that no
        model has, it is one with styles, whose error lists them.
        """
        usual = self._usual(score)
        if not lacks_style(style, self.tokenizer(usual)):
            return usual

        def rank(name: str) -> tuple[bool, bool]:
            tokenizer = self.tokenizer(name)
            return lacks_style(style, tokenizer), not styles_of(tokenizer)

        return min([usual, *self._playing(score)], key=rank)

    def with_style(self, score: Score | None, style: str) -> list[str]:
        """Return the names of the models for a prompt, or for none, that have a style."""
        names = self._playing(score)
        return [name for name in names if not lacks_style(style, self.tokenizer(name))]

    def _playing(self, score: Score | None) -> list[str]:
        """Return the names of models for a prompt's instruments, those like the usual one first."""
        several = self._plays_several(self._usual(score))
        is_band = score is not None and suited_to(score) == "groove"
        names = [name for name in self.names if self._plays_several(name) or not is_band]
        return sorted(names, key=lambda name: self._plays_several(name) != several)

    def _usual(self, score: Score | None) -> str:
        """Return the model of `suited_to`, or else the first for such music."""
        if score is None:
            return self.names[0]
        usual = suited_to(score)
        if usual in self.names:
            return usual
        able = [name for name in self.names if self._plays_several(name) == (usual == "groove")]
        return (able or self.names)[0]

    def _plays_several(self, name: str) -> bool:
        """Return whether a model distinguishes instruments."""
        return self.tokenizer(name).families.only_track < 0

    def to_fill(self, score: Score, passage: Passage, style: str = "") -> MusicModel:
        """Return the automatic choice for a part of a piece.

        Single tracks and new ones need a model of several instruments. Then it is one that has the
        style, if possible one for the instruments of the piece.
        """
        is_part = passage.tracks is not None and len(passage.tracks) < len(score.tracks)
        must = is_part or passage.instrument is not None
        several = must or suited_to(score) == "groove"

        def rank(name: str) -> tuple[bool, bool, bool]:
            plays, lacks = self._plays_several(name), lacks_style(style, self.tokenizer(name))
            return must and not plays, lacks, plays != several

        return self.load(min(self.names, key=rank))


def released() -> list[Path]:
    """Return the folders of the released models, the default one first."""
    names = sorted(released_models(), key=lambda name: name != DEFAULT)
    return [folder for name in names if (folder := released_model(name)) is not None]


def suited_to(score: Score) -> str:
    """Return the released model: `groove` for drums or several instruments, else `piano`."""
    playing = [track for track in score.tracks if len(track)]
    programs = {track.program for track in playing if not track.is_drum}
    several = len(programs) > 1 and not programs.issubset(_PIANOS)
    return "groove" if several or any(track.is_drum for track in playing) else "piano"
