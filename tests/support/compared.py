"""Comparison of results and gradients, such as those of a fast operation and a slow reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def compare_with_gradients(
    made: Tensor | Iterable[Tensor],
    expected: Tensor | Iterable[Tensor],
    leaves: Sequence[Tensor],
    *,
    rtol: float = 1e-9,
    atol: float = 1e-9,
) -> None:
    """Compares results, and the gradients that a random weighting of them has for the leaves."""
    one, other = ([x] if isinstance(x, Tensor) else [*x] for x in (made, expected))
    weights = [torch.randn_like(x) for x in other]
    gradients = (
        torch.autograd.grad(results, leaves, weights, retain_graph=True) for results in (one, other)
    )
    for pairs in (zip(one, other, strict=True), zip(*gradients, strict=True)):
        for a, b in pairs:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
