"""Derivatives of every decoder: forward mode, of second order, and by the transforms of torch.func.

None may be silently wrong because of an operation with a backward pass of its leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vjp, vmap

from relpe import causal_linear_attention, gated_delta_rule, higher_derivatives
from relpe.attention.linear.attention import LinearState
from tests.support.decoders import CONFIGS, decoder, every_decoder, parameters, tokens_of

Weights = dict[str, Tensor]
LENGTH = 40
pytestmark = [
    # forward mode of torch 2.13 scripts its leaves decompositions
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # of vmap
]


def function_of(name: str) -> tuple[Callable[..., Tensor], Weights, Weights]:
    """Logits (b, l, v) in float64 as a function of the weights, the weights, and a direction."""
    model = decoder(name).double()
    weights = {key: weight.detach() for key, weight in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    direction = {
        key: torch.randn(x.shape, generator=generator, dtype=x.dtype) for key, x in weights.items()
    }

    def logits(tokens: Tensor, leaves: Weights) -> Tensor:
        state = model.init_state(len(tokens))
        if state.events is not None:  # a weight is the first row of events
            row = leaves["events.start"].expand(len(tokens), -1)
            state = state._replace(events=state.events._replace(row=row))
        return functional_call(model, leaves, (tokens, torch.arange(LENGTH)[None, :, None], state))[
            0
        ]

    return logits, weights, direction


def product(a: Weights, b: Weights) -> Tensor:
    """The inner product of two sets of weights."""
    return torch.stack([(a[key] * b[key]).sum() for key in a]).sum()


@every_decoder
def test_forward_mode_and_backward_passes_agree(name: str) -> None:
    """The inner products of J v with w, and of v with J^T w, are equal."""
    logits, weights, direction = function_of(name)
    leaves = {key: x.clone().requires_grad_() for key, x in weights.items()}
    out = logits(tokens_of(LENGTH), leaves)
    w = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    gradients = torch.autograd.grad(out, [*leaves.values()], w)
    expected = product(dict(zip(leaves, gradients, strict=True)),
                       direction)  # fmt: skip
    function = partial(logits, tokens_of(LENGTH))
    with higher_derivatives():
        forward = jvp(function, (weights,), (direction,))[1]
        backward = vjp(function, weights)[1]
    torch.testing.assert_close((forward * w).sum(), expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(product(backward(w)[0], direction), expected, rtol=1e-8, atol=1e-10)


@every_decoder
def test_second_derivatives_are_right_or_refused(name: str) -> None:
    """Hessian times vector: by two backward passes, and in forward mode through one."""
    logits, weights, direction = function_of(name)

    def loss(leaves: Weights) -> Tensor:
        return logits(tokens_of(LENGTH), leaves).logsumexp(-1).square().mean()

    leaves = {key: x.clone().requires_grad_() for key, x in weights.items()}

    def twice(value: Tensor) -> Weights:
        first = torch.autograd.grad(value, [*leaves.values()], create_graph=True)
        slope = product(dict(zip(leaves, first, strict=True)), direction)
        second = torch.autograd.grad(slope, [*leaves.values()], materialize_grads=True)
        return dict(zip(leaves, second, strict=True))

    with higher_derivatives():
        found = twice(loss(leaves))
        expected = jvp(grad(loss), (weights,), (direction,))[1]
    for key, one in expected.items():
        torch.testing.assert_close(found[key], one, rtol=1e-6, atol=1e-9, msg=key)
    try:
        torch.testing.assert_close(twice(loss(leaves)), found, rtol=1e-6, atol=1e-9)
    except RuntimeError as error:
        words = str(error)
        assert "relpe.higher_derivatives()" in words or "scaled_dot_product" in words


@pytest.mark.parametrize("name", parameters(x for x in CONFIGS if "events" not in x))
def test_rows_can_be_mapped(name: str) -> None:
    logits, weights, _ = function_of(name)
    tokens = tokens_of(LENGTH)
    rows = vmap(lambda row: logits(row[None], weights)[0], randomness="same")(tokens)
    torch.testing.assert_close(rows, logits(tokens, weights), rtol=1e-8, atol=1e-10)


def test_the_operations_alone_have_tangents_and_gradients_of_torch_func() -> None:
    x = torch.rand(5, 1, 20, 2, 4, dtype=torch.float64)
    state = LinearState.empty((1, 2, 4, 4), device=x.device, dtype=x.dtype)

    def linear(x: Tensor) -> Tensor:
        return causal_linear_attention(x[0], x[1], x[2], state)[0].square().sum()

    def delta(x: Tensor) -> Tensor:
        gates = x[3, ..., 0], -x[4, ..., 0]
        return gated_delta_rule(x[0], x[1], x[2], *gates, state.kv)[0].square().sum()

    for function in (linear, delta):
        leaves = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(function(leaves), leaves)
        torch.testing.assert_close(grad(function)(x), expected)
        slope = jvp(function, (x,), (torch.ones_like(x),))[1]
        torch.testing.assert_close(slope, expected.sum())
        with pytest.raises(RuntimeError, match=r"within relpe.higher_derivatives\(\)"):
            torch.autograd.grad(function(leaves), leaves, create_graph=True)
