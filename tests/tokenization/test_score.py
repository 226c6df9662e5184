from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import scores
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Tempo, TimeSignature, Track, once_each


@given(score=scores())
def test_a_score_is_sorted_and_ends_after_its_notes(score):
    for track in score.tracks:
        assert sorted(track.notes[:, 0].tolist()) == track.notes[:, 0].tolist()
        assert track.end_ticks <= score.end_ticks
    assert list(score.tempos) == sorted(score.tempos, key=lambda tempo: tempo.tick)
    assert score.num_notes == sum(map(len, score.tracks))


@given(rows=st.lists(st.tuples(*[st.integers(0, 9)] * 4), max_size=8), order=st.randoms())
def test_the_order_of_notes_does_not_matter(rows, order):
    shuffled = order.sample(rows, len(rows))
    assert Track.of(rows) == Track.of(shuffled)


@given(score=scores(), ticks=st.lists(st.integers(0, 50_000), min_size=1, max_size=8))
def test_seconds_add_up_over_the_tempo_map(score, ticks):
    ticks.sort()
    changes = [(0, 120.0), *score.tempos]
    expected = []
    for tick in ticks:
        seconds = 0.0
        for (start, bpm), stop in zip(
            changes, [*(start for start, _ in changes[1:]), tick], strict=True
        ):
            seconds += max(0, min(stop, tick) - start) * 60 / (bpm * score.ticks_per_beat)
        expected.append(seconds)
    np.testing.assert_allclose(score.seconds_at(ticks), expected, rtol=1e-9, atol=1e-9)
    assert score.seconds_at(ticks[0]).shape == ()


def test_tables_cannot_be_written_to():
    track = Track.of([(0, 1, 60, 64)])
    narrow: Any = np.array([[0, 1, 60, 64]], np.int32)
    narrow.setflags(write=False)
    assert not Track(narrow).notes.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        track.notes[0, 0] = 1


def test_other_tables_are_not_copied():
    track = Track.of([(0, 1, 60, 64)], program=5)
    notes = Track.of([(3, 1, 61, 64)]).notes
    other = track.with_tables(notes=notes)
    assert other == Track(notes, program=5)
    assert other.notes is notes
    assert track == Track.of([(0, 1, 60, 64)], program=5)
    assert track.without_events() == Track.of([], program=5)


def test_scores_are_equal_by_content():
    rows = [(0, 12, 60, 64), (12, 12, 62, 64)]
    one = Score(12, (Track.of(rows),), (Tempo(0, 90.0),), (TimeSignature(0, 3, 4),))
    two = Score(12, (Track.of(rows[::-1]),), (Tempo(0, 90.0),), (TimeSignature(0, 3, 4),), 24)
    assert one == two
    assert one != one.with_tracks([Track.of(rows, program=1)])
    assert TimeSignature(0, 6, 8).bar_quarters() == 3


def test_a_resolution_of_0_is_rejected():
    with pytest.raises(ValueError, match="at least 1"):
        Score(0)


def test_of_several_tempos_and_metres_at_one_tick_the_last_applies():
    tempos = (Tempo(480, 60.0), Tempo(0, 120.0), Tempo(0, 90.0))
    metres = (TimeSignature(0, 4, 4), TimeSignature(0, 3, 4))
    score = Score(480, (Track.of([(0, 1440, 60, 64)]),), tempos, metres)
    assert score.tempos == (Tempo(0, 120.0), Tempo(0, 90.0), Tempo(480, 60.0))
    assert score.time_signatures == metres
    assert score.seconds_at(480) == pytest.approx(60 / 90)
    names = [PianoRemi().vocabulary.names[i] for i in PianoRemi().encode(score).ids]
    assert {"Tempo_89.9", "TimeSignature_36"} <= set(names)
    assert not {"Tempo_120.0", "TimeSignature_48"} & set(names)


@pytest.mark.parametrize(
    "note", [(-1, 1, 60, 64), (0, -1, 60, 64), (0, 1, 128, 64), (0, 1, 60, 128)]
)
def test_notes_that_midi_cannot_represent_are_rejected(note):
    with pytest.raises(ValueError, match="expected an onset and a duration of at least 0"):
        Track.of([note])


def test_shared_tables_are_changed_once():
    table = Track.of([], 0).with_tables(controls=np.array([[1, 64, 127]])).controls
    twice = once_each(lambda rows: rows * [2, 1, 1])
    assert twice(table).tolist() == [[2, 64, 127]]
    assert twice(table) is twice(table)
    assert twice(table.copy()) is not twice(table)


def test_a_track_is_cut_at_a_tick() -> None:
    track = Track.of([(0, 5, 60, 80), (4, 12, 62, 81), (10, 2, 64, 82)], 33)
    assert track.until(10).notes.tolist() == [[0, 5, 60, 80], [4, 6, 62, 81]]
    assert track.until(10).program == 33
    assert not len(track.until(0))


def test_a_part_of_a_score_has_its_settings_and_notes_that_end_with_it():
    notes = [(0, 90, 60, 80), (50, 10, 61, 80), (60, 90, 62, 80), (99, 1, 63, 80), (100, 5, 64, 80)]
    score = Score(
        12,
        (Track.of(notes, 5), Track.of([(10, 1, 36, 80)], is_drum=True)),
        (Tempo(0, 90), Tempo(24, 100), Tempo(72, 110), Tempo(100, 60)),
        (TimeSignature(0, 2, 4), TimeSignature(48, 3, 4)),
        180,
    )
    part = score.between(48, 100)
    assert part == Score(
        12,
        (
            Track.of([(2, 10, 61, 80), (12, 40, 62, 80), (51, 1, 63, 80)], 5),
            Track.of([], is_drum=True),
        ),
        (Tempo(0, 100), Tempo(24, 110)),
        (TimeSignature(0, 3, 4),),
        52,
    )
    assert score.between(0, 180) == score
