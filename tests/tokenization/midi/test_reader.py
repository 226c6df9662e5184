from __future__ import annotations

import io
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import miditoolkit
import mido
import muspy
import numpy as np
import pretty_midi
import pytest
import symusic
from hypothesis import given, settings

from tests.support import midi_files
from tests.support.midi_files import END, BadFile, meta, midi_file, note
from tokenization.errors import MidiError
from tokenization.midi import append_to_midi, read_midi, write_midi
from tokenization.midi.chunks import open_midi
from tokenization.midi.events import meta_events, scan_events
from tokenization.score import Score, Tempo, TimeSignature, Track

# ---- laws


@settings(max_examples=60)
@given(score=midi_files.scores())
def test_what_is_written_is_read_back(score):
    again = read_midi(write_midi(score))
    assert again == score


@given(data=midi_files.files_of_anything())
def test_the_scanner_finds_the_events_of_a_slow_parser(data):
    file = open_midi(data, "test")
    events = scan_events(file)
    tracks = midi_files.slow_tracks(data)
    assert np.diff(events.track_rows).tolist() == [len(track) for track in tracks]
    slow = [event for track in tracks for event in track]
    assert events.tick.tolist() == [event.tick for event in slow]
    assert events.status.tolist() == [event.content[0] for event in slow]
    channel = [at for at, event in enumerate(slow) if event.content[0] < 0xF0]
    assert events.first[channel].tolist() == [slow[at].content[1] for at in channel]
    two = [at for at in channel if len(slow[at].content) == 3]
    assert events.second[two].tolist() == [slow[at].content[2] for at in two]
    for kind in (0x03, 0x51):
        rows, begins, ends = meta_events(events, kind)
        found = [(row, file.data[b:e]) for row, b, e in zip(rows, begins, ends, strict=True)]
        assert (
            found
            == [
                (row, content[3:])  # contents are shorter than 128 bytes
                for row, (_, content) in enumerate(slow)
                if content[:2] == bytes([0xFF, kind])
            ]
        )


def _slow_notes(data: bytes) -> list[tuple[int, int, int, int, int, int]]:
    """Chunk, channel, onset, duration, pitch, velocity; ends go to the earliest note of a pitch."""
    notes = []
    for number, track in enumerate(midi_files.slow_tracks(data)):
        sounding: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for tick, content in track:
            if content[0] >> 4 not in (8, 9):
                continue
            channel, pitch, velocity = content[0] & 15, content[1], content[2]
            queue = sounding.setdefault((channel, pitch), [])
            if content[0] >> 4 == 9 and velocity:
                queue.append((tick, velocity))
            elif queue:
                onset, loudness = queue.pop(0)
                notes.append((number, channel, onset, tick - onset, pitch, loudness))
    return sorted(notes)


@given(data=midi_files.files_of_anything())
def test_notes_are_paired_in_order(data):
    slow = _slow_notes(data)
    if not slow:
        with pytest.raises(MidiError, match="no notes"):
            read_midi(data)
        return
    score = read_midi(data)
    ours = [
        (track.chunk, track.channel, *row) for track in score.tracks for row in track.notes.tolist()
    ]
    assert sorted(ours) == slow


@given(data=midi_files.files_of_anything())
def test_reading_writing_and_reading_again_keeps_the_score(data):
    try:
        score = read_midi(data)
    except MidiError:
        return
    once = write_midi(score)
    assert write_midi(score) == once
    again = read_midi(once)
    assert again.tempos == score.tempos
    assert again.time_signatures == score.time_signatures
    assert sorted(map(len, again.tracks)) == sorted(map(len, score.tracks))
    assert all_notes(again) == all_notes(score)


def all_notes(score: Score) -> list[list[int]]:
    return sorted(row for track in score.tracks for row in track.notes.tolist())


# ---- other readers


@settings(max_examples=25)
@given(score=midi_files.scores(shortest=1))
def test_other_libraries_read_the_same_from_what_is_written(score):
    # Their readers stop at metres of 2^7 or tempos of hours per beat; ours are tested above.
    score = Score(480, score.tracks, (Tempo(0, 100.0),), (TimeSignature(0, 3, 4),))
    data = write_midi(score)
    rows = sorted(tuple(row) for track in score.tracks for row in track.notes.tolist())

    ours = symusic.Score.from_midi(data)
    theirs = [(n.time, n.duration, n.pitch, n.velocity) for t in ours.tracks for n in t.notes]  # pyright: ignore[reportAttributeAccessIssue]
    assert sorted(theirs) == rows

    toolkit = miditoolkit.MidiFile(file=io.BytesIO(data))
    theirs = [
        (n.start, n.end - n.start, n.pitch, n.velocity)
        for instrument in toolkit.instruments
        for n in instrument.notes
    ]
    assert sorted(theirs) == rows
    assert [change.tempo for change in toolkit.tempo_changes] == pytest.approx([100.0])
    assert [(t.numerator, t.denominator) for t in toolkit.time_signature_changes] == [(3, 4)]

    pretty = pretty_midi.PrettyMIDI(io.BytesIO(data))
    theirs = [
        (
            pretty.time_to_tick(n.start),
            pretty.time_to_tick(n.end) - pretty.time_to_tick(n.start),
            n.pitch,
            n.velocity,
        )
        for instrument in pretty.instruments
        for n in instrument.notes
    ]
    assert sorted(theirs) == rows
    programs = {(track.program, track.is_drum) for track in score.tracks}
    assert {(i.program, i.is_drum) for i in pretty.instruments} == programs

    music = muspy.from_mido(mido.MidiFile(file=io.BytesIO(data)))
    theirs = [(n.time, n.duration, n.pitch, n.velocity) for t in music.tracks for n in t.notes]
    assert sorted(theirs) == rows
    assert [change.qpm for change in music.tempos] == pytest.approx([100.0])


# ---- bad files


@pytest.mark.parametrize("file", midi_files.bad_files(), ids=lambda file: file.name)
def test_bad_file(file: BadFile):
    started = time.process_time()
    try:
        found = read_midi(file.data, name="odd.mid").num_notes
    except MidiError as error:
        found = str(error)
        assert found.startswith("odd.mid: ")
        assert len(found.splitlines()) == 1
    assert time.process_time() - started < 1
    if isinstance(file.outcome, str):
        assert isinstance(found, str)
        assert file.outcome in found
    elif file.outcome is not None:
        assert found == file.outcome


def test_bad_tempos_and_metres_are_left_out():
    files = {file.name: file.data for file in midi_files.bad_files()}
    assert read_midi(files["tempo 0"]).tempos == ()
    assert read_midi(files["tempo absurd"]).tempos == (Tempo(0, 60e6 / 0xFFFFFF),)
    assert read_midi(files["repeated tempo"]).tempos == (Tempo(0, 150.0),)
    assert read_midi(files["denominator 2^200"]).time_signatures == ()


def test_of_a_file_cut_anywhere_what_is_intact_is_read_and_continued():
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
        assert ("of 2 tracks" if size < first_note - 7 else "in its track 2") in score.damage
        continued = read_midi(append_to_midi(data[:size], new, 9600))
        assert not continued.damage
        # What goes on until the cut is closed at the joint, and heard until there.
        before = [track.notes[track.notes[:, 1] < 480].tolist() for track in continued.tracks[:-1]]
        assert [notes for notes in before if notes] == [e for e in expected if e]
        assert continued.tracks[-1].notes.tolist() == new.tracks[0].notes.tolist()


@pytest.mark.parametrize("wrong", [1, 500])
@pytest.mark.parametrize("track", [0, 1])
def test_a_wrong_length_is_no_missing_end(track, wrong):
    """No track that is there is left out without a word."""
    parts = [midi_files.melody(3) + END for _ in range(3)]
    sizes = [len(part) + wrong * (at == track) for at, part in enumerate(parts)]
    chunks = [b"MTrk" + n.to_bytes(4, "big") + p for n, p in zip(sizes, parts, strict=True)]
    with pytest.raises(MidiError, match="a track is not where"):
        read_midi(b"".join([midi_files.header(3), *chunks]))


def test_a_last_track_of_wrong_length_is_whole_where_it_ends():
    data = midi_file(midi_files.melody(3) + END)
    longer = data[:18] + (len(data) - 22 + 9).to_bytes(4, "big") + data[22:]
    assert read_midi(longer) == read_midi(data)
    assert not read_midi(longer).damage


def test_damage_before_a_missing_end_is_damage():
    damaged = midi_file(midi_files.melody(2) + b"\x00\x90\xc8\x40" + midi_files.melody(40) + END)
    with pytest.raises(MidiError, match="damaged"):
        read_midi(damaged[:-3])


def test_tracks_of_one_channel_share_its_controllers():
    controls = b"".join(b"\x01\xb0\x0b" + bytes([i % 128]) for i in range(3000))
    score = read_midi(midi_file(*[note(60) + controls + END] * 40))
    assert {len(track.controls) for track in score.tracks} == {120_000}
    assert len({id(track.controls) for track in score.tracks}) == 1


def test_more_instruments_than_channels_keep_their_programs_note_by_note():
    rows = [(240 * at, 120, 60, 80) for at in range(8)]
    tracks = [Track.of(rows[at % 8 :: 8], program=at) for at in range(20)]
    tracks.append(Track.of([(0, 10, 40, 80)], program=5, is_drum=True))
    odd = replace(Track.of(rows[:1], program=99), channel=9)
    data = write_midi(Score(480, (*tracks, odd)))
    again = read_midi(data)
    assert Counter((t.program, t.is_drum, str(t.notes)) for t in again.tracks) == Counter(
        (t.program, t.is_drum, str(t.notes)) for t in (*tracks, odd)
    )
    # and for a player, who knows no chunks: what the channel has when a note begins
    programs = {}
    heard = []
    for message in mido.merge_tracks(mido.MidiFile(file=io.BytesIO(data)).tracks):
        if message.type == "program_change":
            programs[message.channel] = message.program
        elif message.type == "note_on" and message.velocity:
            heard.append(programs[message.channel])
    assert sorted(heard) == sorted(t.program for t in (*tracks, odd) for _ in range(len(t)))


@pytest.mark.parametrize(
    "change", [Tempo(0, 3.0), Tempo(0, 1e9), TimeSignature(0, 4, 3), TimeSignature(0, 300, 4)]
)
def test_what_a_file_cannot_say_is_refused(change):
    is_tempo = isinstance(change, Tempo)
    score = Score(480, (), (change,) if is_tempo else (), () if is_tempo else (change,))
    with pytest.raises(MidiError, match="expected"):
        write_midi(score)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (midi_files.header(0) + b"junk", "cut off|no track"),
        (midi_files.header(1, midi_format=3), "unknown MIDI format 3"),
        (b"RIFF\x04\x00\x00\x00RMID", "without MIDI data"),
        (midi_file(note(60) + END)[:-8], "cut off in its track 1.* no note is whole"),
        (midi_file(b"\x00\x3c\x40"), "expected a status byte"),
        (midi_file(b"\x00\xff\x01\x09short"), "longer than its track"),
        (bytes(17 * 2**20), "more than 16 MB"),
        (midi_file(meta(1, b"no music") + END), "no notes"),
        (midi_file(*[b"\x00\xc0" + bytes([i]) + note(60) for i in range(100)] * 11), "instruments"),
    ],
)
def test_what_is_refused_and_why(data, words):
    with pytest.raises(MidiError, match=words):
        read_midi(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("track", "words"),
    [
        (b"\x01\xff\x51\x03\x07\xa1\x20" * 100_001, "changes of tempo"),
        (b"\x00\x90\x3c\x40" + b"\x00\xb0\x40\x7f" * 3_900_000, "more than|controllers and bends"),
        (b"\x00\x90\x3c\x40" + b"\x00\x3c\x00\x00\x3c\x40" * 1_000_001, "1000003 notes"),
    ],
)
def test_millions_of_one_thing_are_refused(track, words):
    programs = b"".join(b"\x00\xc0" + bytes([i]) + note(60) for i in range(2))
    with pytest.raises(MidiError, match=words):
        read_midi(midi_file(programs + track))


def test_too_many_events_that_are_no_messages_are_refused_before_the_rest_is_read(monkeypatch):
    """Each of them takes its own time, so what stands behind, damaged or not, is not looked at."""
    monkeypatch.setattr("tokenization.midi.events.MAX_OTHERS", 100)
    texts = b"\x00\xff\x01\x00"
    assert read_midi(midi_file(note(60) + texts * 99)).num_notes == 1
    with pytest.raises(MidiError, match="over 100 tempos, texts and other events"):
        read_midi(midi_file(note(60) + texts * 101 + b"\x00\xff"))


def test_a_missing_file_is_a_midi_error(tmp_path):
    with pytest.raises(MidiError, match=r"nowhere\.mid: the file cannot be read"):
        read_midi(tmp_path / "nowhere.mid")
    with pytest.raises(MidiError, match="cannot be read"):
        read_midi(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b"\x01\x90\x3c\x40" + b"\x00\x3c\x40\x00\x3c\x00" * 2_700_000,
        b"\x00\xff\x01\x00" * 4_100_000,
        b"\x00\xc0\x01\x00\xb0\x01\x01" * 2_300_000,
        b"\x00\x90\x3c\x40" + b"\x00\xb0\x40\x7f" * 2_500_000 + b"\x00\x80\x3c\x40",
    ],
    ids=["running notes", "metas", "turns of one and two data bytes", "controllers"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory in use from Linux's /proc")
def test_a_full_file_of_one_kind_of_event_stays_under_a_gigabyte(content):
    # The high-water mark of the new program alone: that of getrusage includes its parent's.
    script = (
        "import sys, time; from pathlib import Path; from tokenization.errors import MidiError;"
        "from tokenization.midi import read_midi\n"
        "try: read_midi(sys.stdin.buffer.read())\n"
        "except MidiError: pass\n"
        "words = Path('/proc/self/status').read_text().split()\n"
        "print(int(words[words.index('VmHWM:') + 1]) >> 10, time.process_time())"
    )
    data = midi_file(content)
    run = subprocess.run(
        [sys.executable, "-c", script], input=data, capture_output=True, check=True
    )
    megabytes, seconds = map(float, run.stdout.split())
    assert megabytes < 800
    assert seconds < 60


# ---- examples


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


def test_a_program_chosen_in_another_chunk_holds_where_the_own_chooses_none():
    own = b"\x00\xc1\x05" + note(60, channel=1)
    chosen = b"\x00\xc2\x28"
    data = midi_file(chosen, note(60, channel=2), own, note(60, channel=3))
    assert [track.program for track in read_midi(data).tracks] == [40, 5, 0]


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


def test_instruments_that_want_one_channel_get_different_ones():
    tracks = [Track.of([(0, 10, 60, 80)], program) for program in (0, 40, 0)]
    tracks.append(Track.of([(0, 10, 36, 80)], is_drum=True))
    again = read_midi(write_midi(Score(480, tuple(tracks))))
    assert [(t.channel, t.program, t.is_drum) for t in again.tracks] == [
        (0, 0, False),
        (1, 40, False),
        (0, 0, False),
        (9, 0, True),
    ]


def test_a_resolution_that_does_not_fit_is_refused():
    with pytest.raises(MidiError, match="40000 ticks"):
        write_midi(Score(40_000, (Track.of([(0, 10, 60, 80)]),)))
    with pytest.raises(MidiError, match="gap"):
        write_midi(Score(480, (Track.of([(2**30, 10, 60, 80)]),)))
