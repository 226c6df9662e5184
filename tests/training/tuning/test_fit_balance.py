from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from relpe.models.checkpoint import load_model
from relpe.models.pointer.config import BalanceConfig
from training.cli import main
from training.errors import TrainingError
from training.release import export
from training.runs.pointer import read_pointer
from training.tuning import fit_balance as module
from training.tuning.fit_balance import FitBalanceOptions, fit_balance


@pytest.fixture
def run(fitted_run, tmp_path):
    """A copy of a run with a fitted pointer, which may be changed."""
    return shutil.copytree(fitted_run, tmp_path / "run")


def options(folder, data, **changes):
    return FitBalanceOptions(model=str(folder), data=data, lengths=("2:2",), **changes)


def test_changes_that_bring_music_closer_are_kept_and_stored(
    run, data, tmp_path, monkeypatch, capsys
):
    """The distance is that from one balance: every value is moved towards it."""
    goal = BalanceConfig(near=-1.0, strength=0.6)

    def distance(subject, prompts, options):
        balance = subject.decoder.config.pointer.balance
        runs = sum(balance.run) if balance.run else 0.0
        return abs(balance.near - goal.near) + abs(balance.strength - goal.strength) + runs

    monkeypatch.setattr(module, "_distance", distance)
    model = export(run, tmp_path / "model")
    before = (model / "model.safetensors").read_bytes()
    assert main(["fit-balance", str(model), "--data", str(data), "--lengths", "2:2"]) == 0
    assert "distance from real music: 1.600 before, 0.000 after" in capsys.readouterr().out
    pointer = load_model(model).config.pointer
    assert pointer is not None
    assert (pointer.balance.near, pointer.balance.strength) == (-1.0, 0.6)
    assert (model / "model.safetensors").read_bytes() == before
    gates = pointer.gates
    fit_balance(options(run, data))
    fitted = read_pointer(run)
    assert fitted is not None
    assert fitted.pointer == replace(fitted.pointer, gates=gates, balance=pointer.balance)


def test_generated_music_is_measured(run, data):
    result = fit_balance(options(run, data, prompts=1, rounds=1))
    assert 0 <= result.after <= result.before


def test_unusable_input_is_one_sentence(finished, run, data, tmp_path):
    with pytest.raises(TrainingError, match="has no pointer; run relpe-train fit-pointer first"):
        fit_balance(options(export(finished, tmp_path / "plain"), data))
    with pytest.raises(TrainingError, match="has no piece of 1001 bars; choose other --lengths"):
        fit_balance(replace(options(run, data), lengths=("1:1000",)))
    for wrong in ("8", "8:0", "a:b"):
        with pytest.raises(TrainingError, match=f"--lengths {wrong}: expected bars of the prompt"):
            FitBalanceOptions(model="piano", data=data, lengths=(wrong,))
