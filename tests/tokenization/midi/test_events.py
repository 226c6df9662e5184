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
    """Chunk, channel, onset, duration, pitch, velocity; ends match the earliest note of a pitch."""
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


def test_too_many_other_events_are_rejected_before_the_rest_is_read(monkeypatch):
    """Reading these events is slow, so the rest of the file, damaged or not, is not read."""
    monkeypatch.setattr("tokenization.midi.events.MAX_OTHERS", 100)
    texts = b"\x00\xff\x01\x00"
    assert read_midi(midi_file(note(60) + texts * 99)).num_notes == 1
    with pytest.raises(MidiError, match="more than 100 tempos, texts and other events"):
        read_midi(midi_file(note(60) + texts * 101 + b"\x00\xff"))
