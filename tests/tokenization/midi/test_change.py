from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.midi_files import (
    END,
    meta,
    midi_file,
    note,
    riff,
    scores,
    slow_tracks,
    tempo,
)
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.midi.change import (
    scale_tempo,
    set_program,
    set_volume,
    transpose_midi,
    volume_of,
    with_own_channel,
)
from tokenization.score import Score


@given(scores(), st.integers(-12, 12))
def test_transposing_moves_all_pitches_and_back_gives_the_same_file(
    score: Score, semitones: int
) -> None:
    data = write_midi(score)
    played = [track for track in score.tracks if not track.is_drum]
    pitches = [pitch for track in played for pitch in track.notes[:, 2].tolist()]
    if any(not 0 <= pitch + semitones <= 127 for pitch in pitches):
        with pytest.raises(MidiError, match="pitches from"):
            transpose_midi(data, semitones)
        return
    moved = transpose_midi(data, semitones)
    assert transpose_midi(moved, -semitones) == data
    for before, after in zip(read_midi(data).tracks, read_midi(moved).tracks, strict=True):
        higher = np.array([0, 0, 0 if before.is_drum else semitones, 0])
        assert np.array_equal(after.notes, before.notes + higher)


def test_drums_and_other_events_stay_and_running_status_is_read() -> None:
    running = b"\x00\x90\x3c\x50" + b"\x60\x3c\x00" + b"\x00\xa0\x3c\x10" + b"\x00\xb0\x40\x7f"
    drums = note(38, channel=9)
    key = meta(0x59, b"\x01\x00")
    data = riff(midi_file(key + running + drums + END))
    moved = slow_tracks(transpose_midi(data, 2))[0]
    contents = [event.content for event in moved]
    assert contents[0] == meta(0x59, b"\x03\x00")[1:]  # from G major to A major
    assert [content[-2] for content in contents[1:4]] == [62, 62, 62]
    assert contents[4] == b"\xb0\x40\x7f"
    assert [content[1] for content in contents[5:7]] == [38, 38]


@given(st.lists(st.integers(200_000, 1_500_000), min_size=1, max_size=4), st.floats(0.5, 2))
def test_all_tempos_are_scaled_and_only_they_change(tempos: list[int], factor: float) -> None:
    data = midi_file(b"".join(map(tempo, tempos)) + note(60) + END)
    scaled = scale_tempo(data, factor)
    assert len(scaled) == len(data)
    for before, after in zip(tempos, slow_tracks(scaled)[0], strict=False):
        assert int.from_bytes(after.content[3:], "big") == round(before / factor)
    assert slow_tracks(scaled)[0][len(tempos) :] == slow_tracks(data)[0][len(tempos) :]


def test_a_file_that_begins_without_a_tempo_gets_one() -> None:
    for before in (b"", meta(0x51, b"\x07\xa1\x20", delta=48)):
        data = midi_file(before + note(60) + END, note(64) + END)
        fast, slow = read_midi(scale_tempo(data, 2)), read_midi(data)
        assert fast.tempos[0].tick == 0
        assert fast.tempos[0].bpm == pytest.approx(240)
        assert float(fast.seconds_at(960)) == pytest.approx(float(slow.seconds_at(960)) / 2)
        assert [len(track) for track in fast.tracks] == [1, 1]


def test_a_tempo_that_midi_cannot_say_is_refused() -> None:
    with pytest.raises(MidiError, match=r"found a tempo of 1\.2 .* at least 3\.6"):
        scale_tempo(midi_file(tempo(500_000) + END), 0.01)


programs = st.integers(0, 127)


@given(scores(), programs, st.data())
def test_a_program_is_replaced_in_all_tracks_of_its_channel_and_nothing_else(
    score: Score, program: int, draw: st.DataObject
) -> None:
    data = write_midi(score)
    tracks = read_midi(data).tracks
    played = [track for track in tracks if not track.is_drum]
    if not played:
        return
    track = draw.draw(st.sampled_from(played))
    place = (track.channel, track.program)
    changed = set_program(data, *place, program)
    assert set_program(data, *place, track.program) == data
    after = read_midi(changed).tracks
    for one in tracks:
        wanted = program if (one.channel, one.program) == place else one.program
        same = [
            t for t in after if (t.chunk, t.channel, t.program) == (one.chunk, one.channel, wanted)
        ]
        assert any(set(map(tuple, one.notes)) <= set(map(tuple, t.notes)) for t in same)
    assert sum(map(len, after)) == sum(map(len, tracks))
    assert len(changed) == len(data)


def test_a_track_without_a_program_gets_one() -> None:
    for later, program in ((b"", 40), (b"\x10\xc0\x05", 5)):
        data = midi_file(END, note(60) + later + note(64) + END, note(67, channel=1) + END)
        after = read_midi(set_program(data, 0, 0, 40)).tracks
        found = sorted((t.program, t.channel) for t in after for _ in t.notes)
        assert found == sorted([(program, 0), (40, 0), (0, 1)])


@given(scores(), st.integers(0, 127), st.data())
def test_a_volume_is_set_and_later_ones_keep_their_ratio(
    score: Score, volume: int, draw: st.DataObject
) -> None:
    data = write_midi(score)
    tracks = read_midi(data).tracks
    track = draw.draw(st.sampled_from(tracks))
    assert set_volume(data, track, volume_of(track)) == data
    after = read_midi(set_volume(data, track, volume)).tracks
    assert volume_of(after[tracks.index(track)]) == volume
    for old, new in zip(tracks, after, strict=True):
        assert np.array_equal(old.notes, new.notes)
        if old.channel != track.channel:
            assert new == old
            continue
        first, second = (rows[rows[:, 1] != 7] for rows in (old.controls, new.controls))
        assert np.array_equal(first, second)


def test_volumes_are_scaled_together() -> None:
    def control(value: int, delta: int = 0) -> bytes:
        return bytes([delta, 0xB0, 7, value])

    data = midi_file(control(80) + note(60) + control(40, 8) + control(100, 8) + note(62) + END)
    (track,) = read_midi(data).tracks
    louder = set_volume(data, track, 120)
    assert len(louder) == len(data)
    assert read_midi(louder).tracks[0].controls[:, 2].tolist() == [120, 60, 127]
    bare = midi_file(note(60) + control(50, 8) + note(62) + END)
    (track,) = read_midi(bare).tracks
    assert volume_of(track) == 100
    quieter = read_midi(set_volume(bare, track, 50)).tracks[0]
    assert quieter.controls[:, [0, 2]].tolist() == [[0, 50], [track.controls[0, 0], 25]]


@given(scores(), st.data())
def test_a_track_with_its_own_channel_sounds_as_before(score: Score, draw: st.DataObject) -> None:
    data = write_midi(score)
    before = read_midi(data).tracks
    track = draw.draw(st.sampled_from(before))
    if len({one.channel for one in before} | {9}) == 16:
        return  # none is free, see below
    moved, channel = with_own_channel(data, track)
    after = read_midi(moved).tracks
    chunks = {one.chunk for one in after if one.channel == channel}
    assert chunks == {track.chunk} or channel == 9
    key = lambda one: (one.chunk, one.program, one.notes.tolist(), volume_of(one))  # noqa: E731
    assert sorted(map(key, after)) == sorted(map(key, before))
    assert with_own_channel(moved, next(t for t in after if t.channel == channel))[0] == moved


def test_what_other_chunks_say_of_a_channel_goes_with_a_track() -> None:
    shared = b"\x00\xc0\x28" + b"\x00\xb0\x07\x32"
    data = midi_file(shared + note(60) + END, note(64) + END)
    first, second = read_midi(data).tracks
    assert (second.program, volume_of(second)) == (40, 50)
    moved, channel = with_own_channel(data, second)
    assert channel == 1
    one, two = read_midi(moved).tracks
    assert one == first
    assert (two.channel, two.program, volume_of(two)) == (1, 40, 50)


def test_without_a_free_channel_a_shared_one_is_refused() -> None:
    others = b"".join(note(60, channel=one) for one in range(16))
    data = midi_file(others + END, note(64) + END)
    track = next(track for track in read_midi(data).tracks if track.chunk == 1)
    with pytest.raises(MidiError, match="all 16 channels are in use"):
        with_own_channel(data, track)
