from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from relpe.encodings.offset.siren_network import SirenNetworkConfig, absolute_steps
from tests.support.golden_siren import GOLDEN, golden, golden_network
from tests.support.grids import centred_crop, normalized, relative_steps


def assert_exact(made: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(made, expected, rtol=1e-9, atol=1e-9)


def network_of(
    config: SirenNetworkConfig, *, axes: int = 1, features: int = 32, length: float = 1024.0
) -> Any:
    built = config.build(in_features=axes, out_features=features, reference_length=(length,))
    return built.double()


@pytest.mark.parametrize("name", ["1d", "2d", "3d", "1d_w0init", "1d_integer", "1d_long"])
def test_features_match_the_original(name: str) -> None:
    network, name = golden_network(f"siren/{name}"), f"siren/{name}"
    sizes = GOLDEN[f"{name}/structure_size"].tolist()
    steps = relative_steps(sizes)
    coordinates = steps.double() if name.endswith("integer") else normalized(steps, sizes)
    assert_exact(network(coordinates), golden(f"{name}/E"))
    crop = centred_crop(coordinates, GOLDEN[f"{name}/crop_size"].tolist())
    assert_exact(network(crop), golden(f"{name}/E_crop"))
    narrow = network.float()(coordinates)
    torch.testing.assert_close(narrow.double(), golden(f"{name}/E"), rtol=1e-4, atol=2e-5)


def test_original_initialization_keeps_its_bounds_and_is_odd() -> None:
    config = SirenNetworkConfig(initialization="original", width=200, depth=4, w0=7.0)
    network = network_of(config, axes=2)
    first, second, third, last = (layer.weight for layer in network.linears())
    for weight, bound in (
        (first, 1 / 2),
        (second, math.sqrt(6 / 200) / 7),
        (third, math.sqrt(6 / 200) / 7),
        (last, math.sqrt(3 / 200)),
    ):
        assert 0.97 * bound < weight.abs().max() <= bound
    assert all(not layer.bias.any() for layer in network.linears())
    assert network.factors == (7.0, 7.0, 7.0)
    points = torch.randn(20, 2, dtype=torch.float64)
    torch.testing.assert_close(network(-points), -network(points))
    assert not network(torch.zeros(1, 2)).any()


def test_random_phases_are_not_odd() -> None:
    network = network_of(SirenNetworkConfig())
    steps = torch.arange(1, 300)[:, None]
    forth, back = network.at(steps), network.at(-steps)
    even, odd = (forth + back).square().mean(), (forth - back).square().mean()
    assert 0.5 < even / odd < 2
    assert network.at(torch.zeros(1, 1)).abs().mean() > 0.05


@pytest.mark.parametrize("axes", [1, 3])
def test_first_periods_are_from_four_steps_to_twice_the_reference_length(axes: int) -> None:
    torch.manual_seed(3)
    network = network_of(SirenNetworkConfig(width=500), axes=axes, length=700.0)
    first = network.linears()[0]
    radians_per_step = network.factors[0] * first.weight.norm(dim=-1) / 700
    periods = (2 * math.pi / radians_per_step).log2()
    assert 2 <= periods.min() < 2.2
    assert math.log2(1400) - 0.2 < periods.max() <= math.log2(1400)
    middle = (2 + math.log2(1400)) / 2
    assert abs(periods.mean() - middle) < 5 * periods.std() / math.sqrt(500)
    phases = network.factors[0] * first.bias
    assert 0.95 * math.pi < phases.abs().max() <= math.pi


def test_neighbours_differ_for_any_reference_length() -> None:
    """With the published settings, the ratio is 0.0017 for 4096 steps."""
    for length in (64, 4096):
        features = network_of(SirenNetworkConfig(), length=length).at(torch.arange(length)[:, None])
        change = (features[1:] - features[:-1]).norm(dim=-1).mean()
        spread = (features - features.mean(0)).norm(dim=-1).mean()
        assert change / spread >= 0.2


@pytest.mark.parametrize("depth", [2, 5])
def test_factors_can_be_learned(depth: int) -> None:
    torch.manual_seed(0)
    fixed = network_of(SirenNetworkConfig(depth=depth))
    torch.manual_seed(0)
    learned = network_of(SirenNetworkConfig(depth=depth, learnable_w0=True))
    steps = torch.arange(50)[:, None]
    torch.testing.assert_close(learned.at(steps), fixed.at(steps), rtol=1e-3, atol=1e-3)
    learned.at(steps).square().sum().backward()
    assert learned.log_w0.shape == (depth - 1,)
    assert learned.log_w0.grad.abs().min() > 0


def test_far_steps_are_as_exact_as_near_ones() -> None:
    network = network_of(SirenNetworkConfig(), length=256.0)
    narrow = network_of(SirenNetworkConfig(), length=256.0).float()
    narrow.load_state_dict({k: v.float() for k, v in network.state_dict().items()})
    network.load_state_dict({k: v.double() for k, v in narrow.state_dict().items()})
    steps = absolute_steps([100])
    errors = [
        (narrow.at(steps + far).double() - network.at(steps + far)).abs().max()
        for far in (0, 10**6)
    ]
    assert max(errors) < 1e-4


def test_each_axis_has_its_own_length() -> None:
    torch.manual_seed(0)
    both = SirenNetworkConfig().build(in_features=2, out_features=3, reference_length=(100.0, 10.0))
    points = torch.tensor([[200.0, 30.0]])
    torch.testing.assert_close(both.at(points), both(torch.tensor([[2.0, 3.0]])))


def test_invalid_arguments_are_refused() -> None:
    for config, lengths in (
        (SirenNetworkConfig(depth=1), (1.0,)),
        (SirenNetworkConfig(w0=0.0), (1.0,)),
        (SirenNetworkConfig(w0_init=-1.0), (1.0,)),
        (SirenNetworkConfig(), (0.0,)),
        (SirenNetworkConfig(), (1.0, 2.0)),
    ):
        with pytest.raises(ValueError, match="expected"):
            config.build(in_features=3, out_features=2, reference_length=lengths)
