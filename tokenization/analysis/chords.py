"""Recognition of one chord per beat, by templates of the sounding pitches and the best path.

The vocabulary is that of Liutkus et al. (2021): twelve roots with eleven qualities, and no chord.
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
"""Root, quality and index for no chord."""
CHORD_NAMES = (*(f"{root}_{quality}" for root in ROOTS for quality in QUALITIES), "N_N")
"""Names by index: `C_M` is 0, `B_sus4` 131; no chord is the last, 132 or -1."""

CHORD_INTERVALS = (
    *((0, 4, 7), (0, 3, 7), (0, 3, 6), (0, 4, 8), (0, 4, 7, 10), (0, 4, 7, 11)),
    *((0, 3, 7, 10), (0, 3, 6, 9), (0, 3, 6, 10), (0, 2, 7), (0, 5, 7)),
)
# Log-odds fitted to the training split of POP909 (measured by
# benchmarks.tokenization.bench_chords). They are rounded to halves, so that sums are exact and the
# same music gives the same chords everywhere.
_INSIDE, _OUTSIDE = 6.5, -1.0
_BASS_IS_ROOT, _BASS_IS_INSIDE = 2.5, 0.5
_USUAL = (2.5, 2.0, -0.5, -1.0, -0.5, -0.5, -0.5, -2.0, -2.0, 0.5, 0.0)
_NO_CHORD_SCORE = 8.0
_SWITCH = 2.5
_CHROMA_STEPS = 64.0
_LONGEST_BEATS, _MOST_BEATS = 16, 64
_SHORTEST_BASS = 0.2


class Chords(NamedTuple):
    """Chords sorted by time, as columns (n,); each lasts until the next one begins."""

    beats: NDArray[np.float64]
    """Start of each chord in quarters."""
    roots: NDArray[np.int64]
    """Pitch class 0-11, C is 0; or NO_CHORD."""
    qualities: NDArray[np.int64]
    """Index into QUALITIES, or NO_CHORD."""

    @property
    def indices(self) -> NDArray[np.int64]:
        """Index into CHORD_NAMES (n,): 11 root + quality, or NO_CHORD."""
        return np.where(self.roots < 0, NO_CHORD, len(QUALITIES) * self.roots + self.qualities)

    @property
    def names(self) -> list[str]:
        """Names such as `C#_m7`; `N_N` for no chord."""
        return [CHORD_NAMES[index] for index in self.indices.tolist()]

    def at(self, beats: ArrayLike) -> NDArray[np.int64]:
        """Return indices into CHORD_NAMES of chords at `beats` (in quarters), in their shape."""
        place = np.searchsorted(self.beats, np.asarray(beats), side="right")
        return np.append(NO_CHORD, self.indices)[place]


def recognise_chords(score: Score, beats: ArrayLike | None = None) -> Chords:
    """Recognise the chords of all tracks except drums, and merge equal neighbours.

    Args:
        score: the music; apply `extend_by_pedal` first to include the sustain pedal.
        beats: (n,), start of each beat in quarters, ascending; the last beat ends with the score.
            One chord is chosen for each beat. Default: every quarter is a beat.

    The features of a beat are the duration of each pitch class in it (Fujishima, 1999, section 4.3)
    and its lowest note. The score of a chord is linear in these. Dynamic programming finds the path
    with the highest sum of scores minus a penalty for each change (Viterbi; Sheh and Ellis, 2003).
    """
    edges = _edges(score, beats)
    scores = chord_scores(*sounding(pitched_notes(score), edges))
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
    """Return the start of each beat and the end of the last one, in ticks: (beats + 1,)."""
    if beats is None:
        # Later beats are left out, so that an endless note does not add millions of them.
        onsets = [int(track.notes[-1, 0]) for track in score.tracks if len(track)]
        heard = max(onsets, default=0) + (_LONGEST_BEATS + 2) * score.ticks_per_beat
        num_beats = -(-min(score.end_ticks, heard) // score.ticks_per_beat)
        return np.arange(num_beats + 1) * score.ticks_per_beat
    begins = np.rint(np.asarray(beats, dtype=np.float64) * score.ticks_per_beat).astype(np.int64)
    if begins.ndim != 1 or (np.diff(begins) <= 0).any():
        raise ValueError("beats are not ascending, expected (n,) quarters at least a tick apart")
    return np.append(begins, max(score.end_ticks, int(begins[-1]) + 1)) if len(begins) else begins


def pitched_notes(score: Score) -> NDArray[np.int64]:
    """Return the notes of all tracks except drums (n, 4), with lengths of a tick to 16 quarters.

    A note of several minutes is an error in the file, or has died away; samplers play those without
    length.
    """
    notes = all_notes(track for track in score.tracks if not track.is_drum)
    notes[:, 1] = np.clip(notes[:, 1], 1, _LONGEST_BEATS * score.ticks_per_beat)
    return notes


def sounding(
    notes: NDArray[np.int64], edges: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ticks for which each pitch class sounds (beats, 12), and lowest pitch (beats,) or 128.

    Args:
        notes: (n, 4), see `pitched_notes`.
        edges: start of each beat, and end of the last one (beats + 1,). A note counts in 64 beats.
    """
    num_beats = max(len(edges) - 1, 0)
    onsets, pitches = notes[:, 0], notes[:, 2]
    ends = onsets + notes[:, 1]
    # One row for each note and beat in which it sounds.
    first = np.maximum(np.searchsorted(edges, onsets, side="right") - 1, 0)
    last = np.minimum(np.searchsorted(edges, ends), np.minimum(first + _MOST_BEATS, num_beats))
    spans = np.maximum(last - first, 0)
    note = np.repeat(np.arange(len(notes)), spans)
    beat = np.arange(len(note)) + np.repeat(first - (np.cumsum(spans) - spans), spans)
    ticks = np.minimum(ends[note], edges[beat + 1]) - np.maximum(onsets[note], edges[beat])
    pitch = pitches[note]
    chroma = np.bincount(beat * 12 + pitch % 12, ticks, 12 * num_beats).reshape(num_beats, 12)
    # A note that only reaches into a beat is not its bass, unless there is no other note.
    lowest = np.full((2, num_beats), 128)
    np.minimum.at(lowest[0], beat, pitch)
    is_long = ticks >= _SHORTEST_BASS * np.diff(edges)[beat]
    np.minimum.at(lowest[1], beat[is_long], pitch[is_long])
    return chroma, np.where(lowest[1] < 128, lowest[1], lowest[0])


def _templates() -> NDArray[np.float32]:
    """Return the weights (24, 132) of pitch classes and bass in the score of each chord."""
    table = np.full((12, len(QUALITIES), 24), _OUTSIDE, np.float32)
    table[:, :, 12:] = 0
    for root in range(12):
        for quality, intervals in enumerate(CHORD_INTERVALS):
            inside = (root + np.array(intervals)) % 12
            table[root, quality, inside] = _INSIDE
            table[root, quality, 12 + inside] = _BASS_IS_INSIDE
            table[root, quality, 12 + root] = _BASS_IS_ROOT
    return table.reshape(-1, 24).T.copy()


_TEMPLATES = _templates()


def chord_scores(chroma: NDArray[np.int64], lowest: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return scores of chords (beats, 133), the last for no chord; arguments as in `sounding`."""
    heard = np.zeros((len(chroma), 24), np.float32)
    # Square roots increase the weight of short notes, since durations of chord tones matter little.
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
    """Return columns (beats,) with the largest sum less penalties for changes; first of equals."""
    totals = scores.copy()
    penalty = np.float32(-_SWITCH)
    rows = list(totals)
    for before, row in pairwise(rows):
        # Subtract the best score so far, so that sums stay small and exact.
        row += np.maximum(before - before[before.argmax()], penalty)
    best = totals.argmax(axis=1)
    path = best.copy()
    stays = totals - totals.max(axis=1, keepdims=True) >= penalty
    for beat in range(len(path) - 2, -1, -1):
        if stays[beat, path[beat + 1]]:
            path[beat] = path[beat + 1]
    return path
