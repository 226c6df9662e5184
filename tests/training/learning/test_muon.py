from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import changed, checkpoint, with_model
from training.experiment import build_experiment
from training.learning.muon import Muon, orthogonalize, parameter_groups
from training.learning.schedule import Budget
from training.runs.fit import fit

sizes = st.integers(1, 24)


@given(
    rows=sizes, columns=sizes, seed=st.integers(0, 2**31 - 1), scale=st.sampled_from([1e-3, 1e3])
)
def test_singular_vectors_are_kept_and_values_approach_1(rows, columns, seed, scale):
    draw = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, rows, generator=draw, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, generator=draw, dtype=torch.float64))
    rank = min(rows, columns)
    values = 0.2 + torch.rand(rank, generator=draw, dtype=torch.float64)
    matrix = scale * left[:, :rank] @ values.diag() @ right[:, :rank].mT
    inner = left.mT @ orthogonalize(matrix[None])[0] @ right
    found = inner.diagonal()[:rank]
    assert ((found > 0.5) & (found < 1.4)).all()
    torch.testing.assert_close(
        inner - torch.zeros_like(inner).diagonal_scatter(found), torch.zeros_like(inner)
    )


def train(weight, optimizer, steps):
    for step in range(steps):
        weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step))
        optimizer.step()


def fresh(parts):
    weight = torch.nn.Parameter(torch.ones(6, 4))
    group = {"params": [weight], "parts": parts, "weight_decay": 0.1}
    return weight, Muon([group], lr=0.1, betas=(0.9, 0.95))


def test_without_parts_it_is_adamw():
    weight, optimizer = fresh(0)
    reference = torch.nn.Parameter(torch.ones(6, 4))
    train(weight, optimizer, 4)
    adamw = torch.optim.AdamW([reference], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
    train(reference, adamw, 4)
    torch.testing.assert_close(weight, reference)


def test_stacked_matrices_are_orthogonalized_separately():
    weight, optimizer = fresh(3)
    train(weight, optimizer, 1)
    gradient = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    for part in range(3):
        rows = slice(2 * part, 2 * part + 2)
        update = orthogonalize(gradient[rows][None])[0]
        expected = torch.full((2, 4), 1 - 0.1 * 0.1) - 0.1 * 0.2 * 2 * update
        torch.testing.assert_close(weight[rows].detach(), expected, rtol=1e-4, atol=1e-5)


def test_in_bfloat16_updates_are_nearly_those_of_float32():
    exact, narrow = torch.nn.Parameter(torch.ones(48, 32)), torch.nn.Parameter(torch.ones(48, 32))
    for weight, dtype in ((exact, torch.float32), (narrow, torch.bfloat16)):
        group = {"params": [weight], "parts": 3, "weight_decay": 0.0}
        train(weight, Muon([group], lr=0.1, betas=(0.9, 0.95), dtype=dtype), 1)
    change = exact.detach() - 1
    assert 0 < (narrow.detach() - exact.detach()).norm() < 0.05 * change.norm()
    assert narrow.dtype == torch.float32


def test_it_computes_in_the_precision_of_the_run(experiment, tmp_path, monkeypatch):
    from training.learning import muon

    found = set()

    def noted(matrices):
        found.add(matrices.dtype)
        return orthogonalize(matrices)

    monkeypatch.setattr(muon, "orthogonalize", noted)
    for precision, dtype in (("32", torch.float32), ("bf16", torch.bfloat16)):
        found.clear()
        plain = changed(experiment, trainer={"precision": precision, "token_budget": 64})
        fit(build_experiment(plain), tmp_path / precision, show=False)
        assert found == {dtype}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_adamw_is_fused():
    weight = torch.nn.Parameter(torch.ones(6, 4, device="cuda"))
    group = {"params": [weight], "parts": 0, "weight_decay": 0.1}
    assert Muon([group], lr=0.1, betas=(0.9, 0.95)).defaults["fused"]


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
    plain = with_model(
        experiment, attention=kinds.get(attention, {"kind": attention}), encoding=encoding
    )
    return build_experiment(changed(plain, optimizer=optimizer))


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


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_have_no_decay_and_may_have_their_own_rate(experiment, name):
    orthogonalized = name in ("sine", "siren")
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
def test_each_learning_rate_applies_to_its_own_parameters(experiment, tmp_path, rate, own):
    optimizer = {"learning_rate": rate, "encoding_learning_rate": own}
    config = with_encoding(experiment, "siren", **optimizer)
    before = config.task.build_module(config.optimizer, config.trainer).decoder.state_dict()
    fit(config, tmp_path, show=False)
    after = checkpoint(tmp_path)
    moves = {
        key
        for key, value in before.items()
        if not value.equal(after["state_dict"][f"decoder.{key}"])
    }
    assert moves == {key for key in before if key.startswith("encoding.") == (own > 0)}
    rates = [group["lr"] for group in after["optimizer_states"][0]["param_groups"]]
    shares = [1e-2 if value else 0.0 for value in (rate, own)]
    # the learning rates of both decay by the same factor
    last = Budget(config.trainer, config.optimizer, 64).learning_rate(5, 1.0)
    assert rates == [shares[0] * last] * (len(rates) - 1) + [shares[1] * last]
