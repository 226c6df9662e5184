from __future__ import annotations

import csv
import logging
import os
import signal
import warnings

import pytest
import torch

from training.callbacks import COLUMNS, CsvLog
from training.corpus import Crops
from training.experiment import build_experiment
from training.run import fit
from training.tasks.music import MusicModule


def rows(folder):
    return list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))


def validated(folder):
    return [row["step"] for row in rows(folder) if row["validation/nats_per_token"]]


def changed(experiment, **trainer):
    return build_experiment(experiment | {"trainer": experiment["trainer"] | trainer})


@pytest.fixture
def _validations_get_worse(monkeypatch):
    """The first validation is the best one."""
    measured = MusicModule.on_validation_epoch_end

    def worse(self):
        measured(self)
        self.validation = {"validation/nats_per_token": float(self.global_step)}

    monkeypatch.setattr(MusicModule, "on_validation_epoch_end", worse)


def end_by_signal(patch, step):
    """SIGTERM during a step: while it draws the batch of the next one."""
    draw = Crops.__getitem__

    def drawn(self, index):
        if index == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return draw(self, index)

    patch.setattr(Crops, "__getitem__", drawn)


def end_in_validation(patch, step):
    """An error in the validation of a step."""
    validate = MusicModule.validation_step

    def broken(self, batch, batch_idx):
        if self.global_step == step:
            raise RuntimeError("the machine is off")
        validate(self, batch, batch_idx)

    patch.setattr(MusicModule, "validation_step", broken)


@pytest.mark.usefixtures("_validations_get_worse")
@pytest.mark.parametrize("ema_decay", [None, 0.5])
@pytest.mark.parametrize("end", [end_by_signal, end_in_validation])
@pytest.mark.parametrize("step", [4, 6])
def test_a_validation_that_a_session_did_not_come_to_is_made_up_for(
    experiment, tmp_path, monkeypatch, end, step, ema_decay
):
    config = changed(experiment, checkpoint_every=2, ema_decay=ema_decay)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    fit(config, whole, show=False)
    with monkeypatch.context() as patch:
        end(patch, step)
        if end is end_by_signal:
            assert fit(config, parts, show=False).step == step
        else:
            with pytest.raises(RuntimeError, match="off"):
                fit(config, parts, show=False)
    result = fit(config, parts, show=False)
    assert (result.step, result.finished, result.validation) == (6, True, 6.0)
    assert validated(parts) == validated(whole) == ["4", "6"]
    for name in ("best.ckpt", "last.ckpt"):
        first, second = (torch.load(run / name, weights_only=True) for run in (whole, parts))
        assert first["global_step"] == second["global_step"]
        assert first["callbacks"] == second["callbacks"]
        for key, tensor in first["state_dict"].items():
            assert torch.equal(tensor, second["state_dict"][key]), (name, key)
        for mean, other in zip(first["average"]["mean"], second["average"]["mean"], strict=True):
            assert torch.equal(mean, other)


def test_rows_after_the_step_that_a_run_goes_on_from_are_dropped(tmp_path):
    path = tmp_path / "metrics.csv"
    rest = "," * (len(COLUMNS) - 5)
    lines = [
        ",".join(COLUMNS),
        "2,,1,3.5," + rest,
        "4,,2,3.4," + rest,
        "4,,2,,3.3" + rest,
        "6,,3,3.2," + rest,
        "8,,4",  # the machine went off in the middle of it
    ]
    path.write_text("\n".join(lines))
    CsvLog(path, 4).log_metrics({"train/nats_per_token": 3.1}, 6)
    assert path.read_text().splitlines() == [*lines[:4], "6,,,3.1," + rest]
    CsvLog(path, 4, is_due=True)
    assert path.read_text().splitlines() == lines[:3]
    CsvLog(path)
    assert path.read_text().splitlines() == lines[:1]


def test_a_run_that_breaks_leaves_no_row_twice(experiment, tmp_path, monkeypatch):
    config = changed(experiment, checkpoint_every=100, log_every=1, validate_every=3)
    draw = Crops.__getitem__

    def broken(self, index):
        if index == 5:
            raise RuntimeError("the machine is off")
        return draw(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(Crops, "__getitem__", broken)
        with pytest.raises(RuntimeError, match="off"):
            fit(config, tmp_path, show=False)
    fit(config, tmp_path, show=False)
    assert [r["step"] for r in rows(tmp_path) if r["train/nats_per_token"]] == list("123456")
    assert validated(tmp_path) == ["3", "6"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of protobuf, on import
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for name, steps in (("train/nats_per_token", range(1, 7)), ("seconds", None)):
        found = [event.step for event in events.Scalars(name)]
        assert found == sorted(found)
        assert steps is None or found == list(steps)


def test_without_pieces_to_validate_on_the_last_weights_stand_for_the_best(
    experiment, emptied, tmp_path, monkeypatch, caplog
):
    experiment["task"] |= {"data": str(emptied("validation"))}
    config = build_experiment(experiment)
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        end_by_signal(patch, 4)
        with caplog.at_level(logging.WARNING):
            assert fit(config, run, show=False).step == 4
    assert "'validation' holds no pieces" in caplog.text
    result = fit(config, run, show=False)
    assert (result.step, result.finished, result.validation) == (6, True, None)
    best, last = (torch.load(run / f"{name}.ckpt", weights_only=True) for name in ("best", "last"))
    assert best["global_step"] == last["global_step"] == 6
    for key, tensor in last["state_dict"].items():
        assert torch.equal(tensor, best["state_dict"][key]), key
