"""Attention of one sequence to another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from relpe import AlgebraicConfig, AlibiConfig, AttentionLayerConfig, CrossAttention, SinusoidConfig
from tests.support.decoders import (
    CONV,
    FADING,
    FAVOR,
    NONE,
    NUMERATOR,
    RELU,
    ROPE,
    SINE,
    SOFTMAX,
    WINDOWED,
)

CASES: dict[str, tuple[Any, Any]] = {
    "rope softmax": (SOFTMAX, ROPE),
    "algebraic favor": (FAVOR, AlgebraicConfig()),
    "sine relu": (RELU, SINE),
    "conv softmax": (SOFTMAX, CONV),
    "none softmax": (SOFTMAX, NONE),
}


def layer(name: str = "sine relu", **changes: Any) -> CrossAttention:
    """A layer of 16 features in 4 heads, in float64."""
    torch.manual_seed(0)
    attention, encoding = CASES[name]
    config: dict[str, Any] = {"attention": attention, "encoding": encoding, **changes}
    return CrossAttention(AttentionLayerConfig(width=16, num_heads=4, **config)).double()


def inputs(*shape: int) -> Tensor:
    """Random inputs in float64, the same for the same shape."""
    return torch.randn(*shape, 16, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("name", CASES)
def test_padding_of_the_context_has_no_effect(name: str) -> None:
    groups = 2 if "softmax" in name else None
    module, x, context = layer(name, num_kv_heads=groups), inputs(2, 4), inputs(2, 9)
    mask = torch.arange(9) < torch.tensor([6, 0])[:, None]
    out = module(x, context, context_mask=mask)
    alone = module(x[:1], context[:1, :6])
    torch.testing.assert_close(out[:1], alone, rtol=1e-9, atol=1e-9)
    assert not out[1].any()  # no keys: zeros
    out.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("name", ["rope softmax", "none softmax"])
def test_only_the_difference_of_positions_counts(name: str) -> None:
    module, x, context = layer(name), inputs(2, 4), inputs(2, 9)
    places, keys = torch.arange(4)[None, :, None] + 3, torch.arange(9)[None, :, None]
    out = module(x, context, positions=places, context_positions=keys)
    moved = module(x, context, positions=places + 1000, context_positions=keys + 1000)
    torch.testing.assert_close(out, moved, rtol=1e-8, atol=1e-9)
    shifted = module(x, context, positions=places + 1, context_positions=keys)
    assert torch.allclose(out, shifted) == (name == "none softmax")


def test_softmax_matches_a_naive_computation() -> None:
    module, x, context = layer("none softmax"), inputs(2, 4), inputs(2, 9)
    q = module.project_queries(x).unflatten(-1, (4, 4))
    k, v = module.project_context(context).unflatten(-1, (2, 4, 4)).unbind(2)
    q, k = (torch.nn.functional.rms_norm(part, (4,), eps=1e-6) for part in (q, k))
    weights = (torch.einsum("blhd,bshd->bhls", q, k) / 2).softmax(-1)
    expected = module.project_out(torch.einsum("bhls,bshd->blhd", weights, v).flatten(2))
    torch.testing.assert_close(module(x, context), expected)


def test_what_is_defined_within_one_sequence_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"attention": WINDOWED, "encoding": ROPE}, "within one sequence"),
        ({"attention": SOFTMAX, "encoding": AlibiConfig()}, "does not act on queries and keys"),
        ({"encoding": SinusoidConfig()}, "does not act on queries and keys"),
        ({"convolution_taps": 2}, "a convolution is causal"),
        ({"attention": FADING}, "half_lives"),
        ({"encoding": NUMERATOR}, "changes scores"),
        ({"attention": SOFTMAX, "encoding": AlgebraicConfig(decay=0.9)}, "changes scores"),
    ]
    for changes, message in cases:
        with pytest.raises(ValueError, match=message):
            layer(**changes)(inputs(1, 3), inputs(1, 5))


def test_wrong_shapes_are_refused_in_one_sentence() -> None:
    x, context = inputs(2, 3), inputs(2, 4)
    cases: list[tuple[Tensor, dict[str, Tensor], str]] = [
        (inputs(3, 4), {}, "x has 2 rows and the context has 3"),
        (inputs(4), {}, r"context has the shape \(4, 16\), expected \(b, s, 16\)"),
        (context, {"context_mask": torch.ones(2, 4)}, r"expected \(2, 4\) and bool"),
        (context, {"positions": torch.ones(1, 4, 1)}, r"expected \(1, 3, p\)"),
    ]
    for other, options, message in cases:
        with pytest.raises(ValueError, match=message):
            layer()(x, other, **options)
