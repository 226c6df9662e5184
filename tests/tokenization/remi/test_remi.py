"""The REMI tokenizers: properties of both, and examples for the piano tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.paths import ROOT
from tests.support.reference_notes import notes_by_rank, slow_notes
from tests.support.strategies import MULTITRACK_CASE, PIANO_CASE, for_each_tokenizer, scores
from tokenization.document import Header
from tokenization.errors import MidiError, TokenizerError
from tokenization.midi import read_midi, write_midi
from tokenization.remi.quantize import quantize_tempos
from tokenization.remi.remi import Remi
from tokenization.remi.tempo_range import in_tempo_range
from tokenization.remi.vocabulary import BAR, BOS, EOS, NUM_STYLES, TEMPO_GRID, VOCABULARY
from tokenization.score import Score, Tempo, TimeSignature, Track

PIANO, MULTITRACK = PIANO_CASE.remi, MULTITRACK_CASE.remi


def named(ids: Iterable[int]) -> str:
    return " ".join(VOCABULARY.names[token] for token in ids)


def bar_starts(remi: Remi, ids: np.ndarray) -> list[int]:
    """Grid steps at which bars begin; the grammar checks every token."""
    state = remi.grammar()
    lines = []
    for token in ids.tolist():
        state = state.advance(token)
        if token == BAR:
            lines.append(state.bar_start)
    return lines


# ---- properties


@for_each_tokenizer
@given(data=st.data())
def test_decoding_gives_the_quantized_score(case, data):
    score = data.draw(case.scores)
    sequence = case.remi.encode(score)
    decoded = case.remi.decode(sequence.ids)
    score = in_tempo_range(score)
    notes, merged, clipped = slow_notes(case.remi, score)
    assert notes_by_rank(case.remi, decoded) == notes
    assert (sequence.merged, sequence.clipped) == (merged, clipped)
    end = (24 * score.end_ticks + score.ticks_per_beat) // (2 * score.ticks_per_beat)
    assert decoded.end_ticks >= end
    tempos = quantize_tempos(score)
    bpm = TEMPO_GRID[tempos.tempos].tolist()
    expected = [
        Tempo(*change)
        for change in zip(tempos.steps.tolist(), bpm, strict=True)
        if change[0] < decoded.end_ticks
    ]
    assert list(decoded.tempos) == expected


@for_each_tokenizer
@given(data=st.data())
def test_encoding_decoded_ids_gives_the_same_ids(case, data):
    sequence = case.remi.encode(data.draw(case.scores))
    for known in ((), (sequence.signatures, sequence.tracks)):
        again = case.remi.encode(case.remi.decode(sequence.ids, *known))
        np.testing.assert_array_equal(again.ids, sequence.ids)
        assert again.merged == again.clipped == again.tempos_clipped == 0


@for_each_tokenizer
@given(score=MULTITRACK_CASE.scores)
# the second change cuts the first bar, the third one the last bar, after the end of the score
@example(
    score=Score(
        12,
        time_signatures=(TimeSignature(0, 3, 4), TimeSignature(3, 4, 4), TimeSignature(393, 3, 4)),
        end_ticks=391,
    )
)
# a long bar, of which the first part keeps its notated name
@example(
    score=Score(
        12, time_signatures=(TimeSignature(0, 17, 8), TimeSignature(72, 4, 4)), end_ticks=72
    )
)
@example(
    score=Score(
        12, time_signatures=(TimeSignature(0, 17, 8), TimeSignature(102, 3, 4)), end_ticks=90
    )
)
def test_notated_signatures_are_restored(case, score):
    sequence = case.remi.encode(score)
    decoded = case.remi.decode(sequence.ids, sequence.signatures)
    end, restored = decoded.end_ticks, decoded.time_signatures
    if restored != sequence.signatures:
        # only the last notated bar may differ: if cut short, it may be decoded as several bars
        last = [change for change in sequence.signatures if change.tick < end][-1]
        length = int(12 * last.bar_quarters())
        cut = last.tick + (end - 1 - last.tick) // length * length
        before = [change for change in sequence.signatures if change.tick < cut]
        assert [change for change in restored if change.tick < cut] == before
        ticks = [*(change.tick for change in restored), end]
        for change, following in zip(restored, ticks[1:], strict=True):
            lasts = following - change.tick
            assert lasts >= 6
            if change not in sequence.signatures:  # the next change may cut a notated bar
                assert lasts % (12 * change.bar_quarters()) == 0


@for_each_tokenizer
@given(data=st.data())
def test_canonical_ids_are_encoded_again(case, data):
    ids = data.draw(case.ids)
    sequence = case.remi.encode(*case.remi.decode_document(ids))
    np.testing.assert_array_equal(sequence.ids, ids)
    assert sequence.ids.dtype == np.int32


@for_each_tokenizer
@given(data=st.data())
def test_any_ids_are_decoded(case, data):
    ids = data.draw(case.any_ids)
    score = case.remi.decode(ids)
    sequence = case.remi.encode(score)
    bar_starts(case.remi, sequence.ids)
    assert sequence.merged == 0
    assert case.remi.decode(np.array(ids, dtype=np.int64)) == score


@for_each_tokenizer
@given(data=st.data(), factor=st.integers(2, 9))
def test_the_resolution_does_not_matter(case, data, factor):
    score = data.draw(case.scores)
    finer = Score(
        score.ticks_per_beat * factor,
        tuple(replace(t, notes=t.notes * [factor, factor, 1, 1]) for t in score.tracks),
        tuple(Tempo(tempo.tick * factor, tempo.bpm) for tempo in score.tempos),
        tuple(TimeSignature(tick * factor, *metre) for tick, *metre in score.time_signatures),
        score.end_ticks * factor,
    )
    np.testing.assert_array_equal(case.remi.encode(finer).ids, case.remi.encode(score).ids)


@given(score=scores(), order=st.randoms())
def test_a_piano_does_not_depend_on_order_and_split_of_tracks(score, order):
    rows = [row for track in score.tracks if not track.is_drum for row in track.notes.tolist()]
    order.shuffle(rows)
    split = (Track.of(rows[::2]), Track.of(rows[1::2], program=9))
    one = PIANO.encode(replace(score, tracks=split))
    np.testing.assert_array_equal(one.ids, PIANO.encode(score).ids)


@for_each_tokenizer
@given(data=st.data())
def test_a_crop_is_canonical_and_has_the_same_notes(case, data):
    remi, ids = case.remi, data.draw(case.ids)
    num_bars = int(np.count_nonzero(ids == BAR))
    first = data.draw(st.integers(0, num_bars - 1))
    count = data.draw(st.none() | st.integers(1, num_bars + 1))
    crop = remi.crop(ids.astype(np.uint16), first, count)
    assert crop.dtype == np.uint16
    last = num_bars if count is None else min(first + count, num_bars)
    assert np.count_nonzero(crop == BAR) == last - first
    assert (crop[0] == BOS) == (first == 0)
    assert (crop[-1] == EOS) == (last == num_bars)
    bar_starts(remi, crop)
    whole, part = remi.decode(ids), remi.decode(crop)
    starts = [*bar_starts(remi, ids), whole.end_ticks]
    begin, end = starts[first], starts[last] if last < num_bars else 10**9
    kept = {
        rank: [
            note._replace(onset_ticks=note[0] - begin) for note in notes if begin <= note[0] < end
        ]
        for rank, notes in notes_by_rank(remi, whole).items()
    }
    assert notes_by_rank(remi, part) == {rank: notes for rank, notes in kept.items() if notes}
    in_force = [tempo for tempo in whole.tempos if tempo.tick < end]
    before = [tempo for tempo in in_force if tempo.tick <= begin][-1]
    assert list(part.tempos) == [
        Tempo(max(0, tick - begin), bpm) for tick, bpm in in_force if (tick, bpm) >= before
    ]
    bars_end = (whole.end_ticks if last == num_bars else end) - begin
    assert part.end_ticks == max([bars_end, *(track.end_ticks for track in part.tracks)])


@for_each_tokenizer
@given(data=st.data(), semitones=st.integers(-12, 12) | st.integers(-130, 130))
def test_transposing_moves_every_pitch_but_drums(case, data, semitones):
    ids = data.draw(case.ids)
    moved = case.remi.transpose(ids.astype(np.uint16), semitones)
    notes = notes_by_rank(case.remi, case.remi.decode(ids))
    expected = {
        rank: [n if rank == 0 else n._replace(pitch=n.pitch + semitones) for n in notes[rank]]
        for rank in notes
    }
    pitches = {note.pitch for rank in expected if rank for note in expected[rank]}
    assert (moved is None) == (not pitches <= set(range(128)))
    if moved is not None:
        assert moved.dtype == np.uint16
        assert notes_by_rank(case.remi, case.remi.decode(moved)) == expected
        bar_starts(case.remi, moved)
        np.testing.assert_array_equal(case.remi.transpose(moved, -semitones), ids)


# ---- ids do not change between releases


def long_piece(programs: tuple[int, ...]) -> Score:
    """A thousand pseudo-random notes; program 9 means drums."""
    state, rows = 1, []
    for _ in range(4000):
        state = state * 6364136223846793005 % 2**64
        rows.append((state >> 40) % 200_000)
    columns = [rows[0::4], [row % 2000 for row in rows[1::4]], [row % 128 for row in rows[2::4]]]
    notes = list(zip(*columns, [1 + row % 127 for row in rows[3::4]], strict=True))
    return Score(
        480,
        tuple(
            Track.of(notes[part :: len(programs)], program, is_drum=program == 9)
            for part, program in enumerate(programs)
        ),
        tuple(Tempo(7919 * k, 60 + 11.7 * k) for k in range(15)),
        (TimeSignature(0, 5, 4), TimeSignature(50_000, 7, 16), TimeSignature(90_001, 9, 8)),
        max(row[0] + row[1] for row in notes),
    )


@pytest.mark.parametrize(
    ("case", "programs", "expected"),
    [
        (PIANO_CASE, (0,), "94970b8d046083d249a92b5a356ae6140f0e89d994e9dbfbe2af773440bace6b"),
        (
            MULTITRACK_CASE,
            (0, 33, 9, 0, 48, 9),
            "82de9a396672d8b80a5d4977f044af3785cb818367e4f3b8291edf98c6ecdc90",
        ),
    ],
)
def test_the_ids_of_a_long_piece_do_not_change(case, programs, expected):
    ids = case.remi.encode(long_piece(programs)).ids
    assert hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest() == expected


# ---- examples for the piano tokenizer


def test_an_empty_piece():
    sequence = PIANO.encode(Score(480))
    assert named(sequence.ids) == "BOS Bar TimeSignature_48 Tempo_120.0 Last EOS"
    assert sequence.beats.tolist() == [0] * 6
    assert sequence.signatures == (TimeSignature(0, 4, 4),)
    assert PIANO.decode([]) == Score(12, (Track.of([]),))


def test_tempos_out_of_range_are_scaled_with_their_beats_and_counted():
    score = Score(
        12,
        (Track.of([(0, 12, 60, 64), (12, 12, 62, 64), (24, 12, 64, 64)]),),
        tempos=(Tempo(0, 7.5), Tempo(12, 240.4), Tempo(24, 960.0)),
        end_ticks=48,
    )
    sequence = PIANO.encode(score)
    assert (sequence.tempos_scaled, sequence.tempos_clipped) == (2, 0)
    decoded = PIANO.decode(sequence.ids)
    assert decoded.tempos == (Tempo(0, 15.0), Tempo(24, 240.0), Tempo(36, 480.0))
    assert decoded.tracks[0].notes[:, :2].tolist() == [[0, 24], [24, 12], [36, 6]]


@pytest.mark.parametrize("remi", [PIANO, MULTITRACK])
def test_a_long_drum_note_leaves_no_empty_bars(remi):
    drums = Track.of([(0, 1100 * 480, 36, 80)], is_drum=True)
    score = Score(480, (Track.of([(0, 480, 60, 80)]), drums))
    for given_score in (score, read_midi(write_midi(score))):
        assert np.count_nonzero(remi.encode(given_score).ids == BAR) == 1


@pytest.mark.parametrize("remi", [PIANO, MULTITRACK])
def test_rests_at_the_end_survive_a_file(remi):
    ids = remi.encode(Score(12, (Track.of([(0, 12, 60, 64)]),), end_ticks=8 * 48)).ids
    assert np.count_nonzero(ids == BAR) == 8
    again = remi.encode(read_midi(write_midi(remi.decode(ids)))).ids
    np.testing.assert_array_equal(again, ids)


def test_a_hostile_gap_is_rejected():
    score = Score(480, (Track.of([(0, 480, 60, 64), (10**9, 480, 60, 64)]),))
    with pytest.raises(MidiError, match=r"quarter note 2,083,333, expected all up to 65,536"):
        PIANO.encode(score)
    far = Score(1, (Track.of([(2**60, 1, 60, 64)]),))
    with pytest.raises(MidiError, match="remove the silence"):
        PIANO.encode(far)


def test_a_crop_out_of_range_is_rejected():
    ids = PIANO.encode(Score(12, end_ticks=96)).ids
    for first, count in [(2, None), (-1, None), (0, 0)]:
        with pytest.raises(ValueError, match="the 2 bars of the piece"):
            PIANO.crop(ids, first, count)


def test_the_bar_of_the_documents():
    text = (ROOT / "docs/pages/concepts/tokens.md").read_text("utf-8").split("## One bar")[1]
    chord = [(0, 12, 60, 64), (0, 12, 64, 64), (0, 24, 67, 80)]
    track = Track.of([*chord, (24, 6, 64, 72), (30, 6, 62, 60)])  # onset, length, pitch, velocity
    score = Score(12, (track,), (Tempo(0, 96.0),), (TimeSignature(0, 3, 4),))
    sequence = PIANO.encode(score)
    assert named(sequence.ids).split() == text.split("```")[1].split()
    beats = dict(zip(named(sequence.ids).split(), sequence.beats, strict=True))
    assert (beats["Position_24"], beats["Position_30"], beats["EOS"]) == (0, 2, 2.5)


def test_a_style_is_the_first_token_after_the_beginning():
    score = Score(480, (Track.of([(0, 480, 60, 80)]),))
    for style in (0, NUM_STYLES - 1):
        ids = PIANO.encode(score, header=Header(style)).ids
        assert ids[:2].tolist() == [BOS, PIANO.families.style + style]
    for style in (-1, NUM_STYLES):
        with pytest.raises(TokenizerError, match=f"style is {style}"):
            PIANO.encode(score, header=Header(style))
