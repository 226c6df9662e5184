"""Structure-informed SPE: its laws on every axis, exact values, and sine SPE as a special case."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.encodings.stochastic import sine
from relpe.encodings.stochastic.sine import SineSPEConfig
from relpe.encodings.stochastic.structure import (
    Kernel,
    LabelsKernel,
    PlacesKernel,
    StructureNoise,
    StructureSPE,
    StructureSPEConfig,
    noise_of_label,
)
from relpe.models.decoder import DecoderConfig
from tests.support.decoders import in_pieces, tokens_of

CPU = torch.device("cpu")
TIME, BAR = PlacesKernel(num_sines=3), PlacesKernel(axis=1, num_sines=2, unit=0.5)
CHORD, SECTION = LabelsKernel(axis=2), LabelsKernel(axis=3)
TERMS: tuple[tuple[Kernel, ...], ...] = ((TIME,), (BAR, CHORD), (BAR, TIME), (SECTION,))
"""Sums and products of places and labels, on four axes."""


def encoding_of(
    terms: tuple[tuple[Kernel, ...], ...] = TERMS, draws: int = 6, **options: Any
) -> StructureSPE:
    torch.manual_seed(0)
    config = StructureSPEConfig(terms=terms, num_realizations=draws, **options)
    return config.build(num_layers=2, num_heads=2, head_dim=4).double()


def noise_of(encoding: StructureSPE, seed: int = 7) -> StructureNoise:
    return in_double(encoding.init_state(seed, CPU))


def in_double(noise: Any) -> Any:
    """All of the noise that is drawn in advance, in float64."""
    if isinstance(noise, torch.Tensor):
        return noise.double() if noise.is_floating_point() else noise
    if isinstance(noise, tuple):
        parts: Any = map(in_double, noise)
        return type(noise)(*parts) if hasattr(noise, "_fields") else tuple(parts)
    return noise


def places(length: int, rows: int = 1) -> torch.Tensor:
    """Positions (rows, length, 4), float64: time, bar, chord and section."""
    generator = torch.Generator().manual_seed(length)
    time = torch.rand(rows, length, generator=generator, dtype=torch.float64).cumsum(1)
    labels = torch.randint(-2, 3, (2, rows, length), generator=generator)
    return torch.stack([time, (time / 2).floor(), *labels], -1)


def numpy_codes(
    encoding: StructureSPE, positions: np.ndarray, noise: StructureNoise, layer: int
) -> list[np.ndarray]:
    """Codes (l, h, d, r) of queries and of keys, before gates, from the formulas of the module.

    A sine is the real part of a complex exponential times a complex noise.
    """
    (_, heads, features), draws = encoding.shape, encoding.out_features

    def softplus(raw: np.ndarray) -> np.ndarray:
        return np.log1p(np.exp(raw))

    total = [np.zeros((len(positions), heads, features, draws)) for _ in range(2)]
    number = 0
    for term in encoding.config.terms:
        product = [np.ones_like(total[0]) for _ in range(2)]
        for kernel in term:
            weights = {
                name: (value if encoding.config.shared_by_layers else value[layer]).detach().numpy()
                for name, value in encoding.processes[number].named_parameters()
            }
            for side in range(2):
                for at, position in enumerate(positions):
                    if isinstance(kernel, LabelsKernel):
                        shape = (heads, features, draws)
                        seed = int(noise.factors[number].seed)  # type: ignore[union-attr]
                        drawn = noise_of_label(shape, seed, int(position[kernel.axis]), CPU)
                        code = softplus(weights["weights"])[..., None] * drawn.numpy()
                    else:
                        z = noise.factors[number].sines.numpy()  # type: ignore[union-attr]
                        turns = position[kernel.axis] / kernel.unit
                        turns = turns / 2 / (1 + np.exp(-weights["frequencies"]))
                        angle = 2 * np.pi * turns + (weights["offsets"] if side == 0 else 0.0)
                        wave = softplus(weights["gains"]) * np.exp(1j * angle)
                        complex_noise = z[..., 0, :] - 1j * z[..., 1, :]
                        code = (wave[..., None] * complex_noise).real.sum(2)
                        code = code / np.sqrt(2 * kernel.num_sines)
                    product[side][at] *= code
            number += 1
        total = [a + b for a, b in zip(total, product, strict=True)]
    return [side * (draws * features) ** -0.25 for side in total]


def scores_of(
    encoding: StructureSPE, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, seed: int
) -> torch.Tensor:
    """Scores (b, h, l, l) of q and k (b, l, h, d)."""
    codes, _ = encoding.prepare(positions, encoding.init_state(seed, CPU))
    a, b = encoding.encode(q, k, codes, 0)
    return torch.einsum("blhr,bshr->bhls", a, b) / encoding.out_features**0.5


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("gated", [True, False])
def test_with_time_alone_it_is_sine_spe(gated: bool, shared: bool) -> None:
    options: Any = {"gated": gated, "shared_by_layers": shared, "num_realizations": 6}
    built = []
    for config in (
        SineSPEConfig(num_sines=3, **options),
        StructureSPEConfig(terms=((TIME,),), **options),
    ):
        torch.manual_seed(0)
        built.append(config.build(num_layers=2, num_heads=2, head_dim=4))
    q, k = torch.randn(2, 3, 300, 2, 4).unbind(0)
    for positions in (torch.arange(300)[None, :, None] + 10**6, places(300), places(300, 3)):
        for layer in range(2):
            outs = []
            for encoding in built:
                codes, _ = encoding.prepare(positions, encoding.init_state(5, CPU))
                outs.append(torch.stack(encoding.encode(q, k, codes, layer)))
            torch.testing.assert_close(outs[1], outs[0], rtol=1e-5, atol=1e-6)
    lags = torch.arange(-5, 6)
    assert torch.equal(built[1].covariance(lags), built[0].covariance(lags))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_codes_are_those_of_the_formula_at_any_place(
    kept: bool, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sine, "SHARED_CODE_BYTES", 2**30 if kept else 0)
    encoding = encoding_of(gated=False, shared_by_layers=shared)
    noise = noise_of(encoding)
    q, k = torch.randn(2, 2, 9, 2, 4, dtype=torch.float64).unbind(0)
    for first in (0.0, 1e6):
        positions = places(9) + torch.tensor([first, first / 4, 0, 10**9])
        codes, _ = encoding.prepare(positions, noise)
        for layer in range(2):
            outs = encoding.encode(q, k, codes, layer)
            expected = numpy_codes(encoding, positions[0].numpy(), noise, layer)
            for made, x, code in zip(outs, (q, k), expected, strict=True):
                wanted = np.einsum("blhd,lhdr->blhr", x.numpy(), code)
                np.testing.assert_allclose(made.detach().numpy(), wanted, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("shared_axes", [[], [0], [1, 2], [0, 1, 2, 3]])
def test_rows_with_places_of_their_own_are_encoded_like_each_alone(shared_axes: list[int]) -> None:
    encoding, positions = encoding_of(), places(7, 3)
    positions[..., shared_axes] = positions[:1][..., shared_axes]
    noise = noise_of(encoding)
    q, k = torch.randn(2, 3, 7, 2, 4, dtype=torch.float64).unbind(0)
    for length in (7, 1):
        together, _ = encoding.prepare(positions[:, :length], noise)
        outs = torch.stack(encoding.encode(q[:, :length], k[:, :length], together, 1))
        for row in range(3):
            alone, _ = encoding.prepare(positions[row : row + 1, :length], noise)
            part = slice(row, row + 1), slice(length)
            expected = torch.stack(encoding.encode(q[part], k[part], alone, 1))
            torch.testing.assert_close(outs[:, row : row + 1], expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_decoder_reads_any_parts_of_rows_with_places_of_their_own() -> None:
    config = StructureSPEConfig(terms=TERMS, num_realizations=6)
    sizes: Any = {"vocabulary_size": 11, "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24}
    model = DecoderConfig(**sizes, encoding=config).build().double().eval()
    assert model.num_axes == 4
    tokens, positions = tokens_of(20, rows=3), places(20, 3)
    whole, _ = model(tokens, positions, model.init_state(3))
    for pieces in ([1] * 20, [7, 1, 12]):
        torch.testing.assert_close(in_pieces(model, tokens, pieces, positions), whole)
    other = positions.clone()
    other[..., 2] += 1  # all chords have other names
    other[0, :, 2] = positions[0, :, 2]
    renamed, _ = model(tokens, other, model.init_state(3))
    torch.testing.assert_close(renamed[0], whole[0])
    assert (renamed[1:] - whole[1:]).abs().max() > 1e-6


@given(
    axis=st.integers(0, 3),
    shift=st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e4, 1e4)),
)
def test_shifting_places_on_any_axis_changes_no_expected_score(axis: int, shift: float) -> None:
    """With the exact second moments of the noise, products of codes are the covariance.

    Each wave of places has a draw of its own; labels have random noise, so their mean is left out.
    """
    shift = round(shift) if axis > 1 else shift
    positions = places(6)
    moved = positions.clone()
    moved[..., axis] += shift
    lags = [(x[0, :, None] - x[0]).flatten(0, 1) for x in (positions, moved)]
    mixed = encoding_of()
    torch.testing.assert_close(
        mixed.covariance(lags[1]), mixed.covariance(lags[0]), rtol=1e-6, atol=1e-7
    )
    if axis > 1:
        return
    encoding = encoding_of(((TIME,), (BAR,)), draws=10, gated=False)
    identity = torch.eye(10, dtype=torch.float64).view(5, 2, 10).split([3, 2])
    noise = noise_of(encoding)
    unit = StructureNoise(
        tuple(
            own._replace(sines=part.expand(2, 4, -1, 2, 10))  # type: ignore[union-attr]
            for own, part in zip(noise.factors, identity, strict=True)
        )
    )
    codes, _ = encoding.prepare(moved, unit)
    each = torch.eye(4, dtype=torch.float64)[:, None, None].expand(-1, 6, 2, -1)
    queries, keys = encoding.encode(each, each, codes, 0)  # (d, l, h, r): codes of the features
    moments = torch.einsum("dlhr,dshr->hdls", queries, keys).flatten(2) * (10 * 4) ** 0.5
    torch.testing.assert_close(moments, encoding.covariance(lags[0]), rtol=1e-6, atol=1e-7)


@torch.no_grad()
def test_scores_are_unbiased_with_the_stated_variance_and_errors_fall_as_the_root_of_draws() -> (
    None
):
    positions, errors = places(4), []
    q, k = torch.randn(2, 1, 4, 2, 4, dtype=torch.float64).unbind(0)
    lags = (positions[0, :, None] - positions[0]).flatten(0, 1)
    for draws, repeats in ((4, 800), (64, 200)):
        encoding = encoding_of(draws=draws, gated=False)
        covariance = encoding.covariance(lags).unflatten(-1, (4, 4))  # (h, d, l, s)
        mean = torch.einsum("lhd,shd,hdls->hls", q[0], k[0], covariance) / 2
        variance, fourth = moments_of(encoding, lags)
        fourth = fourth.unflatten(-1, (4, 4))
        squares = q[0] ** 2, k[0] ** 2
        spread = torch.einsum("lhd,hd->lh", squares[0], variance)[:, None] * torch.einsum(
            "shd,hd->sh", squares[1], variance
        )
        spread = spread.permute(2, 0, 1) + (2 * mean) ** 2
        more = fourth - variance[..., None, None] ** 2 - 2 * covariance**2
        spread = (spread + torch.einsum("lhd,shd,hdls->hls", *squares, more)) / (draws * 4)
        found = torch.stack([scores_of(encoding, q, k, positions, n)[0] for n in range(repeats)])
        assert ((found.mean(0) - mean).abs() <= 5 * (spread / repeats).sqrt()).all()
        ratio = found.var(0).mean() / spread.mean()
        assert 0.75 < ratio < 1.3
        errors.append(float((found - mean).square().mean().sqrt()))
    slope = math.log(errors[1] / errors[0]) / math.log(64 / 4)
    assert -0.6 < slope < -0.4


def moments_of(encoding: StructureSPE, lags: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """V (h, d), and the mean M (h, d, o) of the squared product of two codes, at lags (o, p).

    For independent terms x and y, M of their sum is M_x + M_y + V_x V_y + V_y V_x + 4 P_x P_y.
    """
    ones = torch.ones(2, 4, len(lags), dtype=torch.float64)
    total = [torch.zeros_like(ones) for _ in range(3)]  # V, P, M
    for numbers in encoding._terms():
        term = [ones, ones, ones]
        for number in numbers:
            factor: Any = encoding.processes[number]
            p = factor.covariance(encoding._places(lags, number))
            if isinstance(encoding.kernels[number], LabelsKernel):
                v = factor.covariance(torch.zeros(1))
            else:
                gains = torch.nn.functional.softplus(factor.gains)
                v = (gains.square().sum(-1) / 2 / factor.config.num_sines)[..., None]
            v = v.expand_as(p)
            term = [term[0] * v, term[1] * p, term[2] * (v**2 + 2 * p**2)]
        mixed = 2 * total[0] * term[0] + 4 * total[1] * term[1]
        total = [total[0] + term[0], total[1] + term[1], total[2] + term[2] + mixed]
    return total[0][..., 0], total[2]


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    positions = places(3)
    for terms in ((), ((),)):
        with pytest.raises(ValueError, match="expected at least one kernel in each term"):
            StructureSPEConfig(terms=terms)
    with pytest.raises(ValueError, match=r"unit is 0\.0, expected a positive number"):
        PlacesKernel(unit=0.0)
    with pytest.raises(ValueError, match="labels of positions are not integers"):
        encoding_of().prepare(positions + 0.5, noise_of(encoding_of()))
    with pytest.raises(ValueError, match="p at least 4"):
        encoding_of().prepare(positions[..., :2], noise_of(encoding_of()))
