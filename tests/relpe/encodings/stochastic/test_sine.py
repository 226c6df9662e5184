from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.encodings.stochastic import sine as sine_spe
from relpe.encodings.stochastic.sine import SineNoise, SineSPEConfig
from tests.support import reference_stochastic as reference
from tests.support.filtered import compare_with_slow, line
from tests.support.golden_spe import GOLDEN, golden


def golden_encoding(*, gated: bool = True) -> tuple[Any, SineNoise]:
    heads, features, sines = GOLDEN["sine_freqs_raw"].shape
    draws = GOLDEN["sine_z"].shape[-1]
    config = SineSPEConfig(num_sines=sines, num_realizations=draws, gated=gated)
    encoding = config.build(num_layers=1, num_heads=heads, head_dim=features).double()
    weights = {
        "frequencies": "sine_freqs_raw",
        "offsets": "sine_offsets",
        "gains": "sine_gains_raw",
    }
    with torch.no_grad():
        for name, key in weights.items():
            getattr(encoding, name).copy_(golden(key))
        if encoding.gates is not None:
            encoding.gates.copy_(golden("filt_gate_raw")[None])
    return encoding, SineNoise(
        golden("sine_z").unflatten(2, (sines, 2)), golden("filt_gate_noise")[None]
    )


def small(
    length: int = 0, *, gated: bool = True, shared: bool = True, **options: Any
) -> tuple[Any, SineNoise, torch.Tensor, torch.Tensor]:
    torch.manual_seed(length)
    options = {"num_sines": 3, "num_realizations": 6} | options
    config = SineSPEConfig(gated=gated, shared_by_layers=shared, **options)
    encoding = config.build(num_layers=2, num_heads=2, head_dim=4).double()
    noise = encoding.init_state(7, torch.device("cpu"))
    noise = noise._replace(sines=noise.sines.double(), gates=noise.gates.double())
    q, k = torch.randn(2, 3, length, 2, 4, dtype=torch.float64).unbind(0)
    return encoding, noise, q, k


def test_the_covariance_matches_the_original() -> None:
    encoding, _ = golden_encoding()
    length = GOLDEN["sine_P"].shape[-1]
    lags = torch.arange(length)[:, None] - torch.arange(length)
    torch.testing.assert_close(
        encoding.covariance(lags.flatten()).unflatten(-1, (length, length)),
        golden("sine_P"),
        rtol=1e-10,
        atol=1e-10,
    )


def test_codes_match_the_original() -> None:
    encoding, noise = golden_encoding()
    for name, positions in (("", np.arange(GOLDEN["sine_qbar"].shape[0])), ("_at_positions", None)):
        place = golden("sine_positions") if positions is None else torch.from_numpy(positions)
        codes, _ = encoding.prepare(place[None, :, None], noise)
        tolerance = 1e-9 if positions is None else 1e-10
        for made, key in zip(codes.products, ("sine_qbar", "sine_kbar"), strict=True):
            torch.testing.assert_close(made, golden(key + name), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("gated", [True, False])
def test_encoded_queries_and_keys_match_the_original(gated: bool) -> None:
    encoding, noise = golden_encoding(gated=gated)
    q, k = golden("filt_queries"), golden("filt_keys")
    codes, _ = encoding.prepare(line(q.shape[1]), noise)
    suffix = "" if gated else "_ungated"
    for made, key in zip(encoding.encode(q, k, codes, 0), ("filt_qhat", "filt_khat"), strict=True):
        torch.testing.assert_close(made, golden(key + suffix), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("gated", "fused", "steps"),
    [
        (True, True, [1] * 300),
        (False, True, [5 * i for i in range(40)]),
        (True, False, [1] * 130 + [9] * 70),
        (False, False, [1] * 130),
        (True, True, [1] * 130 + [9] * 70),
    ],
)
def test_fast_equals_slow_with_gradients(
    gated: bool, fused: bool, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sine_spe, "SHARED_CODE_BYTES", 0 if fused else 2**30)
    positions = torch.tensor(steps).cumsum(0) + 1000
    encoding, noise, _, _ = small(len(steps), gated=gated)
    codes, _ = encoding.prepare(positions[None, :, None], noise)
    assert (codes.products is None) == fused
    slow = partial(reference.apply_sine_spe, encoding, positions=positions, noise=noise, layer=1)
    compare_with_slow(encoding, slow, positions[:, None], noise)


@pytest.mark.parametrize("draws", [1, 3, 4, 6, 9])
def test_sparse_noise_gives_the_same_as_dense_products_with_it_with_gradients(
    draws: int,
) -> None:
    for steps in ([1] * 300, [1] * 130 + [9] * 170, []):
        encoding, noise, _, _ = small(noise="sparse", num_realizations=draws)
        positions = torch.tensor([10**6, *steps]).cumsum(0)
        slow = partial(
            reference.apply_sine_spe, encoding, positions=positions, noise=noise, layer=1
        )
        compare_with_slow(encoding, slow, positions[:, None], noise)


@given(start=st.integers(0, 10**7), shift=st.integers(0, 10**6), length=st.integers(1, 140))
def test_shifting_positions_changes_no_expected_score(start: int, shift: int, length: int) -> None:
    """With the exact second moments of the noise, products of codes depend only on offsets.

    Gates are left out: codes of one position would include them, and their noise is random.
    """
    encoding, noise, _, _ = small(length, gated=False)
    identity = torch.eye(6, dtype=torch.float64).view(3, 2, 6)  # unit noise in place of random
    unit = noise._replace(sines=identity.expand(2, 4, 3, 2, 6))

    def moments(first: int) -> torch.Tensor:
        codes, _ = encoding.prepare(line(length, first), unit)
        return torch.einsum("lhdr,shdr->hdls", *codes.products)

    torch.testing.assert_close(moments(start), moments(start + shift), rtol=1e-6, atol=1e-7)


@torch.no_grad()
@pytest.mark.parametrize("noise", ["normal", "sparse"])
def test_mean_and_variance_of_scores(noise: str) -> None:
    """The estimate is unbiased and has the derived variance, with sparse noise at most that."""
    encoding, _, q, k = small(4, noise=noise)
    q, k, draws = q[:1], k[:1], 1500
    lags = torch.arange(4)[:, None] - torch.arange(4)
    gate = torch.sigmoid(encoding.gates[0])[..., None, None]
    covariance = encoding.covariance(lags.flatten()).unflatten(-1, (4, 4))
    covariance = (1 - gate) * covariance + gate
    gains = torch.nn.functional.softplus(encoding.gains)
    variance = gains.square().sum(-1) / (2 * encoding.config.num_sines)
    variance = (1 - gate[..., 0, 0]) * variance + gate[..., 0, 0]
    mean = torch.einsum("lhd,shd,hdls->hls", q[0], k[0], covariance) / 2
    spread = torch.einsum("lhd,hd->lh", q[0] ** 2, variance)[:, None] * torch.einsum(
        "shd,hd->sh", k[0] ** 2, variance
    )
    spread = (spread.permute(2, 0, 1) + (2 * mean) ** 2) / (encoding.out_features * 4)

    def scores(seed: int) -> torch.Tensor:
        codes, _ = encoding.prepare(line(4), encoding.init_state(seed, torch.device("cpu")))
        a, b = encoding.encode(q, k, codes, 0)
        return torch.einsum("blhr,bshr->hls", a, b) / encoding.out_features**0.5

    found = torch.stack([scores(seed) for seed in range(draws)])
    assert ((found.mean(0) - mean).abs() <= 5 * (spread / draws).sqrt()).all()
    assert (found.var(0) <= 1.25 * spread + 0.02).all()
    if noise == "normal":
        torch.testing.assert_close(found.var(0), spread, rtol=0.25, atol=0.02)
