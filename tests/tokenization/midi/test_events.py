from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.support import midi_files
from tests.support.midi_files import midi_file, note
from tokenization.errors import MidiError
from tokenization.midi import read_midi
from tokenization.midi.chunks import open_midi
from tokenization.midi.events import meta_events, scan_events


@given(data=midi_files.files_of_anything())
def test_meta_events_have_their_contents(data):
    file = open_midi(data, "test")
    events = scan_events(file)
    slow = [event.content for track in midi_files.slow_tracks(data) for event in track]
    for kind in (0x03, 0x51):
        columns = (column.tolist() for column in meta_events(events, kind))
        contents = [(row, file.data[start:end]) for row, start, end in zip(*columns, strict=True)]
        # contents are shorter than 128 bytes
        is_kind = [content[:2] == bytes([0xFF, kind]) for content in slow]
        assert contents == [(row, slow[row][3:]) for row in np.flatnonzero(is_kind)]


@given(data=midi_files.files_of_anything() | midi_files.musical_files())
def test_notes_are_read_in_order_with_their_ends_and_programs(data):
    slow = [
        (chunk, channel, program, begin, pitch, end - begin, velocity)
        for chunk, channel, pitch, begin, end, velocity, program, *_ in midi_files.slow_notes(data)
        if end is not None
    ]
    if not slow:
        with pytest.raises(MidiError, match="no note"):
            read_midi(data)
        return
    ours = [
        (track.chunk, track.channel, track.program, onset, pitch, duration, velocity)
        for track in read_midi(data).tracks
        for onset, duration, pitch, velocity in track.notes.tolist()
    ]
    assert ours == sorted(slow)


@pytest.mark.parametrize(("delay", "programs"), [(0, [7]), (24, [7]), (25, [0, 7])])
def test_a_program_counts_for_the_first_note_if_it_follows_within_a_sixteenth(delay, programs):
    """Of all chunks, in each of which it may come a few ticks late."""
    late = note(60, length=0) + bytes((delay, 0xC0, 7)) + note(62, delta=96)
    tracks = read_midi(midi_file(late, late, division=96)).tracks
    assert [track.program for track in tracks] == 2 * programs


def test_too_many_other_events_are_rejected_before_the_rest_is_read(monkeypatch):
    """Reading these events is slow, so the rest of the file, damaged or not, is not read."""
    monkeypatch.setattr("tokenization.midi.events.MAX_OTHERS", 100)
    texts = b"\x00\xff\x01\x00"
    assert read_midi(midi_file(note(60) + texts * 99)).num_notes == 1
    with pytest.raises(MidiError, match="more than 100 tempos, texts and other events"):
        read_midi(midi_file(note(60) + texts * 101 + b"\x00\xff"))
