from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.stochastic import noise_products
from relpe.encodings.stochastic.filtered_noise import FilteredNoiseState
from relpe.encodings.stochastic.siren import BUCKET, FIRST_WIDTH, SirenSPEConfig
from tests.support import reference_stochastic
from tests.support.filtered import (
    CPU,
    compare_moments,
    compare_with_slow,
    line,
    state_with,
)
from tests.support.golden_siren import GOLDEN, golden, golden_network


def raw(x: torch.Tensor) -> torch.Tensor:
    """The inverse of softplus."""
    return x + (-(-x).expm1()).log()


def golden_encoding() -> tuple[Any, FilteredNoiseState]:
    noise = golden("spe/noise")  # (h, d, t, r)
    network = golden_network("spe/siren")
    config = SirenSPEConfig(
        max_taps=(GOLDEN["spe/phi_q"].shape[-1],),
        network=network.config,
        reference_length=float(GOLDEN["spe/L_ref"]),
        num_realizations=noise.shape[-1],
    )
    encoding = config.build(num_layers=1, num_heads=2, head_dim=3).double()
    encoding.networks[0].load_state_dict(network.state_dict())
    with torch.no_grad():
        encoding.log_widths.copy_((golden("spe/sigma_steps")[:, None] - 0.5).log())
        encoding.gains.copy_(raw(golden("spe/gain")))
    return encoding, state_with(encoding, noise, (-24,))


def small(max_taps: tuple[int, ...] = (40,), *, draws: int = 6, shared: bool = True) -> Any:
    torch.manual_seed(len(max_taps))
    config = SirenSPEConfig(
        max_taps=max_taps,
        network=SirenNetworkConfig(width=16),
        reference_length=32.0,
        num_realizations=draws,
        shared_by_layers=shared,
    )
    return config.build(num_layers=2, num_heads=2, head_dim=3).double()


def test_filters_covariance_and_codes_match_the_formulas() -> None:
    encoding, state = golden_encoding()
    made = encoding.steps_back()
    for side, name in enumerate(("q", "k")):
        torch.testing.assert_close(made[side], golden(f"spe/phi_{name}"), rtol=1e-9, atol=1e-9)
    expected = golden("spe/P_lag_m_minus_n")
    covariance = encoding.covariance(torch.arange(-24, 25))
    torch.testing.assert_close(covariance, expected, rtol=1e-9, atol=1e-9)
    codes, _ = encoding.prepare(line(20), state)
    scale = (encoding.config.num_realizations * 3) ** 0.25
    for made, name in zip(codes.shared, ("Qbar", "Kbar"), strict=True):
        expected = golden(f"spe/{name}").permute(2, 0, 1, 3)
        torch.testing.assert_close(made * scale, expected, rtol=1e-9, atol=1e-9)


def test_the_variance_depends_only_on_the_gain() -> None:
    encoding = small()
    variance = torch.nn.functional.softplus(encoding.gains).square()
    for width in (0.6, 2.0, 9.0):
        with torch.no_grad():
            encoding.log_widths.fill_(math.log(width - 0.5))
        filters = encoding.filters().values
        torch.testing.assert_close(filters.square().sum(-1), variance, rtol=1e-6, atol=1e-6)
        assert (encoding.covariance(torch.zeros(1, dtype=torch.int64)) <= 1 + 1e-6).all()


def test_the_number_of_taps_follows_the_widest_window_in_whole_buckets() -> None:
    encoding = small((200,))

    def taps(*widths: float) -> int:
        with torch.no_grad():
            encoding.log_widths.copy_((torch.tensor(widths)[:, None] - 0.5).log())
        return encoding.steps_back().shape[-1]

    assert taps(2, 3) == BUCKET  # 1 + ceil(3 * 3.035) = 11
    assert taps(4, 6) == taps(6, 1) == 2 * BUCKET
    assert taps(60, 900) == 200
    with pytest.raises(ValueError, match="max_taps are"):
        small((0,))


def test_first_widths_are_spread_up_to_a_quarter_of_the_reference_length() -> None:
    for length, last in ((400.0, 100.0), (1.0, FIRST_WIDTH)):
        config = SirenSPEConfig(reference_length=length)
        widths = config.build(num_layers=1, num_heads=3, head_dim=2).window_widths()[:, 0]
        expected = torch.tensor([FIRST_WIDTH, math.sqrt(FIRST_WIDTH * last), last])
        torch.testing.assert_close(widths, expected, rtol=1e-4, atol=0)


def test_one_learning_rate_moves_narrow_and_wide_windows_by_the_same_share() -> None:
    """The first step of Adam changes every parameter by the same amount."""
    encoding = SirenSPEConfig(reference_length=400.0).build(num_layers=1, num_heads=3, head_dim=2)
    before = encoding.window_widths().detach()
    optimizer = torch.optim.Adam([encoding.log_widths], lr=0.01)
    encoding.covariance(torch.arange(9)).square().sum().backward()
    optimizer.step()
    moved = ((encoding.window_widths() - 0.5) / (before - 0.5)).log().abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01), rtol=1e-3, atol=0)


@pytest.mark.parametrize("max_taps", [(20,), (3, 4), (2, 3, 2)])
def test_second_moments_equal_the_covariance_at_any_first_position(
    max_taps: tuple[int, ...],
) -> None:
    draws = {1: 160, 2: 32 * 16, 3: 32 * 64}[len(max_taps)]
    compare_moments(small(max_taps, draws=draws), max_taps, first=10**6)


@pytest.mark.parametrize(("max_taps", "fused"), [((20,), False), ((3, 4), True)])
def test_fast_equals_slow_with_gradients(
    max_taps: tuple[int, ...], fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_products, "SHARED_CODE_BYTES", 0 if fused else 2**30)
    encoding = small(max_taps)
    positions, state = torch.randint(-9, 30, (8, len(max_taps))), encoding.init_state(7, CPU)
    slow = partial(
        reference_stochastic.apply_filtered_noise,
        encoding,
        positions=positions,
        state=state,
        layer=1,
    )
    compare_with_slow(encoding, slow, positions, state)
