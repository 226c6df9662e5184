"""Fixtures: a model with random weights, and prompts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from app.compose.models import Models, MusicModel
from relpe.decoding.base import StepsMaker
from relpe.decoding.choose import choose_steps
from relpe.encodings import SineSPEConfig
from relpe.models.checkpoint import save_model
from relpe.models.decoder import DecoderConfig
from tests.support import fakes
from tests.support.bands import band, model_of
from tests.support.scores import two_hands
from tokenization.midi import write_midi
from tokenization.midi.chunks import MidiFile, open_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi

if TYPE_CHECKING:
    from pathlib import Path

    from app.server.studio import Studio
    from app.web.callbacks import Callbacks
    from tokenization.score import Score


@pytest.fixture(scope="session", autouse=True)
def _patient() -> None:
    """Gives files more time to be read, since machines are shared."""
    from app.server.uploads import READER

    READER.seconds = 600.0


@pytest.fixture(scope="session")
def small_model() -> MusicModel:
    torch.manual_seed(0)
    config = DecoderConfig(
        vocabulary_size=1246,
        width=16,
        num_layers=2,
        num_heads=2,
        hidden=24,
        encoding=SineSPEConfig(num_sines=2, num_realizations=8),
    )
    decoder = config.build().eval().requires_grad_(requires_grad=False)
    steps = choose_steps(decoder, "torch")
    return MusicModel("small", decoder, PianoRemi(), torch.device("cpu"), steps)


@pytest.fixture(scope="session")
def quick_model(small_model: MusicModel) -> MusicModel:
    """A model that is fast to run."""
    size = small_model.decoder.config.vocabulary_size
    steps = StepsMaker("quick", lambda: fakes.QuickSteps(size))
    return replace(small_model, steps=steps, sha256="abcd")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A folder of two prompts."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "first song.mid").write_bytes(write_midi(two_hands()))
    (folder / "waltz.MIDI").write_bytes(write_midi(two_hands(metre=(3, 4))))
    return folder


@pytest.fixture
def folder(tmp_path: Path, small_model: MusicModel) -> Path:
    """A folder that contains a prompt and a model."""
    save_model(small_model.decoder, tmp_path / "small")
    small_model.tokenizer.save(tmp_path / "small")
    (tmp_path / "prompt.mid").write_bytes(write_midi(two_hands()))
    return tmp_path


@pytest.fixture
def filling(folder: Path) -> Path:
    """A folder that also contains a piece of a band and a model for it."""
    tokenizer = MultitrackRemi()
    save_model(model_of(tokenizer).decoder, folder / "second")
    tokenizer.save(folder / "second")
    (folder / "piece.mid").write_bytes(write_midi(band(bars=5)))
    return folder


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """Number of times that each MIDI file has been parsed."""
    counts = Counter[bytes]()

    def counting(data: bytes, name: str) -> MidiFile:
        counts[data] += 1
        return open_midi(data, name)

    monkeypatch.setattr("tokenization.midi.reader.open_midi", counting)
    return counts


@pytest.fixture
def prompt_bytes() -> bytes:
    return write_midi(two_hands())


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> fakes.FakeModel:
    """A fast fake model; rendered audio is silent."""
    import numpy as np

    from app.audio import render as sound
    from app.audio import stems

    def silence(score: Score) -> sound.Audio:
        seconds = float(score.seconds_at(score.end_ticks))
        return sound.Audio(np.zeros((int(8000 * seconds), 2), np.float32), 8000, "builtin")

    monkeypatch.setattr(sound, "render", silence)
    monkeypatch.setattr(stems, "render", fakes.silent_stems)
    return fakes.install(monkeypatch, speed=5000.0)


@pytest.fixture
def studio(model: MusicModel, tmp_path: Path) -> Studio:
    from app.server.studio import Studio

    return Studio(Models.only(model), tmp_path / "out")


@pytest.fixture
def calls(studio: Studio) -> Callbacks:
    from app.web.callbacks import Callbacks  # loads Gradio

    return Callbacks(studio, 100_000)


@pytest.fixture
def midi(tmp_path: Path) -> Path:
    path = tmp_path / "My prompt.mid"
    path.write_bytes(fakes.example_midi(bars=4))
    return path
