from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.stochastic import noise_products, white_noise
from relpe.encodings.stochastic.conv import ConvSPEConfig
from relpe.encodings.stochastic.filtered_noise import FilteredNoiseState, filter_covariance
from relpe.encodings.stochastic.siren import BUCKET, FIRST_WIDTH, SirenSPE, SirenSPEConfig
from tests.support import reference_stochastic
from tests.support.filtered import line, moments, state_with, unit_noise
from tests.support.golden_siren import GOLDEN, golden, golden_network

CPU = torch.device("cpu")


def raw(x: torch.Tensor) -> torch.Tensor:
    """The inverse of softplus."""
    return x + (-(-x).expm1()).log()


def golden_encoding() -> tuple[SirenSPE, FilteredNoiseState]:
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


def small(
    max_taps: tuple[int, ...] = (40,), *, draws: int = 6, gated: bool = True, shared: bool = True
) -> SirenSPE:
    torch.manual_seed(len(max_taps))
    config = SirenSPEConfig(
        max_taps=max_taps,
        network=SirenNetworkConfig(width=16),
        reference_length=32.0,
        num_realizations=draws,
        gated=gated,
        shared_by_layers=shared,
    )
    return config.build(num_layers=2, num_heads=2, head_dim=3).double()


def test_filters_and_covariance_match_the_formulas() -> None:
    encoding, _ = golden_encoding()
    made = encoding.steps_back()
    for side, name in enumerate(("q", "k")):
        torch.testing.assert_close(made[side], golden(f"spe/phi_{name}"), rtol=1e-9, atol=1e-9)
    expected = golden("spe/P_lag_m_minus_n")
    covariance = encoding.covariance(torch.arange(-24, 25))
    torch.testing.assert_close(covariance, expected, rtol=1e-9, atol=1e-9)


def test_codes_match_the_formulas() -> None:
    encoding, state = golden_encoding()
    codes, _ = encoding.prepare(line(20), state)
    assert codes.shared is not None
    scale = (encoding.config.num_realizations * 3) ** 0.25
    for made, name in zip(codes.shared, ("Qbar", "Kbar"), strict=True):
        expected = golden(f"spe/{name}").permute(2, 0, 1, 3)
        torch.testing.assert_close(made * scale, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("width", [1.2, 3.0, 8.0])
def test_two_gaussians_give_a_gaussian_of_twice_the_variance(width: float) -> None:
    reach = math.ceil(12 * width)
    bell = torch.exp(-torch.arange(-reach, reach + 1).double().square() / (2 * width**2))
    encoding = ConvSPEConfig(taps=(len(bell),), gated=False).build(
        num_layers=1, num_heads=1, head_dim=1
    )
    encoding = encoding.double()
    with torch.no_grad():
        encoding.query_filter.copy_(bell)
        encoding.key_filter.copy_(bell)
    lags = torch.arange(-round(4 * width), round(4 * width) + 1)
    expected = width * math.sqrt(math.pi) * torch.exp(-lags.double().square() / (4 * width**2))
    torch.testing.assert_close(encoding.covariance(lags)[0, 0], expected, rtol=3e-6, atol=0)


def test_an_impulse_for_keys_leaves_the_query_filter() -> None:
    """The code of a key is the noise at its position, so P(m - n) is the filter at m - n."""
    encoding = small()
    phi = encoding.steps_back()[0]
    impulse = torch.zeros_like(phi)
    impulse[..., 0] = 1
    lags = torch.arange(-30, 30)
    expected = torch.zeros(2, 3, 60, dtype=torch.float64)
    kept = min(30, phi.shape[-1])
    expected[..., 30 : 30 + kept] = phi[..., :kept]
    made = filter_covariance(phi.flip(-1), impulse.flip(-1), lags)
    torch.testing.assert_close(made, expected)
    both = filter_covariance(impulse.flip(-1), impulse.flip(-1), lags)
    assert torch.equal(both, (lags == 0).double().expand(2, 3, -1))


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
    last = 1 + math.ceil(6 * math.sqrt(-2 * math.log(0.01)))
    assert last <= 2 * BUCKET


def test_first_widths_are_spread_up_to_a_quarter_of_the_reference_length() -> None:
    config = SirenSPEConfig(reference_length=400.0)
    encoding = config.build(num_layers=1, num_heads=3, head_dim=2)
    widths = encoding.window_widths()[:, 0]
    torch.testing.assert_close(widths, torch.tensor([FIRST_WIDTH, 20.0, 100.0]), rtol=1e-4, atol=0)
    assert torch.isfinite(
        SirenSPEConfig(reference_length=1.0)
        .build(num_layers=1, num_heads=1, head_dim=2)
        .window_widths()
    ).all()


def test_one_learning_rate_moves_narrow_and_wide_windows_by_the_same_share() -> None:
    """The first step of Adam changes every parameter by the same amount."""
    encoding = SirenSPEConfig(reference_length=400.0).build(num_layers=1, num_heads=3, head_dim=2)
    before = encoding.window_widths().detach()
    optimizer = torch.optim.Adam([encoding.log_widths], lr=0.01)
    encoding.covariance(torch.arange(9)).square().sum().backward()
    optimizer.step()
    moved = ((encoding.window_widths() - 0.5) / (before - 0.5)).log().abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01), rtol=1e-3, atol=0)


@pytest.mark.parametrize("max_taps", [(20,), (3, 4)])
def test_a_layer_with_its_own_filters_equals_an_encoding_with_these(
    max_taps: tuple[int, ...],
) -> None:
    encoding, length = small(max_taps, shared=False), 30
    with (
        torch.no_grad()
    ):  # different layers; the first is the widest, so that the taps are the same
        encoding.log_widths.copy_(
            torch.tensor([2.0, 1.9])[:, None, None].expand_as(encoding.log_widths)
        )
        encoding.gains.normal_()
    positions = torch.randint(-9, 30, (1, length, len(max_taps)))
    q, k = torch.randn(2, 2, length, 2, 3, dtype=torch.float64).unbind(0)
    grads = torch.randn(2, 2, length, 2, 6, dtype=torch.float64)
    lags = white_noise.lattice((4,) * len(max_taps))
    codes, _ = encoding.prepare(positions, encoding.init_state(7, CPU))
    for layer in range(2):
        alone = small(max_taps)
        alone.networks[0].load_state_dict(encoding.networks[layer].state_dict())
        with torch.no_grad():
            alone.log_widths.copy_(encoding.log_widths[layer])
            alone.gains.copy_(encoding.gains[layer])
            assert alone.gates is not None
            assert encoding.gates is not None
            alone.gates.copy_(encoding.gates)
        torch.testing.assert_close(encoding.covariance(lags)[layer], alone.covariance(lags))
        expected, _ = alone.prepare(positions, alone.init_state(7, CPU))
        outs = encoding.encode(q, k, codes, layer), alone.encode(q, k, expected, layer)
        parameters = [encoding.log_widths, encoding.gains, *encoding.networks[layer].parameters()]
        right = [alone.log_widths, alone.gains, *alone.networks[0].parameters()]
        found, wanted = (
            torch.autograd.grad(list(out), weights, list(grads), True)
            for out, weights in zip(outs, (parameters, right), strict=True)
        )
        for made, other in zip(*outs, strict=True):
            torch.testing.assert_close(made, other, rtol=1e-12, atol=1e-12)
        for place, (made, other) in enumerate(zip(found, wanted, strict=True)):
            made = made[layer] if place < 2 else made
            torch.testing.assert_close(made, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("max_taps", [(20,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("far", [0, 10**6])
def test_second_moments_equal_the_covariance_at_any_first_position(
    max_taps: tuple[int, ...], far: int
) -> None:
    """Exact over white noise, also at the first position, since noise extends before it."""
    positions = white_noise.lattice({1: (25,), 2: (3, 7), 3: (2, 3, 3)}[len(max_taps)]) + far
    encoding = small(max_taps, draws={1: 160, 2: 32 * 16, 3: 32 * 64}[len(max_taps)])
    made = moments(encoding, positions, unit_noise(encoding, positions, max_taps))
    lags = (positions[:, None] - positions).flatten(0, 1)
    expected = encoding.covariance(lags).unflatten(-1, (len(positions), len(positions)))
    torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_many_realizations_reproduce_the_covariance() -> None:
    """To 5 standard errors; a product of two codes has the variance V V + P^2."""
    draws, length = 20_000, 6
    encoding = small(draws=draws)
    codes, _ = encoding.prepare(line(length), encoding.init_state(4, CPU))
    assert codes.shared is not None
    products = torch.einsum("lhdr,shdr->hdls", *codes.shared) * math.sqrt(3 / draws)
    lags = (line(length)[0] - line(length)[0].T).flatten()
    expected = encoding.covariance(lags).unflatten(-1, (length, length))
    norms = encoding.filters().values.square().sum(-1)
    error = ((norms[0] * norms[1])[..., None, None] + expected.square()).div(draws).sqrt()
    assert ((products - expected).abs() <= 5 * error).all()


@pytest.mark.parametrize("max_taps", [(20,), (3, 4)])
@pytest.mark.parametrize("fused", [True, False])
def test_fast_equals_slow_with_gradients(
    max_taps: tuple[int, ...], fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_products, "SHARED_CODE_BYTES", 0 if fused else 2**30)
    encoding = small(max_taps)
    positions = torch.randint(-9, 30, (8, len(max_taps)))
    q, k = torch.randn(2, 2, 8, 2, 3, dtype=torch.float64).unbind(0)
    grad = torch.randn(2, 2, 8, 2, 6, dtype=torch.float64)
    state = encoding.init_state(7, CPU)

    def run(fast: bool) -> list[torch.Tensor]:
        inputs = a, b = q.clone().requires_grad_(), k.clone().requires_grad_()
        if fast:
            out = encoding.encode(a, b, encoding.prepare(positions[None], state)[0], 1)
        else:
            out = reference_stochastic.apply_filtered_noise(encoding, a, b, positions, state, 1)
        return [
            *out,
            *torch.autograd.grad(list(out), [*inputs, *encoding.parameters()], list(grad)),
        ]

    for fast, slow in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)


@settings(max_examples=10)
@given(
    start=st.sampled_from([0, -50, 10**6 - 3]),
    pieces=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    trained=st.booleans(),
    num_realizations=st.sampled_from([None, 1, 9]),
)
def test_any_split_of_the_positions_gives_the_same_codes(
    start: int, pieces: list[int], trained: bool, num_realizations: int | None
) -> None:
    encoding, length = small(), sum(pieces)

    def run(sizes: list[int]) -> torch.Tensor:
        state, outs, done = encoding.init_state(3, CPU, num_realizations), [], 0
        for size in sizes:
            codes, state = encoding.prepare(line(size, start + done), state)
            assert codes.shared is not None
            outs.append(codes.shared)
            done += size
        return torch.cat(outs, 1)

    with torch.set_grad_enabled(trained):
        torch.testing.assert_close(run(pieces), run([length]), rtol=1e-10, atol=1e-12)


def test_every_parameter_gets_a_gradient() -> None:
    encoding = small()
    q, k = torch.randn(2, 2, 30, 2, 3, dtype=torch.float64).unbind(0)
    codes, _ = encoding.prepare(line(30), encoding.init_state(0, CPU))
    a, b = encoding.encode(q, k, codes, 0)
    torch.einsum("blhr,bshr->bhls", a, b).exp().sum().backward()
    for name, weights in encoding.named_parameters():
        assert weights.grad is not None, name
        assert weights.grad.isfinite().all(), name
        assert weights.grad.abs().max() > 0, name
