"""`replace_in_midi`: only the chosen notes of a file are replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import midi_files
from tests.support.midi_files import (
    END,
    SYSEX,
    SlowEvent,
    SlowNote,
    division_of,
    meta,
    midi_file,
    note,
    slow_notes,
)
from tokenization.errors import MidiError
from tokenization.midi import read_midi, replace_in_midi, write_midi
from tokenization.score import Score, Track


def a_track(rows: Sequence[Sequence[int]] = (), **fields: object) -> Track:
    """A track with the given notes."""
    return replace(Track.of(rows), **fields)  # pyright: ignore[reportArgumentType]


class Case(NamedTuple):
    data: bytes
    new: Score
    tracks: tuple[Track, ...]
    start: int
    stop: int

    @property
    def result(self) -> bytes:
        return replace_in_midi(*self)

    def is_replaced(self, one: SlowNote) -> bool:
        places = {(track.chunk, track.channel, track.program) for track in self.tracks}
        begin = one.begin * self.new.ticks_per_beat
        division = division_of(self.data)
        return (one.chunk, one.channel, one.program) in places and (
            self.start * division <= begin < self.stop * division
        )


@st.composite
def cases(draw: st.DrawFn, *, scaled: bool = True) -> Case:
    """A file, some of its tracks and a time span, and new music in this span."""
    data = draw(midi_files.files_of_anything() | midi_files.musical_files())
    notes = slow_notes(data)
    places = sorted({(one.chunk, one.channel, one.program) for one in notes})
    chosen = draw(st.lists(st.sampled_from(places), unique=True)) if places else []
    tracks = tuple(
        a_track(program=program, channel=channel, chunk=chunk, is_drum=channel == 9)
        for chunk, channel, program in chosen
    )
    ticks = draw(st.sampled_from([12, 480])) if scaled else division_of(data)
    last = max((event.tick for track in midi_files.slow_tracks(data) for event in track), default=0)
    last = last * ticks // division_of(data) + 1
    start = draw(st.integers(0, last))
    stop = start + draw(st.integers(1, last + 50))
    new: list[Track] = []
    for track in (*tracks, a_track(program=3), a_track(is_drum=True, channel=9)):
        rows = [
            (min(onset, stop - 1), max(min(length, stop - onset), 1), pitch, velocity)
            for onset, length, pitch, velocity in draw(
                st.just([]) | midi_files.notes_of_a_track(start, shortest=1)
            )
        ]
        rows = midi_files.without_overlaps(rows)
        new.append(
            a_track(
                rows,
                program=track.program,
                channel=track.channel,
                chunk=track.chunk,
                is_drum=track.is_drum,
            )
        )
    return Case(data, Score(ticks, tuple(new)), tracks, start, stop)


def without(data: bytes, removed: list[SlowNote]) -> list[list[SlowEvent]]:
    """The events of all tracks without those of some notes."""
    out = {(one.chunk, index) for one in removed for index in (one.on, one.off)}
    return [
        [event for index, event in enumerate(track) if (chunk, index) not in out]
        for chunk, track in enumerate(midi_files.slow_tracks(data))
    ]


def added(before: list[SlowEvent], after: list[SlowEvent]) -> list[SlowEvent]:
    """The events of `after` besides those of `before`, which it has in the same order."""
    rest, extra = list(after), []
    for event in before:
        while rest and rest[0] != event:
            extra.append(rest.pop(0))
        assert rest, f"{event} is not there any more"
        rest.pop(0)
    return extra + rest


@given(case=cases())
def test_all_other_events_stay(case: Case) -> None:
    result = case.result
    assert case.result == result
    removed = [one for one in slow_notes(case.data) if case.is_replaced(one)]
    factor = division_of(result) // division_of(case.data)
    after = midi_files.slow_tracks(result)
    extra: list[SlowEvent] = []
    for old, new in zip(without(case.data, removed), after, strict=False):
        extra += added([SlowEvent(e.tick * factor, e.content) for e in old], new)
        assert [event.tick for event in new] == sorted(event.tick for event in new)
    assert {event.content[0] & 0xF0 for event in extra} <= {0x80, 0x90}
    ons = Counter(event.content[:2] for event in extra if event.content[0] & 0xF0 == 0x90)
    offs = Counter(
        bytes((event.content[0] | 0x10, event.content[1]))
        for event in extra
        if event.content[0] & 0xF0 == 0x80
    )
    assert ons == offs
    for old, (_, new) in zip(
        midi_files.slow_chunks(case.data), midi_files.slow_chunks(result), strict=False
    ):
        assert old[0] == b"MThd" or old[0] == b"MTrk" or old[1] == new


@given(case=cases())
def test_kept_notes_are_the_same_notes(case: Case) -> None:
    before, result = slow_notes(case.data), case.result
    factor = division_of(result) // division_of(case.data)
    kept = Counter(
        (*one[:3], one.begin * factor, one.end and one.end * factor, *one[5:7])
        for one in before
        if not case.is_replaced(one)
    )
    after = Counter(one[:7] for one in slow_notes(result))
    assert not kept - after
    wanted = {
        (pitch, velocity, scaled(onset, case, result)): scaled(onset + length, case, result)
        for track in case.new.tracks
        for onset, length, pitch, velocity in track.notes.tolist()
    }
    for (_, _, pitch, begin, end, velocity, _), count in (after - kept).items():
        assert count == 1 or len(case.new.tracks) > 1
        assert end is not None
        assert begin <= end
        assert (pitch, velocity, begin) in wanted


def scaled(tick: int, case: Case, data: bytes) -> int:
    ticks = case.new.ticks_per_beat
    return (2 * tick * division_of(data) + ticks) // (2 * ticks)


@given(case=cases(scaled=False))
def test_a_track_without_changes_keeps_its_bytes(case: Case) -> None:
    result = case.result
    removed = {one.chunk for one in slow_notes(case.data) if case.is_replaced(one)}
    written = {track.chunk for track in case.new.tracks if len(track)}
    pairs = zip(midi_files.slow_chunks(case.data), midi_files.slow_chunks(result), strict=False)
    tracks = [pair for pair in pairs if pair[0][0] == b"MTrk"]
    for chunk, (old, new) in enumerate(tracks):
        assert chunk in removed | written or old == new


@given(score=midi_files.scores(shortest=1), draw=st.data())
def test_removed_music_that_is_written_again_gives_the_same_notes(score, draw) -> None:
    data = write_midi(score)
    tracks = read_midi(data).tracks
    chosen = draw.draw(st.lists(st.sampled_from(tracks), unique_by=id))
    start, stop = sorted(draw.draw(st.tuples(*[st.integers(0, 300)] * 2)))
    new = [
        replace(one, notes=one.notes[(one.notes[:, 0] >= start) & (one.notes[:, 0] < stop)])
        for one in chosen
    ]
    again = replace_in_midi(
        data, Score(score.ticks_per_beat, tuple(new)), chosen, start, max(stop, start + 1)
    )
    assert Counter(one[1:6] for one in slow_notes(again)) == Counter(
        one[1:6] for one in slow_notes(data)
    )


# ---- examples

PIANO = a_track(chunk=0)


def write(data: bytes, *rows: tuple[int, int, int, int], **changes: object) -> bytes:
    """The file with new notes in place of those of the piano in the second quarter note."""
    track = a_track(rows, **({"chunk": 0} | changes))
    return replace_in_midi(data, Score(96, (track,)), [PIANO], 96, 192)


def test_only_the_notes_of_the_span_are_replaced():
    music = (
        b"\x00\xc0\x00" + SYSEX + note(60, length=96) + b"\x00\xb0\x40\x7f" + note(62, length=48)
    )
    music += meta(1, b"text") + note(64, length=48) + note(65, length=96)
    data = midi_file(music + END, division=96)
    result = write(data, (100, 40, 72, 90))
    begun = b"\x00\xc0\x00" + SYSEX + note(60, length=96) + b"\x00\xb0\x40\x7f"
    new = b"\x04\x90\x48\x5a"
    assert midi_files.slow_tracks(result)[0] == [
        *midi_files.slow_tracks(midi_file(begun + END, division=96))[0],
        SlowEvent(100, b"\x90\x48\x5a"),
        SlowEvent(140, b"\x80\x48\x40"),
        SlowEvent(144, b"\xff\x01\x04text"),
        SlowEvent(192, b"\x90\x41\x50"),
        SlowEvent(288, b"\x80\x41\x40"),
    ]
    assert result.startswith(midi_file(begun, division=96)[:14])
    assert begun + new in result


def test_a_note_that_sounds_into_the_span_stays():
    data = midi_file(note(60, length=150) + note(62, length=50) + END, division=96)
    (track,) = read_midi(write(data)).tracks
    assert track.notes.tolist() == [[0, 150, 60, 80]]
    # its key is not struck again while it sounds
    (track,) = read_midi(write(data, (100, 20, 60, 90), (150, 20, 60, 91))).tracks
    assert track.notes.tolist() == [[0, 150, 60, 80], [150, 20, 60, 91]]


def test_a_new_note_ends_where_its_key_is_struck_by_a_kept_note():
    data = midi_file(note(62, delta=96, length=48) + note(60, delta=48) + END, division=96)
    result = write(data, (100, 300, 60, 90))
    (track,) = read_midi(result).tracks
    assert track.notes.tolist() == [[100, 92, 60, 90], [192, 240, 60, 80]]
    contents = [event.content[:2] for event in midi_files.slow_tracks(result)[0]]
    assert contents == [b"\x90\x3c", b"\x80\x3c", b"\x90\x3c", b"\x80\x3c"]


def test_a_new_track_gets_a_chunk_and_a_channel_of_its_own():
    data = midi_file(note(60) + END, midi_format=0, division=96)
    result = write(data, (96, 48, 40, 90), chunk=None, program=32, name="Bass")
    assert result[8:12] == b"\x00\x01\x00\x02"
    piano, bass = read_midi(result).tracks
    assert (bass.chunk, bass.channel, bass.program, bass.name) == (1, 1, 32, "Bass")
    assert piano.notes.tolist() == [[0, 240, 60, 80]]
    drums = read_midi(write(data, (96, 48, 36, 90), chunk=None, is_drum=True)).tracks[1]
    assert (drums.chunk, drums.channel, drums.is_drum) == (1, 9, True)


def test_a_channel_with_another_program_there_is_left_alone():
    music = note(60, length=48) + b"\x00\xc0\x05" + note(62, delta=48, length=48) + END
    data = midi_file(music, division=96)
    result = read_midi(write(data, (100, 48, 72, 90), program=0))
    assert [(t.chunk, t.channel, t.program, t.notes.tolist()) for t in result.tracks] == [
        (0, 0, 0, [[0, 48, 60, 80]]),
        (0, 0, 5, [[96, 48, 62, 80]]),
        (1, 1, 0, [[100, 48, 72, 90]]),
    ]


def test_without_a_free_channel_an_instrument_of_the_file_or_an_error():
    programs = b"".join(bytes((0, 0xC0 | channel, channel)) for channel in range(16))
    data = midi_file(programs + note(60) + END, division=96)
    track = read_midi(write(data, (96, 4, 72, 90), chunk=None, program=7)).tracks[1]
    assert (track.chunk, track.channel, track.program) == (1, 7, 7)
    with pytest.raises(MidiError, match="uses all channels"):
        write(data, (96, 4, 72, 90), chunk=None, program=100)
    with pytest.raises(ValueError, match="chunk 3"):
        write(data, (96, 4, 72, 90), chunk=3)


def test_the_end_moves_for_late_notes_only() -> None:
    data = midi_file(note(60) + b"\x87\x00\xff\x2f\x00", division=96)
    assert read_midi(write(data, (100, 10, 72, 90))).end_ticks == read_midi(data).end_ticks
    assert read_midi(write(data, (100, 10, 72, 90), (300, 1000, 40, 1))).end_ticks >= 1300
