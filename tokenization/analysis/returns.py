"""Similarity of bars, and the earlier bar that each bar repeats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.bars import ScoreBars
from tokenization.grid import MAX_BAR_STEPS

MAX_DISTANCE: Final = 64
"""A bar is compared with this many bars before it."""
LEAST_SIMILARITY: Final = 0.5
"""Similarity from which a bar repeats an earlier one."""
NEAR_TIE: Final = 0.1
"""How much less similar a bar at the distance of the bar before may be than the best one."""
_BLOCK = 1024
_SOUNDS = MAX_BAR_STEPS * 128  # places and pitches in a bar
_DECIMALS = 9  # similarities are compared without rounding errors of the mean


def find_returns(score: ScoreBars) -> NDArray[np.int64]:
    """Return the distance to the earlier bar that each bar repeats, 1 to 64 bars, or 0 (bars,).

    A bar repeats the most similar earlier bar of the same length, the nearest of equal ones, if
    their similarity (`similarity_to_earlier`) is at least `LEAST_SIMILARITY`. The distance of the
    bar before is kept if the similarity there is within `NEAR_TIE` of the best, so that a section
    returns as a whole. Bars without notes repeat nothing and are never repeated.
    """
    distances = np.zeros(score.num_bars, np.int64)
    sounds = score.places * 128 + score.pitches
    for first in range(0, score.num_bars, _BLOCK):
        stop = min(first + _BLOCK, score.num_bars)
        near = slice(*np.searchsorted(score.bars, [first - MAX_DISTANCE, stop]))
        table = similarity_to_earlier(
            score.bars[near], score.tracks[near], sounds[near], first, stop, MAX_DISTANCE
        )
        rows = np.flatnonzero((table >= LEAST_SIMILARITY).any(1))
        if not len(rows):
            continue
        earlier = (rows + first)[:, None] - np.arange(1, MAX_DISTANCE + 1)
        fits = score.sizes[np.maximum(earlier, 0)] == score.sizes[rows + first][:, None]
        similar = np.where(fits & (table[rows] >= LEAST_SIMILARITY), table[rows], 0)
        best, most = similar.argmax(1).tolist(), similar.max(1).tolist()
        for row, bar in enumerate((rows + first).tolist()):
            before = int(distances[bar - 1])
            kept = similar[row, before - 1] if before else 0
            if kept and kept >= most[row] - NEAR_TIE - 10.0**-_DECIMALS:
                distances[bar] = before
            elif most[row]:
                distances[bar] = best[row] + 1
    return distances


def find_later_sources(score: ScoreBars, first: int, stop: int) -> NDArray[np.int64]:
    """Return distances (bars,) from bars of a gap to the bar after it that resembles each most.

    It is 1 to 64, or 0 if there is no such bar, by the rules of `find_returns`. The gap has the
    bars from `first` up to but not including `stop`.
    """
    distances = np.zeros(stop - first, np.int64)
    end = min(score.num_bars, stop + MAX_DISTANCE)
    if end <= stop:
        return distances
    near = slice(*np.searchsorted(score.bars, [first, end]))
    sounds = score.places * 128 + score.pitches
    table = similarity_to_earlier(
        score.bars[near], score.tracks[near], sounds[near], stop, end, MAX_DISTANCE
    )
    later = np.arange(stop, end)
    before = 0
    for bar in range(first, stop):
        away = later - bar
        fits = (away <= MAX_DISTANCE) & (score.sizes[later] == score.sizes[bar])
        similar = table[later - stop, np.minimum(away, MAX_DISTANCE) - 1]
        similar = np.where(fits & (similar >= LEAST_SIMILARITY), similar, 0)
        best = int(similar.argmax())
        kept = similar[bar + before - stop] if before and stop <= bar + before < end else 0
        if kept and kept >= similar[best] - NEAR_TIE - 10.0**-_DECIMALS:
            distances[bar - first] = before
        elif similar[best]:
            distances[bar - first] = away[best]
        before = int(distances[bar - first])
    return distances


def contents(score: ScoreBars, num_bars: int) -> list[bytes]:
    """Return the notes that begin in each of the first `num_bars` bars; equal bars have equal ones.

    Notes are the same if their track, place in the bar and pitch are. Empty for a bar without.
    """
    notes = (score.tracks + 1) * _SOUNDS + score.places * 128 + score.pitches
    stride = (int(score.tracks.max(initial=0)) + 2) * _SOUNDS
    notes = np.unique(score.bars * stride + notes)
    edges = np.searchsorted(notes, np.arange(num_bars + 1) * stride).tolist()
    notes %= stride
    return [notes[low:high].tobytes() for low, high in pairwise(edges)]


def distance_to_equal(bars: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the distance from each bar to the nearest earlier bar of equal `contents` (bars,).

    It is 0 if there is none, and for empty bars.
    """
    last: dict[bytes, int] = {}
    distances = np.zeros(len(bars), np.int64)
    for bar, content in enumerate(bars):
        if content:
            distances[bar] = bar - last.get(content, bar)
            last[content] = bar
    return distances


def similarity_to_earlier(
    bars: NDArray[np.int64],
    tracks: NDArray[np.int64],
    sounds: NDArray[np.int64],
    first: int,
    stop: int,
    reach: int,
) -> NDArray[np.float64]:
    """Return the similarity of bars from `first` to `stop` to the `reach` bars before each.

    It is the mean of the Jaccard index over the tracks that play in either bar, 0 to 1; NaN if none
    does. Column d compares with the bar d + 1 before; there are no notes before bar 0.

    Args:
        bars: bar of each note (n,).
        tracks: its track.
        sounds: a number for its place in the bar and its pitch.
        first: the first bar of the result.
        stop: the bar after the last one.
        reach: how many earlier bars each is compared with.

    Returns:
        (stop - first, reach).
    """
    shape = (stop - first, reach)
    total, playing = np.zeros(shape), np.zeros(shape)
    is_near = (bars >= first - reach) & (bars < stop)
    bars, tracks, sounds = bars[is_near], tracks[is_near], sounds[is_near]
    for track in np.unique(tracks):
        is_played = tracks == track
        kinds, in_bars = np.divmod(np.unique(sounds[is_played] * stop + bars[is_played]), stop)
        later, distances = _pairs(kinds, in_bars, reach)
        places = ((later - first) * reach + distances - 1)[later >= first]
        common = np.bincount(places, minlength=shape[0] * reach).reshape(shape)
        sizes = np.bincount(in_bars - (first - reach), minlength=stop - first + reach)
        earlier = np.lib.stride_tricks.sliding_window_view(sizes[:-1], reach)[:, ::-1]
        either = sizes[reach:, None] + earlier - common
        total += np.divide(common, either, out=np.zeros(shape), where=either > 0)
        playing += either > 0
    mean: NDArray[np.float64] = np.divide(
        total, playing, out=np.full(shape, np.nan), where=playing > 0
    )
    return mean.round(_DECIMALS)


def _pairs(
    kinds: NDArray[np.int64], bars: NDArray[np.int64], reach: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of equal kind at most `reach` bars apart: later bar, and distance (pairs,).

    Kinds are sorted, then bars, without repetitions.
    """
    columns = [np.zeros((2, 0), np.int64)]
    later = np.arange(1, len(kinds))
    for back in range(1, reach + 1):
        later = later[later >= back]
        distances = bars[later] - bars[later - back]
        is_near = (kinds[later] == kinds[later - back]) & (distances <= reach)
        later, distances = later[is_near], distances[is_near]
        if not len(later):
            break
        columns.append(np.stack([bars[later], distances]))
    later, distances = np.concatenate(columns, axis=1)
    return later, distances
