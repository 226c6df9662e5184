"""Classifiers whose blocks reduce the resolution, and those in which later positions are hidden."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import AlibiConfig
from relpe.models.classifier.model import ClassifierConfig
from relpe.models.classifier.pooling import GridVectors
from tests.support.classifiers import (
    CLASSIFIERS,
    GRIDS,
    SIZES,
    TOKENS,
    classifier,
    on_grid,
    tokens,
)
from tests.support.decoders import NONE, ROPE, SOFTMAX, parameters

DECAY = "algebraic softmax, decay"
EXACT = [name for name, config in CLASSIFIERS.items() if config["attention"].kind != "linear"]


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def values(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@given(grid=st.lists(st.integers(2, 5), min_size=1, max_size=3), side=st.integers(2, 3))
def test_regions_have_their_maximum_and_the_position_of_their_first_place(
    grid: list[int], side: int
) -> None:
    side = min(side, *grid)
    x = values(2, *grid, 3)
    axes = [torch.arange(extent) for extent in grid]
    positions = torch.cartesian_prod(*axes).view(1, -1, len(grid))
    made = GridVectors(x.flatten(1, -2), tuple(grid), positions).pool(side)
    assert made.grid == tuple(extent // side for extent in grid)
    assert made.stride == side
    corners = list(itertools.product(*map(range, made.grid)))
    assert made.x.shape[1] == len(corners)
    for index, corner in enumerate(corners):
        region = x[:, *(slice(side * n, side * n + side) for n in corner)]
        assert torch.equal(made.x[:, index], region.flatten(1, -2).amax(1))
        assert made.positions[0, index].tolist() == [side * n for n in corner]


def test_a_reduction_by_one_changes_nothing() -> None:
    x = tokens(9)
    for name in ("sine relu", "rope softmax", "siren windowed", "learned softmax"):
        assert torch.equal(classifier(name, reduction=(1, 1))(x), classifier(name)(x))


# logits that decay need positions that rise by one
@pytest.mark.parametrize("name", parameters(name for name in CLASSIFIERS if name != DECAY))
def test_padding_changes_nothing_after_a_reduction(name: str) -> None:
    poolings = ("mean", "max", "last", "learned")
    pooling = poolings[[*CLASSIFIERS].index(name) % len(poolings)]
    model = classifier(name, pooling=pooling, reduction=(2, 1))
    x = tokens(9)
    lengths = torch.tensor([9, 4, 7])
    mask = torch.arange(9) < lengths[:, None]
    whole = torch.cat([model(x[i : i + 1, :n]) for i, n in enumerate(lengths)])
    same(model(x, mask=mask), whole)
    spread, wide = torch.full((3, 18), 3), torch.zeros(3, 18, dtype=torch.bool)
    spread[:, ::2], wide[:, ::2] = x, mask
    same(model(spread, mask=wide), whole)


def test_what_is_left_at_the_end_is_dropped_after_the_last_block() -> None:
    # one layer of attention without exchange: its window is the place itself
    model = classifier("rope softmax", attention=WindowedAttentionConfig(span=1), reduction=(1, 2))
    x = tokens(9)
    same(model(x), model(x[:, :8]))
    assert not torch.allclose(model(x), model(x[:, :7]))


def test_distances_after_a_reduction_are_those_of_the_input() -> None:
    # of pairs of equal tokens, the second block sees one each, at the position of the first
    changes: dict[str, Any] = {"attention": WindowedAttentionConfig(span=9), "num_layers": 1}
    for encoding in (ROPE, AlibiConfig()):
        model = classifier("rope softmax", encoding=encoding, **changes)
        block = model.blocks[0]
        x, grid, positions = values(2, 5, 16), (5,), 2 * torch.arange(5)[None, :, None]
        codes = None
        if encoding is ROPE:
            codes, _ = model.encoding.prepare(positions, ())
        state = model.init_state().layers[0]
        reduced = block(x, model.encoding, codes, state, grid, None, 2)
        # the same keys at twice the distance, the others between them hidden
        spread, seen = torch.zeros(2, 10, 16, dtype=torch.float64), torch.zeros(2, 10).bool()
        spread[:, ::2], seen[:, ::2] = x, True
        if codes is not None:
            codes, _ = model.encoding.prepare(torch.arange(10)[None, :, None], ())
        wide = classifier(
            "rope softmax", encoding=encoding, **{**changes, "attention": SOFTMAX}
        ).blocks[0]
        out = wide(spread, model.encoding, codes, state, (10,), seen)
        same(reduced, out[:, ::2])


@pytest.mark.parametrize("name", parameters(EXACT))
def test_in_raster_order_later_positions_have_no_effect(name: str) -> None:
    length = 4
    model = classifier(name, order="raster", pooling="last")
    x = tokens(9)
    mask = (torch.arange(9) < length).expand(3, -1)
    alone = model(x[:, :length])
    same(model(x, mask=mask), alone)
    other = x.clone()
    other[:, length:] = (x[:, length:] + 1) % 11
    hidden: list[Tensor] = []
    handle = model.norm.register_forward_hook(lambda m, i, out: hidden.append(out.detach()))
    for read in (x, other):
        model(read)
    handle.remove()
    same(hidden[0][:, :length], hidden[1][:, :length])


@pytest.mark.parametrize(
    ("name", "order"), [("algebraic softmax", "raster"), ("siren with a learned span", "product")]
)
def test_orders_on_a_grid(name: str, order: str) -> None:
    model = on_grid(*GRIDS[name], order=order)
    x = values(1, 3, 4, 2)
    outs: list[Tensor] = []
    model.norm.register_forward_hook(lambda m, i, out: outs.append(out.detach()))
    model(x)
    for place in itertools.product(range(3), range(4)):
        changed = x.clone()
        changed[:, place[0], place[1]] += 1
        model(changed)
        moved = ((outs[-1] - outs[0]).abs().amax(-1) > 1e-9).view(3, 4)
        for other in itertools.product(range(3), range(4)):
            beyond = other[0] >= place[0] and other[1] >= place[1]
            later = beyond if order == "product" else other >= place
            if moved[other]:
                assert later
        assert moved[place]


def test_poolings_are_the_last_position_and_the_maximum() -> None:
    x = tokens(6)
    found: dict[str, Tensor] = {}
    for pooling in ("last", "max"):
        model = classifier("rope softmax", pooling=pooling)
        outs: list[Tensor] = []
        model.norm.register_forward_hook(lambda m, i, out, outs=outs: outs.append(out))
        found[pooling] = model.encode(x)
        (out,) = outs
        same(found[pooling], out[:, -1] if pooling == "last" else out.amax(1))
    assert not torch.allclose(found["last"], found["max"])


def test_what_does_not_fit_is_refused() -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"reduction": (2,)}, "expected one value for each of 2 layers"),
        ({"reduction": (2, 0)}, "reduction is 0"),
        ({"reduction": (2, 1), "pooling": "cls"}, "cls has no place with reduction"),
        ({"order": "raster", "pooling": "cls"}, "cls has no place with reduction or order"),
        ({"reduction": (2, 1), "order": "raster"}, "earlier and later positions"),
        ({"order": "raster"}, "order is raster with linear attention"),
        ({"order": "column"}, "order is 'column'"),
    ]
    for change, message in changes:
        with pytest.raises(ValueError, match=message):
            ClassifierConfig(**{"input": TOKENS, **SIZES, **change}).build()
    with pytest.raises(ValueError, match="decay of logits needs positions that rise by one"):
        classifier(DECAY, reduction=(2, 1))(tokens(9))


def test_inputs_that_are_too_small_are_refused_in_one_sentence() -> None:
    model = classifier("rope softmax", reduction=(2, 2))
    mask = torch.arange(9) < torch.tensor([9, 4, 3])[:, None]
    with pytest.raises(ValueError, match=r"the grid \(3,\), expected at least 4 places"):
        model(tokens(3))
    with pytest.raises(ValueError, match=r"the grid \(3,\), expected at least 4 places"):
        model(tokens(9), mask=mask)
    small = on_grid(NONE, SOFTMAX, reduction=(1, 2))
    assert small(values(1, 2, 3, 2)).shape == (1, 5)
