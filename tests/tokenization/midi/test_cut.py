from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.midi_files import END, meta, midi_file, note, slow_tracks, tempo
from tokenization.midi import cut_midi, read_midi, write_midi
from tokenization.score import Score, Track

notes = st.tuples(
    st.integers(0, 900), st.integers(1, 400), st.integers(40, 52), st.integers(1, 127)
)


@given(
    rows=st.lists(notes, min_size=1, max_size=20, unique_by=lambda n: (n[0] // 450, n[2])),
    end=st.integers(1, 80),
)
def test_events_before_the_end_are_kept(rows: list[tuple[int, ...]], end: int) -> None:
    rows = [(onset, min(length, 449 - onset % 450), pitch, v) for onset, length, pitch, v in rows]
    data = write_midi(
        Score(120, (Track.of([(0, 1, 30, 9), *((o, max(d, 1), p, v) for o, d, p, v in rows)]),))
    )
    score = read_midi(cut_midi(data, end, 12))
    whole = read_midi(data).tracks[0].notes
    wanted = whole[whole[:, 0] < end * 10].copy()
    wanted[:, 1] = np.minimum(wanted[:, 1], end * 10 - wanted[:, 0])
    assert np.array_equal(score.tracks[0].notes, Track(wanted).notes)


def test_only_tempo_and_metre_at_the_end_are_kept() -> None:
    at_end = [
        meta(0x51, b"\x09\x27\xc0"),
        meta(0x51, b"\x0f\x42\x40"),
        meta(0x58, b"\x03\x02\x18\x08"),
    ]
    late = meta(0x58, b"\x05\x02\x18\x08", delta=1)
    text = meta(1, b"text", delta=96)
    notes = note(60, length=400) + b"\x00\xb0\x40\x7f"
    data = midi_file(
        tempo(500_000) + text + b"".join(at_end) + late + END, notes + END, division=96
    )
    cut = cut_midi(data, 12, 12)
    first, second = slow_tracks(cut)
    assert [(event.tick, event.content) for event in first] == [
        (0, tempo(500_000)[1:]),
        *((96, content[1:]) for content in at_end[1:]),
    ]
    assert [(event.tick, event.content) for event in second] == [
        (0, b"\x90\x3c\x50"),
        (96, b"\x80\x3c\x40"),
    ]
    assert cut_midi(cut, 12, 12) == cut


def test_invalid_tempos_and_metres_do_not_replace_valid_ones() -> None:
    at_end = [
        meta(0x51, b"\x06\x1a\x80", delta=96),
        tempo(0),
        meta(0x58, b"\x03\x02\x18\x08"),
        meta(0x58, b"\x03\xc8\x18\x08"),
    ]
    data = midi_file(b"".join(at_end) + END, note(60) + END, division=96)
    before, after = read_midi(data), read_midi(cut_midi(data, 96, 96))
    assert (after.tempos, after.time_signatures) == (before.tempos, before.time_signatures)
    assert len(after.tempos) == len(after.time_signatures) == 1


def test_sounding_notes_are_ended_once_each_and_endless_ones_once_for_a_key() -> None:
    on = b"\x00\x90\x3c\x40"
    overlapping = on * 2 + b"\x83\x60\x80\x3c\x40" * 2
    data = midi_file(overlapping + END, on * 5 + b"\x00\x90\x3d\x40" + END)
    first, second = (track[-2:] for track in slow_tracks(cut_midi(data, 1, 4)))
    assert [event.content for event in first] == [b"\x80\x3c\x40"] * 2
    assert [event.content for event in second] == [b"\x80\x3c\x40", b"\x80\x3d\x40"]
    assert {event.tick for event in (*first, *second)} == {120}
