"""The implementations of attention that `bench_attention` compares, and their inputs.

Packages that are not installed (`pip install -e ".[bench]"`) are skipped with a notice.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.attention.linear.attention import LinearState, causal_linear_attention
from tests.support import reference_linear as reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from relpe.attention.linear.chunked import Tiling

HEADS, WIDTH, FEATURES = 8, 64, 128
LONGEST_QUADRATIC = 2048
"""Maximum length for implementations that store all scores, or the sums at all positions."""
OURS = "linear: ours"


class Way(NamedTuple):
    """One implementation: features (b, l, h, f) and values (b, l, h, e) to (b, l, h, e)."""

    run: Callable[[Tensor, Tensor, Tensor], Tensor]
    longest: int | None = None
    linear: bool = True
    half: bool = True  # whether it supports bfloat16


def ours(q: Tensor, k: Tensor, v: Tensor, how: Tiling | None = None) -> Tensor:
    """This package's operation."""
    shape = (q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    state = LinearState.empty(shape, device=q.device, dtype=torch.float32)
    return causal_linear_attention(q, k, v, state, None, how)[0]


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Torch's fused softmax attention; queries and keys are cut to the width of the values."""
    q, k, v = (x.transpose(1, 2) for x in (q[..., :WIDTH], k[..., :WIDTH], v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def ways() -> dict[str, Way]:
    """All implementations that are installed."""
    found = {
        OURS: Way(ours),
        "linear: all weights": Way(reference.causal_linear_attention, LONGEST_QUADRATIC),
        "softmax: torch": Way(softmax, linear=False),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its decorators use names that torch deprecates
            peer = import_module("performer_pytorch.performer_pytorch")

        def performer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            heads_first = [x.transpose(1, 2) for x in (q, k, v)]
            return peer.causal_linear_attention_noncuda(*heads_first).transpose(1, 2)

        found["linear: performer-pytorch"] = Way(performer, LONGEST_QUADRATIC, half=False)
    except ImportError:
        print("# performer-pytorch is not installed")
    try:
        attend = import_module("x_transformers.attend").Attend(causal=True, heads=HEADS)

        def x_transformers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in (q[..., :WIDTH], k[..., :WIDTH], v))
            return attend(q, k, v)[0].transpose(1, 2)

        found["softmax: x-transformers"] = Way(x_transformers, LONGEST_QUADRATIC, linear=False)
    except ImportError:
        print("# x-transformers is not installed")
    return found


def inputs(length: int, dtype: torch.dtype, *, train: bool) -> list[Tensor]:
    """Positive features of queries and keys, and values."""
    generator = torch.Generator().manual_seed(length)
    q, k = torch.rand(2, 1, length, HEADS, FEATURES, generator=generator).unbind(0)
    v = torch.randn(1, length, HEADS, WIDTH, generator=generator)
    return [x.to(dtype).requires_grad_(train) for x in (q, k, v)]


def call(way: Way, tensors: list[Tensor], *, train: bool) -> Tensor:
    """One forward pass and, if `train`, a backward pass; gradients are discarded."""
    with torch.set_grad_enabled(train):
        out = way.run(*tensors)
        if train:
            torch.autograd.grad(out.float().square().sum(), tensors)
    return out.detach()
