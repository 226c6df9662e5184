from __future__ import annotations

import numpy as np
import pyloudnorm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audio.loudness import CEILING, block_powers, gain_for, integrated_loudness, true_peak

RATE = 44100


def bursts(seed: int, levels: list[float]) -> np.ndarray:
    """Stereo noise whose level changes every half second, in decibels."""
    noise = np.random.default_rng(seed).normal(size=(2, len(levels) * RATE // 2))
    gains = np.repeat(10 ** (np.array(levels) / 20), RATE // 2)
    return (noise * gains).astype(np.float32)


def loudness_of(channels: np.ndarray, rate: int = RATE) -> float:
    return integrated_loudness(block_powers(channels, rate))


@settings(max_examples=15)
@given(seed=st.integers(0, 99), levels=st.lists(st.floats(-75, -10), min_size=1, max_size=12))
def test_loudness_equals_that_of_pyloudnorm(seed, levels):
    channels = bursts(seed, levels)
    expected = pyloudnorm.Meter(RATE).integrated_loudness(channels.T)
    found = loudness_of(channels)
    assert found == pytest.approx(expected, abs=0.1) or expected < -60


def test_a_full_scale_sine_of_997_hertz_on_one_side_is_at_minus_3_01_lufs():
    """ITU-R BS.1770-4, annex 1."""
    for rate in (22050, 44100, 48000):
        sine = np.sin(np.arange(rate * 3) / rate * 2 * np.pi * 997).astype(np.float32)
        loudness = loudness_of(np.stack([sine, np.zeros_like(sine)]), rate)
        assert loudness == pytest.approx(-3.01, abs=0.05)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 99),
    levels=st.lists(st.floats(-40, 0), min_size=1, max_size=5),
    gain=st.floats(1e-5, 100),
)
def test_normalized_sound_has_the_loudness_or_the_highest_peak(seed, levels, gain):
    channels = bursts(seed, levels) * np.float32(gain)
    channels *= gain_for(channels, RATE)
    peak = true_peak(channels)
    assert peak <= CEILING * 1.0001
    loudness = loudness_of(channels)
    assert loudness == pytest.approx(-23, abs=0.1) or (
        loudness < -23 and peak == pytest.approx(CEILING, rel=1e-3)
    )


def test_silence_stays_silence():
    channels = np.zeros((2, RATE), dtype=np.float32)
    channels *= gain_for(channels, RATE)
    assert not channels.any()
    assert loudness_of(channels) == -np.inf
    assert loudness_of(channels[:, :0]) == -np.inf
    # a sine at a quarter of the sample rate, with samples between its peaks
    sine = np.sin(np.arange(RATE) * np.pi / 2 + np.pi / 4).astype(np.float32)
    faded = sine * np.hanning(RATE).astype(np.float32)
    assert np.abs(faded).max() < 0.71
    assert true_peak(faded[None]) == pytest.approx(1, abs=0.01)
