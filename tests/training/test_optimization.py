from __future__ import annotations

import itertools

import pytest
import torch

from training.config import OptimizerConfig, TrainerConfig
from training.experiment import build_experiment
from training.optimization import Average, Budget, parameter_groups


def budget(optimizer=None, **trainer):
    config = TrainerConfig(token_budget=6400, **trainer)
    return Budget(config, optimizer or OptimizerConfig(learning_rate=1e-2, warmup_steps=2), 64)


def test_the_learning_rate_warms_up_and_falls_over_the_last_fifth():
    rates = [budget().learning_rate(step) / 1e-2 for step in range(100)]
    assert rates[:2] == pytest.approx([0.5, 1])
    assert rates[2:80] == pytest.approx([1] * 78)
    assert all(late < early for early, late in itertools.pairwise(rates[80:]))
    assert rates[-1] == pytest.approx(0.01 + 0.99 / 20)


def test_a_time_budget_ends_a_run_as_well():
    limited = budget(time_budget_minutes=2.0)
    limited.earlier = 60.0
    assert limited.progress(0) == 0.5
    assert limited.progress(75) == 0.75
    limited.earlier = 108.0
    assert limited.learning_rate(10) == pytest.approx(1e-2 * (0.01 + 0.99 / 2))
    limited.earlier = 120.0
    assert limited.progress(0) == 1


@pytest.mark.parametrize("orthogonalized", [True, False])
def test_only_matrices_decay(experiment, orthogonalized):
    decoder = build_experiment(experiment).task.model.build()
    *matrices, others = parameter_groups(decoder, 0.1, orthogonalized=orthogonalized)
    decayed = {id(parameter) for group in matrices for parameter in group["params"]}
    names = {name for name, value in decoder.named_parameters() if id(value) in decayed}
    assert others["weight_decay"] == others["parts"] == 0
    assert len(decayed) + len(others["params"]) == len(list(decoder.parameters()))
    assert names
    assert all("project" in name for name in names)
    by_muon = {id(p) for group in matrices if group["parts"] for p in group["params"]}
    blocks = {id(p) for n, p in decoder.named_parameters() if n.startswith("blocks.")}
    assert by_muon == (decayed & blocks if orthogonalized else set())


def test_an_average_begins_as_the_mean_and_forgets_at_its_decay():
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
