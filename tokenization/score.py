"""Notes, tracks and scores; all are immutable, with times in ticks of the score's resolution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray


class Tempo(NamedTuple):
    """A tempo that starts at a tick, in quarter notes per minute."""

    tick: int
    bpm: float


class TimeSignature(NamedTuple):
    """A time signature that starts at a tick."""

    tick: int
    numerator: int
    denominator: int

    def bar_quarters(self) -> float:
        """Return the length of a bar in quarter notes."""
        return 4 * self.numerator / self.denominator


class Note(NamedTuple):
    """One note as a row; a `Track` stores its notes as columns."""

    onset_ticks: int
    duration_ticks: int
    pitch: int
    velocity: int


Ticks = TypeVar("Ticks", int, "NDArray[np.int64]")

MAX_BEATS = 65_536
"""Maximum length of a piece in quarter notes (nine hours at 120 per minute); later notes are
rejected."""


def nearest_ratio(numerator: Ticks, denominator: Ticks | int) -> Ticks:
    """Return the integer closest to a ratio; halves are rounded up."""
    return (2 * numerator + denominator) // (2 * denominator)


_Change = TypeVar("_Change", Tempo, TimeSignature)


def _table(rows: object, columns: int) -> NDArray[np.int64]:
    """Return a read-only (n, columns) int64 table of `rows`, not copied if it already is one."""
    if isinstance(rows, np.ndarray) and not rows.flags.writeable:
        given = cast("NDArray[np.int64]", rows)
        like = (given.dtype, given.ndim, given.shape[-1:]) == (np.int64, 2, (columns,))
        if like and _is_fixed(given):
            return given
    table = np.array(rows, dtype=np.int64)
    if table.ndim != 2 or table.shape[1] != columns:
        table = table.reshape(-1, columns).copy()
    table.setflags(write=False)
    return table


def _is_fixed(table: NDArray[np.int64]) -> bool:
    """Return whether a read-only table can never change.

    This is so if it owns its memory, or if its memory belongs to a `bytes` object, as for a table
    received from another process.
    """
    base: object = table.base
    return base is None or isinstance(getattr(base, "base", base), bytes)


def once_each(
    change: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Return a cached `change`, called once for a table that several tracks of a channel share."""
    changed_tables: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def changed(table: NDArray[np.int64]) -> NDArray[np.int64]:
        if id(table) not in changed_tables:
            changed_tables[id(table)] = (table, _table(change(table), table.shape[1]))
        return changed_tables[id(table)][1]

    return changed


def _in_time(changes: Iterable[_Change]) -> tuple[_Change, ...]:
    """Return changes sorted by tick.

    The sort is stable, so that of several changes at one tick the last one applies.
    """
    return tuple(sorted(changes, key=lambda change: change.tick))


def _sorted(notes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return notes sorted by onset, pitch, duration and velocity, as most tables already are."""
    if len(notes) < 2:
        return notes
    before, after = notes[:-1], notes[1:]
    at_once = (after[:, 0] == before[:, 0]) & (after[:, 2] > before[:, 2])
    if bool(((after[:, 0] > before[:, 0]) | at_once).all()):
        return notes
    order = np.lexsort((notes[:, 3], notes[:, 1], notes[:, 2], notes[:, 0]))
    return _table(notes[order], 4)


def _between(changes: Sequence[_Change], start: int, end: int) -> tuple[_Change, ...]:
    """Return changes from one tick up to another, shifted to 0.

    The one in effect at the start is the first of them.
    """
    before = [change for change in changes if change.tick <= start][-1:]
    after = [change for change in changes if start < change.tick < end]
    return tuple(change._replace(tick=max(change.tick - start, 0)) for change in before + after)


NO_NOTES, _NO_CONTROLS, _NO_BENDS = (_table([], columns) for columns in (4, 3, 2))


@dataclass(frozen=True, eq=False)
class Track:
    """The notes of one instrument.

    Tables are read-only int64, with times in ticks from the start of the score:

    - `notes` (n, 4): onset, duration, pitch 0-127, velocity 0-127; sorted by onset, pitch, duration
      and velocity;
    - `controls` (c, 3): tick, controller number, value;
    - `bends` (p, 2): tick, value from -8192 to 8191;
    - `note_bends` (q, 3): tick, pitch, and cents by which notes of this pitch are bent from there,
      if the notes of the file are bent one by one (`tokenization.midi.mpe`).

    Raises:
        ValueError: a time is negative, or a pitch or velocity is above 127.
    """

    notes: NDArray[np.int64]
    program: int = 0
    is_drum: bool = False
    name: str = ""
    channel: int = 0
    chunk: int | None = None
    """Index of the track chunk of the file with these notes; None for music that is in no file."""
    controls: NDArray[np.int64] = field(default_factory=lambda: _NO_CONTROLS)
    bends: NDArray[np.int64] = field(default_factory=lambda: _NO_BENDS)
    note_bends: NDArray[np.int64] = field(default_factory=lambda: _NO_CONTROLS)

    def __post_init__(self) -> None:
        notes = _table(self.notes, 4)
        if len(notes) and (notes.min() < 0 or notes[:, 2:].max() > 127):
            raise ValueError(
                f"notes have values from {notes.min(0).tolist()} to {notes.max(0).tolist()}, "
                "expected an onset and a duration of at least 0, a pitch and a velocity of 0 to 127"
            )
        object.__setattr__(self, "notes", _sorted(notes))
        object.__setattr__(self, "controls", _table(self.controls, 3))
        object.__setattr__(self, "bends", _table(self.bends, 2))
        object.__setattr__(self, "note_bends", _table(self.note_bends, 3))

    @classmethod
    def of(
        cls, notes: Iterable[Sequence[int]], program: int = 0, *, is_drum: bool = False
    ) -> Track:
        """Return a track from rows of (onset, duration, pitch, velocity)."""
        return cls(_table(list(notes), 4), program=program, is_drum=is_drum)

    def __len__(self) -> int:
        return len(self.notes)

    def without_events(self) -> Track:
        """Return the same track without notes, controls and bends."""
        tables = {"controls": _NO_CONTROLS, "bends": _NO_BENDS, "note_bends": _NO_CONTROLS}
        return self.with_tables(notes=NO_NOTES, **tables)

    def with_tables(self, **tables: NDArray[np.int64]) -> Track:
        """Return the same track with other tables, which must already be read-only and sorted.

        For speed, they are neither checked nor copied: generation decodes a piece many times.
        """
        track = object.__new__(Track)
        track.__dict__.update(self.__dict__, **tables)
        return track

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Track) and (
            (self.program, self.is_drum, self.name, self.channel, self.chunk)
            == (other.program, other.is_drum, other.name, other.channel, other.chunk)
            and np.array_equal(self.notes, other.notes)
            and np.array_equal(self.controls, other.controls)
            and np.array_equal(self.bends, other.bends)
            and np.array_equal(self.note_bends, other.note_bends)
        )

    __hash__ = None  # type: ignore[assignment]  # compared by content

    def until(self, end: int) -> Track:
        """Return the same track with notes cut at a tick; notes that begin later are left out."""
        notes = self.notes[self.notes[:, 0] < end]
        lengths = np.minimum(notes[:, 1], end - notes[:, 0])
        return replace(self, notes=np.column_stack([notes[:, 0], lengths, notes[:, 2:]]))

    @property
    def end_ticks(self) -> int:
        """Tick at which the last note ends; 0 without notes.

        Drums end when they are struck, since the durations of their notes have no meaning.
        """
        if self.is_drum:
            return int(self.notes[:, 0].max(initial=0))
        return int((self.notes[:, 0] + self.notes[:, 1]).max(initial=0))


def all_notes(tracks: Iterable[Track]) -> NDArray[np.int64]:
    """Return the notes of all tracks, concatenated (n, 4)."""
    return np.concatenate([NO_NOTES, *(track.notes for track in tracks)])


@dataclass(frozen=True)
class Score:
    """A piece of music: tracks, tempo map and time signatures.

    Tempos and time signatures are sorted by tick. Before the first one, MIDI's defaults apply: 120
    quarter notes per minute, and 4/4.
    """

    ticks_per_beat: int
    """Resolution in ticks per quarter note."""
    tracks: tuple[Track, ...] = ()
    tempos: tuple[Tempo, ...] = ()
    time_signatures: tuple[TimeSignature, ...] = ()
    end_ticks: int = 0
    """Tick at which the piece ends, with the rests at its end; at or after `Track.end_ticks`."""
    damage: str = field(default="", compare=False)
    """Description of the part of the file that could not be read; empty if all of it was read."""
    left_out: str = field(default="", compare=False)
    """Parts of the file that were not read, such as `2 grace notes and lyrics`; empty if none."""
    guesses: str = field(default="", compare=False)
    """Which tracks were taken for drums or melodies against their channels; empty if none."""
    is_notated: bool = field(default=False, compare=False)
    """Whether the bars were written as such, as in MusicXML, so that there is no doubt of them."""

    def __post_init__(self) -> None:
        if self.ticks_per_beat < 1:
            raise ValueError(f"ticks_per_beat is {self.ticks_per_beat}, expected at least 1")
        object.__setattr__(self, "tempos", _in_time(self.tempos))
        object.__setattr__(self, "time_signatures", _in_time(self.time_signatures))
        last = max((track.end_ticks for track in self.tracks), default=0)
        object.__setattr__(self, "end_ticks", max(self.end_ticks, last))

    @property
    def num_notes(self) -> int:
        """Number of notes in all tracks."""
        return sum(len(track) for track in self.tracks)

    def without_guesses(self) -> Score:
        """Return the same score, whose drums are certain."""
        return replace(self, guesses="")

    def with_tracks(self, tracks: Iterable[Track]) -> Score:
        """Return the same score with other tracks."""
        return replace(self, tracks=tuple(tracks))

    def between(self, start: int, end: int) -> Score:
        """Return the music from one tick up to another as a piece of its own, without controllers.

        Notes that begin before `start` are left out, and others end at `end` at the latest. The
        time signature in effect begins anew, so that `start` has to be a bar line.
        """
        tracks: list[Track] = []
        for track in self.tracks:
            notes = track.until(end).notes
            notes = notes[notes[:, 0] >= start] - [start, 0, 0, 0]
            tracks.append(replace(track.without_events(), notes=notes))
        return Score(
            self.ticks_per_beat,
            tuple(tracks),
            _between(self.tempos, start, end),
            _between(self.time_signatures, start, end),
            end - start,
        )

    def refined(self, factor: int) -> Score:
        """Return the same score with `factor` times as many ticks per quarter note."""
        if factor == 1:
            return self
        controls, bends = (once_each(partial(np.multiply, [factor, *one])) for one in ([1, 1], [1]))
        tracks = (
            replace(
                track,
                notes=track.notes * [factor, factor, 1, 1],
                controls=controls(track.controls),
                bends=bends(track.bends),
                note_bends=controls(track.note_bends),
            )
            for track in self.tracks
        )
        return Score(
            self.ticks_per_beat * factor,
            tuple(tracks),
            tuple(tempo._replace(tick=tempo.tick * factor) for tempo in self.tempos),
            tuple(metre._replace(tick=metre.tick * factor) for metre in self.time_signatures),
            self.end_ticks * factor,
            self.damage,
            self.left_out,
            self.guesses,
        )

    def seconds_at(self, ticks: NDArray[np.int64] | Sequence[int] | int) -> NDArray[np.float64]:
        """Return the seconds from the start for each of `ticks`, by the tempo map; same shape."""
        starts, per_tick, elapsed = self._sections()
        ticks = np.asarray(ticks, dtype=np.int64)
        section = np.maximum(np.searchsorted(starts, ticks, side="right") - 1, 0)
        return elapsed[section] + (ticks - starts[section]) * per_tick[section]

    def ticks_at(self, seconds: NDArray[np.float64] | Sequence[float] | float) -> NDArray[np.int64]:
        """Return the tick closest to each time in seconds, by the tempo map.

        The result has the same shape, and is at least 0.
        """
        starts, per_tick, elapsed = self._sections()
        seconds = np.asarray(seconds, dtype=np.float64)
        section = np.maximum(np.searchsorted(elapsed, seconds, side="right") - 1, 0)
        ticks = starts[section] + (seconds - elapsed[section]) / per_tick[section]
        return np.maximum(np.rint(ticks), 0).astype(np.int64)

    def _sections(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return sections of constant tempo (n,): first tick, seconds per tick, start (seconds)."""
        tempos = (
            [Tempo(0, 120.0), *self.tempos]
            if not self.tempos or self.tempos[0].tick > 0
            else self.tempos
        )
        starts = np.array([tempo.tick for tempo in tempos], dtype=np.int64)
        per_tick = 60.0 / (np.array([tempo.bpm for tempo in tempos]) * self.ticks_per_beat)
        elapsed = np.concatenate([[0.0], np.cumsum(np.diff(starts) * per_tick[:-1])])
        return starts, per_tick, elapsed
