from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.encodings.stochastic import white_noise
from relpe.encodings.stochastic.white_noise import Halos, NoiseLine, noise_around
from tests.support.filtered import NEIGHBOURS, REACH
from tests.support.filtered import noise_field as field


@pytest.mark.parametrize("kind", ["normal", "signs"])
def test_noise_is_white(kind: white_noise.NoiseKind) -> None:
    """Mean, variance and products of neighbouring samples and tiles, to 5 standard errors."""
    tiles = [white_noise.white_noise(kind, (10**5,), 5, (place,)) for place in range(-1, 2)]
    noise = torch.stack([*tiles, white_noise.white_noise(kind, (10**5,), 5)])
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


def test_noise_depends_only_on_seed_and_place() -> None:
    seeds = {white_noise._mixed_seed(2**40 + 1, (place,)) for place in range(-(10**4), 10**5)}
    assert len(seeds) == 11 * 10**4
    plane = {
        white_noise._mixed_seed(1, (row, column)) for row in range(-40, 60) for column in range(100)
    }
    assert len(plane) == 10**4
    first, *others = (
        white_noise.white_noise("normal", (50,), seed, place)
        for seed, place in [
            (1, (2,)),
            (1, ()),
            (2, (1,)),
            (2, (2,)),
            (1 + 2**32, (2,)),
            (1, (2, 0)),
        ]
    )
    assert torch.equal(first, white_noise.white_noise("normal", (50,), 1, (2,)))
    assert not any(torch.equal(first, other) for other in others)


TILES = [(tile,) for tile in range(-3, 17)]


def around(tile: int) -> torch.Tensor:
    return torch.cat([field().tile((tile + offset,)) for offset in REACH], 2)


@settings(max_examples=30)
@given(cuts=st.sets(st.integers(1, len(TILES) - 1)), run=st.integers(1, 7), last=st.booleans())
def test_runs_use_the_noise_of_their_tiles_and_draw_none_twice(cuts, run, last):
    ends = [0, *sorted(cuts), len(TILES)]
    spans = [(a, min(a + run, b)) for s, b in pairwise(ends) for a in range(s, b, run)]
    drawn: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(white_noise, "RUN", run)
        line = NoiseLine(field(drawn), TILES, REACH)
        if last:
            assert torch.equal(line.noise(len(TILES) - 1), around(TILES[-1][0]))
        for first, stop in spans:
            noise = line.run(first, stop)
            for place in range(first, stop):
                assert torch.equal(noise[:, :, place - first], around(TILES[place][0]))
        assert sorted(drawn) == list(range(TILES[0][0] - 1, TILES[-1][0] + 2))
        first = line.run(0, min(run, 3))  # once more from the start
        assert torch.equal(first[:, :, 0], around(TILES[0][0]))


def test_noise_is_kept_if_it_is_read_again(monkeypatch):
    for passes, kind in ((1, NoiseLine), (2, Halos), (None, Halos)):
        assert isinstance(noise_around(field(), TILES, NEIGHBOURS, passes=passes), kind)
    gap = [*TILES, (99,)]
    assert isinstance(noise_around(field(), gap, NEIGHBOURS, passes=1), Halos)
    assert isinstance(noise_around(field(), TILES[:1], NEIGHBOURS, passes=1), Halos)
    monkeypatch.setattr(white_noise, "HELD_NOISE_BYTES", 0)
    assert isinstance(noise_around(field(), TILES, NEIGHBOURS, passes=2), NoiseLine)
    assert isinstance(noise_around(field(), TILES, NEIGHBOURS, passes=None), Halos)
