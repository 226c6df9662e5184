from __future__ import annotations

import logging
import multiprocessing

import numpy as np
import pytest
import torch

from tests.support.runs import assert_same_weights, changed, checkpoint, with_model
from training.experiment import build_experiment
from training.runs import samples
from training.runs.fit import fit


def with_trainer(experiment, **trainer):
    return build_experiment(changed(experiment, trainer=trainer))


@pytest.fixture
def _quick_samples(monkeypatch, quick_continuations):
    monkeypatch.setattr(samples, "NEW_BARS", 2)


SIREN = {"kind": "siren", "network": {"depth": 2, "width": 4}, "window": {"width": 3.0}}


@pytest.mark.usefixtures("_quick_samples")
def test_samples_do_not_affect_training(experiment, tmp_path):
    # an encoding that caches values of its weights
    experiment = with_model(experiment, encoding=SIREN, attention={"kind": "windowed"})
    after = []
    for count in (0, 2):
        torch.manual_seed(3)
        config = with_trainer(experiment, samples=count, validate_every=2, ema_decay=0.5)
        fit(config, tmp_path / str(count), show=False)
        numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
        after.append((torch.get_rng_state(), numpy_state["state"]["key"]))
    assert torch.equal(after[0][0], after[1][0])
    np.testing.assert_array_equal(after[0][1], after[1][1])
    assert_same_weights(checkpoint(tmp_path / "0"), checkpoint(tmp_path / "2"))
    assert not (tmp_path / "0" / "samples").exists()
    folders = sorted((tmp_path / "2" / "samples").iterdir())
    assert [folder.name for folder in folders] == ["step_000002", "step_000004", "step_000006"]
    for folder in folders:  # the validation split has one piece
        assert sorted(path.name for path in folder.iterdir()) == ["0.mid", "0.png"]


@pytest.mark.usefixtures("_quick_samples")
def test_samples_continue_the_beginning_of_a_validation_piece(
    experiment, data, tmp_path, monkeypatch
):
    [(prompt, bars)] = samples.validation_prompts(data, 3)
    assert bars == samples.PROMPT_BARS
    written = []
    monkeypatch.setattr(samples, "write_sample", lambda ids, *rest: written.append((ids, rest)))
    for seconds in (30.0, 0.0):
        monkeypatch.setattr(samples, "SAMPLE_SECONDS", seconds)
        config = with_trainer(experiment, samples=1, validate_every=100)
        fit(config, tmp_path, fresh=True, show=False)
    assert not (tmp_path / "samples" / "step_000006" / "0.mid").exists()
    for (ids, (tokenizer, path, prompt_bars)), new in zip(written, (2, 1), strict=True):
        np.testing.assert_array_equal(ids[: len(prompt)], prompt)
        assert len(tokenizer.decode(ids).tracks) == 1
        assert (path, prompt_bars) == (tmp_path / "samples" / "step_000006.partial" / "0", 4)
        lines = ids == tokenizer.vocabulary.ids["Bar"]
        assert lines.sum() == 4 + new  # after the time limit, no new bar begins


@pytest.mark.usefixtures("_quick_samples")
def test_failing_samples_do_not_end_training(experiment, tmp_path, monkeypatch, caplog):
    def broken(*_, **__):
        raise OSError("the pictures are full")

    monkeypatch.setattr(samples, "write_sample", broken)
    with caplog.at_level(logging.WARNING):
        result = fit(with_trainer(experiment, samples=1), tmp_path, show=False)
    assert result.stopped_by is None
    assert "no samples at step 6: OSError: the pictures are full; training continues" in caplog.text


class _KilledError(BaseException):
    """Ends a run at once; it is not caught as an error in a sample is."""


@pytest.mark.usefixtures("_quick_samples")
def test_samples_that_were_not_complete_are_written_when_the_run_resumes(
    experiment, tmp_path, monkeypatch
):
    config, step = with_trainer(experiment, samples=1, validate_every=4), 6
    fit(config, tmp_path / "whole", show=False)
    write = samples.SampleJob.write

    def killed(job, device):
        if job.folder.name == f"step_{step:06d}":
            raise _KilledError
        write(job, device)

    with monkeypatch.context() as patch:
        patch.setattr(samples.SampleJob, "write", killed)
        with pytest.raises(_KilledError):
            fit(config, tmp_path / "parts", show=False)
    missing = tmp_path / "parts" / "samples" / f"step_{step:06d}" / "0.mid"
    assert not missing.exists()
    assert fit(config, tmp_path / "parts", show=False).step == 6
    for name in ("step_000004", "step_000006"):
        whole, parts = (tmp_path / run / "samples" / name / "0.mid" for run in ("whole", "parts"))
        assert parts.read_bytes() == whole.read_bytes()
    assert_same_weights(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "parts"))
    monkeypatch.setattr(samples.SampleJob, "write", None)
    assert fit(config, tmp_path / "parts", show=False).step == 6  # nothing is left to do


class _Fabric:
    """The first of two processes."""

    world_size, is_global_zero = 2, True


@pytest.mark.usefixtures("_quick_samples")
def test_with_several_processes_another_one_writes_samples(
    experiment, data, tmp_path, monkeypatch, caplog
):
    config = with_trainer(experiment, samples=1)
    module = config.task.build_module(config.optimizer, config.trainer)
    module.fabric, module.step = _Fabric(), 4
    writer = samples.Samples(tmp_path, data, 1)
    started, ended = multiprocessing.get_context("spawn").Event(), []

    class Process:
        """Does the work when the run ends."""

        def __init__(self, target, daemon):
            self.work, self.daemon = target, daemon

        def start(self):
            started.set()

        def is_alive(self):
            return not ended

        def join(self, seconds):
            assert seconds > samples.SAMPLE_SECONDS
            self.work()
            ended.append(True)

    monkeypatch.setattr(multiprocessing.get_context("spawn"), "Process", Process)
    writer.write(module)
    assert started.is_set()
    assert not (tmp_path / "samples").exists()  # training goes on
    with caplog.at_level(logging.WARNING):
        writer.write(module)
    assert "the previous ones are still being written" in caplog.text
    threads = torch.get_num_threads()
    writer.wait()
    torch.set_num_threads(threads)
    assert (tmp_path / "samples" / "step_000004" / "0.mid").exists()
