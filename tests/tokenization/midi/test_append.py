from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import midi_files
from tests.support.midi_files import (
    END,
    SYSEX,
    SlowEvent,
    division_of,
    meta,
    midi_file,
    note,
)
from tokenization.errors import MidiError
from tokenization.midi import append_to_midi, read_midi
from tokenization.score import Score, Tempo, TimeSignature, Track


def _last_tick(data: bytes) -> int:
    return max((event.tick for track in midi_files.slow_tracks(data) for event in track), default=0)


@st.composite
def appended(draw: st.DrawFn, *, late: bool) -> tuple[bytes, Score, int]:
    """A prompt, new music, and a splice: after all events of the prompt if `late`, or anywhere."""
    prompt = draw(midi_files.files_of_anything())
    division, num_tracks = division_of(prompt), len(midi_files.slow_tracks(prompt))
    ticks_per_beat = draw(st.sampled_from([1, 12, 480]))
    last = -(-_last_tick(prompt) * ticks_per_beat // division) + 1
    splice = last + draw(st.integers(0, 50)) if late else draw(st.integers(0, last))
    tracks: list[Track] = []
    # one new track for each channel; otherwise their notes could not be distinguished
    for channel in draw(st.lists(st.integers(0, 8), min_size=1, max_size=3, unique=True)):
        chunk = draw(st.none() | st.integers(0, num_tracks - 1))
        notes = draw(midi_files.notes_of_a_track(splice, shortest=1))
        tracks.append(
            Track(
                notes,  # pyright: ignore[reportArgumentType]
                program=draw(st.sampled_from([0, 5])),
                channel=channel,
                chunk=chunk,
            )
        )
    score = Score(
        ticks_per_beat,
        tuple(tracks),
        (Tempo(0, 50.0), Tempo(splice, 60.0), Tempo(splice + 3, 70.0)),
        (TimeSignature(splice + 7, 5, 8),),
    )
    return prompt, score, splice


@given(case=appended(late=True))
def test_the_bytes_of_the_prompt_are_kept(case):
    prompt, new, splice = case
    result = append_to_midi(prompt, new, splice)
    assert append_to_midi(prompt, new, splice) == result
    before, after = midi_files.slow_chunks(prompt), midi_files.slow_chunks(result)
    assert [kind for kind, _ in after][: len(before)] == [kind for kind, _ in before]
    assert {kind for kind, _ in after[len(before) :]} <= {b"MTrk"}
    num_tracks = sum(kind == b"MTrk" for kind, _ in after)
    assert int.from_bytes(after[0][1][2:4], "big") == num_tracks
    assert int.from_bytes(after[0][1][:2], "big") != 0 or num_tracks == 1
    assert after[0][1][6:] == before[0][1][6:]
    if division_of(result) != division_of(prompt):
        return
    for (kind, old), (_, content) in zip(before[1:], after[1:], strict=False):
        end = midi_files.slow_scan(old).end if kind == b"MTrk" else len(old)
        assert content[:end] == old[:end]


def _is_within(part: list[SlowEvent], whole: list[SlowEvent]) -> bool:
    """Whether the events of a part are in a whole, in the same order."""
    rest = iter(whole)
    return all(event in rest for event in part)


@given(case=appended(late=False) | appended(late=True))
def test_every_event_of_the_prompt_keeps_its_time(case):
    prompt, new, splice = case
    result = append_to_midi(prompt, new, splice)
    factor = division_of(result) // division_of(prompt)
    assert division_of(result) == factor * division_of(prompt)
    before, after = midi_files.slow_tracks(prompt), midi_files.slow_tracks(result)
    assert len(after) - len(before) <= len(new.tracks)
    for old, extended in zip(before, after, strict=False):
        assert _is_within([SlowEvent(e.tick * factor, e.content) for e in old], extended)
        assert [e.tick for e in extended] == sorted(e.tick for e in extended)


def _scaled(tick: int, new: Score, data: bytes) -> int:
    return (2 * tick * division_of(data) + new.ticks_per_beat) // (2 * new.ticks_per_beat)


@given(case=appended(late=False))
def test_tracks_are_processed_in_blocks(case):
    prompt, new, splice = case
    whole = append_to_midi(prompt, new, splice)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenization.midi.append._ROWS_AT_ONCE", 2)
        assert append_to_midi(prompt, new, splice) == whole


@given(case=appended(late=True))
def test_new_notes_are_read_back(case):
    prompt, new, splice = case
    result = append_to_midi(prompt, new, splice)
    start = _scaled(splice, new, result)
    found = [
        (track.program, *row)
        for track in read_midi(result).tracks
        for row in track.notes.tolist()
        if row[0] >= start
    ]
    expected = [
        (track.program, begin, _scaled(onset + duration, new, result) - begin, pitch, velocity)
        for track in new.tracks
        for onset, duration, pitch, velocity in track.notes.tolist()
        for begin in [_scaled(onset, new, result)]
    ]
    assert sorted(found) == sorted(expected)
    # on the grid of the new music, times are unchanged
    ticks, division = new.ticks_per_beat, division_of(result)
    assert [(2 * row[1] * ticks + division) // (2 * division) for row in sorted(found)] == [
        note[0]
        for _, *note in sorted((t.program, *r) for t in new.tracks for r in t.notes.tolist())
    ]
    later = [tempo.bpm for tempo in read_midi(result).tempos if tempo.tick > start]
    assert later == pytest.approx([70.0], abs=1e-3)


def _held(data: bytes) -> dict[tuple[int, ...], int]:
    """Final values of pedals and modulation of all channels, except zeros."""
    held: dict[tuple[int, ...], int] = {}
    tracks = midi_files.slow_tracks(data)
    for _, content in sorted(itertools.chain(*tracks), key=lambda event: event.tick):
        kind, channel = content[0] & 0xF0, content[0] & 15
        if kind == 0xB0 and content[1] in (1, 64, 66, 67):
            held[kind, channel, content[1]] = content[2]
    return {key: value for key, value in held.items() if value}


@given(case=appended(late=True))
def test_nothing_is_held_across_the_splice(case):
    prompt, new, splice = case
    result = append_to_midi(prompt, new, splice)
    assert not _held(result)
    settings_after, settings_before = (
        Counter(e.content for track in midi_files.slow_tracks(data) for e in track)
        for data in (result, prompt)
    )
    closing = [c for c in settings_after - settings_before if c[0] >> 4 == 0xB]
    assert len(closing) == len(_held(prompt))


# ---- other readers


# ---- examples

NEW = Track.of([(48, 12, 72, 90)])


def _continue(prompt: bytes, **changes: Any) -> bytes:
    fields: dict[str, Any] = {"notes": NEW.notes, "channel": 0, "chunk": 0} | changes
    return append_to_midi(prompt, Score(12, (Track(**fields),)), 48)


def test_only_the_end_moves_unless_it_is_late():
    music = b"\x00\xc0\x00" + SYSEX + meta(1, b"text") + b"\x00\xd0\x33" + note(60)
    new = b"\x81\x10\x90\x48\x5a\x60\x80\x48\x40"
    for before, after in ((END, END), (b"\x87\x00\xff\x2f\x00", b"\x85\x10\xff\x2f\x00")):
        prompt = midi_file(music + before, division=96)
        assert _continue(prompt) == midi_file(music + new + after, division=96)


def test_format_0_is_kept_when_its_track_continues_and_becomes_1_with_a_new_track():
    prompt = midi_file(note(60) + END, midi_format=0)
    assert _continue(prompt)[8:12] == b"\x00\x00\x00\x01"
    result = _continue(prompt, chunk=None, program=40)
    assert result[8:12] == b"\x00\x01\x00\x02"
    assert [(t.chunk, t.channel, t.program) for t in read_midi(result).tracks] == [
        (0, 0, 0),
        (1, 1, 40),
    ]


def test_a_coarse_resolution_is_multiplied_only_if_needed():
    prompt = midi_file(note(60, delta=3, length=5) + END, division=5)
    assert division_of(_continue(prompt)) == 5  # whole beats need nothing finer
    assert division_of(_continue(prompt, notes=[(49, 12, 72, 90)])) == 15
    assert division_of(_continue(prompt, controls=[(49, 12, 1)])) == 15


def test_the_program_is_selected_again_only_if_it_differs():
    prompt = midi_file(b"\x00\xc0\x05" + note(60) + END)
    assert _continue(prompt, program=5).count(b"\xc0") == 1
    assert _continue(prompt, program=6).count(b"\xc0\x06") == 1


def test_two_programs_on_one_channel_get_different_channels():
    prompt = midi_file(note(60) + END)
    tracks = [replace(NEW, program=program, chunk=0) for program in (0, 7)]
    result = read_midi(append_to_midi(prompt, Score(12, tuple(tracks)), 48))
    assert [(t.chunk, t.channel, t.program) for t in result.tracks] == [(0, 0, 0), (1, 1, 7)]


def test_held_events_are_closed_in_their_own_track():
    held = b"\x00\xb0\x40\x7f\x00\xb0\x01\x20\x00\xb0\x42\x01"
    held += b"\x00\x90\x30\x50" * 3 + b"\x70\xe0\x00\x50"  # every key that never ends is ended
    closed = b"\x00\xb1\x40\x7f\x10\xb1\x40\x00"
    result = _continue(midi_file(note(60) + END, held + closed + END, division=96), chunk=0)
    contents = [event.content for event in midi_files.slow_tracks(result)[1] if event.tick == 384]
    controls = [b"\xb0\x01\x00", b"\xb0\x40\x00", b"\xb0\x42\x00", b"\xe0\x00\x40"]
    assert contents == [*controls, *[b"\x80\x30\x40"] * 3]


def _bend(value: int, channel: int = 0) -> bytes:
    return bytes((0, 0xE0 | channel, value + 8192 & 127, value + 8192 >> 7))


def _bends(data: bytes) -> dict[int, list[list[int]]]:
    return {track.channel: track.bends.tolist() for track in read_midi(data).tracks}


_QUARTER_TONE = 2048


def test_a_bend_that_holds_is_tuning_and_an_effect_ends():
    tuned, tune = note(60, length=90) * 3, _bend(_QUARTER_TONE)
    for prompt, closed in (
        (tune + tuned, []),
        (tune + tuned + _bend(8191) + note(60, length=90), [_QUARTER_TONE]),  # an effect at the end
        (tune + tuned + _bend(0), [_QUARTER_TONE]),  # programs reset a channel at the end
        (tuned + _bend(_QUARTER_TONE) + note(60, length=90), [0]),
    ):
        result = _continue(midi_file(prompt + END, division=96), chunk=0)
        bends = _bends(result)[0]
        assert [value for tick, value in bends if tick == 384] == closed


def test_instruments_that_join_have_the_tuning_that_all_share():
    def joined(*channels: bytes, drums: bool = False) -> list[list[int]]:
        tracks = [part + note(60, channel=at) + END for at, part in enumerate(channels)]
        data, new = midi_file(*tracks, division=96), Track(NEW.notes, program=33, channel=8)
        return _bends(append_to_midi(data, Score(12, (new,)), 48, {(1, 1): drums}))[8]

    tune = [_bend(_QUARTER_TONE, at) for at in range(3)]
    fine = b"\x00\xb1\x65\x00\x00\xb1\x64\x01\x00\xb1\x06\x60\x00\xb1\x26\x00"
    assert joined(tune[0], tune[1]) == [[384, _QUARTER_TONE]]
    assert joined(tune[0], fine) == [[384, _QUARTER_TONE]]  # both are 50 cents
    assert joined(tune[0], b"") == joined(b"", b"") == []
    assert joined(tune[0], b"", drums=True) == [[384, _QUARTER_TONE]]


def test_a_new_note_keeps_its_length_after_stuck_keys_of_its_pitch():
    """A note-off ends the earliest note of its pitch, so a stuck one would take it."""
    stuck = b"\x00\x90\x3c\x40\x10\x90\x3c\x40"
    data = midi_file(note(62) + stuck + END, division=96)
    new = Score(96, (replace(Track.of([(300, 50, 60, 80)]), chunk=0),))
    (track,) = read_midi(append_to_midi(data, new, 288)).tracks
    assert (300, 50, 60, 80) in [tuple(row) for row in track.notes.tolist()]


# ---- a prompt that fades out


def _controls(data: bytes, tick: int = 384) -> list[tuple[int, ...]]:
    """Volume and expression events at a tick: chunk, status, controller, value."""
    return [
        (chunk, *event.content)
        for chunk, track in enumerate(midi_files.slow_tracks(data))
        for event in track
        if event.tick == tick and event.content[0] >> 4 == 0xB and event.content[1] in (7, 11)
    ]


def _fade(*values: int, control: int = 7, channel: int = 0, delta: int = 10) -> bytes:
    return b"".join(bytes((delta, 0xB0 | channel, control, value)) for value in values)


def test_a_fade_is_undone_once_and_nothing_else_is_set():
    for music, restored in (
        # set to 0 after the last note: restored to the earlier value or to the default of MIDI
        (_fade(90, delta=0) + note(60) + _fade(0), [(0, 0xB0, 7, 90)]),
        (note(60) + _fade(0), [(0, 0xB0, 7, 100)]),
        (note(60) + _fade(0, control=11), [(0, 0xB0, 11, 127)]),
        # faded while notes sounded: restored to an audible value
        (_fade(90) + note(60) + _fade(40, 9) + note(60) + _fade(0), [(0, 0xB0, 7, 64)]),
        # never louder than before
        (_fade(30, delta=0) + note(60) + _fade(4), [(0, 0xB0, 7, 30)]),
        # no fade, or one after the splice
        (_fade(5, delta=0) + note(60), []),
        (_fade(0, delta=0) + note(60), []),
        (_fade(90, 16) + note(60), []),
        (note(60) + _fade(0, 80), []),
        (note(60) + _fade(0, channel=1), []),
        (note(60) + b"\x85\x00\xb0\x07\x00", []),
    ):
        prompt = midi_file(music + END, division=96)
        assert _controls(_continue(prompt)) == restored, music


def test_a_fade_is_undone_in_its_own_track_for_the_channels_that_continue():
    prompt = midi_file(note(60) + END, note(60, channel=1) + _fade(0) + _fade(0, channel=1) + END,
                       division=96)  # fmt: skip
    assert _controls(_continue(prompt)) == [(1, 0xB0, 7, 100)]
    assert _controls(_continue(prompt, notes=[])) == []
    # a new track may also use the channel
    assert _controls(_continue(prompt, chunk=None)) == [(1, 0xB0, 7, 100)]


def test_new_controllers_and_bends_are_written():
    changes = {"controls": [(50, 64, 127), (60, 64, 0)], "bends": [(48, 100)]}
    track = read_midi(_continue(midi_file(note(60) + END, division=96), **changes)).tracks[0]
    assert track.controls.tolist() == [[400, 64, 127], [480, 64, 0]]
    assert track.bends.tolist() == [[384, 100]]


@given(data=midi_files.files_of_anything())
def test_without_new_music_a_track_in_which_nothing_is_held_is_unchanged(data):
    result = append_to_midi(data, Score(1, (Track.of([]),)), 0)
    before, after = midi_files.slow_chunks(data), midi_files.slow_chunks(result)
    for (kind, old), (_, content) in zip(before[1:], after[1:], strict=False):
        held = [e for e in midi_files.slow_track(old) if e.tick == 0] if kind == b"MTrk" else []
        assert held or content == old


def test_an_unknown_chunk_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match="chunk 3"):
        _continue(midi_file(note(60) + END), chunk=3)


_RUNNING = b"\x01\x90\x3c\x40"


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        lambda: midi_file(_RUNNING + b"\x00\x3c\x40\x00\x3c\x00" * 1_660_000, division=5),
        lambda: midi_file(*[_RUNNING + b"\x01\x3c\x40\x00\x3c\x00" * 5500 + END] * 300),
        lambda: midi_file(note(60) + b"\x00\xff\x01\x00" * 2_500_000),
        lambda: midi_file(note(60) + b"\x00\xc0\x01\x00\xb0\x01\x01" * 1_400_000),
    ],
    ids=["running", "tracks", "metas", "turns"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory in use from Linux's /proc")
def test_a_full_file_of_anything_is_read_continued_and_cut_within_a_gigabyte(file):
    # the peak memory of the new process only; getrusage would include that of its parent
    script = """
import sys; from pathlib import Path; from tokenization.errors import MidiError
from tokenization.midi import append_to_midi, cut_midi, read_midi
from tokenization.score import Score, Track
data = sys.stdin.buffer.read()
new = Score(12, (Track([(at, 6, 60, 80) for at in range(12, 120, 5)], chunk=0),))
for work in (read_midi, lambda d: cut_midi(d, 12, 12), lambda d: append_to_midi(d, new, 12)):
    try: work(data)
    except MidiError: pass  # more texts than are read
words = Path('/proc/self/status').read_text().split()
print(int(words[words.index('VmHWM:') + 1]) >> 10)
"""
    data = file()
    assert 9.5e6 < len(data) < 10.1e6
    run = subprocess.run(
        [sys.executable, "-c", script], input=data, capture_output=True, check=True
    )
    assert int(run.stdout) < 900


@pytest.mark.slow
def test_a_track_beyond_the_last_possible_one_is_rejected():
    tracks = [END] * 0xFFFE
    with pytest.raises(MidiError, match="65536 tracks"):
        _continue(midi_file(note(60) + END, *tracks), chunk=None)


def test_bad_files_are_continued_or_rejected():
    for file in midi_files.bad_files():
        if isinstance(file.outcome, int):
            assert read_midi(_continue(file.data)).num_notes >= file.outcome + 1, file.name
            continue
        with suppress(MidiError):  # also a file without notes, or with late ones, is continued
            _continue(file.data)
