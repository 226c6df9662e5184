"""Beats: check whether notes follow the grid of a file, estimate beats, and align notes to them.

if on_grid(score) < ON_GRID:
    found = estimate_beats(score)
    score = warp(score, found.seconds, found.downbeats, pedal=True)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenization.analysis.chords import recognise_chords
from tokenization.errors import MidiError
from tokenization.score import Score, Tempo, TimeSignature, Track, all_notes, once_each

SUSTAIN_PEDAL: Final = 64
"""MIDI controller; the pedal is down for values of at least 64."""
MIN_TICKS_PER_BEAT: Final = 480
"""Minimum resolution of warped scores: a tick is about a millisecond."""
ON_GRID: Final = 0.5
"""Threshold of `on_grid`, below which the notes do not follow the beats and bars of the file."""
_COARSE_TICKS: Final = 24
_ANY_TURNS = 2 * np.pi * np.multiply.outer((3, 4), np.arange(10_000) / 10_000)
_CHANCE = float(np.cos(_ANY_TURNS).max(axis=0).mean())

MAX_SECONDS: Final = 14_400
"""Maximum length of a piece for beat estimation: four hours."""
# Tuned on the training split of POP909 (benchmarks.bench_beats); some are looser, to allow rubato.
_RATE = 100  # frames per second
_SMOOTHING = np.exp(-0.5 * (np.arange(-8, 9) / 2.5) ** 2)
_WINDOW = 8 * _RATE
_PERIODS = _RATE * 60 / np.geomspace(40, 240, 94)  # frames per beat, 36 to the octave
_TEMPO_COST = 0.5 * (np.log2(_RATE * 60 / _PERIODS / 80) / 0.6) ** 2
_TEMPO_CHANGE_COST = np.minimum(6, 100 * np.log2(_PERIODS[:, None] / _PERIODS) ** 2)
_IRREGULARITY_COST = 100.0
_NEAR_SECONDS = 0.04
_SHORT_BAR_COST = 8.0


class Beats(NamedTuple):
    """Beats of a performance."""

    seconds: NDArray[np.float64]
    """Ascending times (n,), at least two, from the first onset or the beat before to the last."""
    downbeats: NDArray[np.int64]
    """Indices of the beats that begin a bar, ascending."""


def extend_by_pedal(score: Score) -> Score:
    """Extends notes to the length for which the sustain pedal holds them.

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


def on_grid(score: Score) -> float:
    """How well onsets match sixteenths and triplet eighths of the file's quarters, at most 1.

    The value is the mean over distinct onsets q, in quarters, of the larger of cos(2 pi 4 q) and
    cos(2 pi 3 q), scaled so that times unrelated to the grid give 0. Typical values:

    - 1 if all onsets are on the grid, and also if none can be off the grid: without notes, or with
      up to 24 ticks per quarter;
    - 0.75 for a player whose onsets deviate by a fortieth of a quarter;
    - within about 1 / sqrt(number of onsets) of 0 for a performance recorded without a click;
    - any value, even a negative one, if all onsets are late by the same time.

    `ON_GRID` is the threshold. The value does not show which step begins a beat or a bar.
    """
    onsets = [track.notes[:, 0] for track in score.tracks if len(track)]
    if not onsets or score.ticks_per_beat <= _COARSE_TICKS:
        return 1.0
    ticks = np.unique(np.concatenate(onsets)) % score.ticks_per_beat
    turns = np.multiply.outer((3, 4), ticks) % score.ticks_per_beat / score.ticks_per_beat
    mean = float(np.cos(2 * np.pi * turns).max(axis=0).mean())
    return (mean - _CHANCE) / (1 - _CHANCE)


def warp(
    score: Score, beats: ArrayLike, downbeats: ArrayLike | None = None, *, pedal: bool = False
) -> Score:
    """Aligns a score to one quarter note per beat, so that it still sounds at the same times.

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
    """Number of whole beats that `warp` adds before the first one, for earlier notes."""
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
    """Position of each time in beats; the first beat is 0."""
    beat = np.clip(np.searchsorted(beats, seconds, side="right") - 1, 0, len(beats) - 2)
    return beat + (seconds - beats[beat]) / (beats[beat + 1] - beats[beat])


def _metre(downbeats: ArrayLike, pickup: int, resolution: int) -> tuple[TimeSignature, ...]:
    """Time signatures of the bars that begin `pickup` quarters after `downbeats`."""
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


def estimate_beats(score: Score) -> Beats:
    """Estimates the beats and downbeats of a performance that was recorded without a grid.

    The onsets of all tracks form an onset strength curve, weighted by velocity, number, duration
    and low pitch. Its autocorrelation in windows of eight seconds gives a path of tempos between 40
    and 240, with a preference for 80 if tempos an octave apart are both possible. Dynamic
    programming finds the beats that follow these tempos on the curve (Ellis, 2007, section 2), and
    each beat is then moved to the onsets around it. Bars have three or four beats, and are
    occasionally shorter, so that they begin with low notes, long notes and long chords. The result
    does not depend on the order of the notes; shifting all notes in time shifts the beats.

    Raises MidiError for a score without notes, or longer than four hours.
    """
    notes = all_notes(score.tracks)
    notes = notes[np.lexsort(notes.T[::-1])]
    onsets = score.seconds_at(notes[:, 0])
    if not len(notes):
        raise MidiError("found no notes, expected some to estimate beats; choose another file")
    if onsets[-1] - onsets[0] > MAX_SECONDS:
        raise MidiError(
            f"the notes last {onsets[-1] - onsets[0]:,.0f} seconds, expected at most "
            f"{MAX_SECONDS:,} to estimate beats; use a part of the file"
        )
    lengths = np.clip(score.seconds_at(notes[:, 0] + notes[:, 1]) - onsets, 0.05, 1)
    weights = notes[:, 3] * np.sqrt(lengths) * (1 + np.clip((60 - notes[:, 2]) / 12, 0, 2))
    start = onsets[0] - 0.5
    strength = _onset_strength(onsets - start, weights)
    periods = _periods(strength)
    frames = _beat_frames(strength, periods)
    # One more after the end, for a piece that is over before its second beat.
    beats = start + np.append(frames, frames[-1] + periods[-1]) / _RATE
    beats = _moved_to_onsets(beats, onsets, weights)
    # From the last beat at or before the first note to the last one at or before the last note.
    first, stop = np.searchsorted(beats, onsets[[0, -1]] + _NEAR_SECONDS, side="right")
    beats = beats[max(first - 1, 0) : max(stop, first + 1, 2)]
    if beats[0] > onsets[0] + _NEAR_SECONDS:
        beats = np.append(2 * beats[0] - beats[1], beats)
    # The beat is at the start of an arpeggiated first chord, since there is no time before it.
    beats[0] = min(beats[0], onsets[0])
    return Beats(beats, _downbeats(score, notes, onsets, beats))


def _onset_strength(
    seconds: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Onset strength (frames,), with a standard deviation of 1."""
    frame = np.floor(seconds * _RATE).astype(np.int64)
    share = seconds * _RATE - frame
    length = int(frame[-1]) + _RATE
    curve = np.bincount(frame, weights * (1 - share), length)
    curve += np.bincount(frame + 1, weights * share, length)
    curve = np.sqrt(np.maximum(np.convolve(curve, _SMOOTHING, "same"), 0))
    return curve / np.std(curve)


def _periods(strength: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frames per beat (frames,): the best path through one autocorrelation per second."""
    padded = np.pad(strength, (_WINDOW // 2, _WINDOW // 2 + _RATE))
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_RATE]
    taper = np.hanning(_WINDOW).astype(np.float64)

    def correlation(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        spectrum = np.fft.rfft(rows, 2 * _WINDOW)
        rows = np.fft.irfft(spectrum.real**2 + spectrum.imag**2)[..., :_WINDOW]
        return rows / np.maximum(rows[..., :1], 1e-9)

    # At longer lags, less of the window overlaps.
    gain = 1 / np.maximum(correlation(taper), 0.05)
    totals = np.empty((len(windows), len(_PERIODS)))
    for first in range(0, len(windows), 256):  # in parts, to bound the memory for hours of music
        rows = windows[first : first + 256]
        rows = correlation((rows - rows.mean(axis=1, keepdims=True)) * taper) * gain
        total = np.broadcast_to(-_TEMPO_COST, (len(rows), len(_PERIODS))).copy()
        for multiple, weight in ((0.5, 1), (1, 2), (2, 2), (4, 2)):
            lag = np.floor(_PERIODS * multiple).astype(np.int64)
            share = _PERIODS * multiple - lag
            total += weight * (rows[:, lag] * (1 - share) + rows[:, lag + 1] * share)
        totals[first : first + 256] = total
    before = np.zeros(totals.shape, np.int64)
    for step in range(1, len(totals)):
        arriving = totals[step - 1] - _TEMPO_CHANGE_COST
        before[step] = arriving.argmax(axis=1)
        totals[step] += arriving.max(axis=1)
    path = [int(totals[-1].argmax())]
    for row in before[:0:-1]:
        path.append(int(row[path[-1]]))
    seconds = np.arange(len(strength)) / _RATE
    return np.interp(seconds, np.arange(len(path)), _PERIODS[path[::-1]])


def _beat_frames(strength: NDArray[np.float64], periods: NDArray[np.float64]) -> NDArray[np.int64]:
    """Frames of the beats with the largest sum of strengths minus a cost of uneven intervals."""
    shortest, longest = int(periods.min() / 2), int(np.ceil(2 * periods.max()))
    lags = np.arange(shortest, longest + 1)
    logs, wanted = np.log(lags), np.log(periods)
    totals = np.zeros(longest + len(strength))  # from the longest interval before the start
    before = np.empty(len(strength), np.int64)
    # Beats depend only on ones at least the shortest interval earlier: that many frames at a time.
    for first in range(0, len(strength), shortest):
        frames = np.arange(first, min(first + shortest, len(strength)))
        arriving = totals[longest + frames[:, None] - lags]
        arriving -= _IRREGULARITY_COST * (logs - wanted[frames, None]) ** 2
        best = arriving.argmax(axis=1)
        totals[longest + frames] = strength[frames] + arriving[np.arange(len(frames)), best]
        before[frames] = frames - lags[best]
    tail = max(0, len(strength) - int(periods[-1]))
    beats = [tail + int(totals[longest + tail :].argmax())]
    while before[beats[-1]] >= 0:
        beats.append(int(before[beats[-1]]))
    return np.array(beats[::-1])


def _moved_to_onsets(
    beats: NDArray[np.float64], onsets: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Moves beats to the mean of the onsets next to them, if there are any."""
    first, stop = np.searchsorted(onsets, (beats - _NEAR_SECONDS, beats + _NEAR_SECONDS))
    weight = np.append(0, np.cumsum(weights))
    moment = np.append(0, np.cumsum(weights * (onsets - onsets[0])))
    means = (moment[stop] - moment[first]) / np.maximum(weight[stop] - weight[first], 1e-9)
    return np.where(stop > first, onsets[0] + means, beats)


def _downbeats(
    score: Score,
    notes: NDArray[np.int64],
    onsets: NDArray[np.float64],
    beats: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Indices of the beats that begin bars."""
    places = _quarters(onsets, beats)
    beat = np.rint(places).astype(np.int64)
    is_on_beat = (np.abs(places - beat) < 0.2) & (beat >= 0) & (beat < len(beats))
    beat, notes = beat[is_on_beat], notes[is_on_beat]
    lengths = np.diff(_quarters(score.seconds_at(notes[:, :2].cumsum(axis=1)), beats))[:, 0]
    # Salience of each beat compared with the others: lowest note, longest note, longest chord.
    features = np.zeros((3, len(beats)))
    np.maximum.at(features[0], beat, 72 - notes[:, 2])
    np.maximum.at(features[1], beat, np.log1p(np.clip(lengths, 0, 4)))
    chords = np.rint(recognise_chords(warp(score, beats)).beats).astype(np.int64)
    chords = chords[chords < len(beats)]
    features[2, chords] = np.minimum(np.diff(np.append(chords, len(beats))), 4)
    features -= features.mean(axis=1, keepdims=True)
    features /= np.maximum(features.std(axis=1, keepdims=True), 1e-9)
    salience = (np.array([0.6, 0.4, 0.65]) @ features).tolist()
    # By chance, a sum over bars grows with the square root of their number.
    fours, threes = _bars(salience, 4), _bars(salience, 3)
    return np.array((threes if 3**0.5 * threes[0] > 4**0.5 * fours[0] else fours)[1])


def _bars(salience: list[float], length: int) -> tuple[float, list[int]]:
    """Maximum of the sum minus a cost for each short bar, and its bar lines."""
    totals, before = [0.0] * len(salience), [-1] * len(salience)
    for line, own in enumerate(salience):
        if line >= length:
            arriving = [totals[line - bar] - _SHORT_BAR_COST for bar in range(1, length)]
            arriving.append(totals[line - length])
            best = max(range(length), key=arriving.__getitem__)
            totals[line], before[line] = arriving[best], line - best - 1
        totals[line] += own
    lines = [max(range(max(0, len(salience) - length), len(salience)), key=totals.__getitem__)]
    total = totals[lines[0]]
    while before[lines[-1]] >= 0:
        lines.append(before[lines[-1]])
    return total, lines[::-1]
