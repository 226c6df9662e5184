"""Chords of bars as lead sheets have them: one at the start, a second one where it changes.

Recognition is causal: the chords of a bar depend on that bar and the bar before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.chords import (
    CHORD_INTERVALS,
    CHORD_NAMES,
    QUALITIES,
    chord_scores,
    pitched_notes,
    sounding,
)
from tokenization.plan import Chord, PlannedChord

SILENT: Final = (PlannedChord(0, None),)
"""Chords of a bar without pitched notes."""
# Chosen on the training splits of POP909 and the groove corpus
# (benchmarks.tokenization.bench_chords).
_BEATS = np.float32(1)
"""Weight of the mean score of the beats; that of the notes of all beats together is 1."""
_SWITCH = np.float32(2.5)
"""Penalty for a second chord."""
_AS_BEFORE = np.float32(0.5)
"""Bonus of the chord at the end of the bar before."""
_BLOCK = 512
_NONE = len(CHORD_NAMES) - 1


def find_bar_chords(score: ScoreBars) -> list[tuple[PlannedChord, ...]]:
    """Return the chords of each bar, one or two; empty for all bars if all tracks are drums.

    Each half of a bar scores every chord (`chord_scores`): for the notes of the half, and for those
    of its beats. The best pair of chords wins, with a penalty if they differ. The bass is the pitch
    class that is the lowest for more than half of the time, if it belongs to the chord.
    """
    if all(track.is_drum for track in score.score.tracks):
        return [()] * score.num_bars
    notes = pitched_notes(score.score)
    notes = notes[np.argsort(notes[:, 0], kind="stable")]
    ends = notes[:, 0] + notes[:, 1]
    longest = int(notes[:, 1].max(initial=0))
    chords: list[tuple[PlannedChord, ...]] = [SILENT] * score.num_bars
    for first in range(0, score.num_bars, _BLOCK):
        # from the bar before, whose chord has a bonus
        begin, stop = max(first - 1, 0), min(first + _BLOCK, score.num_bars)
        start, end = score.lines[[begin, stop]].tolist()
        near = slice(*np.searchsorted(notes[:, 0], [start - longest, end]))
        heard = notes[near][ends[near] > start]
        if len(heard):
            part = _chords_between(score, heard, begin, stop)
            chords[first:stop] = part[first - begin :]
    return chords


def _chords_between(
    score: ScoreBars, notes: NDArray[np.int64], first: int, stop: int
) -> list[tuple[PlannedChord, ...]]:
    """Return chords of the bars from `first` to `stop`, as if there were no bar before them."""
    starts, middles = score.lines[first:stop], score.middles[first:stop]
    has_half = middles < score.lines[first + 1 : stop + 1]
    halves = np.append(starts, middles[has_half])
    bar_of_half = np.append(np.arange(stop - first), np.flatnonzero(has_half))
    order = np.argsort(halves, kind="stable")
    halves, bar_of_half = np.append(halves[order], score.lines[stop]), bar_of_half[order]
    beats, half_of_beat = _beats(halves, score.score.ticks_per_beat)
    chroma, lowest = sounding(notes, halves)
    beat_chroma, beat_lowest = sounding(notes, beats)
    by_beat = _from_best(chord_scores(beat_chroma, beat_lowest))
    firsts = np.searchsorted(half_of_beat, np.arange(len(chroma)))
    counts = np.diff(np.append(firsts, len(half_of_beat)))
    scores = _from_best(chord_scores(chroma, lowest))
    scores += _BEATS * np.add.reduceat(by_beat, firsts) / counts[:, None].astype(np.float32)

    first_half = np.searchsorted(bar_of_half, np.arange(stop - first))
    second_half = first_half + has_half
    silent: NDArray[np.bool_] = chroma.sum(1) == 0
    opening = np.where(silent[first_half, None], 0, scores[first_half])
    closing = np.where((silent[second_half] | ~has_half)[:, None], 0, scores[second_half])
    # how the chords rank at the end of the bar before, by that bar alone
    ranks = _from_best(_after_switch(opening) + closing)
    opening[1:] += np.maximum(ranks[:-1], -_AS_BEFORE)
    before = _after_switch(opening)
    low_bar = np.minimum.reduceat(lowest, first_half)
    last = _best(before + closing, low_bar)
    rows = np.arange(len(last))
    alone = _best(opening, low_bar)
    begun = np.where(opening[rows, last] >= opening.max(1) - _SWITCH, last, alone)

    # a bass for both halves if they have one chord
    lengths = np.diff(beats)
    same = ~has_half | (begun == last)
    bass_of_bar = _bass(beat_lowest, lengths, bar_of_half[half_of_beat], len(rows))
    bass_of_half = _bass(beat_lowest, lengths, half_of_beat, len(halves) - 1)
    basses = np.where(same, bass_of_bar, bass_of_half[first_half])
    quiet = np.logical_and.reduceat(silent, first_half)
    return [
        SILENT
        if is_quiet
        else (PlannedChord(0, _chord(chord, bass)),)
        if is_same
        else (PlannedChord(0, _chord(chord, bass)), PlannedChord(beat, _chord(second, bass_2)))
        for is_quiet, is_same, beat, chord, bass, second, bass_2 in zip(
            quiet.tolist(),
            same.tolist(),
            score.second_beats[first:stop].tolist(),
            begun.tolist(),
            basses.tolist(),
            last.tolist(),
            bass_of_half[second_half].tolist(),
            strict=True,
        )
    ]


def _beats(
    halves: NDArray[np.int64], ticks_per_beat: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return beats of about a quarter: edges (beats + 1,), and half of the bar (beats,).

    `halves` are the starts of the halves, and the end of the last one.
    """
    lengths = np.diff(halves)
    counts = np.maximum((2 * lengths + ticks_per_beat) // (2 * ticks_per_beat), 1)
    half = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(half)) - (np.cumsum(counts) - counts)[half]
    return np.append(halves[half] + nth * lengths[half] // counts[half], halves[-1]), half


def _from_best(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores (n, 133) less the best of each row."""
    return scores - scores.max(axis=1, keepdims=True)


def _after_switch(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the best score of each second chord (n, 133), from those of the first chord."""
    return np.maximum(scores, scores.max(axis=1, keepdims=True) - _SWITCH)


def _best(scores: NDArray[np.float32], lowest: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the best chord (n,); of equals, that with the next root above `lowest`.

    Hence the chords of transposed music are transposed.
    """
    order = (np.arange(_NONE) + len(QUALITIES) * (lowest[:, None] % 12)) % _NONE
    ordered = np.take_along_axis(scores, order, axis=1)
    place = ordered.argmax(axis=1)
    best = np.take_along_axis(order, place[:, None], axis=1)[:, 0]
    return np.where(scores[:, _NONE] > ordered.max(axis=1), _NONE, best)


def _bass(
    lowest: NDArray[np.int64], ticks: NDArray[np.int64], group: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the pitch class that is lowest for more than half of the time of each group, or -1."""
    sounds = lowest < 128
    totals = np.bincount(
        group[sounds] * 12 + lowest[sounds] % 12, ticks[sounds], 12 * count
    ).reshape(count, 12)
    return np.where(2 * totals.max(1) > totals.sum(1), totals.argmax(1), -1)


def _chord(index: int, bass: int) -> Chord | None:
    """Return a chord by its index; the bass is left out if it is the root or not in the chord."""
    if index == _NONE:
        return None
    root, quality = divmod(index, len(QUALITIES))
    is_inverted = (bass - root) % 12 in CHORD_INTERVALS[quality][1:] and bass >= 0
    return Chord(root, quality, bass if is_inverted else None)
