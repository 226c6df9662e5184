"""Loudness and true peak of stereo audio."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly, sosfilt

LOUDNESS_LUFS = -23.0
"""Loudness of all rendered audio (EBU R 128), since listeners tend to prefer louder pieces."""
CEILING = 10 ** (-1 / 20)
"""Highest true peak, as an amplitude."""
_BLOCK_HOPS = 4
_HOP_SECONDS = 0.1
_ABSOLUTE_GATE = -70.0
_RELATIVE_GATE = -10.0
_CHUNK_HOPS = 100  # number of hops filtered at a time, to limit memory


def block_powers(channels: NDArray[np.float32], sample_rate: int) -> NDArray[np.float64]:
    """Return the K-weighted power of overlapping blocks of 400 ms, one per 100 ms.

    Audio shorter than a block is padded with silence. Source: ITU-R BS.1770-4, annex 1.

    Args:
        channels: audio (c, n) of one or two channels.
        sample_rate: in hertz.

    Returns:
        The power (b,) of each block.
    """
    hop = round(_HOP_SECONDS * sample_rate)
    sections = _weighting(sample_rate)
    num_hops = max(channels.shape[1] // hop, _BLOCK_HOPS)
    powers = np.zeros(num_hops)
    for channel in channels:
        state = np.zeros((len(sections), 2))
        for first in range(0, num_hops, _CHUNK_HOPS):
            last = min(first + _CHUNK_HOPS, num_hops)
            chunk = channel[first * hop : last * hop].astype(np.float64)
            chunk = np.pad(chunk, (0, (last - first) * hop - len(chunk)))
            weighted, state = sosfilt(sections, chunk, zi=state)
            powers[first:last] += np.square(weighted).reshape(-1, hop).sum(axis=1)
    return np.convolve(powers, np.ones(_BLOCK_HOPS), mode="valid") / (_BLOCK_HOPS * hop)


def integrated_loudness(blocks: NDArray[np.float64]) -> float:
    """Return the loudness in LUFS of the `block_powers` that pass both gates; -inf for silence."""
    blocks = blocks[blocks > _power(_ABSOLUTE_GATE)]
    if not len(blocks):
        return -np.inf
    blocks = blocks[blocks > _power(_lufs(blocks.mean()) + _RELATIVE_GATE)]
    return _lufs(blocks.mean())


def true_peak(channels: NDArray[np.float32], at_least: float = 0.0) -> float:
    """Return the largest absolute value of `channels` (c, n), oversampled four times.

    Segments whose samples are all below `at_least` are not oversampled, which saves most of the
    work if only a ceiling is to be checked.
    """
    length = 4096
    around = 32
    peak = 0.0
    for channel in channels:
        for start in range(0, len(channel), length):
            highest = float(np.abs(channel[start : start + length]).max())
            peak = max(peak, highest)
            if highest > at_least:
                piece = channel[max(0, start - around) : start + length + around]
                peak = max(peak, float(np.abs(resample_poly(piece, 4, 1)).max()))
    return peak


class Level(NamedTuple):
    """A gain, and the loudness of the audio after it."""

    gain: np.float32
    loudness: float
    """In LUFS; -inf for silence."""


def level_for(
    channels: NDArray[np.float32], sample_rate: int, lufs: float = LOUDNESS_LUFS
) -> Level:
    """Return the gain that brings `channels` (c, n) to a loudness, at most to a peak of CEILING.

    The gain is 1 for silence.
    """
    powers = block_powers(channels, sample_rate)
    if not np.any(powers > 0):
        return Level(np.float32(1), -np.inf)
    gain = np.sqrt(1 / powers.max())
    for _ in range(3):  # the blocks below the absolute gate depend on the gain
        gain *= 10 ** ((lufs - integrated_loudness(powers * gain**2)) / 20)
    peak = true_peak(channels, at_least=CEILING / gain / 2)
    gain = np.float32(min(gain, CEILING / peak))
    return Level(gain, integrated_loudness(powers * float(gain) ** 2))


def gain_for(channels: NDArray[np.float32], sample_rate: int) -> np.float32:
    """Return the gain of `level_for` at LOUDNESS_LUFS."""
    return level_for(channels, sample_rate).gain


def _weighting(sample_rate: int) -> NDArray[np.float64]:
    """Return the two K-weighting filters as second-order sections (2, 6), at any sample rate.

    They are bilinear transforms of the analogue prototypes of the recommendation's filters, whose
    coefficients are given for 48 kHz.
    """
    warped = np.tan(np.pi * 1681.974450955533 / sample_rate)
    quality, high = 0.7071752369554196, 10 ** (3.999843853973347 / 20)
    band = high**0.4996667741545416
    below = 1 + warped / quality + warped**2
    shelf = [
        (high + band * warped / quality + warped**2) / below,
        2 * (warped**2 - high) / below,
        (high - band * warped / quality + warped**2) / below,
        1.0,
        2 * (warped**2 - 1) / below,
        (1 - warped / quality + warped**2) / below,
    ]
    warped, quality = np.tan(np.pi * 38.13547087602444 / sample_rate), 0.5003270373238773
    below = 1 + warped / quality + warped**2
    passes = [1.0, -2.0, 1.0, 1.0]
    passes += [2 * (warped**2 - 1) / below, (1 - warped / quality + warped**2) / below]
    return np.array([shelf, passes])


def _power(lufs: float) -> float:
    return 10 ** ((lufs + 0.691) / 10)


def _lufs(power: float) -> float:
    return float(-0.691 + 10 * np.log10(power))
