from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from relpe.encodings.stochastic import white_noise
from relpe.encodings.stochastic.conv import ConvSPEConfig
from relpe.encodings.stochastic.sine import SineSPEConfig
from tests.support.filtered import state_with
from tests.support.original_spe import (
    export_conv_spe,
    export_sine_spe,
    import_conv_spe,
    import_sine_spe,
)


@pytest.mark.parametrize("axes", [1, 2])
def test_imported_parameters_give_the_codes_of_the_original(axes: int) -> None:
    """The encoder of the original filters the noise of keys with the filter named `conv_q`."""
    config = ConvSPEConfig(taps=(4, 3)[:axes], num_realizations=6)
    encoding = config.build(num_layers=2, num_heads=2, head_dim=3).double()
    taps, space = encoding.config.taps, (6, 5)[:axes]
    draws = encoding.config.num_realizations
    weights = {
        name: torch.randn(2 * 3, 1, *taps, dtype=torch.float64)
        for name in ("conv_q.weight", "conv_k.weight")
    }
    gates = [torch.randn(2, 3, dtype=torch.float64) for _ in range(2)]
    import_conv_spe(encoding, weights, gates)
    sizes = [n + t - 1 for n, t in zip(space, taps, strict=True)]
    noise = torch.randn(draws, 2 * 3, *sizes, dtype=torch.float64)
    convolve = functional.conv1d if axes == 1 else functional.conv2d
    keys, queries = (
        convolve(noise, weights[name], groups=6).flatten(2).unflatten(1, (2, 3))
        for name in ("conv_q.weight", "conv_k.weight")
    )  # (r, h, d, l)
    state = state_with(encoding, noise.unflatten(1, (2, 3)).movedim(0, -1), (0,) * axes)
    codes, _ = encoding.prepare(white_noise.lattice(space)[None], state)
    assert codes.shared is not None
    for made, expected in zip(codes.shared, (queries, keys), strict=True):
        expected = expected.permute(3, 1, 2, 0) * (draws * 3) ** -0.25
        torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-12)

    exported, exported_gates = export_conv_spe(encoding)
    assert exported.keys() == weights.keys()
    for name, value in weights.items():
        assert torch.equal(exported[name], value)
    assert all(map(torch.equal, exported_gates, gates))


def test_separate_parameters_for_each_layer_are_refused() -> None:
    """An encoder of the original has one set of parameters for all layers."""
    sines = SineSPEConfig(shared_by_layers=False).build(num_layers=2, num_heads=2, head_dim=3)
    filters = ConvSPEConfig(taps=(2,), shared_by_layers=False).build(
        num_layers=2, num_heads=2, head_dim=3
    )
    with pytest.raises(ValueError, match="build the encoding with shared_by_layers"):
        import_sine_spe(sines, {})
    with pytest.raises(ValueError, match="build the encoding with shared_by_layers"):
        export_sine_spe(sines)
    with pytest.raises(ValueError, match="build the encoding with shared_by_layers"):
        import_conv_spe(filters, {})
    with pytest.raises(ValueError, match="build the encoding with shared_by_layers"):
        export_conv_spe(filters)


def test_parameters_of_sines_survive_export_and_import() -> None:
    config = SineSPEConfig(num_sines=3)
    first, second = (config.build(num_layers=2, num_heads=2, head_dim=3) for _ in range(2))
    weights, gates = export_sine_spe(first)
    assert {name: tuple(x.shape) for name, x in weights.items()} == dict.fromkeys(
        ["freqs", "offsets", "gains"], (2, 3, 3)
    )
    import_sine_spe(second, weights, gates)
    for name, value in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], value)
    with pytest.raises(ValueError, match="freqs: missing"):
        import_sine_spe(second, {}, gates)
    with pytest.raises(ValueError, match=r"freqs: found shape \(2, 3, 1\)"):
        import_sine_spe(second, weights | {"freqs": torch.zeros(2, 3, 1)}, gates)
    with pytest.raises(ValueError, match="gates of 1 layers, expected 2"):
        import_sine_spe(second, weights, gates[:1])
