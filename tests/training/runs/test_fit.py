from __future__ import annotations

import signal
import sys

import jaxtyping
import pytest
import torch
import yaml

from tests.support.runs import (
    assert_same_weights,
    changed,
    checkpoint,
    steps_with,
    stop_at,
    with_model,
)
from training.cli import main
from training.data.corpus import Corpus
from training.errors import TrainingError
from training.experiment import build_experiment
from training.files import alone_in
from training.learning.schedule import Budget
from training.runs.fit import fit
from training.tasks.music import MusicModule


def test_a_longer_budget_resumes_as_if_uninterrupted(experiment, tmp_path):
    def fit_steps(steps, folder):
        # a learning rate without decay does not depend on the budget
        config = changed(
            experiment,
            optimizer={"decay_share": 0.0},
            trainer={"token_budget": steps * 64, "ema_decay": 0.5},
        )
        result = fit(build_experiment(config), folder, show=False)
        assert (result.stopped_by, result.step, result.tokens) == (None, steps, steps * 64)
        return checkpoint(folder)

    whole = fit_steps(10, tmp_path / "whole")
    assert whole["average"]["mean"]
    for end in (6, 8):  # between two validations, and at one
        fit_steps(end, tmp_path / "parts")
    assert_same_weights(whole, fit_steps(10, tmp_path / "parts"))


def test_a_run_folder_documents_the_run(finished):
    names = {path.name for path in finished.iterdir()}
    files = ("config.yaml", "run.json", "metrics.csv", "last.ckpt", "best.ckpt", "tokenizer.json")
    assert names >= {*files}
    assert not [name for name in names if ".part" in name]
    assert list((finished / "tensorboard").glob("events*"))
    assert steps_with(finished, "train/nats_per_token") == ["2", "4", "6"]
    assert steps_with(finished, "validation/nats_per_token") == ["4", "6"]
    assert not checkpoint(finished)["average"]["mean"]


def test_folders_with_other_files_are_not_changed(experiment, run, tmp_path):
    config = build_experiment(experiment)
    mine = tmp_path / "mine"
    last, best = ((run / f"{name}.ckpt").read_bytes() for name in ("last", "best"))
    assert fit(config, run, show=False).stopped_by is None  # its budget is used up
    assert (run / "last.ckpt").read_bytes() == last
    (run / "last.ckpt").unlink()
    with pytest.raises(TrainingError, match=r"has no last\.ckpt; copy best\.ckpt"):
        fit(config, run, show=False)
    assert (run / "best.ckpt").read_bytes() == best
    (run / "last.ckpt").write_bytes(best)
    assert fit(config, run, show=False).step == 6
    (mine / "samples").mkdir(parents=True)
    with pytest.raises(TrainingError, match="has files but is not a run"):
        fit(config, mine, show=False)
    fit(config, mine, fresh=True, show=False)
    assert (mine / "samples").is_dir()  # not of a run
    for name in ("last.ckpt", "best.ckpt"):  # killed before its first checkpoint
        (run / name).unlink()
    assert fit(config, run, show=False).step == 6
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="is a file, expected a folder"):
        fit(config, tmp_path / "file", show=False)


def test_the_exit_status_contains_the_signal(experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(experiment))
    stop_at(monkeypatch, 4)
    assert main(["fit", "--config", "tiny.yaml", "--run", "run"]) == 128 + signal.SIGTERM


def test_a_loss_of_nan_is_reported_in_one_sentence(experiment, tmp_path, monkeypatch):
    def broken(self, batch, state):
        yield torch.tensor(float("nan"))

    monkeypatch.setattr(MusicModule, "losses", broken)
    monkeypatch.setattr(MusicModule, "gradients", lambda *_: torch.zeros((), dtype=torch.float64))
    with pytest.raises(TrainingError, match="step 4: the validation loss is nan nats per token"):
        fit(build_experiment(experiment), tmp_path, show=False)


def test_budgets_and_lengths_that_do_not_fit_are_reported(experiment, data, run, tmp_path, caplog):
    longer = changed(experiment, trainer={"token_budget": 7 * 64})
    fit(build_experiment(longer), run, show=False)
    assert "warm-up" not in caplog.text
    assert "vocabulary_size" not in caplog.text
    short = changed(experiment, optimizer={"warmup_steps": 6})
    fit(build_experiment(with_model(short, vocabulary_size=2000)), tmp_path / "short", show=False)
    assert "the budget of about 6 steps ends before the warm-up of the learning rate" in caplog.text
    assert "vocabulary_size is 2000" in caplog.text
    longest = Corpus.load(data, "train").longest
    assert longest == max(Corpus.load(data, "train").lengths)
    long = changed(experiment, task={"length": 2 * longest + 1})
    with pytest.raises(TrainingError, match=f"padding; use --set task.length={longest}"):
        fit(build_experiment(long), tmp_path / "runs" / "long", show=False)
    assert not (tmp_path / "runs").exists()


def test_a_time_budget_ends_with_a_validation_and_a_checkpoint(experiment, tmp_path, monkeypatch):
    # the clock of this run only moves when its budget is used up, after three steps
    monkeypatch.setattr(Budget, "progress", lambda self, step: step / 3)
    monkeypatch.setattr(Budget, "elapsed", lambda self: 90.0)
    settings = {"token_budget": 10**6, "time_budget_minutes": 1.5, "checkpoint_every": 100}
    result = fit(build_experiment(changed(experiment, trainer=settings)), tmp_path, show=False)
    assert (result.step, result.tokens, result.minutes) == (3, 3 * 64, 1.5)
    assert result.validation is not None
    assert result.stopped_by is None
    best = checkpoint(tmp_path, "best")
    assert checkpoint(tmp_path)["global_step"] == best["global_step"] == 3
    assert checkpoint(tmp_path)["callbacks"] == best["callbacks"]


def test_two_commands_do_not_train_in_one_folder(experiment, run, tmp_path):
    config, new = build_experiment(experiment), tmp_path / "new"
    with alone_in(new), pytest.raises(TrainingError, match="another relpe-train fit is working"):
        fit(config, new, show=False)
    assert not new.exists()
    before = checkpoint(run)
    for fresh in (False, True):
        with alone_in(run), pytest.raises(TrainingError, match="choose another folder with --run"):
            fit(config, run, fresh=fresh, show=False)
    assert_same_weights(checkpoint(run), before)
    assert fit(config, run, show=False).step == 6


@pytest.fixture
def _traceable():
    """Disables the shape checks of the tests, which compilers cannot trace."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.mark.usefixtures("_traceable")
@pytest.mark.filterwarnings("ignore")  # of the compiler itself
@pytest.mark.parametrize("traced", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_compiled_model_trains_alike_and_stays_compiled(
    experiment, finished, tmp_path, monkeypatch, traced
):
    calls = []

    def compiled(self):
        # the default backend needs a C++ compiler and minutes
        forward = torch.compile(self._call_impl, backend="eager") if traced else self._call_impl
        self._compiled_call_impl = lambda *args: calls.append(1) or forward(*args)

    monkeypatch.setattr(torch.nn.Module, "compile", compiled)
    plain = changed(experiment, trainer={"compile": True})
    fit(build_experiment(plain), tmp_path / "run", show=False)
    assert len(calls) >= 6
    eager, found = checkpoint(finished), checkpoint(tmp_path / "run")
    assert found["state_dict"].keys() == eager["state_dict"].keys()
    for name, weights in eager["state_dict"].items():
        torch.testing.assert_close(found["state_dict"][name], weights, rtol=1e-4, atol=1e-5)
    with pytest.raises(TrainingError, match=r"another trainer.compile \(True; it is now False\)"):
        fit(build_experiment(experiment), tmp_path / "run", show=False)
