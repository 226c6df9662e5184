"""Decay that depends on the input agrees with weights computed pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from relpe.attention.linear.operation import LinearAttentionConfig, LinearOperation
from tests.support.compared import compare_with_gradients


def inputs(length: int) -> list[Tensor]:
    """q, k, v and rates of decay, float64, with gradients."""
    draw = torch.Generator().manual_seed(length)
    q, k = torch.randn(2, 2, length, 3, 8, generator=draw, dtype=torch.float64)
    v = torch.randn(2, length, 3, 5, generator=draw, dtype=torch.float64)
    gates = torch.rand(2, length, 3, generator=draw, dtype=torch.float64)
    return [x.requires_grad_() for x in (q, k, v, gates)]


def operation() -> LinearOperation:
    return LinearAttentionConfig(half_lives=(1.0, 40.0), gated=True).build()


def start(of: LinearOperation):
    weight = torch.zeros(1, dtype=torch.float64)
    return of.init_state((2, 3, 5), torch.Generator(), weight, 8)


def pair_by_pair(q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    """Weights of all pairs: products of features, times e^-(the rates between query and key)."""
    q, k = (x.relu() + 1e-3 for x in (q, k))
    total = gates.cumsum(1).transpose(1, 2)
    since = (total[..., None] - total[..., None, :]).neg().exp().tril()
    weights = torch.einsum("blhd,bshd->bhls", q, k) * since
    means = torch.einsum("bhls,bshe->blhe", weights, v)
    return means / weights.sum(-1).transpose(1, 2)[..., None]


@pytest.mark.parametrize("cuts", [[150], [1, 69, 0, 80]])
def test_weights_and_gradients_are_those_of_all_pairs(cuts: list[int]) -> None:
    """Also across parts, where gradients reach earlier gates through the state."""
    of, leaves = operation(), inputs(150)
    state, outs = start(of), []
    for q, k, v, gates in zip(*(x.split(cuts, 1) for x in leaves), strict=True):
        out, state = of(q, k, v, state, gates=gates)
        outs.append(out)
    compare_with_gradients(torch.cat(outs, 1), pair_by_pair(*leaves), leaves)


@torch.no_grad()
def test_constant_gates_are_the_decay_without_gates() -> None:
    q, k, v, _ = inputs(60)
    plain = LinearAttentionConfig(half_lives=(1.0, 40.0)).build()
    halves = torch.tensor([1.0, math.sqrt(40.0), 40.0], dtype=torch.float64)
    gates = (math.log(2) / halves).expand(2, 60, 3)
    found, end = operation()(q, k, v, start(operation()), gates=gates)
    wanted, plain_end = plain(q, k, v, start(plain))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(end.sums.log_scale, plain_end.sums.log_scale)


@torch.no_grad()
def test_gates_without_input_have_the_half_lives_of_the_config() -> None:
    gates = LinearAttentionConfig(half_lives=(4.0, 64.0), gated=True).build_gates(8, 3)
    assert gates is not None
    factor = gates(torch.zeros(1, 1, 8))[0, 0].neg().exp()
    torch.testing.assert_close(
        factor ** torch.tensor([4.0, 16.0, 64.0]), torch.full((3,), 0.5).double()
    )
    with pytest.raises(ValueError, match="gated is true without half_lives"):
        LinearAttentionConfig(gated=True)


@torch.no_grad()
def test_gates_are_not_passed_to_the_kernel_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes decay as a constant, without a gradient."""
    monkeypatch.setattr("relpe.attention.linear.fla.serves", lambda v: True)
    monkeypatch.setattr("relpe.attention.linear.fla.causal_linear_attention", None)
    of = operation()
    q, k, v, gates = inputs(20)
    assert of(q, k, v, start(of), gates=gates)[0].shape == v.shape
