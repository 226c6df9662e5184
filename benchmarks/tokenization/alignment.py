"""Aligns a score with a recording of it, so that the recording's beats are known.

The chords of both are aligned by dynamic programming: pitches in common count for a pair, pitches
that are only in one count against it. A score may be one piece of a longer recording.
"""

from __future__ import annotations

import numpy as np

from benchmarks.tokenization.performances import Performance, metrical_beats
from tokenization.score import Score, Tempo, Track, all_notes

_TOGETHER_SECONDS = 0.03
_MATCH, _MISSING, _EXTRA = 1.0, 0.6, 0.4
_GAP_BEATS = 2.5


def _chords(onsets: np.ndarray, pitches: np.ndarray, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the onsets (n,) of the chords, and which pitches each has (n, 128)."""
    begins = np.append(True, np.diff(onsets) > apart)
    chord = np.cumsum(begins) - 1
    roll = np.zeros((int(chord[-1]) + 1, 128), np.float32)
    roll[chord, pitches] = 1
    return onsets[begins], roll


def align(score: Score, recording: Score) -> tuple[Performance, float] | None:
    """Return the part of the recording that plays the score, and the share of notes that agree.

    Beats are where their notes are; a beat without notes is placed between its neighbours. None if
    the alignment has gaps of more than a few beats.
    """
    notes, played = all_notes(score.tracks), all_notes(recording.tracks)
    notes, played = notes[np.argsort(notes[:, 0])], played[np.argsort(played[:, 0])]
    ticks, written = _chords(notes[:, 0], notes[:, 2], 0)
    seconds, heard = _chords(recording.seconds_at(played[:, 0]), played[:, 2], _TOGETHER_SECONDS)
    pairs = _path(written, heard)
    common = np.minimum(written[pairs[:, 0]], heard[pairs[:, 1]]).sum(axis=1)
    pairs, common = pairs[common > 0], common[common > 0]
    agreement = float(common.sum() / written.sum())
    # The first chord of the recording that plays each chord of the score.
    at, first = np.unique(pairs[:, 0], return_index=True)
    written_ticks, heard_seconds = ticks[at], seconds[pairs[first, 1]]
    keep = np.append(True, np.diff(heard_seconds) > 0.01)
    written_ticks, heard_seconds = written_ticks[keep], heard_seconds[keep]
    beats, lines = metrical_beats(score)
    inside = np.flatnonzero((beats >= written_ticks[0] - 1) & (beats <= written_ticks[-1] + 1))
    unit = float(np.median(np.diff(beats)))
    if len(inside) < 8 or np.diff(written_ticks).max() > 4 * _GAP_BEATS * unit:
        return None
    times = np.interp(beats[inside], written_ticks, heard_seconds)
    lines = np.flatnonzero(np.isin(inside, lines))
    part = (recording.seconds_at(played[:, 0]) >= times[0] - 0.1) & (
        recording.seconds_at(played[:, 0]) <= times[-1] + 1
    )
    rows = played[part].astype(np.float64)
    ends = recording.seconds_at(played[part][:, :2].sum(axis=1))
    rows[:, 0] = recording.seconds_at(played[part][:, 0])
    rows[:, 1] = ends - rows[:, 0]
    begin = rows[:, 0].min()
    rows[:, 0] -= begin
    rows[:, :2] = np.rint(1000 * rows[:, :2])
    track = Track.of(np.maximum(rows, (0, 1, 0, 1)).astype(np.int64))
    return Performance(Score(1000, (track,), (Tempo(0, 60.0),)), times - begin, lines), agreement


def _path(written: np.ndarray, heard: np.ndarray) -> np.ndarray:
    """Return the pairs (k, 2) of a chord of the score and one of the recording, both ascending."""
    sizes, extras = written.sum(axis=1), _EXTRA * heard.sum(axis=1)
    total = np.zeros(len(heard) + 1, np.float32)
    moves = np.zeros((len(written), len(heard) + 1), np.int8)
    froms = np.zeros((len(written), len(heard) + 1), np.int32)
    index = np.arange(len(heard) + 1, dtype=np.int32)
    for row, pitches in enumerate(written):
        common = heard[:, pitches > 0].sum(axis=1)
        gain = (_MATCH + _MISSING + _EXTRA) * common - _MISSING * sizes[row] - extras
        paired = np.append(-1e9, total[:-1] + gain)
        skipped = total - _MISSING * sizes[row]
        best = np.maximum(paired, skipped)
        moves[row] = paired > skipped
        # Chords of the recording that are passed, or that are further notes of a broken chord.
        passing = np.append(0, np.cumsum((_MATCH + _EXTRA) * 0.5 * common - extras))
        before = np.maximum.accumulate(best - passing)
        is_new = best - passing >= before
        froms[row] = np.maximum.accumulate(np.where(is_new, index, 0))
        total = (before + passing).astype(np.float32)
    column, pairs = int(total.argmax()), []
    for row in range(len(written) - 1, -1, -1):
        column = int(froms[row, column])
        if moves[row, column]:
            column -= 1
            pairs.append((row, column))
    return np.array(pairs[::-1]).reshape(-1, 2)
