"""Estimates the beats and bars of a performance that was recorded without a grid.

`beat_salience` says how likely each moment is to be a beat; dynamic programming finds the beats
that agree best with it and with a tempo that changes little from beat to beat (a bar pointer model
in the form of Krebs, Böck and Widmer, *An efficient state-space model for joint tempo and meter
tracking*, ISMIR 2015), then the bars, and places both on the onsets.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.beat_salience import RATE, frames_of, load, salience
from tokenization.analysis.beats import Beats
from tokenization.errors import MidiError
from tokenization.score import Score, all_notes

MAX_SECONDS: Final = 14_400
"""Maximum length of a piece for beat estimation: four hours."""


def _intervals(shortest: int, longest: int, ratio: float) -> NDArray[np.int64]:
    lengths = [shortest]
    while lengths[-1] < longest:
        lengths.append(max(lengths[-1] + 1, round(ratio * lengths[-1])))
    return np.array(lengths)


_INTERVALS = _intervals(9, 110, 1.03)
"""Frames between two beats: 27 to 333 beats per minute."""
_LOGS = np.log(_INTERVALS)
# Chosen on performances for development; benchmarks.tokenization.fit_beats fits the network and the
# confidence only.
_CHANGE_COST = 30.0
_FREE_CHANGE = 0.5
_BEAT_BIAS = 0.9
_MAX_ODDS = 5.0
_METRES = (2, 3, 4)
_METRE_CHANGE_COST = 6.0
_NEAR_SECONDS = 0.04
_STEADY_SECONDS = (0.012, 0.04)


def estimate_beats(score: Score) -> Beats:
    """Estimate the beats, the downbeats and how reliable they are.

    Tempos are between 27 and 333 beats per minute and may change; the beats are exactly even if an
    even grid fits all of them. Bars have two, three or four beats, and the metre may change. The
    result does not depend on the order of the notes; shifting all notes in time shifts the beats.

    Raises MidiError for a score without notes, or longer than four hours.
    """
    notes = all_notes(score.tracks)
    if not len(notes):
        raise MidiError("found no notes, expected some to estimate beats; choose another file")
    first, last = score.seconds_at([int(notes[:, 0].min()), int(notes[:, 0].max())]).tolist()
    if last - first > MAX_SECONDS:
        raise MidiError(
            f"the notes last {last - first:,.0f} seconds, expected at most {MAX_SECONDS:,} to "
            "estimate beats; use a part of the file"
        )
    read, start, onsets = frames_of(score)
    odds = salience(read)
    frames = beat_frames(odds[:, 0])
    beats = _evened(*_on_onsets(start + frames / RATE, onsets))
    lines = bar_lines(odds, np.rint((beats - start) * RATE).astype(np.int64))
    beats, added = _around(beats, onsets)
    lines += added
    inside = lines[(lines >= 0) & (lines < len(beats))]
    sure = evidence(odds[:, 0], frames) @ load()["confidence"]
    return Beats(beats, inside, float(1 / (1 + np.exp(-sure))))


def beat_frames(odds: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the frames of the beats: the best sum of log-odds minus costs of changes of tempo."""
    gains = np.clip(odds, -_MAX_ODDS, _MAX_ODDS) + np.float32(_BEAT_BIAS)
    step, longest, tempos = int(_INTERVALS[0]), int(_INTERVALS[-1]), np.arange(len(_INTERVALS))
    change = np.abs(_LOGS[:, None] - _LOGS)
    change -= _FREE_CHANGE / np.minimum(_INTERVALS[:, None], _INTERVALS)
    cost = (_CHANGE_COST * np.maximum(change, 0) ** 2).astype(np.float32)
    # best[frame, i]: the most that beats up to one at `frame` reach if the next is after interval i
    best = np.zeros((longest + len(gains), len(_INTERVALS)), np.float32)
    before = np.empty((len(gains), len(_INTERVALS)), np.uint8)
    ends = np.full((len(gains), len(_INTERVALS)), -np.inf, np.float32)
    # A beat depends on beats at least the shortest interval earlier: that many frames at a time.
    for first in range(0, len(gains), step):
        frames = np.arange(first, min(first + step, len(gains)))
        total = gains[frames, None] + best[longest + frames[:, None] - _INTERVALS, tempos]
        arriving = total[:, :, None] - cost
        before[frames] = arriving.argmax(axis=1)
        best[longest + frames] = arriving.max(axis=1)
        is_last = frames[:, None] + _INTERVALS >= len(gains)
        ends[frames] = np.where(is_last, total, -np.inf)
    frame, tempo = (int(i) for i in np.unravel_index(ends.argmax(), ends.shape))
    beats = [frame]
    while (frame := frame - int(_INTERVALS[tempo])) >= 0:
        tempo = int(before[frame, tempo])
        beats.append(frame)
    return np.array(beats[::-1])


def bar_lines(odds: NDArray[np.float32], frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the beats that begin bars.

    They have the best sum of log-odds minus costs of new metres.
    """
    near = np.clip(frames[:, None] + np.arange(-2, 3), 0, len(odds) - 1)
    is_beat, is_line = (1 / (1 + np.exp(-odds[near].astype(np.float64)))).max(axis=1).T
    share = np.clip(is_line / np.maximum(is_beat, is_line), 0.02, 0.98)
    gains = np.log(share / (1 - share)).tolist()
    # best[k][i]: the most that bars up to beat k reach if a bar of length _METRES[i] begins there
    best: list[list[float]] = []
    before: list[list[int]] = []
    for beat, gain in enumerate(gains):
        totals: list[float] = []
        origins: list[int] = []
        for index, length in enumerate(_METRES):
            # The first bar line has fewer beats before it than a bar has.
            total, origin = (0.0, -1) if beat < length else (-np.inf, -1)
            for other, previous in enumerate(_METRES):
                if beat >= previous:
                    cost = 0.0 if index == other else _METRE_CHANGE_COST
                    arriving = best[beat - previous][other] - cost
                    if arriving > total:
                        total, origin = arriving, other
            totals.append(total + gain)
            origins.append(origin)
        best.append(totals)
        before.append(origins)
    last = range(max(0, len(best) - max(_METRES)), len(best))
    ends = [(b, i) for b in last for i, m in enumerate(_METRES) if b + m >= len(best)]
    beat, metre = max(ends, key=lambda end: best[end[0]][end[1]])
    lines = [beat]
    while (metre := before[beat][metre]) >= 0:
        beat -= _METRES[metre]
        lines.append(beat)
    return np.array(lines[::-1], dtype=np.int64)


def _on_onsets(
    beats: NDArray[np.float64], onsets: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the beats moved to the mean of the onsets next to them, and which beats have onsets.

    The others move as much as the beats around them.
    """
    first, stop = np.searchsorted(onsets, (beats - _NEAR_SECONDS, beats + _NEAR_SECONDS))
    has_onsets = stop > first
    if not has_onsets.any():
        return beats, has_onsets
    sums = np.append(0, np.cumsum(onsets - onsets[0]))
    means = onsets[0] + (sums[stop] - sums[first]) / np.maximum(stop - first, 1)
    index = np.arange(len(beats))
    moves = np.zeros(len(beats))
    moves[:] = np.interp(index, index[has_onsets], (means - beats)[has_onsets])
    return beats + moves, has_onsets


def _evened(beats: NDArray[np.float64], has_onsets: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return an even grid if nearly all beats with onsets are as near to it as a player is.

    Otherwise, the result is `beats`.
    """
    played = beats[has_onsets]
    if len(played) < 3:
        return beats
    period, phase = float(np.median(np.diff(beats))), float(played[0])
    # The grid is fitted to twice as many beats each time, so that an error cannot add up.
    for count in [*(2**power for power in range(3, 16) if 2**power < len(played)), len(played)]:
        part = played[:count]
        index = np.rint((part - phase) / period)
        is_near = np.abs(phase + period * index - part) < _STEADY_SECONDS[1]
        if len(np.unique(index[is_near])) < 3:
            return beats
        slope, intercept = np.polyfit(index[is_near], part[is_near], 1)
        period, phase = float(slope), float(intercept)
    apart = np.abs(phase + period * np.rint((played - phase) / period) - played)
    usual, largest = float(np.median(apart)), float(np.sort(apart)[9 * len(apart) // 10])
    if usual > _STEADY_SECONDS[0] or largest > _STEADY_SECONDS[1]:
        return beats
    first, last = np.rint((beats[[0, -1]] - phase) / period).astype(np.int64).tolist()
    numbers = np.arange(first, last + 1, dtype=np.float64)
    return phase + period * numbers


def _around(
    beats: NDArray[np.float64], onsets: NDArray[np.float64]
) -> tuple[NDArray[np.float64], int]:
    """Return beats from the last one at or before the first onset to that of the last onset.

    Also returns how many beats are added before the given ones; negative if some are removed.
    """
    intervals = np.diff(beats) if len(beats) > 1 else np.array([0.5])
    early, last = float(intervals[0]), float(intervals[-1])
    added = max(0, int(np.ceil((beats[0] - onsets[0] - _NEAR_SECONDS) / early)))
    beats = np.concatenate([beats[0] - early * np.arange(added, 0, -1), beats, beats[-1:] + last])
    first, stop = np.searchsorted(beats, onsets[[0, -1]] + _NEAR_SECONDS, side="right")
    first = max(first - 1, 0)
    beats = beats[first : max(stop, first + 2)]
    # The beat is at the start of an arpeggiated first chord, since there is no time before it.
    late = max(0.0, float(beats[0] - onsets[0]))
    is_even = len(beats) > 2 and np.ptp(np.diff(beats)) < 1e-6
    beats[: len(beats) if is_even else 1] -= late
    return beats, added - first


def evidence(odds: NDArray[np.float32], frames: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what the confidence depends on: 1, how likely beats are, and how many are missed.

    The third value is the share of all likelihood that is at the beats.
    """
    chance = 1 / (1 + np.exp(-odds.astype(np.float64)))
    near = np.clip(frames[:, None] + np.arange(-2, 3), 0, len(odds) - 1)
    explained = chance[np.unique(near)].sum() / chance.sum()
    return np.array([1.0, chance[near].max(axis=1).mean(), explained])
