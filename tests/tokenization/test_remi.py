from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import any_ids, canonical_ids, scores
from tokenization.errors import MidiError
from tokenization.quantize import quantize_tempos
from tokenization.remi import PianoRemi
from tokenization.score import Note, Score, Tempo, TimeSignature, Track
from tokenization.vocabulary import BAR, BOS, DURATIONS, EOS, PIANO_VOCABULARY, TEMPO

REMI = PianoRemi()


def named(ids: Iterable[int]) -> str:
    return " ".join(PIANO_VOCABULARY.names[token] for token in ids)


def notes_of(score: Score) -> list[Note]:
    return [Note(*row) for track in score.tracks for row in track.notes.tolist()]


def slow_notes(score: Score) -> tuple[list[Note], int, int, int]:
    """The notes a piano of 88 keys plays on the grid; how many are dropped, merged, clipped."""
    best: dict[tuple[int, int], tuple[int, int]] = {}
    dropped = merged = clipped = 0
    for track in score.tracks:
        for onset, length, pitch, velocity in [] if track.is_drum else track.notes.tolist():
            if not 21 <= pitch <= 108:
                dropped += 1
                continue
            begin, end = (
                (24 * tick + score.ticks_per_beat) // (2 * score.ticks_per_beat)
                for tick in (onset, onset + length)
            )
            merged += (pitch, begin) in best
            candidate = (max(1, end - begin), velocity // 4)
            best[pitch, begin] = max(best.get((pitch, begin), (0, 0)), candidate)
    notes = []
    for (pitch, begin), (length, velocity) in best.items():
        room = min([10**9, *(o - begin for p, o in best if p == pitch and o > begin)])
        clipped += min(length, room) > 768
        fitting = [steps for steps in DURATIONS.tolist() if steps <= room]
        length = min(fitting, key=lambda steps: (abs(steps - min(length, room)), -steps))
        notes.append(Note(begin, length, pitch, velocity * 4 + 2))
    return sorted(notes), dropped, merged, clipped


# ---- laws


@given(score=scores())
def test_decoding_gives_the_quantized_score(score):
    sequence = REMI.encode(score)
    decoded = REMI.decode(sequence.ids)
    notes, dropped, merged, clipped = slow_notes(score)
    assert sorted(notes_of(decoded)) == notes
    assert (sequence.dropped, sequence.merged, sequence.clipped) == (dropped, merged, clipped)
    end = (24 * score.end_ticks + score.ticks_per_beat) // (2 * score.ticks_per_beat)
    assert decoded.end_ticks >= end
    tempos = quantize_tempos(score)
    expected = [
        Tempo(step, bpm)
        for step, bpm in zip(tempos.steps.tolist(), tempos.bpm.tolist(), strict=True)
        if step < decoded.end_ticks
    ]
    assert list(decoded.tempos) == expected


@given(score=scores())
def test_encoding_what_was_decoded_gives_the_same_ids(score):
    sequence = REMI.encode(score)
    for signatures in ((), sequence.signatures):
        again = REMI.encode(REMI.decode(sequence.ids, signatures))
        np.testing.assert_array_equal(again.ids, sequence.ids)
        assert again.dropped == again.merged == again.clipped == again.tempos_clipped == 0


@given(score=scores())
def test_written_signatures_are_restored(score):
    sequence = REMI.encode(score)
    decoded = REMI.decode(sequence.ids, sequence.signatures)
    end = decoded.end_ticks
    restored = decoded.time_signatures
    if restored != sequence.signatures:
        # Only a last bar that is cut short has another name.
        *restored, last = decoded.time_signatures
        assert 6 <= end - last.tick == 12 * last.bar_quarters()
        assert restored == [change for change in sequence.signatures if change.tick < last.tick]


@given(ids=canonical_ids())
def test_canonical_ids_are_encoded_again(ids):
    sequence = REMI.encode(REMI.decode(ids))
    np.testing.assert_array_equal(sequence.ids, ids)
    assert sequence.ids.dtype == np.int32


@given(ids=any_ids())
def test_any_ids_are_decoded(ids):
    score = REMI.decode(ids)
    sequence = REMI.encode(score)
    bar_starts(sequence.ids)
    assert sequence.dropped == sequence.merged == 0
    assert REMI.decode(np.array(ids, dtype=np.int64)) == score


@given(score=scores(), order=st.randoms())
def test_the_order_of_tracks_and_their_split_do_not_matter(score, order):
    rows = [row for track in score.tracks if not track.is_drum for row in track.notes.tolist()]
    order.shuffle(rows)
    one = REMI.encode(replace(score, tracks=(Track.of(rows[::2]), Track.of(rows[1::2], program=9))))
    np.testing.assert_array_equal(one.ids, REMI.encode(score).ids)


@given(score=scores(), factor=st.integers(2, 9))
def test_the_resolution_does_not_matter(score, factor):
    finer = Score(
        score.ticks_per_beat * factor,
        tuple(
            Track(track.notes * [factor, factor, 1, 1], is_drum=track.is_drum)
            for track in score.tracks
        ),
        tuple(Tempo(tempo.tick * factor, tempo.bpm) for tempo in score.tempos),
        tuple(TimeSignature(tick * factor, *metre) for tick, *metre in score.time_signatures),
        score.end_ticks * factor,
    )
    np.testing.assert_array_equal(REMI.encode(finer).ids, REMI.encode(score).ids)


@given(ids=canonical_ids(), data=st.data())
def test_a_crop_is_canonical_and_has_the_same_notes(ids, data):
    num_bars = int(np.count_nonzero(ids == BAR))
    first = data.draw(st.integers(0, num_bars - 1))
    count = data.draw(st.none() | st.integers(1, num_bars + 1))
    crop = REMI.crop(ids.astype(np.uint16), first, count)
    assert crop.dtype == np.uint16
    last = num_bars if count is None else min(first + count, num_bars)
    assert np.count_nonzero(crop == BAR) == last - first
    assert (crop[0] == BOS) == (first == 0)
    assert (crop[-1] == EOS) == (last == num_bars)
    bar_starts(crop)
    whole, part = REMI.decode(ids), REMI.decode(crop)
    starts = [*bar_starts(ids), whole.end_ticks]
    begin, end = starts[first], starts[last] if last < num_bars else 10**9
    table = whole.tracks[0].notes
    table = table[(table[:, 0] >= begin) & (table[:, 0] < end)] - [begin, 0, 0, 0]
    np.testing.assert_array_equal(part.tracks[0].notes, table)
    in_force = [tempo for tempo in whole.tempos if tempo.tick < end]
    before = [tempo for tempo in in_force if tempo.tick <= begin][-1]
    assert list(part.tempos) == [
        Tempo(max(0, tick - begin), bpm) for tick, bpm in in_force if (tick, bpm) >= before
    ]
    assert part.end_ticks == max(
        whole.end_ticks - begin if last == num_bars else end - begin, 0
    ) or (part.end_ticks == part.tracks[0].end_ticks)


def bar_starts(ids: np.ndarray) -> list[int]:
    """Steps where bars begin; the grammar checks every token."""
    state = REMI.grammar()
    lines = []
    for token in ids.tolist():
        state = state.advance(token)
        if token == BAR:
            lines.append(state.bar_start)
    return lines


@given(ids=canonical_ids(), semitones=st.integers(-90, 90))
def test_transposing_moves_every_pitch(ids, semitones):
    moved = REMI.transpose(ids.astype(np.uint16), semitones)
    table = np.add(REMI.decode(ids).tracks[0].notes, [0, 0, semitones, 0])
    if moved is None:
        assert ((table[:, 2] < 21) | (table[:, 2] > 108)).any()
    else:
        assert moved.dtype == np.uint16
        np.testing.assert_array_equal(REMI.decode(moved).tracks[0].notes, table)
        bar_starts(moved)
        np.testing.assert_array_equal(REMI.transpose(moved, -semitones), ids)


# ---- examples


def test_one_bar():
    score = Score(
        480,
        (
            Track.of([(0, 480, 60, 64), (480, 240, 64, 100)]),
            Track.of([(0, 1920, 48, 50)], program=33),
            Track.of([(0, 10, 36, 127)], is_drum=True),
        ),
        (Tempo(0, 96.3),),
        (TimeSignature(0, 4, 4),),
    )
    assert named(REMI.encode(score).ids) == (
        "BOS Bar TimeSignature_48 Position_0 Tempo_96 "
        "Pitch_48 Velocity_12 Duration_48 Pitch_60 Velocity_16 Duration_12 "
        "Position_12 Pitch_64 Velocity_25 Duration_6 EOS"
    )


def test_a_piece_of_nothing():
    sequence = REMI.encode(Score(480))
    assert named(sequence.ids) == "BOS Bar TimeSignature_48 Position_0 Tempo_120 EOS"
    assert sequence.beats.tolist() == [0] * 6
    assert sequence.signatures == (TimeSignature(0, 4, 4),)
    assert REMI.decode([]) == Score(12, (Track.of([]),))


def test_a_pickup_and_an_odd_metre_keep_their_bars():
    score = Score(
        480,
        (Track.of([(0, 480, 60, 64), (480, 480, 62, 64), (480 + 1680, 240, 64, 64)]),),
        (Tempo(0, 100.0), Tempo(960, 90.0)),
        (TimeSignature(0, 1, 4), TimeSignature(480, 7, 8)),
    )
    assert named(REMI.encode(score).ids) == (
        "BOS Bar TimeSignature_12 Position_0 Tempo_100 Pitch_60 Velocity_16 Duration_12 "
        "Bar TimeSignature_42 Position_0 Pitch_62 Velocity_16 Duration_12 Position_12 Tempo_90 "
        "Bar Position_0 Pitch_64 Velocity_16 Duration_6 EOS"
    )


def test_notes_of_one_pitch_are_merged_and_cut():
    rows = [(0, 48, 60, 10), (0, 48, 60, 100), (0, 24, 60, 127), (30, 12, 60, 64)]
    sequence = REMI.encode(Score(12, (Track.of(rows),)))
    assert sequence.merged == 2
    assert notes_of(REMI.decode(sequence.ids)) == [Note(0, 30, 60, 102), Note(30, 12, 60, 66)]


def test_a_decoded_note_is_cut_where_its_pitch_is_struck_again():
    text = (
        "Bar Position_0 Pitch_60 Velocity_9 Duration_48 Position_7 Pitch_60 Velocity_9 Duration_1"
    )
    ids = [PIANO_VOCABULARY.ids[name] for name in text.split()]
    assert [note.duration_ticks for note in notes_of(REMI.decode(ids))] == [7, 1]


def test_empty_bars_at_the_end_are_kept():
    sequence = REMI.encode(Score(12, (Track.of([(0, 12, 60, 64)]),), end_ticks=3 * 48))
    assert named(sequence.ids).endswith("Duration_12 Bar Bar EOS")
    assert REMI.decode(sequence.ids).end_ticks == 3 * 48


def test_a_written_metre_is_restored_where_it_fits():
    metres = (TimeSignature(0, 6, 8), TimeSignature(72, 5, 16), TimeSignature(132, 13, 4))
    sequence = REMI.encode(Score(12, time_signatures=metres, end_ticks=132 + 156))
    assert sequence.signatures == metres
    assert REMI.decode(sequence.ids, metres).time_signatures == metres
    longer = [*sequence.ids[:-1], BAR, PIANO_VOCABULARY.ids["TimeSignature_24"], EOS]
    assert REMI.decode(longer, metres).time_signatures == (*metres, TimeSignature(288, 2, 4))


def test_tempos_out_of_range_are_clipped_and_counted():
    score = Score(12, tempos=(Tempo(0, 10.0), Tempo(12, 240.4), Tempo(24, 500.0)), end_ticks=48)
    sequence = REMI.encode(score)
    assert sequence.tempos_clipped == 2
    assert (sequence.ids[(sequence.ids >= TEMPO) & (sequence.ids < 328)] - TEMPO).tolist() == [
        0,
        210,
    ]


def test_a_hostile_gap_is_refused():
    score = Score(480, (Track.of([(0, 480, 60, 64), (10**9, 480, 60, 64)]),))
    with pytest.raises(MidiError, match=r"quarter note 2,083,333, expected none after 65,536"):
        REMI.encode(score)
    far = Score(1, (Track.of([(2**60, 1, 60, 64)]),))
    with pytest.raises(MidiError, match="remove the silence"):
        REMI.encode(far)


def test_an_endless_note_is_clipped_with_the_piece():
    score = Score(480, (Track.of([(0, 480, 60, 64), (960, 10**9, 62, 64)]),))
    sequence = REMI.encode(score)
    assert sequence.clipped == 1
    assert REMI.decode(sequence.ids).tracks[0].end_ticks == 24 + 768


def test_a_crop_out_of_range_is_refused():
    ids = REMI.encode(Score(12, end_ticks=96)).ids
    for first, count in [(2, None), (-1, None), (0, 0)]:
        with pytest.raises(ValueError, match="piece of 2 bars"):
            REMI.crop(ids, first, count)


def test_decoding_is_linear_in_time():
    ids = np.random.default_rng(0).integers(0, 512, 1_000_000)
    begin = time.perf_counter()
    REMI.decode(ids)
    assert time.perf_counter() - begin < 20


def test_the_ids_of_a_long_piece_stay_what_they_are():
    state, rows = 1, []
    for _ in range(4000):
        state = state * 6364136223846793005 % 2**64
        rows.append((state >> 40) % 200_000)
    columns = [rows[0::4], [row % 2000 for row in rows[1::4]], [row % 128 for row in rows[2::4]]]
    velocities = [1 + row % 127 for row in rows[3::4]]
    score = Score(
        480,
        (Track.of(zip(*columns, velocities, strict=True)),),
        tuple(Tempo(7919 * k, 60 + 11.7 * k) for k in range(15)),
        (TimeSignature(0, 5, 4), TimeSignature(50_000, 7, 16), TimeSignature(90_001, 9, 8)),
    )
    ids = REMI.encode(score).ids
    assert (
        hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()
        == "4614224c434c1b3e60f19252cb52ce42e9fc1331340eb47901ca045fbf783c06"
    )


def test_the_bar_of_the_readme():
    _, text = (
        (Path(__file__).parents[2] / "tokenization/README.md")
        .read_text("utf-8")
        .split("## Canonical")[0]
        .split("## One bar")
    )
    rows = [
        [int(cell) for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ") and line[2].isdigit()
    ]
    columns = [(onset, length, pitch, velocity) for onset, length, pitch, velocity in rows]
    score = Score(12, (Track.of(columns),), (Tempo(0, 96.0),), (TimeSignature(0, 3, 4),))
    sequence = REMI.encode(score)
    assert named(sequence.ids).split() == text.split("```")[1].split()
    beats = dict(zip(named(sequence.ids).split(), sequence.beats, strict=True))
    assert (beats["Position_24"], beats["Position_30"], beats["EOS"]) == (0, 2, 2.5)
