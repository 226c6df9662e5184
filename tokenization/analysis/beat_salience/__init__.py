"""How likely each moment of a performance is to be a beat, and to be the beginning of a bar.

A small convolutional network with dilations (a temporal convolutional network: Davies and Böck,
*Temporal convolutional networks for musical audio beat tracking*, EUSIPCO 2019) reads what notes
begin in each frame. Its weights are in `beat_salience.npz`; `benchmarks.tokenization.fit_beats`
fits them.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.score import Score

RATE: Final = 50
"""Frames per second."""
NUM_FEATURES: Final = 13
WEIGHTS: Final = Path(__file__).with_name("beat_salience.npz")
_BEFORE = 0.5  # seconds before the first onset
_AFTER = 2.0  # seconds after the last one
_REGISTERS = (0, 45, 60, 72, 128)
_PART = 32_768  # frames at a time, to bound the memory for hours of music


@cache
def load() -> dict[str, NDArray[np.float32]]:
    """Return the weights of the network, and the coefficients of `confidence`."""
    with np.load(WEIGHTS) as file:
        return {name: file[name].astype(np.float32) for name in file.files}


def salience(
    features: NDArray[np.float32], weights: dict[str, NDArray[np.float32]] | None = None
) -> NDArray[np.float32]:
    """Return log-odds (frames, 2) that a beat, and that a bar, begins in each frame.

    By default, `weights` are those of `load`.
    """
    weights = load() if weights is None else weights
    num_layers = sum(name.startswith("mix_bias") for name in weights)
    # each convolution has five taps, and reaches two dilations to both sides
    reach = 2 + 2 * (2**num_layers - 1)
    log_odds = np.empty((len(features), 2), np.float32)
    for first in range(0, len(features), _PART):
        stop = min(first + _PART, len(features))
        begin, end = max(first - reach, 0), min(stop + reach, len(features))
        hidden = np.maximum(_convolve(features[begin:end], weights, "first", 1), 0)
        for layer in range(num_layers):
            inner = np.maximum(_convolve(hidden, weights, f"{layer}", 2**layer), 0)
            hidden += inner @ weights[f"mix_weight_{layer}"] + weights[f"mix_bias_{layer}"]
        output = np.maximum(hidden, 0) @ weights["last_weight"] + weights["last_bias"]
        log_odds[first:stop] = output[first - begin : stop - begin]
    return log_odds


def _convolve(
    inputs: NDArray[np.float32],
    weights: dict[str, NDArray[np.float32]],
    name: str,
    dilation: int,
) -> NDArray[np.float32]:
    """Convolve with taps (taps, inputs, outputs), centred; zeros are around the inputs."""
    taps = weights[f"taps_{name}"]
    around = len(taps) // 2 * dilation
    padded = np.pad(inputs, ((around, around), (0, 0)))
    total = np.broadcast_to(weights[f"bias_{name}"], (len(inputs), taps.shape[2])).copy()
    for number, tap in enumerate(taps):
        total += padded[number * dilation :][: len(inputs)] @ tap
    return total


def frames_of(score: Score) -> tuple[NDArray[np.float32], float, NDArray[np.float64]]:
    """Return features (frames, NUM_FEATURES), seconds at frame 0, and ascending onsets.

    Onsets are in seconds. The score has notes; the order of its tracks and notes does not matter.
    """
    tracks = [track for track in score.tracks if len(track)]
    notes = np.concatenate([track.notes for track in tracks])
    is_drum = np.concatenate([np.full(len(track), track.is_drum) for track in tracks])
    order = np.lexsort((is_drum, *notes.T[::-1]))
    notes, is_drum = notes[order], is_drum[order]
    onsets = score.seconds_at(notes[:, 0])
    lengths = score.seconds_at(notes[:, 0] + notes[:, 1]) - onsets
    start = float(onsets[0]) - _BEFORE
    num_frames = int((onsets[-1] - start + _AFTER) * RATE)
    features = _features(onsets - start, lengths, notes[:, 2], notes[:, 3], is_drum, num_frames)
    return features, start, onsets


def _features(
    onsets: NDArray[np.float64],
    lengths: NDArray[np.float64],
    pitches: NDArray[np.int64],
    velocities: NDArray[np.int64],
    is_drum: NDArray[np.bool_],
    num_frames: int,
) -> NDArray[np.float32]:
    """Return features (num_frames, NUM_FEATURES) of notes (n,) with times in seconds.

    The columns: notes that begin in each of four registers (0 to 3), their loudness (4), length (5)
    and bass (6), three kinds of drums (7 to 9), the time until the next onset (10), and change of
    harmony over two spans (11, 12). A note between two frames is shared by them.
    """
    place = onsets * RATE
    frame = np.clip(np.floor(place).astype(np.int64), 0, num_frames - 2)
    share = np.clip(place - frame, 0, 1)
    features = np.zeros((num_frames, NUM_FEATURES))

    def add(column: int, mask: NDArray[np.bool_], amount: NDArray[np.float64]) -> None:
        at, part, amount = frame[mask], share[mask], amount[mask]
        features[:, column] += np.bincount(at, amount * (1 - part), num_frames)
        features[:, column] += np.bincount(at + 1, amount * part, num_frames)

    ones, tonal = np.ones(len(onsets)), ~is_drum
    for number, (low, high) in enumerate(pairwise(_REGISTERS)):
        add(number, tonal & (pitches >= low) & (pitches < high), ones)
    add(4, tonal, velocities / max(float(velocities.mean()), 1.0))
    add(5, tonal, np.clip(lengths, 0, 2))
    add(6, tonal, np.clip((60 - pitches) / 12, 0, 2))
    add(7, is_drum & (pitches <= 36), ones)
    add(8, is_drum & (pitches > 36) & (pitches <= 40), ones)
    add(9, is_drum & (pitches > 40), ones)
    features[:, 10] = _time_to_next(frame, num_frames)
    # the first row of the sums is 0, so that those of a span are a difference of two rows
    cell = 12 * (frame[tonal] + 1) + pitches[tonal] % 12
    amount = np.sqrt(np.clip(lengths[tonal], 0.05, 2))
    counts = np.bincount(cell, amount, 12 * num_frames + 12).reshape(-1, 12)
    sums_of_classes = counts.cumsum(axis=0)
    features[:, 11] = _novelty(sums_of_classes, RATE // 2, num_frames)
    features[:, 12] = _novelty(sums_of_classes, 3 * RATE // 2, num_frames)
    features[:, :10] = np.log1p(2 * features[:, :10])
    return features.astype(np.float32)


def _time_to_next(frame: NDArray[np.int64], num_frames: int) -> NDArray[np.float64]:
    """Return the logarithm of the time until the next onset at frames with onsets; else 0.

    An onset at most two frames after another one does not count.
    """
    at = np.unique(frame)
    at = at[np.append(True, np.diff(at) > 2)]
    time = np.zeros(num_frames)
    time[at] = np.log1p(np.minimum(np.diff(at, append=num_frames), 2 * RATE) / 5)
    return time


def _novelty(sums: NDArray[np.float64], span: int, num_frames: int) -> NDArray[np.float64]:
    """Return 1 - cosine of the pitch classes struck in the span before and in the one after."""
    now = np.arange(num_frames)
    before = sums[np.maximum(now - 1, 0)] - sums[np.maximum(now - 1 - span, 0)]
    after = sums[np.minimum(now + span, num_frames)] - sums[np.maximum(now - 1, 0)]
    norms = np.sqrt((before**2).sum(axis=1) * (after**2).sum(axis=1))
    return np.where(norms > 0, 1 - (before * after).sum(axis=1) / np.maximum(norms, 1e-9), 0.5)
