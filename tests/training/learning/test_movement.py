from __future__ import annotations

import pytest
import torch

from training.learning.movement import Movement


def test_movement_is_relative_and_continues_when_a_run_resumes():
    layers = [torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)]
    module = torch.nn.ModuleList(layers)
    for linear, value in zip(layers, (3.0, 4.0), strict=True):
        linear.weight.data.fill_(value)
        linear.bias.data.zero_()
    movement = Movement(module.named_parameters())
    assert movement.changes("x") == {}
    movement.begin()
    layers[0].weight.data += 5.0
    # parameters that began at zero have no relative change
    assert movement.changes("x") == pytest.approx({"x": 1.0, "x/weight": 1.0})
    layers[1].bias.data += 5.0
    assert movement.changes("x") == pytest.approx({"x": 2**0.5, "x/weight": 1.0})
    later = Movement(module.named_parameters())
    later.load(movement.state())
    later.begin()
    assert later.changes("x") == movement.changes("x")
    unknown = Movement(module.named_parameters())
    unknown.load({})
    unknown.begin()
    assert unknown.changes("x") == {}
