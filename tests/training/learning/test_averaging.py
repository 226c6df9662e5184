from __future__ import annotations

import pytest
import torch

from tests.support.runs import with_model
from training.experiment import build_experiment
from training.learning.averaging import Average


def test_cached_values_follow_the_averaged_weights(experiment):
    encoding = {"kind": "siren", "window": {"per_head": True}}
    plain = with_model(experiment, attention={"kind": "windowed"}, encoding=encoding)
    decoder = build_experiment(plain).task.model.build().eval()
    average = Average(decoder, 0.5)
    average.update()
    window = decoder.encoding.training_window()
    assert window is not None
    narrow = window.keys_per_head(0)
    with torch.no_grad():
        window.log_width.add_(1.0)
    wide = window.keys_per_head(0)
    assert wide > narrow
    average.swap()
    assert window.keys_per_head(0) == narrow
    average.swap()
    assert window.keys_per_head(0) == wide


def test_an_average_begins_as_the_mean_and_then_decays():
    module = torch.nn.Linear(1, 1, bias=False)
    average = Average(module, 0.75)
    expected = 0.0
    for number in range(1, 8):
        module.weight.data.fill_(float(number))
        average.update()
        share = max(1 / number, 0.25)
        expected += share * (number - expected)
    assert average.state()["mean"][0].item() == pytest.approx(expected)
    average.swap()
    assert module.weight.item() == pytest.approx(expected)
    average.swap()
    assert module.weight.item() == 7
