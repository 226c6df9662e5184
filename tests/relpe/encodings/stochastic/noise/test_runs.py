from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.encodings.stochastic.conv import ConvSPE, ConvSPEConfig
from relpe.encodings.stochastic.noise import lattice as noise_tiles
from relpe.encodings.stochastic.noise import products as noise_products
from relpe.encodings.stochastic.noise import runs as noise_runs
from relpe.encodings.stochastic.noise.lattice import SITES, Halos, NoiseField, Placement
from relpe.encodings.stochastic.noise.runs import NoiseLine, noise_around, pieces

CPU = torch.device("cpu")
REACH = [-1, 0, 1]
TILES = [(tile,) for tile in range(-3, 17)]


def field(drawn: list[int] | None = None) -> NoiseField:
    class Counted(NoiseField):
        def tile(self, index: tuple[int, ...]) -> torch.Tensor:
            if drawn is not None:
                drawn.append(index[0])
            return super().tile(index)

    return Counted("normal", 5, (2, 3, 4), {}, torch.empty(0, dtype=torch.float64))


def around(tile: int) -> torch.Tensor:
    return torch.cat([field().tile((tile + offset,)) for offset in REACH], 2)


@settings(max_examples=30)
@given(cuts=st.sets(st.integers(1, len(TILES) - 1)), run=st.integers(1, 7), last=st.booleans())
def test_runs_see_the_noise_of_their_tiles_and_draw_none_twice(cuts, run, last):
    ends = [0, *sorted(cuts), len(TILES)]
    spans = [(a, min(a + run, b)) for s, b in pairwise(ends) for a in range(s, b, run)]
    drawn: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_runs, "RUN", run)
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


def test_noise_is_held_where_it_is_read_again(monkeypatch):
    neighbours = tuple((offset,) for offset in REACH)
    for passes, kind in ((1, NoiseLine), (2, Halos), (None, Halos)):
        assert isinstance(noise_around(field(), TILES, neighbours, passes=passes), kind)
    gap = [*TILES, (99,)]
    assert isinstance(noise_around(field(), gap, neighbours, passes=1), Halos)
    assert isinstance(noise_around(field(), TILES[:1], neighbours, passes=1), Halos)
    monkeypatch.setattr(noise_tiles, "HELD_NOISE_BYTES", 0)
    assert isinstance(noise_around(field(), TILES, neighbours, passes=2), NoiseLine)
    assert isinstance(noise_around(field(), TILES, neighbours, passes=None), Halos)


@pytest.mark.parametrize("held", [True, False])
def test_whole_tiles_make_runs_and_others_stand_alone(held, monkeypatch):
    monkeypatch.setattr(noise_runs, "RUN", 3)
    positions = torch.arange(7, 6 * SITES + 5)
    placement = Placement.of(positions[:, None], (SITES,))
    neighbours = tuple((offset,) for offset in REACH)
    halos = noise_around(field(), placement.tiles, neighbours, passes=2 if held else 1)
    found = [(piece.tiles, piece.whole) for piece in pieces(placement, halos)]
    assert found == [(1, False), (3, True), (2, True), (1, False)]


def encoding(layers: int) -> ConvSPE:
    torch.manual_seed(1)
    config = ConvSPEConfig(taps=(40,), num_realizations=6)
    return config.build(num_layers=layers, num_heads=2, head_dim=5).double()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
def test_runs_equal_single_tiles_with_gradients(rows, shared, monkeypatch):
    monkeypatch.setattr(noise_products, "SHARED_CODE_BYTES", 2**30 if shared else 0)
    monkeypatch.setattr(noise_runs, "FEATURES", 2)
    module, length = encoding(2), 7 * SITES + 9
    q, k = torch.randn(2, rows, length, 2, 5, dtype=torch.float64).unbind(0)
    positions = torch.arange(11, 11 + length)[None, :, None]

    def run(tiles: int) -> list[torch.Tensor]:
        monkeypatch.setattr(noise_runs, "RUN", tiles)
        inputs = a, b = q.clone().requires_grad_(), k.clone().requires_grad_()
        state = module.init_state(2, CPU)
        out = module.encode(a, b, module.prepare(positions, state)[0], 1)
        grads = torch.autograd.grad(
            out[0].square().sum() + out[1].square().sum(),
            [*inputs, module.query_filter, module.key_filter],
        )
        with torch.no_grad():
            untrained = module.encode(q, k, module.prepare(positions, state)[0], 1)
        return [*out, *grads, *untrained]

    for one, many in zip(run(1), run(4), strict=True):
        torch.testing.assert_close(many, one, rtol=1e-10, atol=1e-10)


def test_codes_of_one_layer_are_made_where_they_are_used(monkeypatch):
    monkeypatch.setattr(noise_products, "OWN_CODE_BYTES", 0)
    positions = torch.arange(100)[None, :, None]
    for layers in (1, 2):
        module = encoding(layers)
        codes, _ = module.prepare(positions, module.init_state(0, CPU))
        assert (codes.shared is None) == (layers == 1)
