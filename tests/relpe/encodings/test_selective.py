from __future__ import annotations

import cmath
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relpe.encodings.rope import RopeConfig
from relpe.encodings.selective import SelectiveRope, SelectiveRopeConfig

HEADS, FEATURES = 2, 8
WIDTH = HEADS * FEATURES


def selective(layers: int = 1, **options: Any) -> SelectiveRope:
    """An encoding in float64 with random moves."""
    torch.manual_seed(0)
    made = SelectiveRopeConfig(**options).build(
        num_layers=layers, num_heads=HEADS, head_dim=FEATURES
    )
    torch.nn.init.normal_(made.moves)
    return made.double()


def inputs(length: int, rows: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, keys and inputs of a layer, in float64."""
    generator = torch.Generator().manual_seed(length)
    q, k = torch.randn(2, rows, length, HEADS, FEATURES, generator=generator).double().unbind(0)
    return q, k, torch.randn(rows, length, WIDTH, generator=generator).double()


def scores(q: Tensor, k: Tensor) -> Tensor:
    """(b, h, l, l)."""
    return torch.einsum("blhd,bshd->bhls", q, k)


@torch.no_grad()
def slow(encoding: SelectiveRope, q: Tensor, x: Tensor, base: float) -> Tensor:
    """Pair (i, i + d/2) of each head as a complex number, turned step by step."""
    turned = torch.empty_like(q)
    for row in range(len(x)):
        for head in range(HEADS):
            for pair in range(FEATURES // 2):
                place = 0.0
                for at in range(x.shape[1]):
                    place += float(encoding.moves[0, head, pair] @ x[row, at])
                    angle = (at + place) * base ** (-2 * pair / FEATURES)
                    both = [pair, pair + FEATURES // 2]
                    value = torch.complex(*q[row, at, head, both]) * cmath.exp(1j * angle)
                    turned[row, at, head, both] = torch.stack([value.real, value.imag])
    return turned


def test_pairs_are_turned_by_their_position_and_all_moves_so_far() -> None:
    encoding = selective(base=7.0)
    q, k, x = inputs(5)
    turned, keys = encoding(q, k, x)
    torch.testing.assert_close(turned, slow(encoding, q, x, 7.0), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(keys, slow(encoding, k, x, 7.0), rtol=1e-10, atol=1e-10)


def test_a_new_encoding_is_rotary_embedding() -> None:
    sizes: dict[str, Any] = {"num_heads": HEADS, "head_dim": FEATURES}
    new, rope = SelectiveRopeConfig().build(**sizes), RopeConfig().build(**sizes)
    q, k, x = inputs(6)
    places = torch.tensor([0, 1, 7, 1000, -3, 10**6])[None, :, None]
    pairs = zip(new(q, k, x, places), rope(q, k, places), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@given(start=st.integers(0, 10**7))
def test_scores_do_not_depend_on_where_positions_begin(start: int) -> None:
    encoding = selective()
    q, k, x = inputs(4)
    places = torch.arange(4)[None, :, None]
    moved, still = encoding(q, k, x, places + start), encoding(q, k, x, places)
    torch.testing.assert_close(scores(*moved), scores(*still), rtol=1e-7, atol=1e-7)


def test_an_input_that_moves_back_by_one_does_not_count() -> None:
    encoding = selective()
    q, k, x = inputs(6)
    with torch.no_grad():
        encoding.moves[..., 0] = -1.0
        x[..., 0] = 0.0
    x[:, 2] = torch.eye(WIDTH, dtype=torch.float64)[0]
    others = [0, 1, 3, 4, 5]
    whole = scores(*encoding(q, k, x))[:, :, others][..., others]
    without = scores(*encoding(q[:, others], k[:, others], x[:, others]))
    torch.testing.assert_close(whole, without, rtol=1e-10, atol=1e-10)


@given(cut=st.integers(0, 7))
def test_parts_are_encoded_like_the_whole(cut: int) -> None:
    encoding = selective(layers=2)
    q, k, x = inputs(7)
    places = torch.arange(7)[None, :, None]
    state = encoding.init_layer_state(2, x.device)
    found = []
    for part in (slice(0, cut), slice(cut, 7)):
        codes, _ = encoding.prepare(places[:, part], ())
        a, b, state = encoding.encode(q[:, part], k[:, part], x[:, part], codes, 1, state)
        found.append(torch.stack([a, b]))
    whole = torch.stack(encoding(q, k, x, layer=1))
    torch.testing.assert_close(torch.cat(found, 2), whole, rtol=1e-10, atol=1e-10)


def test_padding_moves_nothing() -> None:
    encoding = selective()
    q, k, x = inputs(6)
    start = encoding.init_layer_state(2, x.device)
    codes, _ = encoding.prepare(torch.arange(6)[None, :, None], ())
    lengths = torch.tensor([4, 0])
    *_, state = encoding.encode(q, k, x, codes, 0, start, lengths)
    alone, _ = encoding.prepare(torch.arange(4)[None, :, None], ())
    *_, expected = encoding.encode(q[:1, :4], k[:1, :4], x[:1, :4], alone, 0, start[:1])
    torch.testing.assert_close(state, torch.cat([expected, start[1:]]))


def test_autocast_does_not_make_moves_coarse() -> None:
    encoding = selective().float()
    q, k, x = (part.float() for part in inputs(300))
    plain = encoding(q, k, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, encoding(q, k, x), plain))


def test_gradients_reach_moves_that_are_zero() -> None:
    encoding = SelectiveRopeConfig().build(num_heads=HEADS, head_dim=FEATURES)
    q, k, x = (part.float() for part in inputs(5))
    scores(*encoding(q, k, x)).square().sum().backward()
    assert encoding.moves.grad is not None
    assert bool((encoding.moves.grad.abs().amax(-1) > 0).all())


def test_wrong_shapes_are_refused_in_one_sentence() -> None:
    encoding = selective()
    q, k, x = inputs(5)
    with pytest.raises(ValueError, match=r"inputs x \(2, 4, 16\), expected \(b, l, h, d\)"):
        encoding(q, k, x[:, :4])
    with pytest.raises(ValueError, match="inputs have 15 features, expected 16"):
        encoding(q, k, x[..., 1:])
    with pytest.raises(ValueError, match="layer is 1, expected 0 to 0"):
        encoding(q, k, x, layer=1)
    with pytest.raises(ValueError, match="expected an even number"):
        SelectiveRopeConfig().build(num_heads=1, head_dim=7)
