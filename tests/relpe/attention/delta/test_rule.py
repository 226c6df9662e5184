"""The gated delta rule in chunks agrees with its recurrence, in outputs, states and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from relpe import AlgebraicConfig, Attention, AttentionLayerConfig, DeltaAttentionConfig
from relpe.attention.delta.operation import DeltaOperation, DeltaState, Gates
from relpe.attention.delta.rule import gated_delta_rule
from tests.support.compared import compare_with_gradients
from tests.support.reference_delta import recurrence

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def inputs(length: int, strongest: float = 1.0, rows: int = 2) -> Inputs:
    """q, k, v, strengths up to `strongest`, logarithms of decays, and a state that is not empty."""
    draw = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    q, k = (functional.normalize(normal(rows, length, 3, 8), dim=-1) for _ in range(2))
    strength, decay = strongest * normal(rows, length, 3).sigmoid(), -normal(rows, length, 3).exp()
    made = [q, k, normal(rows, length, 3, 5), strength, decay, normal(rows, 3, 8, 5)]
    q, k, v, strength, decay, state = (x.requires_grad_() for x in made)
    return q, k, v, strength, decay, state


@pytest.mark.parametrize(
    ("length", "chunk", "strongest"),
    [(1, 32, 1.0), (31, 32, 2.0), (32, 32, 1.0), (33, 32, 1.0), (150, 7, 2.0), (31, 1, 1.0)],
)
def test_chunks_equal_the_recurrence(length: int, chunk: int, strongest: float) -> None:
    leaves = inputs(length, strongest=strongest)
    found = gated_delta_rule(*leaves, chunk)
    compare_with_gradients(found, recurrence(*leaves), leaves)


def test_an_empty_sequence_leaves_the_state() -> None:
    q, k, v, strength, decay, state = inputs(0)
    out, end = gated_delta_rule(q, k, v, strength, decay, state)
    assert out.shape == v.shape
    assert end.equal(state)
    assert end.data_ptr() != state.data_ptr()


def test_no_rows_are_valid() -> None:
    for length in (0, 33):
        given = inputs(length, rows=0)
        out, end = gated_delta_rule(*given)
        assert out.shape == (0, length, 3, 5)
        (out.sum() + end.sum()).backward()
        assert [x.grad.shape for x in given if x.grad is not None] == [x.shape for x in given]


@torch.no_grad()
def test_a_state_does_not_keep_the_memory_of_those_before_it() -> None:
    _, end = gated_delta_rule(*inputs(150))
    assert end.untyped_storage().nbytes() == end.nbytes


@torch.no_grad()
def test_a_sequence_may_be_split_anywhere() -> None:
    cuts = [40, 1, 0, 1, 108]
    q, k, v, strength, decay, memory = inputs(150)
    operation, state = DeltaOperation(), DeltaState(memory)
    outs = []
    parts = zip(*(x.split(cuts, 1) for x in (q, k, v, strength, decay)), strict=True)
    for some_q, some_k, some_v, *gates in parts:
        out, state = operation(some_q, some_k, some_v, state, gates=Gates(*gates))
        outs.append(out)
    out, end = recurrence(q, k, v, strength, decay, memory)
    torch.testing.assert_close(torch.cat(outs, 1), out)
    torch.testing.assert_close(state.memory, end)


def test_bfloat16_keeps_the_state_in_float32() -> None:
    config = AttentionLayerConfig(
        width=16, num_heads=2, attention=DeltaAttentionConfig(), encoding=AlgebraicConfig()
    )
    layer, x = Attention(config), torch.randn(2, 70, 16)
    exact, _ = layer(x)
    half = layer.bfloat16()
    out, state = half(x.bfloat16())
    assert state.layer.operation.memory.dtype == torch.float32
    assert out.dtype == torch.bfloat16
    assert (out - exact).norm() < 0.03 * exact.norm()
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in half.parameters())


def test_the_first_half_life_is_that_of_the_config() -> None:
    gates = DeltaAttentionConfig(initial_half_lives=(4.0, 64.0)).build_gates(8, 3)
    factor = gates(torch.zeros(1, 1, 8)).log_decay.exp()[0, 0]
    torch.testing.assert_close(factor ** torch.tensor([4.0, 16.0, 64.0]), torch.full((3,), 0.5))
    with pytest.raises(ValueError, match="expected two positive numbers"):
        DeltaAttentionConfig(initial_half_lives=(0.0, 4.0))


def test_negative_eigenvalues_change_the_sign_of_what_is_stored() -> None:
    """Parity by one number of state: written once, its sign changes with each strength of 2."""
    bits = [0, 1, 1, 0, 1, 0, 0, 1, 1, 1] * 7
    key = torch.ones(1, len(bits) + 1, 1, 1, dtype=torch.float64)
    values, strength = torch.zeros_like(key), torch.tensor([1.0, *(2.0 * x for x in bits)])
    values[:, 0] = 1
    strength = strength.double()[None, :, None]
    state = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    out, _ = gated_delta_rule(key, key, values, strength, 0 * strength, state)
    parity = torch.tensor(bits).cumsum(0) % 2
    torch.testing.assert_close(out[0, 1:, 0, 0], (1 - 2 * parity).double())


def test_strengths_reach_2_with_negative_eigenvalues() -> None:
    x = torch.full((1, 1, 8), 100.0)
    for negative, most in ((False, 1.0), (True, 2.0)):
        gates = DeltaAttentionConfig(negative_eigenvalues=negative).build_gates(8, 2)
        torch.nn.init.ones_(gates.project.weight)
        assert gates(x).strength.tolist() == [[[most, most]]]
