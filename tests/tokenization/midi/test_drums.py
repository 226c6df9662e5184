"""Drums by messages, names and patterns, and by what people say."""

import re

import numpy as np
import pytest

from tokenization.errors import MidiError
from tokenization.midi import append_to_midi, read_midi, replace_in_midi
from tokenization.midi.change import transpose_midi
from tokenization.midi.chunks import chunk_bytes
from tokenization.midi.drums import (
    drum_places,
    format_drums,
    names_drums,
    parse_drums,
    switch_drums,
    with_drums,
)
from tokenization.midi.writer import header_bytes, meta, write_midi
from tokenization.score import Score, Track

GM2 = bytes.fromhex("f0057e7f0903f7")
GS = bytes.fromhex("f00a4110421240007f0041f7")
XG = bytes.fromhex("f00843104c00007e00f7")
GM = bytes.fromhex("f0057e7f0901f7")


def _beat(bars: int = 4) -> list[tuple[int, int, int, int]]:
    """Kick on 1 and 3, snare on 2 and 4, hats in eighths; 480 ticks a quarter."""
    rows = []
    for eighth in range(8 * bars):
        rows.append((eighth * 240, 60, 42, 80))
        if eighth % 4 in (0, 2):
            rows.append((eighth * 240, 60, 36 if eighth % 4 == 0 else 38, 100))
    return rows


def _tune(first: int = 67) -> list[tuple[int, int, int, int]]:
    steps = [0, 2, 4, 5, 7, 5, 4, 2, 0, -1, 0, 2, 4, 7, 5, 2] * 2
    return [(at * 480, 400, first + step, 80) for at, step in enumerate(steps)]


def _file(*tracks: tuple[str, int, list[tuple[int, int, int, int]], bytes, int | None]) -> bytes:
    """A MIDI file of tracks: name, channel, notes, messages at the start, and program."""
    chunks = []
    for name, channel, notes, start, program in tracks:
        events = [(0, 0, meta(3, name.encode()))] if name else []
        events += [(0, 1, message) for message in _split(start)]
        if program is not None:
            events.append((0, 2, bytes((0xC0 | channel, program))))
        for onset, duration, key, velocity in notes:
            events.append((onset, 4, bytes((0x90 | channel, key, velocity))))
            events.append((onset + duration, 3, bytes((0x80 | channel, key, 0))))
        events.sort(key=lambda event: event[:2])
        content, now = b"", 0
        for tick, _, body in events:
            delta = tick - now
            content += (bytes((delta >> 7 | 0x80,)) if delta > 127 else b"") + bytes((delta & 127,))
            content, now = content + body, tick
        chunks.append(chunk_bytes(b"MTrk", content + b"\x00\xff\x2f\x00"))
    return header_bytes(1, len(chunks), 480) + b"".join(chunks)


def _split(start: bytes) -> list[bytes]:
    return re.findall(rb"\xf0[^\xf7]*\xf7|[\xb0-\xbf]..", start, re.DOTALL)


def _bank(channel: int, bank: int) -> bytes:
    return bytes((0xB0 | channel, 0, bank))


def _gs_part(part: int, value: int) -> bytes:
    return bytes((0xF0, 10, 0x41, 16, 0x42, 0x12, 0x40, 0x10 | part, 0x15, value, 0, 0xF7))


def _xg_part(channel: int, value: int) -> bytes:
    return bytes((0xF0, 8, 0x43, 16, 0x4C, 8, channel, 7, value, 0xF7))


def _drums(data: bytes) -> list[bool]:
    return [track.is_drum for track in read_midi(data).tracks]


@pytest.mark.parametrize(
    ("start", "channel", "is_drum"),
    [
        (_bank(10, 127), 10, True),
        (XG + _bank(3, 126), 3, True),
        (GS + _bank(3, 127), 3, False),  # MT-32
        (GM2 + _bank(10, 120), 10, True),
        (GM2 + _bank(9, 121), 9, False),
        (XG + _bank(10, 120), 10, False),
        (_bank(9, 0), 9, True),
        (GS + _gs_part(1, 2), 0, True),
        (GS + _gs_part(11, 1), 11, True),
        (GS + _gs_part(0, 0), 9, False),
        (XG + _xg_part(5, 2), 5, True),
        (XG + _xg_part(9, 0), 9, False),
        (_gs_part(0, 0) + GM, 9, True),  # a reset restores the defaults
        (_bank(4, 127) + XG, 4, False),
        (_bank(4, 127) + _bank(4, 0), 4, False),
        (b"\xf0\x02\x41\xf7" + _bank(4, 127), 4, True),
    ],
)
def test_banks_and_exclusive_messages_choose_drums(start, channel, is_drum):
    data = _file(("", channel, _tune(40), start, 0))
    score = read_midi(data)
    assert [track.is_drum for track in score.tracks] == [is_drum]
    assert not score.guesses


def test_a_bank_of_another_chunk_counts_if_a_chunk_chooses_no_sound():
    setup = ("", 0, [], _bank(4, 127), None)
    assert _drums(_file(setup, ("", 4, _tune(), b"", None))) == [True]
    assert _drums(_file(setup, ("", 4, _tune(), b"", 33))) == [False]


@pytest.mark.parametrize(
    "name",
    [
        *("Drum Rack", "Schlagzeug", "Batería", "KIT 2", "ドラム", "Beat", "Dobok", "Bubnjevi"),
        *("Trommur", "Trummid", "Kendang", "Trống", "طبول", "תופים", "กลอง"),
    ],
)
def test_names_of_drums_are_known_in_several_languages(name):
    assert names_drums(name)
    score = read_midi(_file((name, 0, _beat(), b"", None)))
    assert score.tracks[0].is_drum
    assert "drums by its name" in score.guesses


@pytest.mark.parametrize("name", ["Steel Drums", "Timpani", "Bass", "Beat Piano", "Flöte"])
def test_names_of_pitched_instruments_are_not_drums(name):
    assert names_drums(name) is False
    assert _drums(_file((name, 0, _beat(), b"", None))) == [False]


def test_a_beat_without_a_name_is_drums_by_its_pattern():
    score = read_midi(_file(("", 0, _beat(), b"", None)))
    assert score.tracks[0].is_drum
    assert "channel 1 is read as drums by its notes" in score.guesses


@pytest.mark.parametrize(("count", "end"), [(4, "so is one other"), (5, "so are 2 others")])
def test_guesses_are_told_on_one_line_and_counted(count, end):
    score = read_midi(_file(*[("Drums\n\x1b\x00", 0, _beat(), b"", None)] * count))
    assert score.guesses.startswith("track 1 (Drums) on channel 1 is read as drums by its name")
    assert score.guesses.endswith(f"by its name, and {end}")


@pytest.mark.parametrize(
    "notes",
    [
        [(at * 240, 200, 36, 90) for at in range(32)],
        [(at * 240, 220, (36, 43, 40, 43)[at % 4], 90) for at in range(32)],
        [(at * 480, 100, key, 90) for at in range(16) for key in (36, 43)],
        _tune(36),
        _tune(60),
    ],
    ids=["one bass note", "arpeggio", "fifths", "bass", "melody"],
)
def test_basses_and_ostinatos_stay_melodies(notes):
    assert _drums(_file(("", 0, notes, b"", None))) == [False]


def test_a_melody_on_channel_10_is_one_by_its_program_or_its_notes():
    assert _drums(_file(("Flute", 9, _tune(), b"", 73))) == [False]
    assert _drums(_file(("", 9, _tune(72), b"", None))) == [False]
    assert _drums(_file(("", 9, _beat(), b"", 73))) == [True]
    with_kit = _file(("Flute", 9, _tune(), b"", 73), ("Kit", 9, _beat(), b"", 0))
    assert _drums(with_kit) == [True, True]


def test_what_people_say_applies_and_is_kept_in_later_versions_of_the_file():
    data = _file(("Lead", 0, _tune(), b"", 5), ("Beat", 1, _beat(), b"", None))
    score = read_midi(data)
    assert [track.is_drum for track in score.tracks] == [False, True]
    said = with_drums(score, parse_drums("1"))
    assert [track.is_drum for track in said.tracks] == [True, False]
    assert not said.guesses
    again = read_midi(data, drums=drum_places(said))
    assert again.tracks == said.tracks
    assert not any(track.is_drum for track in with_drums(score, parse_drums("none")).tracks)
    for numbers in (set(), {0}, {11, 1}):
        assert parse_drums(format_drums(numbers)) == numbers


def test_tracks_that_share_a_channel_become_drums_together():
    data = _file(("", 0, _tune(), b"", 5), ("", 9, _beat(), b"", None), ("", 9, _beat(), b"", None))
    score = read_midi(data)
    for number, is_drum, drums in ((0, True, "1,2,3"), (2, False, "none"), (1, True, "2,3")):
        switched = switch_drums(score, number, is_drum=is_drum)
        found = format_drums(at for at, track in enumerate(switched.tracks) if track.is_drum)
        assert found == drums
    with pytest.raises(MidiError, match="no track 4, expected 1 to 3"):
        switch_drums(score, 3, is_drum=True)


@pytest.mark.parametrize("text", ["", "x", "0", "1,", "none,1", "-1"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="drums is"):
        parse_drums(text)


def test_a_channel_cannot_hold_drums_and_a_melody():
    score = read_midi(_file(("", 9, _beat(), b"", None), ("", 9, _beat(), b"", None)))
    with pytest.raises(MidiError, match="tracks 1 and 2 share channel 10"):
        with_drums(score, {0})
    with pytest.raises(MidiError, match="no track 3, expected 1 to 2"):
        with_drums(score, {2})
    clips = read_midi(_file(("", 0, _beat(), b"", None), ("", 0, _tune(), b"", None)))
    assert [track.is_drum for track in with_drums(clips, {0}).tracks] == [True, False]


@pytest.mark.parametrize(
    ("channel", "start"), [(0, b""), (10, GM2 + _bank(10, 120)), (3, _gs_part(4, 1))]
)
def test_new_drums_go_to_the_channel_they_came_from_and_are_drums_again(channel, start):
    data = _file(("Drum Rack", channel, _beat(), start, None))
    score = read_midi(data)
    notes = np.array([[8000, 60, 36, 90], [8240, 60, 42, 80]])
    track = Track(notes, 0, True, "", channel, score.tracks[0].chunk)
    whole = append_to_midi(data, Score(480, (track,)), 7680)
    events = data[data.index(b"MTrk") + 8 : -4]
    assert events in whole
    (read,) = read_midi(whole).tracks
    assert read.is_drum
    assert read.channel == channel
    assert read.notes[-2:].tolist() == notes.tolist()
    assert len(read) == len(score.tracks[0]) + 2
    replaced = replace_in_midi(data, Score(480, (track,)), score.tracks, 5760, 7680)
    assert {one.channel for one in read_midi(replaced).tracks} == {channel}
    (written,) = read_midi(write_midi(score)).tracks
    assert written.is_drum
    assert np.array_equal(written.notes, score.tracks[0].notes)


def test_a_new_drum_track_avoids_a_melody_on_channel_10():
    melody = ("Flute", 9, _tune(), GM2 + _bank(9, 121), 73)
    new = Score(480, (Track(np.array([[16000, 60, 36, 90]]), is_drum=True),))
    with_kit = _file(melody, ("Kit", 10, _beat(), _bank(10, 120), 0))
    assert read_midi(append_to_midi(with_kit, new, 15360)).tracks[-1].channel == 10
    with pytest.raises(MidiError, match="channel 10 has a melody"):
        append_to_midi(_file(melody), new, 15360)


def test_drums_on_other_channels_are_not_transposed():
    data = _file(("Drum Rack", 0, _beat(), b"", None), ("Lead", 1, _tune(), b"", 5))
    drums, lead = read_midi(transpose_midi(data, 3)).tracks
    assert drums == read_midi(data).tracks[0]
    assert np.array_equal(lead.notes[:, 2], read_midi(data).tracks[1].notes[:, 2] + 3)
