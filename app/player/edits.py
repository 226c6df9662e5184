"""Edits of a piece, as the player sends them: notes, tempo, transposition, and sound of tracks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from app.player.frames import UNITS_PER_BEAT, onset_units
from tokenization.errors import MidiError
from tokenization.midi import replace_in_midi
from tokenization.midi.change import (
    scale_tempo,
    set_program,
    set_volume,
    transpose_midi,
    with_own_channel,
)
from tokenization.midi.drums import Place, drum_places
from tokenization.midi.reader import read_midi
from tokenization.score import Score, Track

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_CHANGES = 2_000
"""Maximum notes of an edit."""
MOST_SEMITONES = 36
TEMPO_FACTORS = (0.1, 10.0)
_MOST_DATA = 127
"""The largest program and volume in MIDI."""
_MOST_UNITS = 1 << 24


class NoteChange(NamedTuple):
    """A change of a note, which is found by its track, onset and pitch, as in the frame.

    Times are in player units.
    """

    track: int
    """Id of the track in the frame."""
    onset: int
    pitch: int
    later: int = 0
    higher: int = 0
    longer: int = 0
    is_removed: bool = False
    velocity: int = 0
    """The new velocity; 0: as it is."""


class NewNote(NamedTuple):
    """A note that is added; times are in player units."""

    track: int
    """Id of the track in the frame."""
    onset: int
    pitch: int
    length: int
    velocity: int


@dataclass(frozen=True)
class Edit:
    """An edit of a piece."""

    changes: tuple[NoteChange, ...] = ()
    semitones: int = 0
    """Transposition of all notes except drums."""
    tempo: float = 1.0
    """Factor of all tempos."""
    programs: tuple[tuple[int, int], ...] = ()
    """Ids of tracks in the frame, and the General MIDI programs that are to play them."""
    volumes: tuple[tuple[int, int], ...] = ()
    """Ids of tracks in the frame, and the volumes with which they are to begin."""
    added: tuple[NewNote, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Edit | None:
        """Return the edit in the values of an event.

        It is None if they are malformed or change nothing.
        """
        rows, removed = values.get("moved", []), values.get("removed", [])
        added, velocities = values.get("added", []), values.get("velocities", [])
        semitones, tempo = values.get("semitones", 0), values.get("tempo", 1.0)
        programs, volumes = values.get("programs", []), values.get("volumes", [])
        if not (_are_rows(rows, 6) and _are_rows(removed, 3)):
            return None
        if not (_are_rows(added, 5) and _are_rows(velocities, 4)):
            return None
        if not all(1 <= row[-1] <= _MOST_DATA for row in [*added, *velocities]):
            return None
        if any(min(row) < 0 or row[2] > _MOST_DATA for row in added):
            return None
        for pairs in (programs, volumes):
            if not _are_rows(pairs, 2) or any(not 0 <= one <= _MOST_DATA for _, one in pairs):
                return None
        if not _is_whole(semitones, MOST_SEMITONES) or not isinstance(tempo, int | float):
            return None
        if not (math.isfinite(tempo) and TEMPO_FACTORS[0] <= tempo <= TEMPO_FACTORS[1]):
            return None
        changes = [NoteChange(*row) for row in rows]
        changes += [NoteChange(*row, is_removed=True) for row in removed]
        changes += [NoteChange(*row, velocity=velocity) for *row, velocity in velocities]
        new = tuple(NewNote(*row) for row in added)
        sounds = [tuple((track, value) for track, value in pairs) for pairs in (programs, volumes)]
        edit = cls(tuple(changes), semitones, float(tempo), sounds[0], sounds[1], new)
        return None if edit == cls() else edit

    def apply(self, data: bytes, score: Score, ids: Sequence[int]) -> bytes:
        """Return the MIDI file of the edited piece.

        The notes of the edited tracks are written again; all other events keep their bytes. Tempo,
        transposition, programs and volumes change no other bytes. A track whose program or volume
        changes gets a channel of its own; drums keep their channel and kit.

        Args:
            data: MIDI file of the piece.
            score: its score.
            ids: ids of the tracks of the score in the frames.

        Raises:
            MidiError: there is no such note, no note is left, or a note would leave the range of
                MIDI or the piece.
        """
        if self.changes or self.added:
            data = self._with_notes(data, score, ids)
        if self.semitones:
            data = transpose_midi(data, self.semitones, drum_places(score))
        data = scale_tempo(data, self.tempo) if self.tempo != 1 else data
        return self._with_sounds(data, score, ids)

    def _with_sounds(self, data: bytes, score: Score, ids: Sequence[int]) -> bytes:
        volumes, programs = dict(self.volumes), dict(self.programs)
        for track, number in zip(score.tracks, ids, strict=True):
            if number not in volumes and number not in programs:
                continue
            same = _same_track(data, track)
            if same is None:  # without notes after other changes
                continue
            data, channel = with_own_channel(data, same)
            if number in volumes and (now := _same_track(data, replace(same, channel=channel))):
                data = set_volume(data, now, volumes[number])
            if number in programs and not track.is_drum:
                data = set_program(data, channel, track.program, programs[number])
        return data

    def _with_notes(self, data: bytes, score: Score, ids: Sequence[int]) -> bytes:
        rows: list[dict[tuple[int, int], int]] = [
            _rows_of(track, score.ticks_per_beat) for track in score.tracks
        ]
        # several tracks of the score may be one in the frame
        changes: dict[int, list[tuple[int, NoteChange]]] = {}
        for change in self.changes:
            place = change.onset, change.pitch
            at = next(
                (
                    index
                    for index, number in enumerate(ids)
                    if number == change.track and place in rows[index]
                ),
                None,
            )
            if at is None:
                raise MidiError("an edited note does not exist; select it again")
            changes.setdefault(at, []).append((rows[at][place], change))
        added: dict[int, list[NewNote]] = {}
        for note in self.added:
            if note.track not in ids:
                raise MidiError("the track of a new note does not exist; draw it again")
            at = ids.index(note.track)
            added.setdefault(at, []).append(note)
            changes.setdefault(at, [])
        per_beat = score.ticks_per_beat
        edited = [score.tracks[at] for at in changes]
        new = [
            replace(track, notes=_changed(track, changes[at], added.get(at, ()), per_beat))
            for at, track in zip(changes, edited, strict=True)
        ]
        before = sum(len(track) for track in edited)
        if score.num_notes - before + sum(map(len, new)) < 1:
            raise MidiError("no note would be left; keep at least one")
        written = Score(score.ticks_per_beat, tuple(new))
        stop = max(score.end_ticks, written.end_ticks) + 1
        return replace_in_midi(data, written, edited, 0, stop)


def drums_after_edits(score: Score) -> dict[Place, bool]:
    """Return which chunks and channels are drums, also where an edit gives a channel to a chunk."""
    drums = drum_places(score)
    for (chunk, _), is_drum in list(drums.items()):
        if {other for (at, _), other in drums.items() if at == chunk} == {is_drum}:
            drums |= {(chunk, channel): is_drum for channel in range(16)}
    return drums


def _same_track(data: bytes, track: Track) -> Track | None:
    """Return the track of a file with the chunk, channel and program of another one.

    It is None if no track has them.
    """
    place = track.chunk, track.channel, track.program
    tracks = read_midi(data).tracks
    return next((one for one in tracks if (one.chunk, one.channel, one.program) == place), None)


def _rows_of(track: Track, ticks_per_beat: int) -> dict[tuple[int, int], int]:
    """Return the row of each note of a track, by its onset in player units and its pitch."""
    onsets, pitches = onset_units(track, ticks_per_beat).tolist(), track.notes[:, 2].tolist()
    return {place: row for row, place in enumerate(zip(onsets, pitches, strict=True))}


def _changed(
    track: Track,
    changes: Sequence[tuple[int, NoteChange]],
    added: Sequence[NewNote],
    ticks_per_beat: int,
) -> NDArray[np.int64]:
    """Return the notes (n, 4) of a track after changes of some rows and with new ones.

    A note ends where a moved or new one strikes its key, and one that begins with it is replaced.
    """
    rows = np.array([note[1:] for note in added], np.int64).reshape(-1, 4)[:, [0, 2, 1, 3]]
    rows[:, :2] = np.rint(rows[:, :2] * ticks_per_beat / UNITS_PER_BEAT)
    notes = np.concatenate([track.notes, rows])
    removed, moved = np.zeros(len(notes), bool), np.arange(len(notes)) >= len(track)
    notes[moved, 1] = np.maximum(notes[moved, 1], 1)
    for row, change in changes:
        removed[row] = change.is_removed
        moved[row] = not change.is_removed and not change.velocity
        notes[row, 3] = change.velocity or notes[row, 3]
        later, longer = (
            round(units * ticks_per_beat / UNITS_PER_BEAT)
            for units in (change.later, change.longer)
        )
        notes[row, 0] += later
        notes[row, 1] = max(notes[row, 1] + longer, 1)
        notes[row, 2] += change.higher
        if notes[row, 0] < 0:
            raise MidiError("a note would begin before the piece; move it less")
        if not 0 <= notes[row, 2] <= 127:
            raise MidiError(f"a note would have the pitch {notes[row, 2]}, expected 0 to 127")
    for row in np.flatnonzero(moved):
        onset, _, pitch, _ = notes[row]
        others = (notes[:, 2] == pitch) & ~removed
        others[row] = False
        removed |= others & ~moved & (notes[:, 0] == onset)
        ends = notes[:, 0] + notes[:, 1]
        sounding = others & (notes[:, 0] < onset) & (ends > onset)
        notes[sounding, 1] = onset - notes[sounding, 0]
        following = notes[others & (notes[:, 0] > onset), 0]
        if len(following):
            notes[row, 1] = min(notes[row, 1], int(following.min()) - onset)
    return notes[~removed]


def _are_rows(rows: object, columns: int) -> bool:
    """Return whether a value is a list of rows of integers in the range of times and pitches."""
    return (
        isinstance(rows, list)
        and len(rows) <= MOST_CHANGES
        and all(isinstance(row, list) and len(row) == columns for row in rows)
        and all(_is_whole(value, _MOST_UNITS) for row in rows for value in row)
    )


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= most
