"""Chords of a score, one per beat: templates on what sounds, then the best path through the beats.

Twelve roots with eleven qualities, and no chord, as in the vocabulary of Liutkus et al. (2021).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenization.score import Score, all_notes

ROOTS = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
QUALITIES = ("M", "m", "o", "+", "7", "M7", "m7", "o7", "/o7", "sus2", "sus4")
NO_CHORD = -1
"""Root, quality and index where there is no chord."""
CHORD_NAMES = (*(f"{root}_{quality}" for root in ROOTS for quality in QUALITIES), "N_N")
"""Names by index: `C_M` 0 to `B_sus4` 131; no chord is the last, 132 or -1."""

_INTERVALS = (
    *((0, 4, 7), (0, 3, 7), (0, 3, 6), (0, 4, 8), (0, 4, 7, 10), (0, 4, 7, 11)),
    *((0, 3, 7, 10), (0, 3, 6, 9), (0, 3, 6, 10), (0, 2, 7), (0, 5, 7)),
)
# Log-odds fitted to the training split of POP909 (measured by benchmarks.bench_chords), rounded
# to halves. Sums of them are exact, so that the same music gives the same chords on every machine.
_INSIDE, _OUTSIDE = 6.5, -1.0
_BASS_IS_ROOT, _BASS_IS_INSIDE = 2.5, 0.5
_USUAL = (2.5, 2.0, -0.5, -1.0, -0.5, -0.5, -0.5, -2.0, -2.0, 0.5, 0.0)
_NO_CHORD_SCORE = 8.0
_SWITCH = 2.5
_CHROMA_STEPS = 64.0
_LONGEST_BEATS = 16
_SHORTEST_BASS = 0.2


class Chords(NamedTuple):
    """Chords in the order of time, (n,) each; one holds until the next begins."""

    beats: NDArray[np.float64]
    """Where each begins, in quarters."""
    roots: NDArray[np.int64]
    """Pitch class 0-11, C is 0; NO_CHORD."""
    qualities: NDArray[np.int64]
    """Index into QUALITIES; NO_CHORD."""

    @property
    def indices(self) -> NDArray[np.int64]:
        """(n,), index into CHORD_NAMES: 11 root + quality; NO_CHORD."""
        return np.where(self.roots < 0, NO_CHORD, len(QUALITIES) * self.roots + self.qualities)

    @property
    def names(self) -> list[str]:
        """Names such as `C#_m7`; `N_N` for no chord."""
        return [CHORD_NAMES[index] for index in self.indices.tolist()]

    def at(self, beats: ArrayLike) -> NDArray[np.int64]:
        """Index into CHORD_NAMES of the chord at each of `beats`, in quarters; the same shape."""
        place = np.searchsorted(self.beats, np.asarray(beats), side="right")
        return np.append(NO_CHORD, self.indices)[place]


def recognise_chords(score: Score, beats: ArrayLike | None = None) -> Chords:
    """Chords of all tracks but drums; equal ones in a row are one.

    Args:
        score: the music; what rings on with the pedal is heard after `extend_by_pedal` only.
        beats: (n,), where beats begin in quarters, rising; the last lasts until the score ends.
            One chord is chosen for each. Without it every quarter is a beat.

    A beat counts the pitch classes by how long they sound in it (Fujishima, 1999, section 4.3),
    and its lowest note. A chord's score is linear in both; the path of the highest sum, less a
    penalty for each change, is found by dynamic programming (Viterbi; Sheh and Ellis, 2003).
    """
    edges = _edges(score, beats)
    scores = _match(*_heard(score, edges))
    path = _best_path(scores)
    changed = np.append(True, path[1:] != path[:-1])[: len(path)]
    path = path[changed]
    path[path == len(CHORD_NAMES) - 1] = NO_CHORD
    return Chords(
        beats=edges[:-1][changed] / score.ticks_per_beat,
        roots=path // len(QUALITIES),
        qualities=np.where(path < 0, NO_CHORD, path % len(QUALITIES)),
    )


def _edges(score: Score, beats: ArrayLike | None) -> NDArray[np.int64]:
    """(beats + 1,), beginnings of the beats and the end of the last, in ticks."""
    if beats is None:
        # Nothing is heard later: a note without an end must not leave millions of beats behind.
        onsets = [int(track.notes[-1, 0]) for track in score.tracks if len(track)]
        heard = max(onsets, default=0) + (_LONGEST_BEATS + 2) * score.ticks_per_beat
        num_beats = -(-min(score.end_ticks, heard) // score.ticks_per_beat)
        return np.arange(num_beats + 1) * score.ticks_per_beat
    begins = np.rint(np.asarray(beats, dtype=np.float64) * score.ticks_per_beat).astype(np.int64)
    if begins.ndim != 1 or (np.diff(begins) <= 0).any():
        raise ValueError("beats do not rise, expected (n,) quarters, each later by a tick or more")
    return np.append(begins, max(score.end_ticks, int(begins[-1]) + 1)) if len(begins) else begins


def _heard(score: Score, edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ticks that each pitch class sounds, (beats, 12), and the lowest pitch, (beats,), or 128."""
    num_beats = max(len(edges) - 1, 0)
    notes = all_notes(track for track in score.tracks if not track.is_drum)
    onsets, pitches = notes[:, 0], notes[:, 2]
    # A note of minutes is a mistake of the file, or has died away.
    ends = onsets + np.minimum(notes[:, 1], _LONGEST_BEATS * score.ticks_per_beat)
    # One row per note and beat that it sounds in.
    first = np.maximum(np.searchsorted(edges, onsets, side="right") - 1, 0)
    spans = np.maximum(np.minimum(np.searchsorted(edges, ends), num_beats) - first, 0)
    note = np.repeat(np.arange(len(notes)), spans)
    beat = np.arange(len(note)) + np.repeat(first - (np.cumsum(spans) - spans), spans)
    ticks = np.minimum(ends[note], edges[beat + 1]) - np.maximum(onsets[note], edges[beat])
    pitch = pitches[note]
    chroma = np.bincount(beat * 12 + pitch % 12, ticks, 12 * num_beats).reshape(num_beats, 12)
    # What only reaches into a beat is no bass, unless there is nothing else.
    lowest = np.full((2, num_beats), 128)
    np.minimum.at(lowest[0], beat, pitch)
    is_long = ticks >= _SHORTEST_BASS * np.diff(edges)[beat]
    np.minimum.at(lowest[1], beat[is_long], pitch[is_long])
    return chroma, np.where(lowest[1] < 128, lowest[1], lowest[0])


def _templates() -> NDArray[np.float32]:
    """(24, 132), what a pitch class and a bass add to the score of a chord."""
    table = np.full((12, len(QUALITIES), 24), _OUTSIDE, np.float32)
    table[:, :, 12:] = 0
    for root in range(12):
        for quality, intervals in enumerate(_INTERVALS):
            inside = (root + np.array(intervals)) % 12
            table[root, quality, inside] = _INSIDE
            table[root, quality, 12 + inside] = _BASS_IS_INSIDE
            table[root, quality, 12 + root] = _BASS_IS_ROOT
    return table.reshape(-1, 24).T.copy()


_TEMPLATES = _templates()


def _match(chroma: NDArray[np.int64], lowest: NDArray[np.int64]) -> NDArray[np.float32]:
    """(beats, 133), how well each chord fits, the last for none."""
    heard = np.zeros((len(chroma), 24), np.float32)
    # Roots make a short note count: the length of a chord tone says little.
    shares = np.sqrt(chroma / np.maximum(chroma.sum(axis=1, keepdims=True), 1))
    heard[:, :12] = np.rint(_CHROMA_STEPS * shares) / _CHROMA_STEPS
    sounds = np.flatnonzero(lowest < 128)
    heard[sounds, 12 + lowest[sounds] % 12] = 1
    scores = np.empty((len(chroma), len(CHORD_NAMES)), np.float32)
    np.matmul(heard, _TEMPLATES, out=scores[:, :-1])
    scores[:, :-1] += np.tile(np.array(_USUAL, np.float32), 12)
    scores[:, -1] = _NO_CHORD_SCORE
    return scores


def _best_path(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """(beats,), columns with the largest sum less a penalty per change; of equal ones the first."""
    totals = scores.copy()
    penalty = np.float32(-_SWITCH)
    rows = list(totals)
    for before, row in pairwise(rows):
        # Counted from the best so far, so that sums stay small and exact.
        row += np.maximum(before - before[before.argmax()], penalty)
    best = totals.argmax(axis=1)
    path = best.copy()
    stays = totals - totals.max(axis=1, keepdims=True) >= penalty
    for beat in range(len(path) - 2, -1, -1):
        if stays[beat, path[beat + 1]]:
            path[beat] = path[beat + 1]
    return path
