"""The notes of a piano piece as pianists read them: two staves, at most two voices in each."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from tokenization.grid import (
    STEPS_PER_BEAT,
    bar_lines,
    nearest_step,
    quantize_time_signatures,
)
from tokenization.notation.values import EIGHTH, SEXTUPLET, SIXTEENTH, TRIPLET, Bar, snapped
from tokenization.score import Score

_SPLITS: Final = range(46, 75)
"""Lowest pitch of the right hand, if both hands are in one track."""
_REACH: Final = 12
"""Semitones that a hand spans without effort."""
_LOWEST_RIGHT: Final = 57
_HIGHEST_LEFT: Final = 62
"""Pitches beyond which a hand needs many ledger lines."""


class Strike(NamedTuple):
    """Notes of one hand that begin together, with times in grid steps."""

    onset: int
    end: int
    pitches: tuple[int, ...]


class _Note(NamedTuple):
    onset: int
    end: int
    pitch: int


@dataclass(frozen=True)
class Staff:
    """The music of one hand."""

    voices: tuple[tuple[Strike, ...], tuple[Strike, ...]]
    """The upper and the lower voice; strikes of a voice do not overlap."""


@dataclass(frozen=True)
class Notation:
    """A piece in two staves."""

    bars: tuple[Bar, ...]
    right: Staff
    left: Staff

    @classmethod
    def of(cls, score: Score) -> Notation:
        """Write a score down.

        Onsets move by at most one step of the grid, to sixteenths, triplets or sextuplets. Each
        note is as long as it can be read: a rest shorter than an eighth note becomes part of the
        note before it, and what would need a third voice in a hand ends with the next note.
        """
        bars = _bars(score)
        staves = [_staff(notes, bars) for notes in _hands(score)]
        last = max(
            (voice[-1].end for staff in staves for voice in staff.voices if voice), default=0
        )
        kept = [bar for bar in bars if bar.start < last] or list(bars[:1])
        return cls(tuple(kept), *staves)


def _bars(score: Score) -> tuple[Bar, ...]:
    metres = quantize_time_signatures(score)
    # a note may end with the next bar
    end = nearest_step(score.end_ticks, score.ticks_per_beat) + 8 * STEPS_PER_BEAT
    lines = bar_lines(metres, end, split=False).tolist()
    starts = [metre.tick for metre in metres]
    bars: list[Bar] = []
    for start, stop in pairwise(lines):
        _, numerator, denominator = metres[bisect_right(starts, start) - 1]
        length = stop - start
        if length * denominator != 4 * STEPS_PER_BEAT * numerator:  # as before a change of metre
            denominator = 8 if length % STEPS_PER_BEAT else 4
            numerator = length * denominator // (4 * STEPS_PER_BEAT)
        bars.append(Bar(start, stop, numerator, denominator))
    return tuple(bars)


def _hands(score: Score) -> tuple[list[_Note], list[_Note]]:
    """Return the notes of the right and of the left hand.

    Two tracks are two hands, as in most files for the piano; other notes are shared by pitch.
    """
    tracks = [
        [
            _Note(onset, max(onset + length, onset + 1), pitch)
            for onset, length, pitch in zip(
                nearest_step(track.notes[:, 0], score.ticks_per_beat).tolist(),
                nearest_step(track.notes[:, 1], score.ticks_per_beat).tolist(),
                track.notes[:, 2].tolist(),
                strict=True,
            )
        ]
        for track in score.tracks
        if len(track) and not track.is_drum
    ]
    if len(tracks) == 2:
        right, left = sorted(tracks, key=lambda notes: -float(np.mean([n.pitch for n in notes])))
        return right, left
    notes = [note for track in tracks for note in track]
    split = _splits(notes)
    right = [note for note in notes if note.pitch >= split[note.onset]]
    return right, [note for note in notes if note.pitch < split[note.onset]]


def _splits(notes: Iterable[_Note]) -> dict[int, int]:
    """Return the lowest pitch of the right hand at each onset.

    The choice with the lowest sum of costs: of wide chords in a hand, of ledger lines, of pitches
    that are close in different hands, and of changes.
    """
    together: dict[int, list[int]] = defaultdict(list)
    for note in notes:
        together[note.onset].append(note.pitch)
    onsets = sorted(together)
    change = 0.4 * np.abs(np.subtract.outer(np.arange(len(_SPLITS)), np.arange(len(_SPLITS))))
    total = np.zeros(len(_SPLITS))
    before: list[list[int]] = []
    for onset in onsets:
        costs = total[:, None] + change  # (split before, split)
        before.append(costs.argmin(0).tolist())
        total = costs.min(0) + [_cost(together[onset], split) for split in _SPLITS]
    splits: dict[int, int] = {}
    place = int(total.argmin())
    for onset, came_from in zip(reversed(onsets), reversed(before), strict=True):
        splits[onset] = _SPLITS[place]
        place = came_from[place]
    return splits


def _cost(pitches: Sequence[int], split: int) -> float:
    right = [pitch for pitch in pitches if pitch >= split]
    left = [pitch for pitch in pitches if pitch < split]
    wide = sum(max(max(hand) - min(hand) - _REACH, 0) for hand in (right, left) if hand)
    ledger = sum(max(_LOWEST_RIGHT - pitch, 0) for pitch in right)
    ledger += sum(max(pitch - _HIGHEST_LEFT, 0) for pitch in left)
    near = sum(max(3 - abs(pitch - split + 0.5), 0) for pitch in pitches)
    return 3 * wide + 0.5 * ledger + 0.3 * near


def _staff(notes: Sequence[_Note], bars: Sequence[Bar]) -> Staff:
    quantized = _quantize(notes, bars)
    struck: dict[int, list[int]] = defaultdict(list)
    for note in quantized:
        struck[note.pitch].append(note.onset)
    upper, lower = _voices(quantized)
    return Staff((_lengthen(upper, struck, bars), _lengthen(lower, struck, bars)))


def _quantize(notes: Sequence[_Note], bars: Sequence[Bar]) -> list[_Note]:
    """Return the notes at places that can be written.

    A note ends when its pitch is struck again.
    """
    starts = [bar.start for bar in bars]

    def bar_at(step: int) -> Bar:
        return bars[min(bisect_right(starts, step) - 1, len(bars) - 1)]

    def cell_at(step: int) -> int:
        bar = bar_at(step)
        return step - (step - bar.start) % bar.cell

    within: dict[int, list[int]] = defaultdict(list)
    for note in notes:
        within[cell := cell_at(note.onset)].append(note.onset - cell)
    units = {cell: bar_at(cell).units(onsets) for cell, onsets in within.items()}

    ends: dict[tuple[int, int], int] = {}
    for onset, end, pitch in notes:
        cell = cell_at(onset)
        start = snapped(onset, cell, units[cell])
        last = cell_at(end)
        is_simple = bar_at(last).cell == STEPS_PER_BEAT
        unit = _unit_of_end(end - onset, units.get(last, SIXTEENTH), is_simple=is_simple)
        stop = max(snapped(end, last, unit), start + units.get(cell_at(start), SIXTEENTH))
        ends[start, pitch] = max(ends.get((start, pitch), 0), stop)
    quantized: list[_Note] = []
    again: dict[int, int] = {}  # onset of the next note of each pitch
    for (start, pitch), stop in sorted(ends.items(), reverse=True):
        quantized.append(_Note(start, min(stop, again.get(pitch, stop)), pitch))
        again[pitch] = start
    return quantized[::-1]


def _unit_of_end(length: int, unit: int, *, is_simple: bool) -> int:
    """Return the grid of a note's end, coarser for long notes; `unit` is that of onsets."""
    if length >= 2 * STEPS_PER_BEAT and is_simple:
        return STEPS_PER_BEAT
    if length < STEPS_PER_BEAT:
        return unit
    if not is_simple:
        return EIGHTH
    return {SIXTEENTH: EIGHTH, SEXTUPLET: TRIPLET}.get(unit, unit)


def _voices(notes: Sequence[_Note]) -> tuple[list[Strike], list[Strike]]:
    """Share the notes of a hand among an upper and a lower voice, by what sounds together."""
    together: dict[int, list[_Note]] = defaultdict(list)
    for note in notes:
        together[note.onset].append(note)
    onsets = sorted(together)
    voices: tuple[list[Strike], list[Strike]] = ([], [])

    def add(voice: int, chord: Sequence[_Note], following: int | None) -> None:
        ends = sorted(note.end for note in chord)
        end = ends[len(ends) // 2]
        if following is not None and not _is_held(min(chord).onset, end, following):
            end = min(end, following)
        strike = Strike(chord[0].onset, end, tuple(sorted(note.pitch for note in chord)))
        voices[voice].append(strike)

    for index, onset in enumerate(onsets):
        following = onsets[index + 1] if index + 1 < len(onsets) else None
        chord = together[onset]
        held = [n for n in chord if following is not None and _is_held(onset, n.end, following)]
        moving = [note for note in chord if note not in held]
        busy = [bool(voice) and voice[-1].end > onset for voice in voices]
        if busy == [True, True]:
            middle = _mean(chord)
            cut = min((0, 1), key=lambda voice: abs(_mean_pitch(voices[voice][-1]) - middle))
            voices[cut][-1] = voices[cut][-1]._replace(end=onset)
            busy[cut] = False
        if any(busy):
            add(busy.index(False), chord, following)
        elif not held:
            add(0, chord, following)
        else:
            above = moving
            if not above:
                first_end = min(note.end for note in held)
                later = onsets[index + 1 : index + 9]
                above = [n for at in later if at < first_end for n in together[at]]
            role = 1 if _mean(held) <= _mean(above) else 0
            add(role, held, following)
            if moving:
                add(1 - role, moving, following)
    return voices


def _is_held(onset: int, end: int, following: int) -> bool:
    """Return whether a note clearly sounds on while the next one begins."""
    return end - following > max(3, (end - onset) // 4)


def _mean(notes: Sequence[_Note]) -> float:
    return sum(note.pitch for note in notes) / len(notes)


def _mean_pitch(strike: Strike) -> float:
    return sum(strike.pitches) / len(strike.pitches)


def _lengthen(
    voice: Sequence[Strike], struck: Mapping[int, Sequence[int]], bars: Sequence[Bar]
) -> tuple[Strike, ...]:
    """Return the notes without short rests behind them, and without short ties over bar lines.

    `struck` are the onsets of each pitch in the hand, at which an earlier note of the pitch ends.
    """
    starts = [bar.start for bar in bars]
    strikes: list[Strike] = []
    for index, strike in enumerate(voice):
        onset, end, _ = strike
        following = voice[index + 1].onset if index + 1 < len(voice) else bars[-1].end
        for pitch in strike.pitches:
            again = bisect_right(struck[pitch], onset)
            following = min([following, *struck[pitch][again : again + 1]])
        end = min(end, following)
        bar = bars[bisect_right(starts, end - 1) - 1]
        if onset < bar.start and end - bar.start <= min(3, (end - onset) // 4):
            end = bar.start
            bar = bars[bisect_right(starts, end - 1) - 1]
        limit = min(following, bar.end)
        if limit - end < EIGHTH:
            end = limit
        elif (past := (end - bar.start) % EIGHTH) and (end - bar.start) % 4:
            end = min(end + EIGHTH - past, limit)
        strikes.append(strike._replace(end=end))
    return tuple(strikes)
