"""Quantisation of notes and tempos to twelfths of a quarter note, and names of bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.errors import MidiError
from tokenization.grid import (
    MAX_BAR_STEPS,
    STEPS_PER_BEAT,
    bar_lines,
    nearest_step,
    quantize_time_signatures,
)
from tokenization.remi.packing import Packing
from tokenization.remi.vocabulary import DURATIONS, TEMPO_EDGES, TEMPO_GRID, VELOCITY_STEP
from tokenization.score import MAX_BEATS, Score, Tempo, TimeSignature, Track

DEFAULT_BPM = 120.0

_BY_KEY = Packing(17, 31, 10, 5)
"""Key, onset, duration and velocity of a note."""
_LONGEST = 1023
_NEVER = 1 << 31

_NEAREST = np.searchsorted(
    (DURATIONS[1:] + DURATIONS[:-1] + 1) // 2, np.arange(_LONGEST + 1), side="right"
)


def refuse_late_notes(onset_ticks: NDArray[np.int64], ticks_per_beat: int) -> None:
    """Raise MidiError if one of the onsets (n,) is later than 65,536 quarters."""
    last_beat = int(onset_ticks.max(initial=0)) // ticks_per_beat
    if last_beat >= MAX_BEATS:
        raise MidiError(
            f"a note is at quarter note {last_beat:,}, expected all up to {MAX_BEATS:,}; "
            "remove the silence before it"
        )


def starts_of_runs(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the mask (n,) of values that differ from the previous one; the first is included."""
    starts = np.empty(len(values), bool)
    starts[:1] = True
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def ends_of_runs(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the mask (n,) of the values that differ from the next one; the last is included."""
    return starts_of_runs(values[::-1])[::-1]


class SeparateNotes(NamedTuple):
    """Notes that do not overlap within a key, sorted by key and onset; columns (n,) int64."""

    keys: NDArray[np.int64]
    """Rank of the track times 128, plus MIDI pitch; each key sounds one note at a time."""
    onsets: NDArray[np.int64]
    durations: NDArray[np.int64]
    """In steps, at most 1,023; a note ends where its key is struck again."""
    gaps: NDArray[np.int64]
    """Steps to the next note of the key; a huge number if there is none."""
    velocities: NDArray[np.int64]
    """In bins, unchanged."""

    def cut_at(self, step: int) -> SeparateNotes:
        """Return the notes, with those that begin before a step ending there at the latest."""
        room = np.where(self.onsets < step, step - self.onsets, _NEVER)
        return self._replace(
            durations=np.minimum(self.durations, room), gaps=np.minimum(self.gaps, room)
        )

    def duration_tokens(self) -> NDArray[np.int64]:
        """Return indices into DURATIONS nearest to lengths, without reaching the next note."""
        nearest = _NEAREST[self.durations]
        # The nearest index is too large by at most one, since the length itself fits.
        nearest -= DURATIONS[nearest] > self.gaps
        return nearest


def separate_notes(
    keys: NDArray[np.int64],
    onsets: NDArray[np.int64],
    durations: NDArray[np.int64],
    velocities: NDArray[np.int64],
) -> SeparateNotes:
    """Remove overlaps between notes.

    Of notes with equal key and onset, the longest is kept, then the loudest. Times are in steps,
    durations at most 1,023, and velocities in bins. The order of notes does not matter.
    """
    packed = _BY_KEY.pack(keys, onsets, durations, velocities)
    packed.sort()
    places = _BY_KEY.above(packed, 2)
    gaps = np.empty_like(places)
    np.subtract(places[1:], places[:-1], out=gaps[:-1])
    gaps[-1:] = _NEVER
    last = gaps > 0
    if np.count_nonzero(last) < len(last):
        packed, gaps = packed[last], gaps[last]
    keys, onsets, durations, velocities = _BY_KEY.unpack(packed)
    return SeparateNotes(keys, onsets, np.minimum(durations, gaps), gaps, velocities)


def quantize_notes(
    table: NDArray[np.int64], keys: NDArray[np.int64], ticks_per_beat: int
) -> SeparateNotes:
    """Quantise notes (n, 4), each to at least one step; `keys` are those of the result.

    Raises MidiError if one is later than 65,536 quarters.
    """
    begins = table[:, 0]
    refuse_late_notes(begins, ticks_per_beat)
    onsets = nearest_step(begins, ticks_per_beat)
    durations = nearest_step(begins + table[:, 1], ticks_per_beat)
    durations -= onsets
    durations = np.minimum(np.maximum(durations, 1), _LONGEST)
    return separate_notes(keys, onsets, durations, table[:, 3] // VELOCITY_STEP)


def part_of(score: Score, start: int, end: int) -> Score:
    """Return the music of a score in grid steps from one step up to another, both bar lines.

    What sounds beyond the end gets a length of the vocabulary that does not reach beyond it either,
    since the part would otherwise have another bar.
    """
    score = score.between(start, end)
    tracks: list[Track] = []
    for track in score.tracks:
        notes = track.notes.copy()
        room = end - start - notes[:, 0]
        is_cut = notes[:, 1] == room
        notes[is_cut, 1] = DURATIONS[DURATIONS.searchsorted(room[is_cut], side="right") - 1]
        tracks.append(replace(track, notes=notes))
    return score.with_tracks(tracks)


class TempoMap(NamedTuple):
    """Tempo changes (n,)."""

    steps: NDArray[np.int64]
    """Strictly ascending from 0."""
    tempos: NDArray[np.int64]
    """Indices into `TEMPO_GRID`."""
    clipped: int
    """Number of tempos of the score outside the range of the vocabulary."""


def quantize_tempos(score: Score) -> TempoMap:
    """Quantise tempos; of several at one step the last applies, and repetitions are removed."""
    tempos = score.tempos
    if not tempos or tempos[0].tick > 0:
        tempos = (Tempo(0, DEFAULT_BPM), *tempos)
    ticks, exact = zip(*tempos, strict=True)
    steps = nearest_step(np.array(ticks), score.ticks_per_beat)
    places = TEMPO_EDGES.searchsorted(exact, side="right") - 1
    nearest = np.minimum(np.maximum(places, 0), len(TEMPO_GRID) - 1)
    clipped = int(np.count_nonzero(nearest != places))
    if len(nearest) > 1:
        last = ends_of_runs(steps)
        steps, nearest = steps[last], nearest[last]
        changed = starts_of_runs(nearest)
        steps, nearest = steps[changed], nearest[changed]
    return TempoMap(steps, nearest, clipped)


def name_bars(
    lines: NDArray[np.int64], written: Sequence[TimeSignature]
) -> tuple[TimeSignature, ...]:
    """Return time signatures: the notated ones until their bar lines differ from `lines`."""
    lengths = lines[1:] - lines[:-1]
    start = 0
    written = [change for change in written if change.tick < lines[-1]]
    if written:
        notated = bar_lines(written, int(lines[-1]))
        common = min(len(notated), len(lines))
        same = notated[:common] == lines[:common]
        start = common - 1
        if not same.all():
            # A long bar that ends early is split differently, so that all its parts are named.
            whole = bar_lines(written, int(lines[-1]), split=False)
            start = max(int(np.argmin(same)) - 1, 0)
            start = int(lines.searchsorted(max(whole[whole <= lines[start]].tolist())))
    kept = [change for change in written if change.tick < lines[start]]
    changed = starts_of_runs(lengths)
    changed[start : start + 1] = True
    begins = np.flatnonzero(changed[start:]) + start
    for tick, length in zip(lines[begins].tolist(), lengths[begins].tolist(), strict=True):
        numerator, denominator = (length // 12, 4) if length % 12 == 0 else (length // 6, 8)
        kept.append(TimeSignature(tick, numerator, denominator))
    return tuple(kept)


class Timeline(NamedTuple):
    """Bars and tempos of a quantised piece, up to its end."""

    lines: NDArray[np.int64]
    """(bars + 1,), see `bar_lines`."""
    signatures: tuple[TimeSignature, ...]
    """Time signatures as notated."""
    tempos: TempoMap


def quantize_timeline(score: Score, end: int, num_bars: int | None = None) -> Timeline:
    """Quantise bars and tempos up to the end of the score, or `end`, the end of its last note.

    If `num_bars` is given, there are exactly that many bars, at least one. A score of more than
    65,536 quarters ends at `end`, so that an endless note, which is clipped, does not leave empty
    bars.
    """
    score_end = nearest_step(score.end_ticks, score.ticks_per_beat)
    if score_end <= MAX_BEATS * STEPS_PER_BEAT:
        end = max(end, score_end)
    signatures = quantize_time_signatures(score)
    lines = bar_lines(signatures, end)
    if num_bars is not None:
        missing = max(num_bars + 1 - len(lines), 0)
        if missing:
            lines = bar_lines(signatures, int(lines[-1]) + missing * MAX_BAR_STEPS)
        lines = lines[: max(num_bars, 1) + 1]
    end = int(lines[-1])
    steps, tempos, clipped = quantize_tempos(score)
    count = int(steps.searchsorted(end))
    return Timeline(
        lines,
        tuple(change for change in signatures if change.tick < end),
        TempoMap(steps[:count], tempos[:count], clipped),
    )
