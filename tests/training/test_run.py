from __future__ import annotations

import csv
import os
import signal
from pathlib import Path

import pytest
import torch

import training
from training.config import read_yaml
from training.corpus import Crops
from training.errors import TrainingError
from training.run import build_experiment, choose_precision, fit

CONFIGS = sorted((Path(training.__file__).parent / "configs").rglob("*.yaml"))


def weights(folder):
    return torch.load(folder / "last.ckpt", weights_only=True)


def changed(experiment, **sections):
    merged = {key: dict(value) for key, value in experiment.items()}
    for section, values in sections.items():
        merged[section] |= values
    return merged


@pytest.fixture
def stop_at(monkeypatch):
    """Make a run end by SIGTERM while it draws the batch of a step."""

    def install(step):
        draw = Crops.__getitem__

        def drawn(self, index):
            if index == step:
                os.kill(os.getpid(), signal.SIGTERM)
            return draw(self, index)

        monkeypatch.setattr(Crops, "__getitem__", drawn)

    return install


@pytest.mark.parametrize(("ema_decay", "step"), [(None, 4), (0.5, 2)])
def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(
    experiment, tmp_path, stop_at, monkeypatch, ema_decay, step
):
    config = build_experiment(changed(experiment, trainer={"ema_decay": ema_decay}))
    assert fit(config, tmp_path / "whole", show=False).finished
    with monkeypatch.context():
        stop_at(step)
        result = fit(config, tmp_path / "parts", show=False)
        assert not result.finished
        assert 0 < result.step < 6
    monkeypatch.undo()
    assert fit(config, tmp_path / "parts", show=False).step == 6
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert whole["global_step"] == parts["global_step"] == 6
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(tensor, parts["state_dict"][name]), name
    for first, second in zip(whole["average"]["mean"], parts["average"]["mean"], strict=True):
        assert torch.equal(first, second)
    assert bool(whole["average"]["mean"]) == (ema_decay is not None)


def test_a_run_folder_holds_what_is_needed_to_understand_it(experiment, tmp_path):
    result = fit(build_experiment(experiment), tmp_path, show=False)
    assert result.validation is not None
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {
        "config.yaml",
        "run.json",
        "metrics.csv",
        "last.ckpt",
        "best.ckpt",
        "tokenizer.json",
    }
    assert not [name for name in names if name.endswith(".partial")]
    assert list((tmp_path / "tensorboard").glob("events*"))
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert [row["step"] for row in rows if row["train/nats_per_token"]] == ["2", "4", "6"]
    assert [row["step"] for row in rows if row["validation/nats_per_token"]] == ["4", "6"]


def test_a_run_whose_budget_is_spent_is_left_alone(experiment, tmp_path):
    config = build_experiment(experiment)
    fit(config, tmp_path, show=False)
    before = (tmp_path / "last.ckpt").read_bytes()
    assert fit(config, tmp_path, show=False).finished
    assert (tmp_path / "last.ckpt").read_bytes() == before


def test_a_run_goes_on_only_with_its_model_and_data(experiment, tmp_path):
    fit(build_experiment(experiment), tmp_path, show=False)
    longer = {"token_budget": 12 * 64}
    other = changed(experiment, trainer=longer, task={"length": 16})
    with pytest.raises(TrainingError, match=r"another task\.length"):
        fit(build_experiment(other), tmp_path, show=False)
    assert (
        fit(build_experiment(changed(experiment, trainer=longer)), tmp_path, show=False).step == 12
    )
    assert fit(build_experiment(other), tmp_path, fresh=True, show=False).step == 24


def test_a_run_can_start_from_the_weights_of_another(experiment, tmp_path):
    fit(build_experiment(experiment), tmp_path / "first", show=False)
    still = changed(experiment, optimizer={"learning_rate": 0.0}, trainer={"seed": 5})
    fit(build_experiment(still), tmp_path / "second", init_from=tmp_path / "first", show=False)
    first = torch.load(tmp_path / "first" / "best.ckpt", weights_only=True)["state_dict"]
    for name, tensor in weights(tmp_path / "second")["state_dict"].items():
        assert torch.equal(tensor, first[name]), name


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_two_steps_of_every_config(path, data, tmp_path):
    overrides = [
        f"task.data={data}",
        "task.length=24",
        "task.batch_size=2",
        "task.validation_windows=2",
        "task.model.width=16",
        "task.model.num_layers=2",
        "task.model.num_heads=2",
        "task.model.hidden=16",
        "trainer.token_budget=96",
        "trainer.device=cpu",
        "trainer.precision=32",
        "trainer.threads=1",
    ]
    result = fit(build_experiment(read_yaml(path, overrides)), tmp_path, show=False)
    assert result.step == 2
    assert result.validation is not None
    assert result.validation < 7


def test_auto_precision_is_one_of_the_two(experiment):
    settings = build_experiment(changed(experiment, trainer={"precision": "auto"})).trainer
    assert choose_precision(settings, "cpu") in {"32-true", "bf16-mixed"}
