from __future__ import annotations

import json
import signal

import jaxtyping
import pytest
import torch
import yaml

from tests.support.runs import (
    assert_same_weights,
    break_at,
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
from training.runs import device
from training.runs.fit import fit
from training.tasks.music import MusicModule


@pytest.mark.parametrize(("ema_decay", "step"), [(None, 4), (0.5, 2)])
def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(
    experiment, tmp_path, monkeypatch, ema_decay, step
):
    config = build_experiment(changed(experiment, trainer={"ema_decay": ema_decay}))
    assert fit(config, tmp_path / "whole", show=False).stopped_by is None
    with monkeypatch.context() as patch:
        stop_at(patch, step)
        result = fit(config, tmp_path / "parts", show=False)
        assert result.stopped_by is not None
        assert 0 < result.step < 6
    assert fit(config, tmp_path / "parts", show=False).step == 6
    whole, parts = checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "parts")
    assert whole["global_step"] == 6
    assert_same_weights(whole, parts)
    assert bool(whole["average"]["mean"]) == (ema_decay is not None)


def test_a_run_folder_documents_the_run(experiment, tmp_path):
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
    assert not [name for name in names if ".part" in name]
    assert list((tmp_path / "tensorboard").glob("events*"))
    assert steps_with(tmp_path, "train/nats_per_token") == ["2", "4", "6"]
    assert steps_with(tmp_path, "validation/nats_per_token") == ["4", "6"]


def test_a_run_whose_budget_is_used_up_is_not_changed(experiment, tmp_path):
    config = build_experiment(experiment)
    fit(config, tmp_path, show=False)
    before = (tmp_path / "last.ckpt").read_bytes()
    assert fit(config, tmp_path, show=False).stopped_by is None
    assert (tmp_path / "last.ckpt").read_bytes() == before


def test_folders_with_other_files_are_not_changed(experiment, tmp_path):
    config = build_experiment(experiment)
    run, mine = tmp_path / "run", tmp_path / "mine"
    fit(config, run, show=False)
    best = (run / "best.ckpt").read_bytes()
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
    with pytest.raises(
        TrainingError, match="step 4: the validation loss is nan nats per token; lower"
    ):
        fit(build_experiment(experiment), tmp_path, show=False)


def test_too_short_a_budget_is_reported(experiment, data, tmp_path, caplog):
    short = changed(experiment, optimizer={"warmup_steps": 6})
    fit(build_experiment(with_model(short, vocabulary_size=600)), tmp_path / "short", show=False)
    assert "the budget of 6 steps ends before the warm-up of the learning rate" in caplog.text
    assert "vocabulary_size is 600" in caplog.text
    caplog.clear()
    fit(build_experiment(experiment), tmp_path / "run", show=False)
    assert "warm-up" not in caplog.text
    assert "vocabulary_size" not in caplog.text
    longest = Corpus.load(data, "train").longest
    assert longest == max(Corpus.load(data, "train").lengths)
    long = changed(experiment, task={"length": 2 * longest + 1})
    with pytest.raises(TrainingError, match=f"padding; use --set task.length={longest}"):
        fit(build_experiment(long), tmp_path / "long", show=False)
    assert not (tmp_path / "long").exists()


def test_a_run_resumes_only_with_its_model_and_data(experiment, tmp_path):
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
    first = checkpoint(tmp_path / "first", "best")["state_dict"]
    for name, tensor in checkpoint(tmp_path / "second")["state_dict"].items():
        assert torch.equal(tensor, first[name]), name


def test_a_resumed_run_does_not_measure_precisions_again(experiment, tmp_path, monkeypatch):
    auto = build_experiment(changed(experiment, trainer={"precision": "auto"}))
    threads = torch.get_num_threads()
    with monkeypatch.context() as patch:
        patch.setattr(device, "_bfloat16_is_faster", lambda device: False)
        stop_at(patch, 4)
        assert fit(auto, tmp_path, show=False).stopped_by is not None
    began = json.loads((tmp_path / "run.json").read_text())
    assert (began["device"], began["precision"], began["threads"]) == ("cpu", "32-true", threads)

    monkeypatch.setattr(device, "_bfloat16_is_faster", lambda device: True)
    torch.set_num_threads(threads + 1)
    try:
        assert fit(auto, tmp_path, show=False).stopped_by is None
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(threads)
    went_on = json.loads((tmp_path / "run.json").read_text())
    assert {key: went_on[key] for key in ("device", "precision", "threads")} == {
        key: began[key] for key in ("device", "precision", "threads")
    }


def test_a_run_that_fails_after_a_validation_resumes_from_it(experiment, tmp_path, monkeypatch):
    config = build_experiment(changed(experiment, trainer={"checkpoint_every": 100}))
    fit(config, tmp_path / "whole", show=False)
    with monkeypatch.context() as patch:
        break_at(patch, 5)
        with pytest.raises(RuntimeError, match="off"):
            fit(config, tmp_path / "parts", show=False)
    parts, best = tmp_path / "parts", checkpoint(tmp_path / "parts", "best")
    assert checkpoint(parts)["global_step"] == best["global_step"] == 4
    assert checkpoint(parts)["callbacks"] == best["callbacks"]  # the best value so far
    assert fit(config, parts, show=False).step == 6
    assert_same_weights(checkpoint(tmp_path / "whole"), checkpoint(parts))


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


def test_a_longer_budget_resumes_as_if_uninterrupted(experiment, tmp_path):
    def fit_steps(steps, folder):
        # a learning rate without decay does not depend on the budget
        config = changed(
            experiment, optimizer={"decay_share": 0.0}, trainer={"token_budget": steps * 64}
        )
        assert fit(build_experiment(config), folder, show=False).stopped_by is None
        return checkpoint(folder)

    whole = fit_steps(10, tmp_path / "whole")
    for end in (6, 8):  # between two validations, and at one
        fit_steps(end, tmp_path / f"parts{end}")
        assert_same_weights(whole, fit_steps(10, tmp_path / f"parts{end}"))


def test_two_commands_do_not_train_in_one_folder(experiment, tmp_path):
    config, run = build_experiment(experiment), tmp_path / "run"
    with alone_in(run), pytest.raises(TrainingError, match="another relpe-train fit is working"):
        fit(config, run, show=False)
    assert not run.exists()
    fit(config, run, show=False)
    before = checkpoint(run)
    for fresh in (False, True):
        with alone_in(run), pytest.raises(TrainingError, match="choose another folder with --run"):
            fit(config, run, fresh=fresh, show=False)
    assert_same_weights(checkpoint(run), before)
    assert fit(config, run, show=False).step == 6


def test_a_run_that_cannot_start_leaves_no_folder(experiment, tmp_path):
    plain = changed(experiment, task={"length": 10_000})
    with pytest.raises(TrainingError, match=r"task\.length"):
        fit(build_experiment(plain), tmp_path / "runs" / "run", show=False)
    assert not (tmp_path / "runs" / "run").exists()


@pytest.fixture
def _traceable():
    """Disables the shape checks of the tests, which compilers cannot trace."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
    torch.compiler.reset()


@pytest.mark.usefixtures("_traceable")
@pytest.mark.filterwarnings("ignore")  # of the compiler itself
def test_a_compiled_model_trains_alike_and_stays_compiled(experiment, tmp_path, monkeypatch):
    fit(build_experiment(experiment), tmp_path / "eager", show=False)
    calls = []

    def compiled(self):
        # the default backend needs a C++ compiler and minutes
        forward = torch.compile(self._call_impl, backend="eager")
        self._compiled_call_impl = lambda *args: calls.append(1) or forward(*args)

    monkeypatch.setattr(torch.nn.Module, "compile", compiled)
    plain = changed(experiment, trainer={"compile": True})
    fit(build_experiment(plain), tmp_path / "run", show=False)
    assert len(calls) >= 6
    eager, found = checkpoint(tmp_path / "eager"), checkpoint(tmp_path / "run")
    assert found["state_dict"].keys() == eager["state_dict"].keys()
    for name, weights in eager["state_dict"].items():
        torch.testing.assert_close(found["state_dict"][name], weights, rtol=1e-4, atol=1e-5)
    with pytest.raises(TrainingError, match=r"another trainer.compile \(True; it is now False\)"):
        fit(build_experiment(experiment), tmp_path / "run", show=False)
