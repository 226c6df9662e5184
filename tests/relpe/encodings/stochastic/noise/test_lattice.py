from __future__ import annotations

import math

import pytest
import torch

from relpe.encodings.stochastic.noise import lattice as noise_tiles


@pytest.mark.parametrize("kind", ["normal", "signs"])
def test_noise_is_white(kind: noise_tiles.NoiseKind) -> None:
    """Mean, variance and products of neighbouring samples and tiles, to 5 standard errors."""
    tiles = [noise_tiles.white_noise(kind, (10**5,), 5, (place,)) for place in range(-1, 2)]
    noise = torch.stack([*tiles, noise_tiles.white_noise(kind, (10**5,), 5)])
    limit = 5 / math.sqrt(10**5)
    products = noise @ noise.T / 10**5
    off = products - torch.eye(4)
    off[range(4), range(4)] /= math.sqrt(2)  # the variance of a square is 2
    assert off.abs().max() < limit
    assert noise.mean(1).abs().max() < limit
    assert (noise[:, 1:] * noise[:, :-1]).mean(1).abs().max() < limit
    if kind == "signs":
        assert set(noise.unique().tolist()) == {-1.0, 1.0}
        assert (noise.view(4, -1, 8).mean(1).abs() < 5 / math.sqrt(10**5 / 8)).all()  # every bit


def test_noise_depends_on_seed_and_place_alone() -> None:
    seeds = {noise_tiles._mixed_seed(2**40 + 1, (place,)) for place in range(-(10**4), 10**5)}
    assert len(seeds) == 11 * 10**4
    plane = {
        noise_tiles._mixed_seed(1, (row, column)) for row in range(-40, 60) for column in range(100)
    }
    assert len(plane) == 10**4
    first, *others = (
        noise_tiles.white_noise("normal", (50,), seed, place)
        for seed, place in [
            (1, (2,)),
            (1, ()),
            (2, (1,)),
            (2, (2,)),
            (1 + 2**32, (2,)),
            (1, (2, 0)),
        ]
    )
    assert torch.equal(first, noise_tiles.white_noise("normal", (50,), 1, (2,)))
    assert not any(torch.equal(first, other) for other in others)
