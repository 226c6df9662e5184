"""Small training runs: experiments, interruptions, and the files of a run."""

from __future__ import annotations

import csv
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Tempo, TimeSignature, Track
from training.cli import main
from training.data.corpus import Corpus
from training.data.documents import Documents
from training.experiment import ExperimentConfig, build_experiment
from training.runs.fit import Result, fit


def piece(seed: int, bars: int = 12) -> Score:
    """Notes drawn at random between C3 and C5, a change of metre and two of tempo."""
    draw = np.random.default_rng(seed)
    onsets = np.sort(draw.integers(0, bars * 4 * 12, bars * 8)) * 40
    notes = np.stack(
        [
            onsets,
            draw.integers(1, 13, len(onsets)) * 40,
            draw.integers(48, 73, len(onsets)),
            draw.integers(40, 100, len(onsets)),
        ],
        1,
    )
    return Score(
        480,
        (Track(notes),),
        (Tempo(0, 100), Tempo(3 * 1920, 90), Tempo(5 * 1920 + 960, 120)),
        (TimeSignature(0, 4, 4), TimeSignature(4 * 1920, 3, 4)),
    )


def band(seed: int, bars: int = 12) -> Score:
    """Piano, bass and drums."""
    score = piece(seed, bars)
    notes = score.tracks[0].notes
    bass = notes[::3] - [0, 0, 20, 0]
    drums = notes[::2].copy()
    drums[:, 2] = 36 + drums[:, 2] % 8
    parts = [replace(score.tracks[0], notes=bass, program=33)]
    parts.append(replace(score.tracks[0], notes=drums, is_drum=True, channel=9))
    return replace(score, tracks=(*score.tracks, *parts))


def changed(experiment, **sections):
    """Plain values of an experiment, with some settings replaced."""
    merged = {key: dict(value) for key, value in experiment.items()}
    for section, values in sections.items():
        merged[section] |= values
    return merged


def with_model(experiment, **settings):
    """Plain values of an experiment, with some settings of its model replaced."""
    return changed(experiment, task={"model": experiment["task"]["model"] | settings})


SHORT: dict[str, Any] = {
    **{"token_budget": 1, "threads": 1, "device": "cpu", "precision": "32"},
    **{"validate_every": 2, "samples": 0, "loggers": []},
}
"""Settings of the trainer of a short run."""


def short_experiment(task: dict[str, Any], steps: int = 4, **trainer: Any) -> ExperimentConfig:
    """An experiment of a task with as many tokens as some steps need."""
    plain = {"task": task, "trainer": SHORT | trainer}
    tokens = steps * build_experiment(plain).task.tokens_per_step
    return build_experiment(changed(plain, trainer={"token_budget": tokens}))


def fit_words(folder: Path, task: dict[str, Any], **trainer: Any) -> list[str]:
    """Write the configuration of a short run; return the command that trains it."""
    config, optimizer = folder / "config.yaml", {"learning_rate": 1e-2, "warmup_steps": 5}
    plain = {"task": task, "optimizer": optimizer, "trainer": SHORT | trainer}
    config.write_text(json.dumps(plain))
    return ["fit", "--config", str(config), "--run", str(folder / "run")]


def evaluated(folder: Path, task: dict[str, Any], **trainer: Any) -> dict[str, Any]:
    """Train and evaluate a task by the commands; return the results of the run."""
    assert main(fit_words(folder, task, **trainer)) == 0
    assert main(["evaluate", "--run", str(folder / "run"), "--threads", "1"]) == 0
    return json.loads((folder / "run" / "evaluation" / "results.json").read_text())


def assert_resumes(config: ExperimentConfig, folder: Path, examples: type = Documents) -> Result:
    """Assert that the run `parts` of a folder, in two parts, equals `whole`, without a break.

    Returns the result of `whole`.
    """
    result = fit(config, folder / "whole", show=False)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 3, examples)
        assert fit(config, folder / "parts", show=False).step == 3
    assert fit(config, folder / "parts", show=False).step == result.step > 3
    assert_same_weights(checkpoint(folder / "whole"), checkpoint(folder / "parts"))
    return result


def stop_at(patch: pytest.MonkeyPatch, step, examples: type = Documents):
    """Send SIGTERM while the batch of a step is drawn, from a class of examples."""
    draw = examples.__getitem__

    def drawn(self, index):
        if index == step - 1:  # steps end with their number
            os.kill(os.getpid(), signal.SIGTERM)
        return draw(self, index)

    patch.setattr(examples, "__getitem__", drawn)


def checkpoint(folder, name="last"):
    return torch.load(folder / f"{name}.ckpt", map_location="cpu", weights_only=True)


def assert_same_weights(first, second):
    """Assert that weights and averages of two checkpoints are equal, bit for bit."""
    assert first["global_step"] == second["global_step"]
    assert first["state_dict"].keys() == second["state_dict"].keys()
    for name, tensor in first["state_dict"].items():
        assert torch.equal(tensor, second["state_dict"][name]), name
    for mean, other in zip(first["average"]["mean"], second["average"]["mean"], strict=True):
        assert torch.equal(mean, other)


def metrics(folder, column=None):
    """Rows of metrics.csv; those with a value in `column`."""
    rows = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    return [row for row in rows if column is None or row[column]]


def steps_with(folder, column):
    """Steps whose rows of metrics.csv have a value in a column."""
    return [row["step"] for row in metrics(folder, column)]


def documents(data: Path, **changes: Any) -> Documents:
    """Examples of 64 tokens of a corpus for piano."""
    settings: dict[str, Any] = {"length": 64, "batch_size": 4, "seed": 1} | changes
    return Documents(corpus=Corpus.load(data, "train"), tokenizer=PianoRemi(), **settings)
