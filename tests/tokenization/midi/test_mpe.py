"""MPE: the channels of a zone are one instrument, in reading, continuing and filling."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import midi_files
from tests.support.midi_files import END, midi_file, note
from tokenization.midi import append_to_midi, read_midi, replace_in_midi
from tokenization.midi.change import transpose_midi
from tokenization.midi.chunks import open_midi
from tokenization.midi.events import scan_events
from tokenization.midi.mpe import find_homes
from tokenization.score import Score, Track


def zone(manager: int, members: int) -> bytes:
    status = 0xB0 | manager
    return b"".join(bytes((0, status, *pair)) for pair in ((101, 0), (100, 6), (6, members)))


def chords(*channels: int, glides: bool = True) -> bytes:
    """Three notes on each of some channels in turn."""
    music = b""
    for number in range(3):
        for channel in channels:
            expression = bytes((0, 0xE0 | channel, 0, 66, 0, 0xB0 | channel, 74, 64)) * glides
            music += expression + note(60 + number + channel, length=60, channel=channel)
    return music


def program(channel: int, number: int) -> bytes:
    return bytes((0, 0xC0 | channel, number))


def tracks_of(data: bytes) -> list[tuple[int, int, bool, int]]:
    return [
        (track.channel, track.program, track.is_drum, len(track))
        for track in read_midi(data).tracks
    ]


@pytest.mark.parametrize(
    ("chunks", "tracks"),
    [
        ([zone(0, 15) + chords(1, 2, 9)], [(0, 0, False, 9)]),
        ([zone(15, 7) + chords(14, 9, 8)], [(15, 0, False, 9)]),
        ([zone(0, 3) + program(0, 80) + chords(1, 2)], [(0, 80, False, 6)]),
        ([zone(0, 3) + program(1, 80) + program(2, 80) + chords(1, 2)], [(0, 80, False, 6)]),
        # notes outside the zone, and of the manager
        ([zone(0, 3) + chords(0, 1, 9)], [(0, 0, False, 6), (9, 0, True, 3)]),
        ([zone(0, 14) + zone(15, 7) + chords(1, 10)], [(0, 0, False, 3), (15, 0, False, 3)]),
        # one chunk for each channel, after a chunk with the message
        ([zone(0, 15), chords(1), chords(9)], [(0, 0, False, 6)]),
        # other chunks are other instruments
        ([zone(0, 15) + chords(1, 2), chords(9)], [(0, 0, False, 6), (9, 0, True, 3)]),
        # the zone is switched off, or is none: its channels have several programs
        ([zone(0, 15) + zone(0, 0) + chords(1, 2)], [(1, 0, False, 3), (2, 0, False, 3)]),
        (
            [zone(0, 15) + program(1, 8) + program(2, 9) + chords(1, 2)],
            [(1, 8, False, 3), (2, 9, False, 3)],
        ),
        # without a message: bend and timbre are set before each note
        ([chords(1, 2, 9)], [(1, 0, False, 9)]),
        ([chords(1, 2, 9, glides=False)], [(1, 0, False, 3), (2, 0, False, 3), (9, 0, True, 3)]),
    ],
)
def test_the_channels_of_a_zone_are_one_instrument(chunks, tracks):
    assert tracks_of(midi_file(*(chunk + END for chunk in chunks))) == tracks


def test_each_note_has_the_bends_of_its_channel():
    """In the range of its channel, 48 semitones by default; it is in tune again after its end."""

    def bend(channel: int, part: float, delta: int = 0) -> bytes:
        value = round(8192 * (1 + part))
        return bytes((delta, 0xE0 | channel, value & 127, value >> 7))

    octave = b"".join(bytes((0, 0xB2, *pair)) for pair in ((101, 0), (100, 0), (6, 12)))
    begin = bend(1, 1 / 48) + bend(2, -1 / 12) + b"\x00\x91\x3c\x40\x00\x92\x40\x40"
    end = b"\x30\x81\x3c\x40\x00\x82\x40\x40" + bend(1, 0.5)
    data = midi_file(zone(0, 15) + octave + begin + bend(1, 1 / 16, 48) + end + END, division=96)
    (track,) = read_midi(data).tracks
    rows = [[0, 60, 100], [0, 64, -100], [48, 60, 300], [192, 60, 0], [192, 64, 0]]
    assert track.note_bends.tolist() == rows
    assert track.bends.tolist() == []


def test_many_messages_of_zones_still_make_one_instrument():
    for chunks in (
        [zone(0, 15) + chords(1, 2, 3) + END] * 300,
        [zone(0, 15) + bytes((0, 6, 15)) * 50_000 + chords(1) + END],
    ):
        homes = find_homes(scan_events(open_midi(midi_file(*chunks), "the file")))
        assert ((homes & 15)[:, 1] == homes[0, 1]).all()


PROMPT = midi_file(zone(0, 15) + chords(1, 2, 9, glides=False) + END, division=96)


def test_new_notes_play_on_the_manager_channel_and_the_prompt_stays():
    track = replace(read_midi(PROMPT).tracks[0], notes=[(960, 96, 72, 80)], bends=[], controls=[])
    bass = Track.of([(960, 96, 40, 80)], program=33)
    drums = Track.of([(960, 96, 36, 80)], is_drum=True)
    result = append_to_midi(PROMPT, Score(96, (track, bass, drums)), 960)
    assert tracks_of(result)[0] == (0, 0, False, 10)
    assert tracks_of(result)[2] == (9, 0, True, 1)
    before, after = (midi_files.slow_tracks(data)[0] for data in (PROMPT, result))
    assert after[: len(before)] == before
    assert [event.content for event in after[len(before) :]] == [b"\x90\x48\x50", b"\x80\x48\x40"]


@pytest.mark.parametrize("start", [zone(0, 15), b""])
def test_what_is_continued_is_still_one_instrument(start):
    data = midi_file(start + chords(1, 2, 3) + END, division=96)
    for _ in range(5):
        (track,) = read_midi(data).tracks
        new = replace(track, notes=[(track.end_ticks + 96, 96, 72, 80)], bends=[], controls=[])
        data = append_to_midi(data, Score(96, (new,)), track.end_ticks)
    assert [len(track) for track in read_midi(data).tracks] == [14]


def test_notes_of_all_member_channels_are_replaced():
    track = read_midi(PROMPT).tracks[0]
    new = replace(track, notes=[(0, 96, 72, 80)])
    result = replace_in_midi(PROMPT, Score(96, (new,)), [track], 0, 10_000)
    assert tracks_of(result) == [(0, 0, False, 1)]


def test_a_member_channel_10_is_transposed():
    pitches = read_midi(PROMPT).tracks[0].notes[:, 2]
    assert (read_midi(transpose_midi(PROMPT, 2)).tracks[0].notes[:, 2] == pitches + 2).all()
