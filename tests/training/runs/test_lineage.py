from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from relpe.models.checkpoint import load_model, released_models
from tests.support.paths import ROOT
from tests.support.runs import changed, checkpoint, metrics
from tokenization.tokenizer import Vocabulary
from training.errors import TrainingError
from training.experiment import build_experiment
from training.release import export
from training.runs import lineage
from training.runs.fit import fit
from training.runs.lineage import read_history, total_tokens
from training.runs.weights import digest, load_decoder

CHECKPOINTS = ROOT / "checkpoints"


@pytest.fixture
def train(experiment, monkeypatch):
    """Runs six steps of 64 tokens each in a folder, with a recognisable command."""

    def run(folder, init_from=None, seed=0, steps=6):
        words = ["relpe-train", "fit", "--run", folder.name]
        monkeypatch.setattr(sys, "argv", words)
        settings = {"seed": seed, "token_budget": steps * 64, "validate_every": 100}
        config = build_experiment(changed(experiment, trainer=settings))
        fit(config, folder, init_from=init_from, show=False)
        return folder

    return run


def named(runs):
    return [(run.name, run.steps, run.tokens) for run in runs]


def test_tokens_of_all_runs_of_a_model_are_added(train, tmp_path):
    one = train(tmp_path / "one")
    first = export(one, tmp_path / "first")
    two = train(tmp_path / "two", init_from=first, seed=1, steps=8)
    held = json.loads((two / "run.json").read_text())["init_from"]
    assert (held["path"], held["digest"]) == (str(first), digest(load_model(first)))
    assert [past["name"] for past in held["history"]] == ["one"]
    three = train(tmp_path / "three", init_from=two, seed=2, steps=4)
    model = export(three, tmp_path / "third")
    runs = read_history(model)
    assert named(runs) == [("one", 6, 384), ("two", 8, 512), ("three", 4, 256)]
    for run, folder in zip(runs, (one, two, three), strict=True):
        assert run.weights == digest(load_decoder(folder)[0])
        assert run.sessions[0].command == f"relpe-train fit --run {folder.name}"
        assert run.data == json.loads((one / "run.json").read_text())["data"]["hash"]
    card = (model / "README.md").read_text()
    assert "- Tokens of all runs: 1,152." in card
    assert "of the last of 3 runs" in card
    for number, name in enumerate(("one", "two", "three"), 1):
        assert f"{number}. `{name}`: " in card
        assert f"   - Command: `relpe-train fit --run {name}`" in card

    # run.json contains everything from the start, so the earlier runs may be removed
    for folder in (one, two, first):
        shutil.rmtree(folder)
    assert read_history(export(three, tmp_path / "again")) == runs


def test_a_model_without_history_makes_totals_lower_bounds(train, run, tmp_path, caplog):
    model = export(run, tmp_path / "model")
    (model / "training.json").unlink()
    two = train(tmp_path / "two", init_from=model)
    assert "found no training.json" in caplog.text
    card = (export(two, tmp_path / "next") / "README.md").read_text()
    assert "- Tokens of all runs: at least 384." in card
    assert "1. `model`: no record of this run." in card


def test_initial_weights_must_have_the_vocabulary_of_the_data(train, run, tmp_path, monkeypatch):
    model = export(run, tmp_path / "model")
    other = SimpleNamespace(vocabulary=Vocabulary(("PAD",)))
    monkeypatch.setattr(lineage, "load_tokenizer", lambda folder: other)
    with pytest.raises(TrainingError, match="has another vocabulary than the data"):
        train(tmp_path / "two", init_from=model)
    assert not (tmp_path / "two").exists()


def test_a_run_from_weights_has_a_new_optimizer_and_warm_up(train, experiment, run, tmp_path):
    experiment["optimizer"] |= {"warmup_steps": 4}
    two = train(tmp_path / "two", init_from=run, steps=2)
    held = checkpoint(two)
    state = held["optimizer_states"][0]["state"]
    assert {float(values["step"]) for values in state.values() if "step" in values} == {2.0}
    rate = float(metrics(two, "learning_rate")[0]["learning_rate"])
    assert rate < 1e-2 / 2 + 1e-9  # the second of four steps of warm-up
    first = checkpoint(run, "best")["state_dict"]
    moved = [float((held["state_dict"][name] - first[name]).abs().max()) for name in first]
    assert 0 < max(moved) < 0.1


def test_released_models_list_their_runs():
    for name in released_models():
        runs = read_history(CHECKPOINTS / name)
        assert runs[-1].weights == digest(load_model(name))
        card = (CHECKPOINTS / name / "README.md").read_text()
        assert f"step {runs[-1].steps:,}" in card
        assert f"{total_tokens(runs)}" in card
        for run in runs:
            assert run.data is not None
            assert f"`{run.data[:16]}`" in card
            for segment in run.sessions:
                since = f" from step {segment.step:,}" if len(run.sessions) > 1 else ""
                assert f"Command{since}: `{segment.command}`" in card


def test_a_damaged_history_is_reported_in_one_sentence(tmp_path):
    for content, message in (
        ("{", "damaged"),
        ('{"history": []}', "found no format_version"),
        ('{"format_version": 2, "history": []}', "format 2, expected 1; update this program"),
        ('{"format_version": 1, "history": [{"name": "a"}]}', "weights"),
        (
            '{"format_version": 1, "history": [{"name": "a", "weights": "", "tokens": "5"}]}',
            "tokens",
        ),
    ):
        (tmp_path / "training.json").write_text(content)
        with pytest.raises(TrainingError, match=rf"^{tmp_path}/training\.json[^\n]*{message}"):
            read_history(tmp_path)
