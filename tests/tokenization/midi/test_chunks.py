from __future__ import annotations

import pytest

from tests.support import midi_files
from tests.support.midi_files import END, midi_file
from tokenization.errors import MidiError
from tokenization.midi import read_midi


@pytest.mark.parametrize("wrong", [1, 500])
@pytest.mark.parametrize("track", [0, 1])
def test_a_wrong_length_is_not_a_missing_end(track, wrong):
    """Existing tracks are never left out without an error."""
    parts = [midi_files.melody(3) + END for _ in range(3)]
    sizes = [len(part) + wrong * (at == track) for at, part in enumerate(parts)]
    chunks = [b"MTrk" + n.to_bytes(4, "big") + p for n, p in zip(sizes, parts, strict=True)]
    with pytest.raises(MidiError, match="the length of a track is wrong"):
        read_midi(b"".join([midi_files.header(3), *chunks]))


def test_a_last_track_of_wrong_length_is_read_to_its_end():
    data = midi_file(midi_files.melody(3) + END)
    longer = data[:18] + (len(data) - 22 + 9).to_bytes(4, "big") + data[22:]
    assert read_midi(longer) == read_midi(data)
    assert not read_midi(longer).damage


def test_damage_before_a_missing_end_is_damage():
    damaged = midi_file(midi_files.melody(2) + b"\x00\x90\xc8\x40" + midi_files.melody(40) + END)
    with pytest.raises(MidiError, match="damaged"):
        read_midi(damaged[:-3])
