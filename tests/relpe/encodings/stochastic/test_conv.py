from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.encodings.stochastic import noise_products, white_noise
from relpe.encodings.stochastic.conv import ConvSPE, ConvSPEConfig
from relpe.encodings.stochastic.filtered_noise import FilteredNoiseState
from tests.support import reference_stochastic
from tests.support.filtered import (
    CPU,
    compare_moments,
    compare_with_slow,
    line,
    state_with,
)
from tests.support.golden_spe import golden


def golden_encoding(axes: int) -> tuple[Any, FilteredNoiseState]:
    weights = [golden(f"conv{axes}_filter_{side}") for side in "qk"]
    noise = golden(f"conv{axes}_z").movedim(0, -1)
    config = ConvSPEConfig(taps=tuple(weights[0].shape[2:]), num_realizations=noise.shape[-1])
    encoding = config.build(num_layers=1, num_heads=2, head_dim=3).double()
    with torch.no_grad():
        encoding.query_filter.copy_(weights[0])
        encoding.key_filter.copy_(weights[1])
    return encoding, state_with(encoding, noise, (0,) * axes)


def small(
    taps: tuple[int, ...] = (5,),
    *,
    gated: bool = True,
    noise: white_noise.NoiseKind = "normal",
    draws: int = 6,
    shared: bool = True,
) -> Any:
    torch.manual_seed(len(taps))
    config = ConvSPEConfig(
        taps=taps, num_realizations=draws, gated=gated, noise=noise, shared_by_layers=shared
    )
    encoding = config.build(num_layers=2, num_heads=2, head_dim=3).double()
    with torch.no_grad():  # of both signs, so that an error in any term shows
        encoding.query_filter.normal_()
        encoding.key_filter.normal_()
    return encoding


@pytest.mark.parametrize("axes", [1, 2])
def test_codes_match_the_original(axes: int) -> None:
    encoding, state = golden_encoding(axes)
    expected = golden(f"conv{axes}_qbar"), golden(f"conv{axes}_kbar")
    sizes = expected[0].shape[:axes]
    codes, _ = encoding.prepare(white_noise.lattice(sizes)[None], state)
    for made, codes_of_all in zip(codes.shared, expected, strict=True):
        torch.testing.assert_close(made, codes_of_all.flatten(0, axes - 1), rtol=1e-10, atol=1e-10)


def test_the_covariance_matches_the_original() -> None:
    encoding, _ = golden_encoding(1)
    made = encoding.covariance(golden("conv1_lags"))
    torch.testing.assert_close(made, golden("conv1_P_lag"), rtol=1e-10, atol=1e-10)
    encoding, _ = golden_encoding(2)
    expected = golden("conv2_P_lag")
    sizes = torch.tensor(expected.shape[2:])
    lags = white_noise.lattice(sizes.tolist()) - sizes // 2
    made = encoding.covariance(lags).unflatten(-1, sizes.tolist())
    torch.testing.assert_close(made, expected, rtol=1e-10, atol=1e-10)


def test_covariance_ends_with_the_filters() -> None:
    encoding = small((3, 2))
    lags = torch.tensor([[3, 0], [-3, 0], [0, 2], [0, -2], [7, 9], [-40, 1]])
    assert torch.equal(encoding.covariance(lags), torch.zeros(2, 3, 6, dtype=torch.float64))


@pytest.mark.parametrize("taps", [(5,), (3, 2), (2, 3, 2)])
def test_second_moments_equal_the_covariance_at_any_first_position(taps: tuple[int, ...]) -> None:
    encoding = small(taps, draws={1: 160, 2: 32 * 16, 3: 32 * 64}[len(taps)])
    for first in (0, 13, 10**6 - 29):
        compare_moments(encoding, taps, first)


@pytest.mark.parametrize(
    ("taps", "gated", "fused", "held"),
    [
        ((5,), True, False, True),
        ((40,), True, True, True),
        ((3, 2), False, True, False),
        ((2, 3, 2), True, True, False),
    ],
)
def test_fast_equals_slow_with_gradients(
    taps: tuple[int, ...], gated: bool, fused: bool, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_products, "SHARED_CODE_BYTES", 0 if fused else 2**30)
    monkeypatch.setattr(white_noise, "HELD_NOISE_BYTES", 2**30 if held else 0)
    encoding = small(taps, gated=gated, noise="signs" if held else "normal")
    # unsorted, with duplicates, negative and positive, and far away
    positions = torch.randint(-9, 30, (8, len(taps)))
    positions = torch.cat([positions, positions[:2], positions[:1] + 10**6])
    state = encoding.init_state(7, CPU)
    assert (encoding.prepare(positions[None], state)[0].shared is None) == fused
    slow = partial(
        reference_stochastic.apply_filtered_noise,
        encoding,
        positions=positions,
        state=state,
        layer=1,
    )
    compare_with_slow(encoding, slow, positions, state)


@settings(max_examples=15)
@given(
    start=st.sampled_from([0, 31, -50, 10**6 - 3]),
    pieces=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    fused=st.booleans(),
    trained=st.booleans(),
    shared=st.booleans(),
    num_realizations=st.sampled_from([None, 1, 9]),
)
def test_any_split_of_the_positions_gives_the_same_codes(
    start: int,
    pieces: list[int],
    fused: bool,
    trained: bool,
    shared: bool,
    num_realizations: int | None,
) -> None:
    encoding, length = small((40,), shared=shared), sum(pieces)
    q, k = torch.randn(2, 1, length, 2, 3, dtype=torch.float64).unbind(0)

    def run(sizes: list[int]) -> list[torch.Tensor]:
        state, outs, done = encoding.init_state(3, CPU, num_realizations), [], 0
        for size in sizes:
            codes, state = encoding.prepare(line(size, start + done), state)
            here = slice(done, done + size)
            outs.append(encoding.encode(q[:, here], k[:, here], codes, 1))
            done += size
        return [torch.cat(side, 1) for side in zip(*outs, strict=True)]

    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(trained):
        patch.setattr(noise_products, "SHARED_CODE_BYTES", 0 if fused else 2**30)
        for split, whole in zip(run(pieces), run([length]), strict=True):
            torch.testing.assert_close(split, whole, rtol=1e-10, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("taps", [(3, 4), (2, 2, 2)])
def test_steps_on_a_lattice_equal_the_whole(taps: tuple[int, ...]) -> None:
    encoding = small(taps)
    positions = white_noise.lattice({2: (6, 11), 3: (3, 5, 5)}[len(taps)]) + 10**6
    state = encoding.init_state(2, CPU)
    whole, _ = encoding.prepare(positions[None], state)
    for row, position in enumerate(positions):
        codes, state = encoding.prepare(position[None, None], state)
        torch.testing.assert_close(codes.shared[:, 0], whole.shared[:, row], rtol=1e-12, atol=0)


@torch.no_grad()
def test_a_step_draws_no_noise_twice_and_the_state_does_not_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoding, drawn, sizes = small((40,)), [], set()
    original = white_noise.white_noise

    def counted(*args: object) -> torch.Tensor:
        drawn.append(args[3])
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(white_noise, "white_noise", counted)
    _, state = encoding.prepare(line(100), encoding.init_state(2, CPU))
    for place in range(100, 400):
        _, state = encoding.prepare(line(1, place), state)
        sizes.add(tuple(x.shape for x in [*state[:-1], *(state.weights.values or ())]))
    # positions up to 399 are in tiles up to 12, whose filters read up to 39 + 31 samples further
    assert sorted(drawn) == [(tile,) for tile in range(12 + 2 + 1)]
    assert len(sizes) == 1


def test_codes_kept_for_steps_are_not_used_in_training() -> None:
    encoding = small()
    with torch.no_grad():
        _, state = encoding.prepare(line(3), encoding.init_state(2, CPU))
        encoding.query_filter.mul_(2)
    codes, _ = encoding.prepare(line(3), state)
    fresh, _ = encoding.prepare(line(3), encoding.init_state(2, CPU))
    assert codes.shared.requires_grad
    assert torch.equal(codes.shared, fresh.shared)


@pytest.mark.parametrize("fused", [True, False])
def test_autocast_changes_little(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_products, "SHARED_CODE_BYTES", 0 if fused else 2**30)
    encoding = small().float()
    q, k = torch.randn(2, 2, 50, 2, 3).unbind(0)
    exact = encoding.encode(q, k, encoding.prepare(line(50), encoding.init_state(1, CPU))[0], 0)
    with torch.autocast("cpu", torch.bfloat16):
        codes, _ = encoding.prepare(line(50), encoding.init_state(1, CPU))
        narrow = encoding.encode(q.bfloat16(), k.bfloat16(), codes, 0)
    sum(x.float().sum() for x in narrow).backward()  # type: ignore[union-attr]
    for made, expected in zip(narrow, exact, strict=True):
        torch.testing.assert_close(made.float(), expected, rtol=0.05, atol=0.05)


def test_invalid_arguments_are_refused() -> None:
    encoding = small((3, 2))
    state = encoding.init_state(0, CPU)
    with pytest.raises(ValueError, match="with p at least 2"):
        encoding.prepare(line(2), state)
    with pytest.raises(ValueError, match="positions are not integers"):
        encoding.prepare(torch.full((1, 2, 2), 0.5), state)
    encoding.prepare(torch.zeros(1, 2, 2, dtype=torch.float64), state)
    for taps in ((), (2, 2, 2, 2), (0,)):
        with pytest.raises(ValueError, match=r"axes|taps"):
            ConvSPEConfig(taps=taps).build(num_layers=1, num_heads=1, head_dim=1)


@pytest.mark.parametrize("taps", [(256,), (64, 48)])
def test_filters_begin_as_waves_of_low_frequencies_with_covariances_of_both_signs(
    taps: tuple[int, ...],
) -> None:
    def built(shortest: float | None) -> ConvSPE:
        torch.manual_seed(0)
        config = ConvSPEConfig(taps=taps, shortest_wave=shortest)
        return config.build(num_layers=1, num_heads=8, head_dim=16)

    waves, original = built(16.0), built(None)
    axes = tuple(range(2, 2 + len(taps)))
    for filters in (waves.query_filter, waves.key_filter):
        assert filters.shape == original.query_filter.shape
        torch.testing.assert_close(filters.square().sum(axes), torch.ones(8, 16))
        energy = torch.fft.fftn(filters, dim=axes).abs().square()
        for axis, length in zip(axes, taps, strict=True):
            high = torch.fft.fftfreq(length).abs() > 1 / 16 + 2 / length
            shares = energy.movedim(axis, -1)[..., high].flatten(2).sum(-1) / energy.sum(axes)
            assert shares.mean() < 0.05  # the ends of a filter cut its wave
    lag = torch.tensor([[length // 4 for length in taps]])
    lag = lag[:, 0] if len(taps) == 1 else lag
    assert bool((original.covariance(lag) > 0).all())
    assert 0.3 < (waves.covariance(lag) < 0).double().mean() < 0.7
    # far lags are weaker, as fewer taps overlap: the mean square is that of a cosine
    overlap = math.prod(1 - length // 4 / length for length in taps)
    assert waves.covariance(lag).square().mean().item() == pytest.approx(overlap**2 / 2, rel=0.35)


def test_waves_have_at_least_two_positions() -> None:
    for length in (1.9, math.inf, math.nan):
        with pytest.raises(ValueError, match="shortest_wave is"):
            ConvSPEConfig(shortest_wave=length)
