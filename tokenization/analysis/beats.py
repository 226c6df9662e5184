"""Aligns notes to other beats than those of their file.

if file_probability(score) < 0.5:  # in tokenization.analysis.bar_evidence
    beats = estimate_beats(score)  # in tokenization.analysis.beat_tracker
    score = warp(score, beats.seconds, beats.downbeats, pedal=True)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenization.score import Score, Tempo, TimeSignature, Track, once_each

SUSTAIN_PEDAL: Final = 64
"""MIDI controller; the pedal is down for values of at least 64."""
MIN_TICKS_PER_BEAT: Final = 480
"""Minimum resolution of warped scores: a tick is about a millisecond."""


class Beats(NamedTuple):
    """Beats of a performance."""

    seconds: NDArray[np.float64]
    """Ascending times (n,), at least two, from the first onset or the beat before to the last."""
    downbeats: NDArray[np.int64]
    """Indices of the beats that begin a bar, ascending."""
    confidence: float = 1.0
    """For estimated beats, how large their F-measure is expected to be; otherwise 1."""


def extend_by_pedal(score: Score) -> Score:
    """Extend notes to the length for which the sustain pedal holds them.

    A note that ends with the pedal down sounds until the pedal is released, its pitch is struck
    again in the track, or the piece ends. No note gets shorter.
    """
    return score.with_tracks(_extend(track, score.end_ticks) for track in score.tracks)


def _extend(track: Track, end_ticks: int) -> Track:
    events = track.controls[track.controls[:, 1] == SUSTAIN_PEDAL]
    if not len(events) or not len(track):
        return track
    events = events[np.argsort(events[:, 0], kind="stable")]
    is_down = events[:, 2] >= 64
    # The next release at or after each event.
    releases = np.where(is_down, max(end_ticks, int(events[-1, 0])), events[:, 0])
    releases = np.minimum.accumulate(releases[::-1])[::-1]

    onsets, pitches = track.notes[:, 0], track.notes[:, 2]
    ends = onsets + track.notes[:, 1]
    last = np.searchsorted(events[:, 0], ends, side="right") - 1
    rings = np.where((last >= 0) & is_down[last], releases[last], ends)
    # Pitch and onset as one number; the next larger number is the next note of the pitch, if any.
    limit = int(max(onsets.max(), rings.max())) + 1
    places = pitches * limit + onsets
    following = np.append(np.sort(places), 128 * limit)
    following = following[np.searchsorted(following, places, side="right")] - pitches * limit
    notes = track.notes.copy()
    notes[:, 1] = np.maximum(np.minimum(rings, following), ends) - onsets
    return replace(track, notes=notes)


def warp(
    score: Score, beats: ArrayLike, downbeats: ArrayLike | None = None, *, pedal: bool = False
) -> Score:
    """Align a score to one quarter note per beat, so that it still sounds at the same times.

    Beat k becomes quarter k + `pickup_beats(score, beats)`. Times between two beats keep their
    relative position; times outside continue in the tempo of the first or last two beats. All times
    shift by one constant, since the score starts with a beat; apart from that, onsets move by at
    most half a tick. Tempos are whole microseconds per quarter, as in a file. Controllers before
    the start move to 0.

    Args:
        score: its time signatures are dropped; its tempos only determine when notes sound.
        beats: (n,), ascending times in seconds, at least two.
        downbeats: ascending indices of the beats that begin a bar. Bars before the first one have
            its length, except for a shorter pickup. Without downbeats, the result has no time
            signature, which means 4/4.
        pedal: apply `extend_by_pedal` first.

    Raises ValueError if beats or downbeats are not ascending. After the synchronizer of REMI (Huang
    and Yang, 2020), with given beats.
    """
    seconds = _checked(beats)
    if pedal:
        score = extend_by_pedal(score)
    resolution = score.ticks_per_beat * -(-MIN_TICKS_PER_BEAT // score.ticks_per_beat)
    pickup = pickup_beats(score, seconds)

    def moved(ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        quarters = _quarters(score.seconds_at(ticks), seconds) + pickup
        return np.maximum(np.rint(quarters * resolution), 0).astype(np.int64)

    def moved_rows(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.column_stack([moved(rows[:, 0]), rows[:, 1:]])

    moved_events = once_each(moved_rows)
    tracks: list[Track] = []
    for track in score.tracks:
        notes = moved_rows(track.notes)
        ends = moved(track.notes[:, 0] + track.notes[:, 1])
        notes[:, 1] = np.maximum(ends - notes[:, 0], track.notes[:, 1] > 0)
        controls, bends = moved_events(track.controls), moved_events(track.bends)
        tracks.append(replace(track, notes=notes, controls=controls, bends=bends))
    microseconds = np.maximum(np.rint(1e6 * np.diff(seconds)), 1)
    changes = np.flatnonzero(np.append(True, microseconds[1:] != microseconds[:-1]))
    ticks = np.where(changes > 0, (changes + pickup) * resolution, 0)
    return Score(
        ticks_per_beat=resolution,
        tracks=tuple(tracks),
        tempos=tuple(map(Tempo, ticks.tolist(), (60e6 / microseconds[changes]).tolist())),
        time_signatures=() if downbeats is None else _metre(downbeats, pickup, resolution),
        end_ticks=int(moved(np.array([score.end_ticks]))[0]),
    )


def pickup_beats(score: Score, beats: ArrayLike) -> int:
    """Return the number of whole beats that `warp` adds before the first one, for earlier notes."""
    first = [int(track.notes[0, 0]) for track in score.tracks if len(track)]
    if not first:
        return 0
    # Rounding of times must not add a beat.
    first_quarter = _quarters(score.seconds_at([min(first)]), _checked(beats))[0] + 1e-6
    return max(0, -int(np.floor(first_quarter)))


def _checked(beats: ArrayLike) -> NDArray[np.float64]:
    beats = np.asarray(beats, dtype=np.float64)
    if beats.ndim != 1 or len(beats) < 2 or not (np.diff(beats) > 0).all():
        raise ValueError(
            f"beats of shape {beats.shape}, expected (n,) ascending seconds, at least two"
        )
    return beats


def _quarters(seconds: NDArray[np.float64], beats: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the position of each time in beats; the first beat is 0."""
    beat = np.clip(np.searchsorted(beats, seconds, side="right") - 1, 0, len(beats) - 2)
    return beat + (seconds - beats[beat]) / (beats[beat + 1] - beats[beat])


def _metre(downbeats: ArrayLike, pickup: int, resolution: int) -> tuple[TimeSignature, ...]:
    """Return time signatures of the bars that begin `pickup` quarters after `downbeats`."""
    lines = np.array(downbeats, dtype=np.int64) + pickup
    lengths = np.diff(lines) if len(lines) > 1 else np.full(len(lines), 4)
    if (lengths < 1).any() or (lines[:1] < pickup).any():
        raise ValueError("downbeats are not ascending indices of beats")
    lines = lines[: len(lengths)]
    # Whole bars precede the first given bar, and the remainder precedes these.
    lines[:1] %= lengths[:1]
    if lines[:1].any():
        lengths, lines = np.append(lines[0], lengths), np.append(0, lines)
    rows = zip((lines * resolution).tolist(), lengths.tolist(), strict=True)
    bars = [TimeSignature(start, numerator, 4) for start, numerator in rows]
    return tuple(
        bar for at, bar in enumerate(bars) if at == 0 or bar.numerator != bars[at - 1].numerator
    )
