from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support import midi_files
from tests.support.midi_files import END, midi_file
from tokenization.errors import MidiError
from tokenization.midi import append_to_midi, read_midi
from tokenization.score import Score, Track


def test_tracks_after_a_wrong_length_are_found():
    parts = [midi_files.melody(3) + END for _ in range(3)]
    for track, wrong in ((0, -9), (0, 1), (1, -9), (1, -1), (1, 500)):
        sizes = [len(part) + wrong * (at == track) for at, part in enumerate(parts)]
        chunks = [b"MTrk" + n.to_bytes(4, "big") + p for n, p in zip(sizes, parts, strict=True)]
        data = b"".join([midi_files.header(3), *chunks])
        score = read_midi(data)
        lost = [wrong == -9 and at == track for at in range(3)]
        assert [len(found) for found in score.tracks] == [3 - gone for gone in lost]
        assert "1 track has a wrong length" in score.damage
        with pytest.raises(MidiError, match=r"1 track has .* length.*; expected an undamaged file"):
            read_midi(data, strict=True)


def test_bytes_after_the_last_track_are_ignored():
    """They may look like a track; players stop after the number of tracks in the header."""
    good = midi_file(midi_files.melody(3) + END)
    new = Score(480, (Track.of([(9600, 480, 72, 80)]),))
    for kind in (b"junk", b"\0\0\0\0", b"trk\0"):
        data = good + kind + b"\xff\xff\xff\xff....MTrk\0\0\0\4" + END
        score = read_midi(data)
        assert score.damage == "24 bytes after the last track are not part of the music"
        assert replace(score, damage="") == read_midi(good)
        with pytest.raises(MidiError, match=r"24 bytes after .*; expected an undamaged"):
            read_midi(data, strict=True)
        assert append_to_midi(data, new, 9600) == append_to_midi(good, new, 9600)
    assert read_midi(good + b"\n").damage == "1 byte after the last track is not part of the music"
    assert not read_midi(midi_files.riff(good), strict=True).damage


def test_a_last_track_of_wrong_length_is_read_to_its_end():
    data = midi_file(midi_files.melody(3) + END)
    longer = data[:18] + (len(data) - 22 + 9).to_bytes(4, "big") + data[22:]
    assert read_midi(longer) == read_midi(data)
    assert not read_midi(longer).damage


def test_damage_before_a_missing_end_is_described_too():
    damaged = midi_file(midi_files.melody(2) + b"\x00\x90\xc8\x40" + midi_files.melody(40) + END)
    damage = read_midi(damaged[:-3]).damage
    assert re.fullmatch("the file is cut off in track 1, .*, and 1 data byte over 127 .*", damage)
