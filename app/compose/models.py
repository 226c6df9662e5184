"""The models that make music: the released ones, or the one that was asked for."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

import torch

from relpe.decoding.steps import Backend, Precision, StepsMaker, choose_steps, why_not_compiled
from relpe.models.checkpoint import CheckpointError, find_checkpoint, load_model, released_models
from relpe.models.decoder import Decoder
from tokenization.presets import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenization.score import Score
    from tokenization.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)
DEFAULT = "piano"
"""The released model that makes music without a prompt."""
_PIANOS = range(8)

AskedFor: TypeAlias = str | Path | Sequence[str | Path] | None
"""A model by name or folder, several of them, or the released ones."""
LOADING_SECONDS = 1.5
"""What was compiled before is mostly there by then, and nobody has to be told."""
PREPARING_SECONDS = 0.2
PREPARING_TOLD = "getting the compiled code ready, which takes half a minute the first time"
"""What a command says meanwhile: true where it is only read as well."""
_PREPARING = threading.Lock()
_PREPARED: WeakKeyDictionary[Decoder, Future[None]] = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """What computes the music. Tokens may differ between backends and precisions."""

    device: str = "auto"
    """auto, cpu or cuda."""
    backend: Backend = "auto"
    """Compiled steps where they can be, or torch."""
    precision: Precision = "int8"
    """Of the weights of compiled steps."""


@dataclass(frozen=True)
class MusicModel:
    """A model ready to make music."""

    name: str
    decoder: Decoder
    tokenizer: Tokenizer
    device: torch.device
    steps: StepsMaker
    """What writes its tokens one by one."""
    sha256: str = ""
    """Of its files: what `sha256sum model.json WEIGHTS | sha256sum` says in its folder."""

    @property
    def backend(self) -> str:
        """What computes, as --json says it."""
        return self.steps.name

    def preparing(self) -> Iterator[None]:
        """Makes ready to write, giving way every now and then; as long as it takes.

        Nothing where it is ready; else what is compiled once for each machine.
        """
        with _PREPARING:
            work = _PREPARED.get(self.decoder)
            if work is None or (work.done() and work.exception() is not None):
                work = _PREPARED[self.decoder] = Future()
                threading.Thread(target=_prepare, args=(self, work), daemon=True).start()
        seconds = LOADING_SECONDS
        while not work.done():
            with suppress(TimeoutError):
                work.result(seconds)
            if not work.done():
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
    except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
        work.set_exception(error)
    else:
        work.set_result(None)


def threads() -> int:
    """Cores that this process may use, unless OMP_NUM_THREADS says otherwise."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def load_music_model(
    name_or_folder: str | Path = "piano", compute: ComputeOptions | None = None
) -> MusicModel:
    """A released model by name, or any by its folder, with its tokenizer.

    Raises CheckpointError or TokenizerError where the files cannot be used.
    """
    compute = compute or ComputeOptions()
    folder, device = find_checkpoint(name_or_folder), compute.device
    if device == "cuda" and not torch.cuda.is_available():
        raise CheckpointError(
            "found no CUDA device, expected one for --device cuda; use auto or cpu"
        )
    decoder = load_model(folder, "cpu")
    if device == "auto":
        # one row is as fast by compiled steps as on a GPU, for which many are needed
        compiled = compute.backend != "torch" and why_not_compiled(decoder) is None
        device = "cuda" if torch.cuda.is_available() and not compiled else "cpu"
    decoder = decoder.to(device)
    try:
        steps = choose_steps(decoder, compute.backend, compute.precision, threads=threads())
    except ValueError as error:
        raise CheckpointError(f"{folder.name} with --backend compiled: {error}") from error
    if steps.fell_back is not None:
        _LOG.warning("%s is computed by torch: %s", folder.name, steps.fell_back)
    tokenizer = load_tokenizer(folder)
    return MusicModel(
        folder.name, decoder, tokenizer, torch.device(device), steps, _files_sha256(folder)
    )


def _files_sha256(folder: Path) -> str:
    """As `MusicModel.sha256`, of a model that could be loaded."""
    names = ["model.json", *json.loads((folder / "model.json").read_text("utf-8"))["weights"]]
    hashes = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names)
    lines = (f"{of_file}  {name}\n" for of_file, name in zip(hashes, names, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Models:
    """The released models, or those that were asked for; each is loaded when it is first needed.

    One that is asked for by its folder is known by the folder's name. Raises CheckpointError where
    there is no such model, or two have one name.
    """

    def __init__(self, asked_for: AskedFor = None, compute: ComputeOptions | None = None) -> None:
        self._places: dict[str, str | Path] = {}
        if asked_for is None:
            names = [DEFAULT, *(name for name in released_models() if name != DEFAULT)]
            self._places = {name: name for name in names}
        else:
            several = [asked_for] if isinstance(asked_for, str | Path) else asked_for
            for folder in (find_checkpoint(one).resolve() for one in several):
                other = self._places.setdefault(folder.name, folder)
                if other != folder:
                    raise CheckpointError(
                        f"{other} and {folder} have one name, expected another for each model; "
                        "rename a folder"
                    )
        self.names = tuple(self._places)
        self._compute = compute
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
                self._loaded[name] = load_music_model(self._places[name], self._compute)
        return self._loaded[name]

    def folder(self, name: str) -> Path | None:
        """Where the files of one of `names` lie; None for one that was never on disk."""
        try:
            return find_checkpoint(self._places[name])
        except (CheckpointError, KeyError):
            return None

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
