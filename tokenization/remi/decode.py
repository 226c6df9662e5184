"""Conversion of any token ids to quantised notes, bars and tempos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import STEPS_PER_BEAT
from tokenization.remi.packing import Packing
from tokenization.remi.quantize import separate_notes, starts_of_runs
from tokenization.remi.vocabulary import (
    EOS,
    NUM_PARTS,
    PROGRAM_ORDER,
    TEMPO_GRID,
    VELOCITY_STEP,
    Families,
    Kind,
)
from tokenization.score import Tempo

_DEFAULT_BAR = 4 * STEPS_PER_BEAT
_DEFAULT_RANK = PROGRAM_ORDER.index(0) * NUM_PARTS

_BY_TRACK = Packing(10, 31, 7, 10, 5)
"""Rank, onset, pitch, duration and velocity of a note."""
_SOUNDING = Packing(17, 31, 10)
"""Key, onset and duration."""
_LONGEST = np.array(1023)


class Tokens(NamedTuple):
    """Meaning of the tokens of a row, with an EOS added at the end: (l + 1,).

    With the EOS, every token has a successor, and the token before the first one (index -1) is EOS.
    """

    kinds: NDArray[np.uint8]
    values: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[int] | NDArray[np.integer], families: Families) -> Tokens:
        """Return the tokens of any integers; those that are not ids become OTHER."""
        array = np.concatenate((np.asarray(ids, dtype=np.int64).reshape(-1), [EOS]))
        # "clip" maps negative numbers to the first id, PAD, and large ones to the entry after the
        # last id.
        kinds, values = families.kinds, families.values
        return cls(kinds.take(array, mode="clip"), values.take(array, mode="clip"))

    def to_end(self) -> Tokens:
        """Return the tokens up to the first EOS."""
        stop = int((self.kinds == Kind.EOS).argmax()) + 1
        return Tokens(self.kinds[:stop], self.values[:stop])


class Bars(NamedTuple):
    """Times of the tokens of a row, in steps and in the order of the row."""

    lines: NDArray[np.int64]
    """Start of each bar, and end of the last (bars + 1,)."""
    times: NDArray[np.int64]
    """Time reached by the tokens before each one (l + 1,)."""
    num_later: int = 0
    """Number of bars at the start that come after the others in the music."""

    def in_music(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the times of the music, from those of the row."""
        if not self.num_later:
            return steps
        start, end = self.lines[self.num_later], self.lines[-1]
        return np.where(steps < start, steps + (end - start), steps - start)

    def music_lines(self) -> NDArray[np.int64]:
        """Return the bar lines of the music."""
        if not self.num_later:
            return self.lines
        return np.append(np.sort(self.in_music(self.lines[:-1])), self.lines[-1])


def read_bars(tokens: Tokens) -> Bars:
    """Return bars of any tokens; TimeSignatures count only after Bar, positions may exceed the bar.

    A Later counts right after the Bar of the first bar, or of one that follows such bars.
    """
    kinds, values = tokens
    is_bar = kinds == Kind.BAR
    after = is_bar.nonzero()[0] + 1
    is_later = kinds[after] == Kind.LATER
    num_later = 0
    if len(after) and is_later[0]:
        num_later = len(after) if is_later.all() else int(is_later.argmin())
        after += is_later
    changes = (kinds[after] == Kind.TIME_SIGNATURE).nonzero()[0]
    lengths = np.concatenate(([_DEFAULT_BAR], values[after[changes]]))
    # before the first Bar, of each bar, and of the next one
    starts = np.zeros(len(is_later) + 2, np.int64)
    hold(lengths, changes - 1, len(is_later)).cumsum(out=starts[2:])

    # much faster than a table of kinds
    is_mark = is_bar | (kinds == Kind.POSITION) | (kinds == Kind.WRITE)
    marks = is_mark.nonzero()[0]
    times = np.zeros(len(marks) + 1, np.int64)
    np.add(starts[is_bar[marks].cumsum()], values[marks], out=times[1:])
    return Bars(starts[1:], hold(times, marks, len(kinds)), num_later)


def hold(values: NDArray[np.int64], marks: NDArray[np.intp], length: int) -> NDArray[np.int64]:
    """Repeat k + 1 values to (length,): the first from the start, each other after its mark."""
    edges = np.empty(len(values) + 1, np.int64)
    edges[0], edges[-1] = -1, length - 1
    edges[1:-1] = marks
    return values.repeat(edges[1:] - edges[:-1])


def read_tempos(tokens: Tokens, bars: Bars) -> tuple[Tempo, ...]:
    """Return the tempos of any tokens, in any place.

    If bars are not in the order of the music, a Tempo that repeats the one before it is left out.
    """
    places = (tokens.kinds == Kind.TEMPO).nonzero()[0]
    times, tempos = bars.times[places], tokens.values[places]
    if bars.num_later:
        times = bars.in_music(times)
        order = times.argsort(kind="stable")
        times, tempos = times[order], tempos[order]
        changes = starts_of_runs(tempos)
        times, tempos = times[changes], tempos[changes]
    return tuple(map(Tempo, times.tolist(), TEMPO_GRID[tempos].tolist()))


class Notes(NamedTuple):
    """Notes in the order of their tokens; columns (n,) int64."""

    keys: NDArray[np.int64]
    """Rank of the track times 128, plus MIDI pitch."""
    onsets: NDArray[np.int64]
    durations: NDArray[np.int64]
    """Durations in steps, even if the key is struck again before the end."""
    velocities: NDArray[np.int64]
    """Bins."""
    places: NDArray[np.intp]
    """Index of the Velocity of each note."""


def read_notes(tokens: Tokens, bars: Bars, families: Families) -> Notes:
    """Return the notes of any tokens.

    A melodic note is a Pitch, Velocity and Duration in a row; its track is that of the last Program
    before it, or of program 0 if there is none. A drum note is a Drum and a Velocity, and lasts one
    step. Misplaced tokens, and Pitches in the drum track, are ignored.
    """
    kinds, values = tokens
    places = (kinds == Kind.VELOCITY).nonzero()[0]
    ranks = _ranks_at(tokens, places, families)
    before, after = places - 1, places + 1
    kinds_before = kinds[before]
    is_drum = kinds_before == Kind.DRUM
    whole = kinds_before == Kind.PITCH
    whole &= kinds[after] == Kind.DURATION
    whole &= ranks > 0
    if families.only_track < 0:
        whole |= is_drum
    is_drum &= whole
    if np.count_nonzero(whole) < len(whole):
        places, before, after = places[whole], before[whole], after[whole]
        ranks, is_drum = ranks[whole], is_drum[whole]
    durations = values[after]
    np.putmask(durations, is_drum, 1)
    np.putmask(ranks, is_drum, 0)
    keys = (ranks << 7) + values[before]
    return Notes(keys, bars.times[places], durations, values[places], places)


def _ranks_at(tokens: Tokens, places: NDArray[np.intp], families: Families) -> NDArray[np.int64]:
    """Return ranks of tracks at sorted indices, by the last Program before each and its Part."""
    if families.only_track >= 0:
        return np.full(len(places), families.only_track)
    kinds, values = tokens
    programs = (kinds == Kind.PROGRAM).nonzero()[0]
    after = programs + 1
    parts = values[after] * (kinds[after] == Kind.PART)
    ranks = np.empty(len(programs) + 1, np.int64)
    ranks[0] = _DEFAULT_RANK
    np.add(values[programs], parts, out=ranks[1:])
    ranks *= ranks >= NUM_PARTS  # the drums have no parts
    return hold(ranks, programs, len(kinds))[places]


def by_track(notes: Notes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (n, 4) onset, duration, MIDI pitch and velocity, and the rank of each note's track.

    Rows are sorted by rank, onset and pitch, and the table is read-only, as a track requires. A
    note ends where its key is struck again.
    """
    keys, onsets, durations, velocities = _cut(*notes[:4])
    packed = _BY_TRACK.pack(keys >> 7, onsets, keys & 127, durations, velocities)
    packed.sort()
    ranks, onsets, pitches, durations, velocities = _BY_TRACK.unpack(packed)
    table = np.empty((len(packed), 4), np.int64)
    table[:, 0] = onsets
    table[:, 1] = durations
    table[:, 2] = pitches
    table[:, 3] = velocities * VELOCITY_STEP + VELOCITY_STEP // 2
    table.setflags(write=False)
    return table, ranks


def _cut(
    keys: NDArray[np.int64],
    onsets: NDArray[np.int64],
    durations: NDArray[np.int64],
    velocities: NDArray[np.int64],
) -> tuple[NDArray[np.int64], ...]:
    """End notes where their key is struck again; canonical sequences need no change."""
    packed = _SOUNDING.pack(keys, onsets, durations)
    packed.sort()
    places = _SOUNDING.above(packed, 2)
    if (packed[:-1] & _LONGEST <= places[1:] - places[:-1]).all():
        return keys, onsets, durations, velocities
    notes = separate_notes(keys, onsets, durations, velocities)
    return notes.keys, notes.onsets, notes.durations, notes.velocities
