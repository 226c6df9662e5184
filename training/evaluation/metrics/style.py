"""Similarity of style between continuations and the piece that their prompt comes from.

The profiles are those of Cífka, Şimşekli & Richard (2020), and the protocol of four quarters is
that of Liutkus et al. (2021). There are two forms:

- `exact` (default) counts in whole ticks. Onsets are measured from the bar lines of the time
  signatures, in bins of a sixth of a beat. Bars have up to eight beats, the maximum of the
  vocabulary; in shorter metres the last bins stay empty. Later onsets are not counted.
- `compat` reproduces the published code, for comparison with published figures. Time differences
  are in floating point, so that rounding decides at the edges of bins. Bars have four beats in any
  metre. Onsets in ticks are binned as if they were beats, so that only the first four ticks of a
  bar count. Drum pitch 127 is lost. The published code uses densities; these differ from the
  counts here by constant factors, which do not affect cosines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.measures.bars import TrackKey, bar_lines, track_keys
from tokenization.score import Score

Form = Literal["exact", "compat"]
ProfileName = Literal["time_pitch_diff", "onset_duration", "onset_drum"]

_PER_BEAT = 6
"""Bins of a beat."""
_FARTHEST, _WIDEST = 4, 20
"""Limits of the distance between two notes, in beats and in semitones."""
_LONGEST_BAR, _LONGEST_NOTE = 8, 2
"""Beats."""


def profiles(
    notes: NDArray[np.int64], is_drum: bool, score: Score, form: Form
) -> dict[ProfileName, NDArray[np.float64]]:
    """Return profiles of a track's notes (n, 4), by onset: `onset_drum` for drums, else the others.

    - `time_pitch_diff` (41, 24): ordered pairs of notes less than 4 beats apart, by interval in
      semitones (-20 to 20; larger intervals are not counted) and by time difference in sixths of a
      beat. Simultaneous notes count in both directions. Invariant to transposition.
    - `onset_duration` (48, 12), `compat` (24, 12): onset in the bar and duration, in sixths of a
      beat. Notes of two beats are in the last bin; longer ones are not counted.
    - `onset_drum` (48, 128), `compat` (24, 127): onset in the bar and pitch.

    Onset profiles are invariant to a shift by whole bars. Source: Cífka, Şimşekli & Richard (2020),
    and the published code of Liutkus et al. (2021).
    """
    if is_drum:
        return {"onset_drum": _onset_drum(notes, score, form)}
    return {
        "time_pitch_diff": _time_pitch_diff(notes, score.ticks_per_beat, form),
        "onset_duration": _onset_duration(notes, score, form),
    }


def cosine_similarity(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the cosine similarity of two profiles, 0 to 1; 0 if one of them is empty."""
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return min(float((a * b).sum()) / norms, 1.0) if norms else 0.0


class TrackStyle(NamedTuple):
    """Similarity of style between the new music of a track and the reference."""

    track: TrackKey
    profile: ProfileName
    similarities: NDArray[np.float64]
    """(quarters,), 0 to 1: cosine of the pooled profile of each quarter with the reference's."""


def style_by_quarter(
    reference: Score,
    continuations: Sequence[Score],
    first_bar: int,
    *,
    quarters: int = 4,
    form: Form = "exact",
) -> list[TrackStyle]:
    """Return style of the continuations of one prompt, by quarter, compared with the whole piece.

    `reference` is the whole piece that the prompt comes from, prompt included. `continuations` are
    also whole scores, prompt and new music. New music begins with bar `first_bar`, counted from 0,
    and keeps its times, so that it is measured on the true bar grid. It is divided into `quarters`
    equal times, up to the end of the score. (`compat`: up to the end of each track's last note,
    and notes on a boundary count in both quarters.) A note belongs to the quarter in which it
    begins, and pairs lie within one quarter.

    In each quarter the profiles of all continuations are summed, and compared by cosine with those
    of the reference track of the same `TrackKey`. A track that a continuation lacks, or that is
    silent in a quarter, counts as 0. Profiles that are empty in the reference are left out. Source:
    Liutkus et al. (2021).
    """
    cuts = [_cut(score, first_bar, quarters, form) for score in continuations]
    rows: list[TrackStyle] = []
    for key, (notes, is_drum) in _notes_by_key(reference).items():
        by_part = [
            [profiles(part, is_drum, score, form) for part in cut[key]]
            for score, cut in zip(continuations, cuts, strict=True)
            if key in cut
        ]
        for name, profile in profiles(notes, is_drum, reference, form).items():
            if not profile.any():
                continue
            pooled = np.zeros((quarters, *profile.shape))
            for parts in by_part:
                pooled += np.stack([part[name] for part in parts])
            values = [cosine_similarity(pooled[k], profile) for k in range(quarters)]
            rows.append(TrackStyle(key, name, np.array(values)))
    return rows


def mean_style(rows: Sequence[TrackStyle]) -> Mapping[ProfileName, NDArray[np.float64]]:
    """Return means over tracks for each profile (quarters,); ones without tracks are left out."""
    by_name: dict[ProfileName, list[NDArray[np.float64]]] = {}
    for row in rows:
        by_name.setdefault(row.profile, []).append(row.similarities)
    return {name: np.stack(values).mean(0) for name, values in by_name.items()}


def _notes_by_key(score: Score) -> dict[TrackKey, tuple[NDArray[np.int64], bool]]:
    """Return the notes of each non-empty track, sorted by onset, and whether they are drums."""
    notes_by_key: dict[TrackKey, tuple[NDArray[np.int64], bool]] = {}
    for key, track in zip(track_keys(score.tracks), score.tracks, strict=True):
        if len(track):
            before = notes_by_key[key][0] if key in notes_by_key else track.notes[:0]
            notes = np.concatenate([before, track.notes])
            notes_by_key[key] = (notes[np.argsort(notes[:, 0], kind="stable")], track.is_drum)
    return notes_by_key


def _cut(
    score: Score, first_bar: int, quarters: int, form: Form
) -> dict[TrackKey, list[NDArray[np.int64]]]:
    """Return the notes of each track in each quarter of the new music."""
    lines = bar_lines(score)
    start = int(lines[first_bar]) if first_bar < len(lines) else score.end_ticks
    parts_by_key: dict[TrackKey, list[NDArray[np.int64]]] = {}
    for key, (notes, _) in _notes_by_key(score).items():
        new = notes[notes[:, 0] >= start]
        if form == "compat":
            size = (int((new[:, 0] + new[:, 1]).max(initial=start)) - start) // quarters
            ends = [(start + k * size, start + (k + 1) * size) for k in range(quarters)]
        else:
            length = max(score.end_ticks - start, 0)
            edges = [start + k * length // quarters for k in range(quarters + 1)]
            ends = [(low, high - 1) for low, high in pairwise(edges)]
        parts_by_key[key] = [new[(new[:, 0] >= low) & (new[:, 0] <= high)] for low, high in ends]
    return parts_by_key


def _onset_drum(notes: NDArray[np.int64], score: Score, form: Form) -> NDArray[np.float64]:
    onsets, rows = _onset_bins(notes, score, form)
    return _counts(onsets, notes[:, 2], (rows, 127 if form == "compat" else 128))


def _onset_duration(notes: NDArray[np.int64], score: Score, form: Form) -> NDArray[np.float64]:
    resolution = score.ticks_per_beat
    if form == "compat":
        durations = _float_bins(notes[:, 1] / resolution, _LONGEST_NOTE)
    else:
        durations = _PER_BEAT * notes[:, 1] // resolution
        # the last edge belongs to the last bin
        durations[notes[:, 1] == _LONGEST_NOTE * resolution] -= 1
    onsets, rows = _onset_bins(notes, score, form)
    return _counts(onsets, durations, (rows, _LONGEST_NOTE * _PER_BEAT))


def _onset_bins(
    notes: NDArray[np.int64], score: Score, form: Form
) -> tuple[NDArray[np.int64], int]:
    """Return the sixths of a beat from the last bar line to each note, and the number of bins."""
    if form == "compat":
        onsets = _float_bins(notes[:, 0] % (_FARTHEST * score.ticks_per_beat), _FARTHEST)
        return onsets, _FARTHEST * _PER_BEAT
    lines = bar_lines(score)
    in_bar = notes[:, 0] - lines[np.searchsorted(lines, notes[:, 0], side="right") - 1]
    return _PER_BEAT * in_bar // score.ticks_per_beat, _LONGEST_BAR * _PER_BEAT


def _time_pitch_diff(notes: NDArray[np.int64], resolution: int, form: Form) -> NDArray[np.float64]:
    first, second = _near_pairs(notes[:, 0], _FARTHEST * resolution)
    rows = notes[second, 2] - notes[first, 2] + _WIDEST
    if form == "compat":
        beats = notes[:, 0] / resolution
        columns = _float_bins(beats[second] - beats[first], _FARTHEST)
    else:
        columns = _PER_BEAT * (notes[second, 0] - notes[first, 0]) // resolution
    return _counts(rows, columns, (2 * _WIDEST + 1, _FARTHEST * _PER_BEAT))


def _near_pairs(
    onsets: NDArray[np.int64], farthest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ordered pairs of notes, the second beginning less than `farthest` after the first.

    Onsets must be sorted. Two simultaneous notes give two pairs.
    """
    firsts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    seconds: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for apart in range(1, len(onsets)):
        difference = onsets[apart:] - onsets[:-apart]
        first = np.flatnonzero(difference < farthest)
        if not len(first):
            break
        simultaneous = np.flatnonzero(difference == 0)
        firsts += [first, simultaneous + apart]
        seconds += [first + apart, simultaneous]
    return np.concatenate(firsts), np.concatenate(seconds)


def _float_bins(beats: NDArray[np.generic], last: int) -> NDArray[np.int64]:
    """Return the bin of each time, edges in floating point, the last inclusive; -1: outside."""
    edges = np.arange(last * _PER_BEAT + 1) * (1 / _PER_BEAT)
    times = beats.astype(np.float64)
    bins = np.searchsorted(edges, times, side="right") - 1
    bins[times == edges[-1]] -= 1
    return bins


def _counts(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the counts of each cell; cells outside the shape are ignored."""
    inside = (rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])
    cells = rows[inside] * shape[1] + columns[inside]
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
