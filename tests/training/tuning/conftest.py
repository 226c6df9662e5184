"""MIDI files, a tiny model, and a clock that does not depend on the machine."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from relpe.models.checkpoint import save_model
from relpe.models.decoder import DecoderConfig
from tests.support.runs import piece
from tokenization.midi import write_midi
from tokenization.presets import PRESETS
from training.tuning import tune
from training.tuning.fit_pointer import FitPointerOptions, fit_pointer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def fitted_run(finished: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished run with a fitted pointer, whose pointer tests do not change."""
    folder = shutil.copytree(finished, tmp_path_factory.mktemp("fitted") / "run")
    fit_pointer(FitPointerOptions(model=str(folder), data=data, device="cpu"))
    return folder


@pytest.fixture(scope="session")
def songs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six MIDI files."""
    folder = tmp_path_factory.mktemp("songs")
    for number in range(6):
        (folder / f"{number}.mid").write_bytes(write_midi(piece(number, 6 + 2 * number)))
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a released model without training."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = PRESETS["piano-2"].build()
    size = len(tokenizer.vocabulary)
    config = DecoderConfig(vocabulary_size=size, width=16, num_layers=1, num_heads=2, hidden=16)
    save_model(config.build(), folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by a second whenever it is read."""

    class Clock(tune._Clock):
        def __init__(self, minutes: float, kind: Any) -> None:
            super().__init__(minutes, kind)
            seconds = itertools.count()
            self.now = lambda: float(next(seconds))
            self._began, self._end = 0.0, 60 * minutes

    monkeypatch.setattr(tune, "_Clock", Clock)
