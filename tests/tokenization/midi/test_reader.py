from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import midi_files
from tests.support.midi_files import END, meta, midi_file, note
from tokenization.errors import MidiError
from tokenization.midi import append_to_midi, read_midi, write_midi
from tokenization.score import Score, Tempo, Track


def test_bad_files_are_read_or_refused_in_one_line():
    for file in midi_files.bad_files():
        try:
            found = read_midi(file.data, name="odd.mid").num_notes
        except MidiError as error:
            found = str(error)
            assert found.startswith("odd.mid: "), file.name
            assert len(found.splitlines()) == 1
        if isinstance(file.outcome, str):
            assert file.outcome in str(found), file.name
        elif file.outcome is not None:
            assert found == file.outcome, file.name


def test_bad_tempos_and_metres_are_ignored():
    files = {file.name: file.data for file in midi_files.bad_files()}
    assert read_midi(files["tempo 0"]).tempos == ()
    assert read_midi(files["tempo absurd"]).tempos == (Tempo(0, 60e6 / 0xFFFFFF),)
    assert read_midi(files["repeated tempo"]).tempos == (Tempo(0, 150.0),)
    assert read_midi(files["denominator 2^200"]).time_signatures == ()


def test_the_intact_part_of_a_cut_file_is_read_and_continued():
    tracks = [midi_files.tempo(500_000) + note(48) + END, meta(3, b"two") + midi_files.melody(4)]
    data = midi_file(*tracks)
    whole = read_midi(data)
    new = Score(480, (Track.of([(9600, 480, 72, 80)]),))
    first_note = len(data) - 4 * len(note(60))
    for size in range(len(data) - 8 - len(tracks[1]), len(data)):
        score = read_midi(data[:size], name="cut.mid")
        num_notes = max(size - first_note, 0) // len(note(60))
        expected = [whole.tracks[0].notes.tolist(), whole.tracks[1].notes[:num_notes].tolist()]
        assert [track.notes.tolist() for track in score.tracks] == [e for e in expected if e]
        assert ("of 2 tracks" if size < first_note - 7 else "in track 2") in score.damage
        continued = read_midi(append_to_midi(data[:size], new, 9600))
        assert not continued.damage
        # A note that sounds at the cut ends at the splice.
        before = [track.notes[track.notes[:, 1] < 480].tolist() for track in continued.tracks[:-1]]
        assert [notes for notes in before if notes] == [e for e in expected if e]
        assert continued.tracks[-1].notes.tolist() == new.tracks[0].notes.tolist()


@pytest.mark.parametrize(
    ("track", "notes", "damage"),
    [
        (
            note(60) + b"\x00\x90\xc8\xff\x60\x80\xff\x40\x00\x90\x3d\x50\x60\x80\x3d\x80",
            [(0, 240, 60, 80), (240, 96, 127, 127), (336, 96, 61, 80)],
            "4 data bytes over 127 are read as 127",
        ),
        (
            note(60) + b"\x83\x60\xc0\x85" + note(62),
            [(0, 240, 60, 80), (720, 240, 62, 80)],
            "1 data byte over 127 is read as 127",
        ),
        (note(60) + b"\xff\xff\xff\xff\x01" + note(61), [(0, 240, 60, 80)], "of at most four"),
        (note(60) + b"\x00\xff\x01\x7fshort", [(0, 240, 60, 80)], "at byte 32: an event is longer"),
    ],
)
def test_the_rest_of_a_damaged_file_is_read_and_continued(track, notes, damage):
    data = midi_file(track + END, note(72) + END)
    score = read_midi(data)
    found = [tuple(row) for track in score.tracks[:-1] for row in track.notes.tolist()]
    assert sorted(found) == notes
    assert score.tracks[-1].notes.tolist() == [[0, 240, 72, 80]]
    assert damage in score.damage
    new = Score(480, (replace(Track.of([(9600, 480, 72, 80)]), chunk=0),))
    continued = read_midi(append_to_midi(data, new, 9600))
    rows = [tuple(row) for track in continued.tracks[:-1] for row in track.notes.tolist()]
    assert sorted(rows) == [*notes, (9600, 480, 72, 80)]
    with pytest.raises(MidiError, match=r"^odd\.mid: [^\n]*expected an undamaged file"):
        read_midi(data, name="odd.mid", strict=True)


def test_overwritten_bytes_that_are_read_as_a_gap_are_called_damage():
    for gap in (250_000_000, 0x0FFFFFFF):
        late = b"".join(note(60, delta=gap) for _ in range(9))
        damaged = midi_file(note(60) + late + b"\x00\xff\x01\x7fshort")
        with pytest.raises(MidiError, match=r"expected at most [\d,]+: the file is damaged \(tra"):
            read_midi(damaged, name="odd.mid")


def test_tracks_of_one_channel_share_its_controllers():
    controls = b"".join(b"\x01\xb0\x0b" + bytes([i % 128]) for i in range(3000))
    score = read_midi(midi_file(*[note(60) + controls + END] * 40))
    assert {len(track.controls) for track in score.tracks} == {120_000}
    assert len({id(track.controls) for track in score.tracks}) == 1


def test_invalid_files_are_rejected_with_a_reason():
    for data, words in (
        (midi_files.header(0) + b"junk", "cut off|no track"),
        (midi_files.header(1, midi_format=3), "unknown MIDI format 3"),
        (b"RIFF\x04\x00\x00\x00RMID", "contains no MIDI data"),
        (midi_file(note(60) + END)[:-8], "cut off in track 1.* no note is complete"),
        (midi_file(b"\x00\x3c\x40"), "expected a status byte"),
        (midi_file(b"\x00\xff\x01\x09short"), "longer than its track"),
        (bytes(17 * 2**20), "more than 16 MB"),
        (midi_file(*[b"\x00\xc0" + bytes([i]) + note(60) for i in range(100)] * 11), "instruments"),
    ):
        with pytest.raises(MidiError, match=words):
            read_midi(data)


def test_too_many_events_of_one_kind_are_rejected(monkeypatch):
    programs = b"".join(b"\x00\xc0" + bytes([i]) + note(60) for i in range(2))
    for limit, track, words in (
        ("MAX_TEMPOS", b"\x01\xff\x51\x03\x07\xa1\x20" * 11, "changes of tempo"),
        ("MAX_CONTROLS", b"\x00\xb0\x40\x7f" * 11, "controllers and bends"),
        ("MAX_NOTES", b"\x00\x90\x3c\x40" + b"\x00\x3c\x00\x00\x3c\x40" * 9, "12 notes"),
    ):
        monkeypatch.setattr(f"tokenization.midi.reader.{limit}", 10)
        with pytest.raises(MidiError, match=words):
            read_midi(midi_file(programs + track))
        monkeypatch.undo()


def test_a_missing_file_is_a_midi_error(tmp_path):
    with pytest.raises(MidiError, match=r"nowhere\.mid: the file cannot be read"):
        read_midi(tmp_path / "nowhere.mid")
    with pytest.raises(MidiError, match="cannot be read"):
        read_midi(tmp_path)


def test_rests_at_the_end_count_up_to_a_bar_line_that_is_near():
    """Within a 24th of a quarter note, and at most 64 of them after the last note."""
    for rest, end in ((1660, 1920), (1700, 1920), (1704, 240), (30_480, 30_720), (32_400, 240)):
        data = midi_file(note(60) + midi_files.quantity(rest) + END[1:])
        assert read_midi(data).end_ticks == end


def test_tracks_know_their_chunk_channel_and_program():
    two_programs = b"\x00\xc0\x05" + note(60) + b"\x00\xc0\x06" + note(61) + note(62, channel=9)
    data = midi_file(meta(3, b"map"), meta(3, b"Band") + two_programs, note(63, channel=2))
    found = [
        (t.chunk, t.channel, t.program, t.is_drum, t.name, t.notes[:, 2].tolist())
        for t in read_midi(data).tracks
    ]
    assert found == [
        (1, 0, 5, False, "Band", [60]),
        (1, 0, 6, False, "Band", [61]),
        (1, 9, 0, True, "Band", [62]),
        (2, 2, 0, False, "", [63]),
    ]


def test_controllers_of_a_channel_belong_to_all_of_its_tracks():
    pedal = b"\x00\xb0\x40\x7f\x83\x60\xb0\x40\x00"
    bend = b"\x00\xe0\x00\x50"
    score = read_midi(midi_file(note(60), pedal + bend + note(62), note(64, channel=3)))
    first, second, other = score.tracks
    assert first.controls.tolist() == second.controls.tolist() == [[0, 64, 127], [480, 64, 0]]
    assert first.bends.tolist() == [[480, 0x50 * 128 - 8192]]
    assert len(other.controls) == 0
    again = read_midi(write_midi(score))
    assert [track.controls.tolist() for track in again.tracks] == [
        track.controls.tolist() for track in score.tracks
    ]
