"""Laws of all stochastic encodings: gates, draws, layers of their own, and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from relpe.encodings import ConvSPEConfig, SineSPEConfig, SirenSPEConfig, StructureSPEConfig
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.stochastic import noise_products, sine, white_noise
from relpe.encodings.stochastic.base import mixture
from relpe.encodings.stochastic.structure import LabelsKernel, PlacesKernel
from tests.support.filtered import CPU, compare_layers, line
from tests.support.largest_tensor import LargestTensor

SIREN = SirenSPEConfig(max_taps=(20,), network=SirenNetworkConfig(width=16), reference_length=32.0)
CONFIGS: dict[str, Any] = {
    "sine": SineSPEConfig(num_sines=3),
    "sine, ungated": SineSPEConfig(num_sines=3, gated=False),
    "conv": ConvSPEConfig(taps=(5,)),
    "conv, more taps than a tile": ConvSPEConfig(taps=(40,)),
    "conv, two axes": ConvSPEConfig(taps=(3, 2)),
    "siren": SIREN,
    "siren, two axes": replace(SIREN, max_taps=(3, 4)),
    "structure, two axes": StructureSPEConfig(
        terms=((PlacesKernel(num_sines=2),), (PlacesKernel(axis=1, unit=3.0), LabelsKernel())),
    ),
}
every_config = pytest.mark.parametrize("name", CONFIGS)
on_a_line = pytest.mark.parametrize("name", [name for name in CONFIGS if "axes" not in name])


def built(name: str, *, draws: int = 6, shared: bool = True) -> Any:
    """An encoding of two layers in float64, with parameters of both signs."""
    torch.manual_seed(0)
    config = replace(CONFIGS[name], num_realizations=draws, shared_by_layers=shared)
    encoding = config.build(num_layers=2, num_heads=2, head_dim=4).double()
    with torch.no_grad():
        for side in ("query_filter", "key_filter", "gains"):
            if hasattr(encoding, side):
                getattr(encoding, side).normal_()
        if hasattr(encoding, "log_widths") and not shared:  # the first is the widest: equal taps
            widths = torch.tensor([2.0, 1.9])[:, None, None]
            encoding.log_widths.copy_(widths.expand_as(encoding.log_widths))
    return encoding


def limit_codes(patch: pytest.MonkeyPatch, size: int) -> None:
    """Codes of more bytes are not kept but computed where they are used."""
    for module in (sine, noise_products):
        patch.setattr(module, "SHARED_CODE_BYTES", size)


def are_kept(codes: Any) -> bool:
    parts = codes.by_layer or (codes,)
    field = next(name for name in ("products", "queries", "shared") if name in codes._fields)
    (kept,) = {getattr(part, field) is not None for part in parts}
    return kept


@on_a_line
def test_a_call_may_override_the_number_of_realizations(name: str) -> None:
    q = torch.randn(1, 50, 2, 4).double()
    outs = []
    for encoding, draws in ((built(name), 9), (built(name, draws=9), None)):
        codes, _ = encoding.prepare(line(50), encoding.init_state(5, CPU, draws))
        outs.append(torch.stack(encoding.encode(q, q, codes, 1)))
    assert outs[0].shape[-1] == 9
    assert torch.equal(*outs)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"num_realizations is {wrong}, expected at least 1"):
            built(name).init_state(0, CPU, wrong)


@pytest.mark.parametrize("fused", [True, False])
@every_config
def test_a_layer_with_its_own_parameters_equals_an_encoding_with_these(
    name: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_codes(monkeypatch, 0 if fused else 2**30)
    axes = 2 if "axes" in name else 1
    positions = torch.cat([torch.randint(0, 30, (30, axes)), torch.zeros(1, axes).long()])
    if name.startswith("sine"):
        positions = line(300, 7)[0]
    with torch.set_grad_enabled(not (fused and "conv" in name)):
        compare_layers(built(name, shared=False), positions)


@on_a_line
def test_the_memory_limit_of_codes_is_for_all_layers_together(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_one = 2 * 50 * 2 * 4 * 6 * 8  # both sides, (l, h, d, r), float64
    for allowed, shared, kept in (
        (of_one, True, True),
        (2 * of_one - 1, False, False),
        (2 * of_one, False, True),
    ):
        limit_codes(monkeypatch, allowed)
        encoding = built(name, shared=shared)
        codes, _ = encoding.prepare(line(50), encoding.init_state(0, CPU))
        assert are_kept(codes) == kept


@pytest.mark.parametrize("fused", [True, False])
@on_a_line
def test_no_tensor_contains_all_products(
    name: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_codes(monkeypatch, 0 if fused else 2**30)
    monkeypatch.setattr(white_noise, "HELD_NOISE_BYTES", 0 if fused else 2**30)
    rows, length, heads, features, draws = 5, 512, 2, 8, 32
    config = replace(CONFIGS[name], num_realizations=draws)
    encoding = config.build(num_layers=1, num_heads=heads, head_dim=features)
    q, k = torch.randn(2, rows, length, heads, features, requires_grad=True).unbind(0)
    with LargestTensor() as largest:
        codes, _ = encoding.prepare(line(length), encoding.init_state(0, CPU))
        a, b = encoding.encode(q, k, codes, 0)
        (a.square().sum() + b.square().sum()).backward()
    codes_of_all = length * heads * features * draws
    # codes of queries and keys, shared by all rows
    assert largest.elements < codes_of_all if fused else largest.elements <= 2 * codes_of_all


def test_gates_begin_at_their_initial_value() -> None:
    size: Any = {"num_layers": 2, "num_heads": 3, "head_dim": 4}
    configs: tuple[Any, ...] = (SineSPEConfig, ConvSPEConfig, SirenSPEConfig)
    for config in configs:
        gates = config(initial_gate=0.05).build(**size).gates
        torch.testing.assert_close(gates.sigmoid(), torch.full((2, 3, 4), 0.05))
        assert config().build(**size).gates.std() > 0.5
        for changes in ({"initial_gate": 1.0}, {"initial_gate": 0.1, "gated": False}):
            with pytest.raises(ValueError, match="initial_gate is"):
                config(**changes)


def test_gates_mix_by_square_roots_and_have_gradients_at_0_and_1() -> None:
    raw = torch.tensor([[-200.0, -20.0, 0.0, 1.5, 20.0, 80.0]], requires_grad=True)
    noise = torch.ones(1, 6, 4)
    kept, added = mixture(raw, noise)
    gate = torch.sigmoid(raw.double())
    torch.testing.assert_close(kept.double(), torch.sigmoid(-raw.double()).sqrt())
    torch.testing.assert_close(added[..., 0].double(), gate.sqrt() * 24**-0.25)
    (slope,) = torch.autograd.grad(kept.sum() + added.sum(), raw)
    assert slope.isfinite().all()
