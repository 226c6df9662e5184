"""Whose bars a piece has: those of its file, or estimated ones.

Both are explanations of when notes begin. An explanation is as good as its bars predict each
other: the places of the onsets in one beat, and in one bar, are predicted from their places in all
other bars, and compared with onsets at any place alike. What repeats from bar to bar counts,
whatever it is: subdivisions of any kind, swing, a track that is always late, broken chords, grace
notes. Beats that have nothing to do with the music predict nothing, as in a file that was recorded
without a click.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.beat_tracker import estimate_beats
from tokenization.analysis.beats import Beats
from tokenization.errors import MidiError
from tokenization.grid import notated_lines
from tokenization.score import Score

FEWEST_NOTES: Final = 32
"""Beats are estimated unasked if there are at least this many notes; fewer show little."""
_PLACES: Final = 96
"""Places that are distinguished in a beat, and in a bar."""
_WIDTHS: Final = (1 / 96, 1 / 48, 1 / 24, 1 / 12, 1 / 8)
"""Standard deviations of onsets around their places, as shares of the beat or bar."""
_CHANCE: Final = 4.0
"""Onsets at any place alike that are added to those of the other bars."""
_BLOCK_BEATS: Final = 4
_MOST_BLOCKS: Final = 4096
"""Blocks that are compared at once, which bounds the memory."""
_FEWEST_ONSETS: Final = 8
_COARSE_TICKS: Final = 24
_LEAST_TOTAL: Final = 1.0
"""Nats that estimated bars must explain to be preferred."""
_SURE: Final = 0.99
"""Probability by the file alone from which no beats are estimated."""
_WEIGHTS: Final = {
    "file alone": (-6.533, 2.115, 1.858),
    "beside the estimate": (-6.964, 2.082, 3.319, -2.385, -1.297, 5.193),
}
"""Coefficients of logistic regressions, fitted by `benchmarks.tokenization.fit_bars`."""


class Grid(NamedTuple):
    """Onsets of each track, counted in beats and bars."""

    beats: list[NDArray[np.float64]]
    """Places in beats (n,); the integral part is the number of the beat."""
    bars: list[NDArray[np.float64]]
    """Places in bars (n,)."""


class Evidence(NamedTuple):
    """How well beats and bars explain the onsets of a piece."""

    gain: float
    """Nats an onset by which its place is better predicted than by chance; at least 0."""
    onsets: int
    """Number of different onsets."""

    @property
    def total(self) -> float:
        """Nats in all."""
        return self.gain * self.onsets


def file_evidence(score: Score) -> Evidence:
    """Return the evidence for the beats and bars of a file."""
    onsets = _onsets(score)
    last = max((int(track[-1]) for track in onsets), default=0)
    lines = notated_lines(score, last + 1)

    def bars(ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.interp(ticks, lines, np.arange(len(lines)))

    return _evidence(
        Grid([track / score.ticks_per_beat for track in onsets], [bars(track) for track in onsets])
    )


def estimate_evidence(score: Score, beats: Beats) -> Evidence:
    """Return the evidence for beats and bars in seconds."""
    times, lines = beats.seconds, beats.seconds[beats.downbeats]
    tracks = [score.seconds_at(track) for track in _onsets(score)]
    return _evidence(
        Grid([_count(track, times) for track in tracks], [_count(track, lines) for track in tracks])
    )


def file_probability(score: Score) -> float:
    """Return the probability that the bars of a piece are those of its file, between 0 and 1.

    It is 1 for sheet music, for files with few notes, and for files with few ticks in a beat, which
    cannot hold the times of a performance. If estimated bars explain nothing, as in a fill of two
    bars, it is at least one half.
    """
    is_coarse = score.ticks_per_beat <= _COARSE_TICKS
    if score.is_notated or score.num_notes < FEWEST_NOTES or is_coarse:
        return 1.0
    file = file_evidence(score)
    alone = _logistic("file alone", file_features(file))
    if alone > _SURE:
        return alone
    try:
        beats = estimate_beats(score)
    except MidiError:  # there is nothing else to choose
        return alone
    estimate = estimate_features(score, beats)
    chance = _logistic("beside the estimate", [*file_features(file), *estimate])
    return max(chance, 0.5) if estimate[1] < np.log1p(_LEAST_TOTAL) else chance


def file_features(file: Evidence) -> list[float]:
    """Return what the probability depends on: 1, the gain and the total of the file."""
    return [1.0, file.gain, float(np.log1p(file.total))]


def estimate_features(score: Score, beats: Beats) -> list[float]:
    """Return what it also depends on: gain and total of the estimate, and the agreement of both.

    Estimated beats stay at one place in the beats, or half beats, of a file whose tempo is that of
    the music, and are everywhere in those of others.
    """
    estimate = estimate_evidence(score, beats)
    turns = 2 * np.pi * score.ticks_at(beats.seconds) / score.ticks_per_beat
    agreement = max(float(abs(np.exp(1j * times * turns).mean())) for times in (1, 2))
    return [estimate.gain, float(np.log1p(estimate.total)), agreement]


def _logistic(kind: str, features: list[float]) -> float:
    return float(1 / (1 + np.exp(-np.dot(_WEIGHTS[kind], features))))


def _onsets(score: Score) -> list[NDArray[np.int64]]:
    """Return different onsets of each track with notes, ascending."""
    return [np.unique(track.notes[:, 0]) for track in score.tracks if len(track)]


def _count(seconds: NDArray[np.float64], lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the place of each time among ascending lines; first and last interval go on."""
    if len(lines) < 2:
        return np.zeros(len(seconds))
    interval = np.clip(np.searchsorted(lines, seconds, side="right") - 1, 0, len(lines) - 2)
    start, stop = lines[interval], lines[interval + 1]
    return interval + (seconds - start) / (stop - start)


def _evidence(grid: Grid) -> Evidence:
    """Return the better of all tracks together and each by itself, by beats or by bars."""
    if not grid.beats:
        return Evidence(0.0, 0)
    _, index = np.unique(np.concatenate(grid.beats), return_index=True)
    gains: list[float] = []
    for tracks, length in ((grid.beats, _BLOCK_BEATS), (grid.bars, 1)):
        together = np.concatenate(tracks)[index]
        gains.append(_gain(together, together // length))
        totals = [len(track) * _gain(track, track // length) for track in tracks]
        gains.append(sum(totals) / sum(map(len, tracks)))
    return Evidence(max(0.0, *gains), len(index))


def _gain(places: NDArray[np.float64], blocks: NDArray[np.float64]) -> float:
    """Return mean log-density of onsets by those of other blocks, best of a few widths; nats.

    The density at any place alike is 1. Onsets of one block are never predicted by each other,
    since those of a chord are near each other in any music.
    """
    if len(places) < _FEWEST_ONSETS:
        return 0.0
    place = np.floor((places % 1) * _PLACES).astype(np.int64) % _PLACES
    numbers, block = np.unique(blocks, return_inverse=True)
    totals = np.bincount(place, minlength=_PLACES)
    densities = np.empty((len(_WIDTHS), len(places)))
    for first in range(0, len(numbers), _MOST_BLOCKS):
        inside = (block >= first) & (block < first + _MOST_BLOCKS)
        at = block[inside] - first, place[inside]
        counts = np.zeros((min(len(numbers) - first, _MOST_BLOCKS), _PLACES))
        np.add.at(counts, at, 1)
        others = totals - counts
        spectra = np.fft.rfft(others)
        room = (others.sum(axis=1) + _CHANCE)[:, None]
        for row, kernel in zip(densities, _kernels(), strict=True):
            density = (np.maximum(np.fft.irfft(spectra * kernel, _PLACES), 0) + _CHANCE) / room
            row[inside] = density[at]
    return float(np.log(densities).mean(axis=1).max())


@cache
def _kernels() -> list[NDArray[np.complex128]]:
    """Return the spectra of circular normal densities, whose mean is 1."""
    steps = np.arange(_PLACES)
    apart = np.minimum(steps, _PLACES - steps) / _PLACES
    densities = [np.exp(-0.5 * (apart / width) ** 2) for width in _WIDTHS]
    return [np.fft.rfft(density / density.mean()) for density in densities]
