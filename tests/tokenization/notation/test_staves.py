from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.notation import METRES, scores, strikes
from tokenization.grid import STEPS_PER_BEAT
from tokenization.notation.staves import Notation
from tokenization.notation.values import Bar
from tokenization.score import Score, Track


@given(scores())
def test_every_note_is_written_at_most_one_step_from_its_onset(score: Score) -> None:
    played = {(onset, pitch) for t in score.tracks for onset, _, pitch, _ in t.notes.tolist()}
    written = [(onset, pitch) for onset, _, pitch in strikes(Notation.of(score))]
    near = {(onset + move, pitch) for onset, pitch in written for move in (-1, 0, 1)}
    assert played <= near
    assert len(played) // 3 <= len(written) <= score.num_notes


@given(scores())
def test_strikes_of_a_voice_and_of_a_pitch_follow_each_other(score: Score) -> None:
    notation = Notation.of(score)
    for staff in (notation.right, notation.left):
        ends: dict[int, int] = {}
        for strike in sorted(strike for voice in staff.voices for strike in voice):
            assert strike.end > strike.onset
            for pitch in strike.pitches:
                assert ends.get(pitch, 0) <= strike.onset
                ends[pitch] = strike.end
        for voice in staff.voices:
            ordered = [(strike.onset, strike.end) for strike in voice]
            assert all(a[1] <= b[0] for a, b in pairwise(ordered))


@given(scores())
def test_bars_follow_each_other_and_hold_all_notes(score: Score) -> None:
    notation = Notation.of(score)
    assert notation.bars[0].start == 0
    for before, after in pairwise(notation.bars):
        assert before.end == after.start
    last = max(end for _, end, _ in strikes(notation))
    assert notation.bars[-1].start < last <= notation.bars[-1].end


@given(st.sampled_from(METRES), st.data())
def test_values_and_rests_fill_the_time(metre: tuple[int, int], data: st.DataObject) -> None:
    length = 48 * metre[0] // metre[1]
    bar = Bar(60, 60 + length, *metre)
    start, end = sorted(data.draw(st.lists(st.integers(60, bar.end), min_size=2, max_size=2)))
    for written in (bar.values(start, end), bar.rests(start, end)):
        at = start
        for begin, until in written:
            assert begin == at < until
            at = until
        assert at == end


@pytest.mark.parametrize(
    ("metre", "start", "end", "lengths"),
    [
        ((4, 4), 0, 48, [48]),
        ((4, 4), 0, 36, [36]),
        ((4, 4), 12, 36, [24]),
        ((4, 4), 12, 48, [12, 24]),
        ((4, 4), 6, 18, [12]),
        ((4, 4), 18, 30, [6, 6]),
        ((4, 4), 0, 30, [24, 6]),
        ((4, 4), 0, 18, [18]),
        ((3, 4), 0, 36, [36]),
        ((3, 4), 4, 12, [8]),
        ((6, 8), 0, 36, [36]),
        ((6, 8), 0, 18, [18]),
        ((6, 8), 6, 18, [12]),
        ((6, 8), 12, 24, [6, 6]),
    ],
)
def test_values_are_those_that_musicians_write(
    metre: tuple[int, int], start: int, end: int, lengths: list[int]
) -> None:
    bar = Bar(0, 48 * metre[0] // metre[1], *metre)
    assert [until - begin for begin, until in bar.values(start, end)] == lengths


def test_rests_are_not_syncopated() -> None:
    bar = Bar(0, 36, 3, 4)
    assert list(bar.rests(6, 36)) == [(6, 12), (12, 24), (24, 36)]
    assert list(Bar(0, 48, 4, 4).rests(12, 48)) == [(12, 24), (24, 48)]


def notes(*rows: tuple[int, int, int]) -> Score:
    return Score(STEPS_PER_BEAT, (Track.of([(*row, 80) for row in rows]),))


def test_detached_notes_are_written_without_rests() -> None:
    written = strikes(Notation.of(notes((0, 11, 72), (12, 10, 74), (24, 23, 76))))
    assert written == [(0, 12, 72), (12, 24, 74), (24, 48, 76)]


def test_a_held_note_has_a_voice_below_a_melody() -> None:
    held = notes((0, 48, 60), *((12 * beat, 12, 72 + beat) for beat in range(4)))
    upper, lower = Notation.of(held).right.voices
    assert [strike.pitches for strike in upper] == [(72,), (73,), (74,), (75,)]
    assert [(strike.onset, strike.end, strike.pitches) for strike in lower] == [(0, 48, (60,))]


def test_hands_are_shared_by_pitch_in_one_track_and_are_those_of_two_tracks() -> None:
    chord = [(0, 12, pitch) for pitch in (41, 48, 64, 67)]
    found = Notation.of(notes(*chord))
    assert found.left.voices[0][0].pitches == (41, 48)
    assert found.right.voices[0][0].pitches == (64, 67)
    two = Score(
        STEPS_PER_BEAT,
        (Track.of([(0, 12, 64, 80)]), Track.of([(0, 12, 67, 80), (12, 12, 60, 80)])),
    )
    found = Notation.of(two)
    assert strikes(found) == [(0, 12, 64), (0, 12, 67), (12, 24, 60)]
    assert {s.pitches for s in found.right.voices[0]} in ({(64,)}, {(67,), (60,)})


def test_triplets_keep_their_place_beside_sixteenths_in_the_other_hand() -> None:
    right, left = [(0, 4, 72), (4, 4, 74), (8, 4, 76)], [(0, 3, 48), (3, 3, 50), (6, 6, 52)]
    written = strikes(Notation.of(notes(*right, *left)))
    assert written == sorted(
        (onset, onset + length, pitch) for onset, length, pitch in right + left
    )
