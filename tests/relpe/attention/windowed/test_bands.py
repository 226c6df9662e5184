"""Attention within a span without a table: each way equals that with all scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relpe.attention.windowed import bfloat16_blocks as in_blocks
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.attention.windowed.bands import banded_attention
from relpe.attention.windowed.masked_blocks import masked_blocks
from relpe.attention.windowed.offset_scores import softmax_with_table
from relpe.encodings.base import OffsetTable

Way = Callable[[Tensor, Tensor, Tensor, "Tensor | None", int], Tensor]


def inputs(queries: int, history: int, *, rows: int = 2, seed: int = 0) -> list[Tensor]:
    """Queries, keys and values of three heads, in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, queries, 3, 5), *[(rows, history + queries, 3, size) for size in (5, 7)]]
    found = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [3 * found[0], *found[1:]]


def by_all_scores(q: Tensor, k: Tensor, v: Tensor, seen: list[int], span: int) -> Tensor:
    """Rows one by one, without their missing keys."""
    history = k.shape[1] - q.shape[1]
    rows = [
        softmax_with_table(
            q[row : row + 1],
            k[row : row + 1, history - number :],
            v[row : row + 1, history - number :],
            OffsetTable(span=span),
        )
        for row, number in enumerate(seen)
    ]
    return torch.cat(rows)


def with_gradients(way: Way, parts: list[Tensor], seen: Tensor | None, span: int) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in parts]
    out = way(leaves[0], leaves[1], leaves[2], seen, span)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out.detach(), *torch.autograd.grad(out, leaves, cotangent)]


def in_float64(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, span: int) -> Tensor:
    return in_blocks.bfloat16_blocks(q, k, v, seen, span, torch.float64)


@given(
    queries=st.integers(1, 90),
    history=st.integers(0, 60),
    span=st.sampled_from([1, 2, 9, 40, 200]),
    block=st.sampled_from([1, 7, 32, 256]),
    aligned=st.sampled_from([1, 8, 64]),
    missing=st.lists(st.integers(0, 60), min_size=2, max_size=2),
)
def test_blocks_are_attention_to_all_keys_of_the_span_with_gradients(
    queries: int, history: int, span: int, block: int, aligned: int, missing: list[int]
) -> None:
    parts = inputs(queries, history)
    seen = [max(0, history - number) for number in missing]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_blocks, "BLOCK", block)
        patch.setattr(in_blocks, "ALIGNED", aligned)
        found = with_gradients(in_float64, parts, torch.tensor(seen), span)
        if not any(missing):
            found = with_gradients(in_float64, parts, None, span)
    expected = with_gradients(
        lambda q, k, v, _, span: by_all_scores(q, k, v, seen, span), parts, None, span
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_scores_far_above_those_of_the_sample_are_exact() -> None:
    parts = inputs(60, 0)
    parts[1][:, 5] *= 1000  # which the sample does not contain, and most queries attend to
    found = with_gradients(in_float64, parts, None, 50)
    for one, other in zip(found, with_gradients(masked_blocks, parts, None, 50), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    narrow = in_blocks.bfloat16_blocks(parts[0], parts[1], parts[2], None, 50)
    assert bool(narrow.isfinite().all())


@pytest.mark.parametrize(("scale", "span"), [(1.0, 300), (6.0, 1000)])
def test_blocks_in_bfloat16_are_as_exact_as_their_inputs_with_gradients(
    scale: float, span: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 700, 2, 32, generator=generator).bfloat16().double()
    parts = [scale * q, k, v]
    exact = with_gradients(masked_blocks, parts, None, span)
    found = with_gradients(in_blocks.bfloat16_blocks, parts, None, span)
    assert found[0].dtype == torch.bfloat16
    for one, other in zip(found, exact, strict=True):
        assert (one - other).norm() < 0.02 * other.norm()


@pytest.mark.parametrize("beyond", [False, True])
def test_autocast_computes_attention_in_bfloat16(
    beyond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beyond the span, where it was float32."""
    products: list[torch.dtype] = []
    blocks = in_blocks._Blocks.apply

    def noted(shape: Any, *parts: Tensor) -> Any:
        products.extend(x.dtype for x in parts)
        return blocks(shape, *parts)

    monkeypatch.setattr(in_blocks._Blocks, "apply", noted)
    q, k, v = (x.float() for x in inputs(50, 0))
    operation = WindowedAttentionConfig(span=20 if beyond else 50).build()
    state = operation.init_state((2, 3, 7), torch.Generator(), q, 5)
    with torch.autocast("cpu", torch.bfloat16):
        out, state = operation(q, k, v.bfloat16(), state)
    exact = masked_blocks(q, k, v, None, operation.span)
    assert out.dtype == torch.bfloat16
    assert (out - exact).norm() < 0.02 * exact.norm()
    assert products == ([torch.bfloat16] * 3 if beyond else [])
    assert state.keys.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("seen", [None, [300, 7]])
def test_on_gpus_bfloat16_is_close_to_float32_with_gradients(seen: list[int] | None) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 900, 2, 32, generator=generator).to("cuda", torch.bfloat16)
    parts = [q[:, 300:], k, v]
    given_seen = None if seen is None else torch.tensor(seen, device="cuda")

    def narrow(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, span: int) -> Tensor:
        return banded_attention(q, k, v, seen, span, torch.bfloat16)

    found = with_gradients(narrow, parts, given_seen, 500)
    expected = with_gradients(masked_blocks, [x.float() for x in parts], given_seen, 500)
    for one, other in zip(found, expected, strict=True):
        assert (one.float() - other).norm() < 0.02 * other.norm()
