from __future__ import annotations

import itertools

import pytest
import torch

from training.config import OptimizerConfig, TrainerConfig
from training.experiment import build_experiment
from training.learning.optimization import Average, Budget, Movement, parameter_groups
from training.runs.fit import fit

ENCODINGS = {
    "sine": ("relu", {"kind": "sine_spe", "gated": True}, "frequencies offsets gains gates"),
    "conv": ("relu", {"kind": "conv_spe"}, "query_filter key_filter gates"),
    "grid": (
        "softmax",
        {"kind": "algebraic", "structure": {"kind": "sequence"}, "basis": True},
        "angles 0",  # the generator of a basis
    ),
    "tree": ("softmax", {"kind": "algebraic", "structure": {"kind": "tree"}}, "triangle"),
    "siren": (
        "windowed",
        {"kind": "siren", "network": {"learnable_w0": True}, "window": {"per_head": True}},
        "content_bias position_bias weight bias log_w0 log_width",
    ),
}
"""Attention, encoding, and the last names of its parameters."""


def with_encoding(experiment, name, **optimizer):
    attention, encoding, _ = ENCODINGS[name]
    kinds = {"relu": {"kind": "linear"}}
    changes = {"attention": kinds.get(attention, {"kind": attention}), "encoding": encoding}
    task = experiment["task"] | {"model": experiment["task"]["model"] | changes}
    return build_experiment(
        experiment | {"task": task, "optimizer": experiment["optimizer"] | optimizer}
    )


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


@pytest.mark.parametrize("orthogonalized", [True, False])
@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_never_decay_and_can_have_a_rate_of_their_own(experiment, name, orthogonalized):
    decoder = with_encoding(experiment, name).task.model.build()
    names = {id(value): key for key, value in decoder.named_parameters()}

    def named(rate):
        groups = parameter_groups(
            decoder, 0.1, orthogonalized=orthogonalized, encoding_learning_rate=rate
        )
        return groups, [[names[id(p)] for p in group["params"]] for group in groups]

    together, before = named(None)
    apart, after = named(0.5)
    own = [key for key in names.values() if key.startswith("encoding.")]
    assert {key.rpartition(".")[2] for key in own} == set(ENCODINGS[name][2].split())
    assert after == [*before[:-1], [key for key in before[-1] if key not in own], own]
    assert together[-1]["weight_decay"] == apart[-1]["weight_decay"] == apart[-1]["parts"] == 0
    assert [group.get("peak") for group in apart] == [None] * len(before) + [0.5]
    assert not any("peak" in group for group in together)


@pytest.mark.parametrize(("rate", "own"), [(0.0, 1e-2), (1e-2, 0.0)])
def test_each_rate_moves_its_own_parameters(experiment, tmp_path, rate, own):
    optimizer = {"learning_rate": rate, "encoding_learning_rate": own}
    config = with_encoding(experiment, "siren", **optimizer)
    before = config.task.build_module(config.optimizer, config.trainer).decoder.state_dict()
    fit(config, tmp_path, show=False)
    after = torch.load(tmp_path / "last.ckpt", weights_only=True)
    moves = {
        key
        for key, value in before.items()
        if not value.equal(after["state_dict"][f"decoder.{key}"])
    }
    assert moves == {key for key in before if key.startswith("encoding.") == (own > 0)}
    rates = [group["lr"] for group in after["optimizer_states"][0]["param_groups"]]
    shares = [1e-2 if value else 0.0 for value in (rate, own)]
    # the same fall at the end for both
    last = Budget(config.trainer, config.optimizer, 64).learning_rate(5, 1.0)
    assert rates == [shares[0] * last] * (len(rates) - 1) + [shares[1] * last]


@pytest.mark.parametrize("name", ["sine", "siren"])
def test_a_rate_that_is_the_common_one_changes_nothing(experiment, tmp_path, name):
    found = []
    for own in (None, 1e-2):
        config = with_encoding(experiment, name, encoding_learning_rate=own)
        fit(config, tmp_path / str(own), show=False)
        found.append(torch.load(tmp_path / str(own) / "last.ckpt", weights_only=True))
    for key, value in found[0]["state_dict"].items():
        assert torch.equal(value, found[1]["state_dict"][key]), key


def test_movement_is_relative_and_goes_on_in_another_session():
    layers = [torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)]
    module = torch.nn.ModuleList(layers)
    for linear, value in zip(layers, (3.0, 4.0), strict=True):
        linear.weight.data.fill_(value)
        linear.bias.data.zero_()
    movement = Movement(module.named_parameters())
    assert movement.changes("x") == {}
    movement.begin()
    layers[0].weight.data += 5.0
    # what began at zero has no relative change of its own
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


def test_what_is_kept_for_a_version_of_weights_knows_their_average(experiment):
    decoder = with_encoding(experiment, "siren").task.model.build().eval()
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
