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
from tokenization.midi.change import scale_tempo, transpose_midi
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


@pytest.mark.parametrize("before", [b"", meta(0x51, b"\x07\xa1\x20", delta=48)])
def test_a_file_that_begins_without_a_tempo_gets_one(before: bytes) -> None:
    data = midi_file(before + note(60) + END, note(64) + END)
    fast, slow = read_midi(scale_tempo(data, 2)), read_midi(data)
    assert fast.tempos[0].tick == 0
    assert fast.tempos[0].bpm == pytest.approx(240)
    assert float(fast.seconds_at(960)) == pytest.approx(float(slow.seconds_at(960)) / 2)
    assert [len(track) for track in fast.tracks] == [1, 1]


def test_a_tempo_that_midi_cannot_say_is_refused() -> None:
    with pytest.raises(MidiError, match=r"found a tempo of 1\.2 .* at least 3\.6"):
        scale_tempo(midi_file(tempo(500_000) + END), 0.01)
