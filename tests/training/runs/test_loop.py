from __future__ import annotations

import logging
import re
from types import SimpleNamespace

import pytest
import torch

from tests.support.runs import (
    assert_same_weights,
    changed,
    checkpoint,
    metrics,
    steps_with,
    stop_at,
)
from training.data.documents import Documents
from training.experiment import build_experiment
from training.runs import progress
from training.runs.device import memory_in_use
from training.runs.fit import fit
from training.runs.loop import Loop
from training.tasks.music import MusicModule


def validated(folder):
    return steps_with(folder, "validation/nats_per_token")


def with_trainer(experiment, **trainer):
    return build_experiment(changed(experiment, trainer=trainer))


@pytest.fixture
def _validations_get_worse(monkeypatch):
    """The first validation is the best one."""
    monkeypatch.setattr(
        MusicModule, "results", lambda self, *_: {"validation/nats_per_token": float(self.step)}
    )


def end_in_validation(patch, step):
    """An error in the validation of a step."""
    measure = MusicModule.measure

    def broken(self, batch):
        if self.step == step:
            raise RuntimeError("the machine is off")
        return measure(self, batch)

    patch.setattr(MusicModule, "measure", broken)


@pytest.mark.usefixtures("_validations_get_worse")
def test_a_missed_validation_is_done_when_the_run_resumes(experiment, tmp_path, monkeypatch):
    config = with_trainer(experiment, checkpoint_every=2, ema_decay=0.5)
    whole = tmp_path / "whole"
    fit(config, whole, show=False)
    for end, step in ((stop_at, 4), (end_in_validation, 4), (end_in_validation, 6)):
        parts = tmp_path / f"{end.__name__}_{step}"
        with monkeypatch.context() as patch:
            end(patch, step)
            if end is stop_at:
                assert fit(config, parts, show=False).step == step
            else:
                with pytest.raises(RuntimeError, match="off"):
                    fit(config, parts, show=False)
        result = fit(config, parts, show=False)
        assert (result.step, result.stopped_by, result.validation) == (6, None, 6.0)
        assert validated(parts) == validated(whole) == ["4", "6"]
        for name in ("best", "last"):
            first, second = (checkpoint(run, name) for run in (whole, parts))
            assert first["callbacks"] == second["callbacks"]
            assert_same_weights(first, second)


def test_without_validation_pieces_the_best_weights_are_the_last(
    experiment, emptied, tmp_path, monkeypatch, caplog
):
    experiment["task"] |= {"data": str(emptied("validation"))}
    config = build_experiment(experiment)
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, 4)
        with caplog.at_level(logging.WARNING):
            assert fit(config, run, show=False).step == 4
    assert "'validation' is empty" in caplog.text
    result = fit(config, run, show=False)
    assert (result.step, result.stopped_by, result.validation) == (6, None, None)
    assert checkpoint(run)["global_step"] == 6
    assert_same_weights(checkpoint(run), checkpoint(run, "best"))


def test_speed_memory_and_time_left_are_shown_and_logged(experiment, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * 2**30)
    with caplog.at_level(logging.INFO):
        fit(build_experiment(experiment), tmp_path)
    [line] = [m for m in caplog.messages if "tokens/s" in m]
    assert re.search(r"step 2, loss \d\.\d+, [\d,]+ tokens/s, 0:\d\d:\d\d left, \d+\.\d GiB$", line)
    found = metrics(tmp_path)
    assert all(
        0.05 < float(row["memory_gib"]) < 1000 for row in found if row["train/nats_per_token"]
    )
    assert not any(row["gpu_memory_gib"] for row in found)
    assert memory_in_use(torch.device("cuda"))["gpu_memory_gib"] == 3.0


def test_speed_includes_the_loading_of_data_but_no_validation(experiment, tmp_path, monkeypatch):
    draw, measure = Documents.__getitem__, MusicModule.measure
    clock = SimpleNamespace(now=0.0)

    def slow_draw(self, index):
        clock.now += 1
        return draw(self, index)

    def slow_validation(self, batch):
        clock.now += 100
        return measure(self, batch)

    monkeypatch.setattr(Documents, "__getitem__", slow_draw)
    monkeypatch.setattr(MusicModule, "measure", slow_validation)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    config = with_trainer(experiment, log_every=6, validate_every=3, checkpoint_every=100)
    fit(config, tmp_path, show=False)
    [row] = metrics(tmp_path, "train/nats_per_token")
    # the first step of a segment, and that after a validation, do not include loading
    assert 4 <= 6 * 64 / float(row["tokens_per_second"]) <= 6


def test_checkpoints_are_written_every_few_minutes_too(experiment, tmp_path, monkeypatch):
    """A kill -9 loses minutes at most, however slow the steps are."""
    written = []
    save = Loop._save

    def count(self, *names):
        written.append(self.module.step)
        save(self, *names)

    monkeypatch.setattr(Loop, "_save", count)
    rare = {"checkpoint_every": 100, "validate_every": 100}
    for minutes, steps in ((10.0, [6]), (1e-9, [1, 2, 3, 4, 5, 6])):
        written.clear()
        config = with_trainer(experiment, **rare, checkpoint_minutes=minutes)
        fit(config, tmp_path / str(minutes), show=False)
        assert sorted({*written}) == steps
