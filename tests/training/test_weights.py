from __future__ import annotations

import json

import pytest
import torch

from training.errors import TrainingError
from training.run import build_experiment, fit
from training.weights import load_decoder


def test_averaged_weights_are_those_that_are_loaded(experiment, tmp_path):
    experiment["trainer"] = experiment["trainer"] | {"ema_decay": 0.9}
    fit(build_experiment(experiment), tmp_path, show=False)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    decoder, origin = load_decoder(tmp_path, "last")
    for parameter, mean in zip(decoder.parameters(), checkpoint["average"]["mean"], strict=True):
        assert torch.equal(parameter, mean)
    commit = json.loads((tmp_path / "run.json").read_text())["commit"]
    assert origin == ("last.ckpt", 6, 6 * 64, commit)

    (tmp_path / "best.ckpt").unlink()
    with pytest.raises(TrainingError, match=r"no best\.ckpt"):
        load_decoder(tmp_path)
