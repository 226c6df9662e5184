from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.player.edits import MOST_CHANGES, MOST_SEMITONES, Edit, NewNote, NoteChange
from app.player.frames import UNITS_PER_BEAT, onset_units, track_ids
from tests.support.midi_files import without_overlaps
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.midi.change import volume_of
from tokenization.score import Score, Track

rows = st.lists(
    st.tuples(st.integers(0, 900), st.integers(1, 200), st.integers(40, 52), st.integers(1, 127)),
    min_size=2,
    max_size=20,
).map(without_overlaps)


def piece(*tracks: Track) -> tuple[bytes, Score, list[int]]:
    data = write_midi(Score(96, tracks))
    score = read_midi(data)
    return data, score, track_ids(score)


def notes_of(data: bytes) -> list[list[list[int]]]:
    return [track.notes.tolist() for track in read_midi(data).tracks]


@given(rows, rows, st.data())
def test_deleting_notes_leaves_all_others(melody, bass, draw):
    data, score, ids = piece(Track.of(melody), Track.of(bass, program=33))
    track = score.tracks[0]
    chosen = draw.draw(st.sets(st.integers(0, len(track) - 1), min_size=1))
    units = onset_units(track, 96)
    removed = tuple(
        NoteChange(ids[0], int(units[row]), int(track.notes[row, 2]), is_removed=True)
        for row in chosen
    )
    edited = notes_of(Edit(removed).apply(data, score, ids))
    wanted = [note for row, note in enumerate(track.notes.tolist()) if row not in chosen]
    assert edited == [wanted, score.tracks[1].notes.tolist()][not wanted :]


@given(rows, st.integers(-2, 8), st.integers(-12, 12), st.integers(-3, 9), st.data())
def test_moving_a_note_there_and_back_gives_the_same_notes(melody, later, higher, longer, draw):
    # in quarter notes, far from all others
    lonely = (96 * 60, 48, 90, 70)
    data, score, ids = piece(Track.of([*melody, lonely]))
    there = NoteChange(ids[0], 60 * 96, 90, later * 96, higher, longer * 8)
    edited = Edit((there,)).apply(data, score, ids)
    moved = (96 * (60 + later), 48 + 8 * longer, 90 + higher, 70)
    assert notes_of(edited)[0][-1] == list(moved)
    back = NoteChange(ids[0], moved[0], moved[2], -later * 96, -higher, -longer * 8)
    assert notes_of(Edit((back,)).apply(edited, read_midi(edited), ids)) == notes_of(data)


def test_other_tracks_and_events_stay_and_times_of_a_finer_grid_are_kept():
    controls = np.array([(0, 64, 127), (500, 64, 0)])
    piano = replace(Track.of([(7, 100, 60, 80), (485, 100, 62, 81)]), controls=controls)
    data = write_midi(Score(480, (piano, Track.of([(3, 9, 38, 9)], is_drum=True))))
    score = read_midi(data)
    ids = track_ids(score)
    onset = int(onset_units(score.tracks[0], 480)[1])
    edit = Edit((NoteChange(ids[0], onset, 62, later=24),))
    after = read_midi(edit.apply(data, score, ids))
    assert after.tracks[0].notes.tolist() == [[7, 100, 60, 80], [605, 100, 62, 81]]
    assert np.array_equal(after.tracks[0].controls, controls)
    assert after.tracks[1] == score.tracks[1]


def test_a_moved_note_cuts_the_note_whose_key_it_strikes():
    data, score, ids = piece(Track.of([(0, 96, 60, 80), (10, 20, 61, 81), (192, 48, 61, 82)]))
    for change, notes in (
        ({"later": 38, "higher": -1}, [[0, 48, 60, 80], [48, 20, 60, 81], [192, 48, 61, 82]]),
        ({"later": -10, "higher": -1}, [[0, 20, 60, 81], [192, 48, 61, 82]]),
        ({"longer": 400}, [[0, 96, 60, 80], [10, 182, 61, 81], [192, 48, 61, 82]]),
    ):
        edit = Edit((NoteChange(ids[0], 10, 61, **change),))  # pyright: ignore[reportArgumentType]
        assert notes_of(edit.apply(data, score, ids)) == [notes]
    # tracks may be one in the frame
    data, score, _ = piece(Track.of([(0, 96, 60, 80)]), Track.of([(96, 96, 62, 81)]))
    edit = Edit((NoteChange(0, 96, 62, higher=2), NoteChange(0, 0, 60, higher=1)))
    assert notes_of(edit.apply(data, score, [0, 0])) == [[[0, 96, 61, 80]], [[96, 96, 64, 81]]]


@given(rows, st.integers(0, 900), st.integers(1, 300), st.integers(1, 127))
def test_a_new_note_is_there_alone_on_its_key_and_velocities_change_nothing_else(
    melody, onset, length, velocity
):
    data, score, ids = piece(Track.of(melody), Track.of([(0, 96, 30, 80)], program=33))
    before = score.tracks[0].notes.tolist()
    edited = notes_of(
        Edit(added=(NewNote(ids[0], onset, 90, length, velocity),)).apply(data, score, ids)
    )
    assert sorted(edited[0]) == sorted([*before, [onset, length, 90, velocity]])
    first = before[0]
    louder = NoteChange(ids[0], first[0], first[2], velocity=velocity)
    edited = notes_of(Edit((louder,)).apply(data, score, ids))
    assert edited == [[[*first[:3], velocity], *before[1:]], [[0, 96, 30, 80]]]


def test_a_new_note_cuts_the_one_that_sounds_and_replaces_the_one_that_begins_with_it():
    data, score, ids = piece(Track.of([(0, 96, 60, 80), (192, 48, 60, 82)]))
    for onset, notes in (
        (24, [[0, 24, 60, 80], [24, 168, 60, 99], [192, 48, 60, 82]]),
        (192, [[0, 96, 60, 80], [192, 300, 60, 99]]),
    ):
        edit = Edit(added=(NewNote(ids[0], onset, 60, 300, 99),))
        assert notes_of(edit.apply(data, score, ids)) == [notes]
    with pytest.raises(MidiError, match="track of a new note does not exist"):
        Edit(added=(NewNote(7, 0, 60, 24, 99),)).apply(data, score, ids)


def test_impossible_edits_are_refused_in_one_sentence():
    data, score, ids = piece(Track.of([(0, 96, 60, 80)]))
    for change, said in (
        (NoteChange(0, 5, 60), "does not exist"),
        (NoteChange(7, 0, 60), "does not exist"),
        (NoteChange(0, 0, 60, later=-1), "before the piece"),
        (NoteChange(0, 0, 60, higher=68), "pitch 128"),
        (NoteChange(0, 0, 60, is_removed=True), "no note would be left"),
    ):
        with pytest.raises(MidiError, match=said):
            Edit((change,)).apply(data, score, ids)


def test_malformed_values_are_no_edit():
    for values in (
        {},
        {"semitones": 0, "tempo": 1.0},
        {"semitones": MOST_SEMITONES + 1},
        {"semitones": 1.5},
        {"semitones": True},
        {"tempo": float("nan")},
        {"tempo": 0.09},
        {"tempo": 10.1},
        {"tempo": "2"},
        {"moved": "text"},
        {"moved": [[0, 0, 60]]},
        {"moved": [[0, 0, 60, 0, 0, 1 << 40]]},
        {"removed": [[0, 0, "60"]]},
        {"removed": [[0, 0, 60]] * (MOST_CHANGES + 1)},
        {"added": [[0, 0, 60, 24, 0]]},
        {"added": [[0, -1, 60, 24, 9]]},
        {"added": [[0, 0, 128, 24, 9]]},
        {"velocities": [[0, 0, 60, 128]]},
        {"programs": [[0, 128]]},
        {"volumes": [[0, -1]]},
        {"volumes": [[0]]},
    ):
        assert Edit.of(values) is None, values


def test_values_of_the_player_are_an_edit():
    values = {"moved": [[0, 96, 60, 24, 0, 0]], "removed": [[1, 0, 40]], "variation": -1}
    assert Edit.of(values) == Edit(
        (NoteChange(0, UNITS_PER_BEAT, 60, 24), NoteChange(1, 0, 40, is_removed=True))
    )
    assert Edit.of({"semitones": -MOST_SEMITONES, "tempo": 10}) == Edit((), -MOST_SEMITONES, 10.0)
    sounds = Edit.of({"programs": [[0, 127]], "volumes": [[1, 0]]})
    assert sounds == Edit(programs=((0, 127),), volumes=((1, 0),))
    drawn = Edit.of({"added": [[0, 96, 60, 24, 9]], "velocities": [[1, 0, 40, 7]]})
    assert drawn == Edit((NoteChange(1, 0, 40, velocity=7),), added=(NewNote(0, 96, 60, 24, 9),))
    removed = Edit.of({"removed": [[0, 0, 60]] * MOST_CHANGES})
    assert removed is not None
    assert len(removed.changes) == MOST_CHANGES


def test_programs_and_volumes_of_tracks_change_and_nothing_else():
    """A track that shares its channel gets one of its own."""
    piano, bass = Track.of([(0, 96, 60, 80)]), Track.of([(0, 96, 40, 80)], program=33)
    kit = Track.of([(0, 9, 38, 80)], is_drum=True)
    for tracks, edit, programs, volumes in (
        (
            [piano, bass, kit],
            Edit(programs=((1, 38), (2, 5)), volumes=((0, 64), (2, 127))),
            [0, 38, 0],
            [64, 100, 127],
        ),
        ([piano, piano], Edit(programs=((1, 32),), volumes=((1, 70),)), [0, 32], [100, 70]),
    ):
        data, score, ids = piece(*tracks)
        assert ids == [*range(len(tracks))]
        after = read_midi(edit.apply(data, score, ids)).tracks
        assert [track.program for track in after] == programs
        assert [volume_of(track) for track in after] == volumes
        assert [track.is_drum for track in after] == [track.is_drum for track in tracks]
        assert [t.notes.tolist() for t in after] == [t.notes.tolist() for t in score.tracks]


def test_notes_tempo_transposition_and_sounds_change_together():
    drums = Track.of([(0, 12, 38, 90)], is_drum=True)
    data, score, ids = piece(Track.of([(0, 96, 60, 80), (96, 96, 62, 80)]), drums)
    moved = NoteChange(ids[0], 0, 60, later=24, higher=1)
    edit = Edit((moved,), 2, 0.5, programs=((ids[0], 73),), volumes=((ids[0], 90),))
    edited = read_midi(edit.apply(data, score, ids))
    track, drums = edited.tracks
    assert (track.program, volume_of(track)) == (73, 90)
    assert (track.notes[:, 2].tolist(), drums.notes[:, 2].tolist()) == ([63, 64], [38])
    assert edited.tempos[0].bpm == pytest.approx(60)
