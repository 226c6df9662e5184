"""White noise and states of filtered noise for tests, and laws of stochastic encodings."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from relpe.encodings.stochastic.white_noise import SITES, TILES, NoiseField, lattice
from tests.support.compared import compare_with_gradients

if TYPE_CHECKING:
    from relpe.encodings.stochastic.filtered_noise import FilteredNoise, FilteredNoiseState

CPU = torch.device("cpu")
REACH = [-1, 0, 1]
"""Tiles that a tile's filters read, as offsets on one axis."""
NEIGHBOURS = tuple((offset,) for offset in REACH)
"""The same in the format of a stencil."""


def line(length: int, start: int = 0) -> torch.Tensor:
    """Positions (1, l, 1) from `start` on."""
    return torch.arange(start, start + length)[None, :, None]


def noise_field(drawn: list[int] | None = None) -> NoiseField:
    """Noise on one axis; `drawn` collects the indices of the tiles that are drawn."""

    class Counted(NoiseField):
        def tile(self, index: tuple[int, ...]) -> torch.Tensor:
            if drawn is not None:
                drawn.append(index[0])
            return super().tile(index)

    return Counted("normal", 5, (2, 3, 4), {}, torch.empty(0, dtype=torch.float64))


def state_with(
    encoding: FilteredNoise, noise: torch.Tensor, first: tuple[int, ...]
) -> FilteredNoiseState:
    """A state in which `noise` (h, d, *space, r) begins at point `first` of the lattice."""
    tile, space = TILES[encoding.axes], noise.shape[2:-1]
    low = [a // c for a, c in zip(first, tile, strict=True)]
    high = [-(-(a + n) // c) for a, n, c in zip(first, space, tile, strict=True)]
    sizes = [(b - a) * c for a, b, c in zip(low, high, tile, strict=True)]
    whole = noise.new_zeros(*noise.shape[:2], *sizes, noise.shape[-1])
    inside = [
        slice(f - a * c, f - a * c + n) for f, a, c, n in zip(first, low, tile, space, strict=True)
    ]
    whole[(slice(None), slice(None), *inside)] = noise
    tiles, parts = [], []
    for index in itertools.product(*[range(b - a) for a, b in zip(low, high, strict=True)]):
        cut = [slice(i * c, (i + 1) * c) for i, c in zip(index, tile, strict=True)]
        tiles.append([a + i for a, i in zip(low, index, strict=True)])
        parts.append(whole[(slice(None), slice(None), *cut)].flatten(2, -2))
    state = encoding.init_state(0, torch.device("cpu"))
    return state._replace(tiles=torch.tensor(tiles), noise=torch.stack(parts, 2))


def unit_noise(
    encoding: FilteredNoise, positions: torch.Tensor, reach: tuple[int, ...]
) -> FilteredNoiseState:
    """Noise in all tiles around `positions` (l, p): each realization is 1 at one point, else 0.

    Sums over realizations are then the exact second moments over white noise. `reach` is the number
    of samples that filters read on either side, per axis.
    """
    tile = TILES[encoding.axes]
    low = [int(x) for x in positions.amin(0)]
    high = [int(x) for x in positions.amax(0)]
    spans = [
        range((a - n) // c, (b + n) // c + 1)
        for a, b, c, n in zip(low, high, tile, reach, strict=True)
    ]
    tiles = torch.tensor(list(itertools.product(*spans)))
    heads, features, draws = encoding.shape
    assert len(tiles) * SITES <= draws, (len(tiles) * SITES, "realizations needed")
    points = torch.eye(len(tiles) * SITES, draws, dtype=torch.float64)
    noise = points.view(len(tiles), SITES, draws).expand(heads, features, -1, -1, -1)
    state = encoding.init_state(0, torch.device("cpu"))
    return state._replace(tiles=tiles, noise=noise)


def moments(
    encoding: FilteredNoise, positions: torch.Tensor, state: FilteredNoiseState
) -> torch.Tensor:
    """(h, d, l, l): products of query and key codes summed over realizations, without scale."""
    codes, _ = encoding.prepare(positions[None], state)
    assert codes.shared is not None
    _, features, draws = encoding.shape
    return torch.einsum("lhdr,shdr->hdls", *codes.shared) * math.sqrt(features * draws)


def compare_moments(encoding: FilteredNoise, reach: tuple[int, ...], first: int) -> None:
    """Compares second moments of codes at positions from `first` on with the covariance.

    They are exact over white noise: expected scores do not change if all positions are shifted.
    """
    positions = lattice({1: (25,), 2: (3, 7), 3: (2, 3, 3)}[len(reach)]) + first
    made = moments(encoding, positions, unit_noise(encoding, positions, reach))
    lags = (positions[:, None] - positions).flatten(0, 1)
    expected = encoding.covariance(lags).unflatten(-1, (len(positions), len(positions)))
    torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-12)


def compare_with_slow(
    encoding: Any,
    slow: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    positions: torch.Tensor,
    state: Any,
) -> None:
    """Compares encoded queries and keys of layer 1 at `positions` (l, p), with all gradients."""
    q, k = torch.randn(2, 3, len(positions), *encoding.heads, dtype=torch.float64).unbind(0)
    leaves = [q.requires_grad_(), k.requires_grad_(), *encoding.parameters()]
    fast = encoding.encode(q, k, encoding.prepare(positions[None], state)[0], 1)
    compare_with_gradients(fast, slow(q, k), leaves, rtol=1e-8, atol=1e-8)


def compare_layers(encoding: Any, positions: torch.Tensor) -> None:
    """Compares each layer of an encoding, whose layers have parameters of their own.

    The other encoding has only those of this layer. Compares outputs at positions (l, p) and at the
    last one again, covariances and, unless gradients are disabled, gradients.
    """
    heads, features = encoding.heads
    q, k = torch.randn(2, 3, len(positions), heads, features, dtype=torch.float64).unbind(0)
    grads = torch.randn(2, 3, len(positions), heads, encoding.out_features, dtype=torch.float64)
    lags = lattice((4,) * positions.shape[1])
    lags = lags if lags.shape[1] > 1 else lags[:, 0]
    codes, state = encoding.prepare(positions[None], encoding.init_state(7, CPU))
    again, _ = encoding.prepare(positions[None, -1:], state)
    for layer in range(2):
        config = dataclasses.replace(encoding.config, shared_by_layers=True)
        alone = config.build(num_layers=2, num_heads=heads, head_dim=features).double()
        weights, parts = {}, {}
        for name, _ in alone.named_parameters():
            weights[name] = encoding.get_parameter(name.replace("networks.0", f"networks.{layer}"))
            parts[name] = ... if name == "gates" or "networks" in name else layer
        alone.load_state_dict({name: weight[parts[name]] for name, weight in weights.items()})
        close(encoding.covariance(lags)[layer], alone.covariance(lags))
        expected, _ = alone.prepare(positions[None], alone.init_state(7, CPU))
        outs = encoding.encode(q, k, codes, layer), alone.encode(q, k, expected, layer)
        steps = encoding.encode(q[:, -1:], k[:, -1:], again, layer)
        for made, wanted, step in zip(*outs, steps, strict=True):
            close(made, wanted)
            close(step, wanted[:, -1:])
        if torch.is_grad_enabled():
            found = torch.autograd.grad(list(outs[0]), [*weights.values()], list(grads), True)
            right = torch.autograd.grad(list(outs[1]), [*alone.parameters()], list(grads))
            for made, part, wanted in zip(found, parts.values(), right, strict=True):
                close(made[part], wanted)


def close(made: torch.Tensor, wanted: torch.Tensor) -> None:
    """Compares results that differ only by the order of sums."""
    torch.testing.assert_close(made, wanted, rtol=1e-8, atol=1e-8)
