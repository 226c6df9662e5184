from __future__ import annotations

import pytest
import torch

from relpe.encodings.stochastic import noise_products
from relpe.encodings.stochastic.conv import ConvSPE, ConvSPEConfig
from relpe.encodings.stochastic.noise_products import Plan
from relpe.encodings.stochastic.white_noise import SITES, Placement, noise_around
from tests.support.filtered import NEIGHBOURS, noise_field

CPU = torch.device("cpu")


@pytest.mark.parametrize("held", [True, False])
def test_whole_tiles_are_joined_into_runs(held, monkeypatch):
    monkeypatch.setattr(noise_products, "RUN", 3)
    positions = torch.arange(7, 6 * SITES + 5)
    placement = Placement.of(positions[:, None], (SITES,))
    halos = noise_around(noise_field(), placement.tiles, NEIGHBOURS, passes=2 if held else 1)
    found = [(piece.tiles, piece.whole) for piece in Plan(placement, halos).pieces()]
    assert found == [(1, False), (3, True), (2, True), (1, False)]


def encoding(layers: int) -> ConvSPE:
    torch.manual_seed(1)
    config = ConvSPEConfig(taps=(40,), num_realizations=6)
    return config.build(num_layers=layers, num_heads=2, head_dim=5).double()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
def test_runs_equal_single_tiles_with_gradients(rows, shared, monkeypatch):
    monkeypatch.setattr(noise_products, "SHARED_CODE_BYTES", 2**30 if shared else 0)
    monkeypatch.setattr(noise_products, "FEATURES", 2)
    module, length = encoding(2), 7 * SITES + 9
    q, k = torch.randn(2, rows, length, 2, 5, dtype=torch.float64).unbind(0)
    positions = torch.arange(11, 11 + length)[None, :, None]

    def run(tiles: int) -> list[torch.Tensor]:
        monkeypatch.setattr(noise_products, "RUN", tiles)
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


def test_codes_of_one_layer_are_computed_where_they_are_used(monkeypatch):
    monkeypatch.setattr(noise_products, "OWN_CODE_BYTES", 0)
    positions = torch.arange(100)[None, :, None]
    for layers in (1, 2):
        module = encoding(layers)
        codes, _ = module.prepare(positions, module.init_state(0, CPU))
        assert (codes.shared is None) == (layers == 1)
