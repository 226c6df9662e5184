"""A small corpus, prepared once, and an experiment with a tiny model."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from relpe.decoding.base import StepsMaker
from relpe.decoding.eager import PlainSteps
from tests.support.runs import piece
from tokenization.midi import write_midi
from tokenization.remi.remi import PianoRemi
from training import continuations
from training.data.prepare import prepare
from training.data.shards import PIECE
from training.experiment import build_experiment
from training.runs.fit import fit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from relpe.models.decoder import Decoder

TINY_MODEL: dict[str, Any] = {
    "vocabulary_size": 1246,
    "width": 16,
    "num_layers": 1,
    "num_heads": 2,
    "hidden": 16,
    "encoding": {"kind": "sine_spe", "num_sines": 2, "num_realizations": 4},
}


@pytest.fixture(scope="session")
def midi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("midi")
    (folder / "songs").mkdir()
    for number in range(8):
        (folder / "songs" / f"{number}.mid").write_bytes(write_midi(piece(number, 6 + 2 * number)))
    (folder / "songs" / "broken.mid").write_bytes(b"no MIDI")
    splits = {"train": ["0", "1", "2", "3", "7", "broken"], "validation": ["4"], "test": ["5", "6"]}
    (folder / "splits.json").write_text(json.dumps(splits))
    return folder


@pytest.fixture(scope="session")
def data(midi_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("prepared") / "data"
    prepare(midi_folder, output, PianoRemi())
    return output


@pytest.fixture
def emptied(data: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies the corpus with an empty split."""

    def copy(split: str) -> Path:
        folder = tmp_path / f"without_{split}"
        shutil.copytree(data, folder)
        for name in ("offsets", "bar_offsets"):
            np.save(folder / split / f"{name}.npy", np.zeros(1, np.int64))
        np.save(folder / split / "bars.npy", np.zeros(0, np.int64))
        np.save(folder / split / "pieces.npy", np.zeros(0, PIECE))
        (folder / split / "tokens.uint16").write_bytes(b"")
        facts = json.loads((folder / "data.json").read_text())
        facts["splits"][split]["files"] = 0
        (folder / "data.json").write_text(json.dumps(facts))
        return folder

    return copy


def small_experiment(data: Path) -> dict[str, Any]:
    return {
        "task": {
            "kind": "music",
            "data": str(data),
            "length": 32,
            "batch_size": 2,
            "validation_windows": 4,
            "model": TINY_MODEL,
        },
        "optimizer": {"learning_rate": 1e-2, "warmup_steps": 2},
        "trainer": {
            "token_budget": 6 * 64,
            "device": "cpu",
            "precision": "32",
            "validate_every": 4,
            "checkpoint_every": 3,
            "log_every": 2,
            "samples": 0,
        },
    }


@pytest.fixture
def experiment(data: Path) -> dict[str, Any]:
    """Plain values of a short experiment of six steps."""
    return small_experiment(data)


@pytest.fixture(scope="session")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `experiment`, which tests read; those that change it take `run`."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    fit(build_experiment(small_experiment(data)), folder, show=False)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def quick_continuations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes continuations fast, with uncompiled steps and short bars."""

    def plain(decoder: Decoder, *_: object, **__: object) -> StepsMaker:
        return StepsMaker("plain", lambda: PlainSteps(decoder))

    monkeypatch.setattr(continuations, "choose_steps", plain)
    monkeypatch.setattr(continuations, "MAX_BAR_TOKENS", 8)
