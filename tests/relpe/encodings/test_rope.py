from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.encodings.rope import Rope, RopeConfig

HEADS, FEATURES = 2, 8


def rope(base: float = 10_000.0) -> Rope:
    return RopeConfig(base=base).build(num_layers=1, num_heads=HEADS, head_dim=FEATURES)


def slow_rotation(x: torch.Tensor, place: float, base: float = 10_000.0) -> torch.Tensor:
    """Pair (i, i + d/2) as a complex number, times exp(i place base^(-2i/d))."""
    pairs = torch.complex(*x.chunk(2, -1))
    speeds = base ** (-torch.arange(0, FEATURES, 2, dtype=torch.float64) / FEATURES)
    turned = pairs * torch.exp(1j * place * speeds)
    return torch.cat([turned.real, turned.imag], -1)


def encode(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    encoding = rope()
    codes, _ = encoding.prepare(places[None, :, None], encoding.init_state(0, x.device))
    turned, same = encoding.encode(x, x, codes, 0)
    torch.testing.assert_close(turned, same, rtol=0, atol=0)
    return turned


def test_pairs_of_features_are_rotated_by_their_position() -> None:
    x = torch.randn(3, 5, HEADS, FEATURES, dtype=torch.float64)
    places = torch.tensor([0, 1, 7, 1000, -3])
    slow = torch.stack([slow_rotation(x[:, at], float(p)) for at, p in enumerate(places)], 1)
    torch.testing.assert_close(encode(x, places), slow, rtol=1e-12, atol=1e-12)


@given(start=st.integers(0, 10**7), lag=st.integers(-500, 500))
def test_scores_depend_only_on_the_lag_and_norms_are_preserved(start: int, lag: int) -> None:
    q, k = torch.randn(2, 1, 1, HEADS, FEATURES, dtype=torch.float64).unbind(0)

    def score(first: int) -> torch.Tensor:
        a, b = (encode(x, torch.tensor([at])) for x, at in ((q, first), (k, first + lag)))
        torch.testing.assert_close(a.norm(dim=-1), q.norm(dim=-1), rtol=1e-12, atol=0)
        return (a * b).sum(-1)

    torch.testing.assert_close(score(start), score(0), rtol=1e-8, atol=1e-8)


def test_far_positions_are_equally_exact_in_float32() -> None:
    x = torch.randn(1, 1, HEADS, FEATURES)
    exact = slow_rotation(x[:, 0].double(), 1e6)[:, None]
    torch.testing.assert_close(encode(x, torch.tensor([10**6])).double(), exact, rtol=0, atol=1e-6)


def test_an_odd_number_of_features_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an even number"):
        RopeConfig().build(num_layers=1, num_heads=1, head_dim=7)
