from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.passages import BAR, notes_of
from tests.support.strategies import scores
from tokenization.measures.bars import BarNotes
from tokenization.measures.continuation import measure_continuation
from tokenization.score import Score, Track

ANY = scores(max_beats=24, programs=(0, 33, 48))
few = settings(max_examples=15)


def piece(*bars: str) -> Score:
    """Bars of quarter notes, one letter for each note."""
    notes = [
        (BAR * bar + 12 * place, 12, ord(letter), 80)
        for bar, letters in enumerate(bars)
        for place, letter in enumerate(letters)
    ]
    return Score(12, (Track.of(notes),), end_ticks=BAR * len(bars))


def test_similarity_and_equal_bars_by_hand():
    measures = measure_continuation(piece("CDEG", "EFGC", "CDEG", "CDEA", "EFGC"), 2, 5)
    expected = {
        "equal": 2 / 3,
        "equal_to_prompt": 2 / 3,
        "equal_1": 0,
        "equal_run": 1 / 3,
        "notes_2": (1 + 0 + 0) / 3,
        "notes_most": (1 + 3 / 5 + 1) / 3,
        "rhythm_1": 1,
        "empty_bars": 0,
        "density_drift": 0,
        "melody_density": 4,
    }
    assert {name: measures[name] for name in expected} == pytest.approx(expected)
    assert math.isnan(measures["notes_8"])


def test_bars_without_notes_count_up_to_the_end():
    measures = measure_continuation(piece("CDEG", "CDEG"), 1, 4)
    assert measures["empty_bars"] == pytest.approx(2 / 3)


@few
@given(ANY, st.integers(0, 3), st.integers(1, 3))
def test_later_bars_and_octaves_change_nothing(score, first, bars):
    assume(all(not signature.tick for signature in score.time_signatures))
    stop = first + bars
    lines = BarNotes.of(score).padded(stop).lines
    measures = measure_continuation(score, first, stop)
    assert all(isinstance(value, float) for value in measures.values())
    assert not any(math.isinf(value) for value in measures.values())
    end = int(lines[stop]) * score.ticks_per_beat // 12
    early = [track.notes[:, 0] < end for track in score.tracks]
    if all(is_early.all() for is_early in early):
        longer = Track.of([(end + score.ticks_per_beat, 12, 60, 80)], program=48)
        later = replace(score.with_tracks([*score.tracks, longer]), end_ticks=2 * end)
        assert measure_continuation(later, first, stop) == pytest.approx(measures, nan_ok=True)
    if all(t.is_drum or t.notes[:, 2].max(initial=0) < 116 for t in score.tracks):
        octave = score.with_tracks(
            t if t.is_drum else t.with_tables(notes=t.notes + np.array([0, 0, 12, 0]))
            for t in score.tracks
        )
        moved = measure_continuation(octave, first, stop)
        assert moved == pytest.approx(measures, nan_ok=True)


def test_without_a_prompt_comparisons_are_undefined():
    measures = measure_continuation(piece("CDEG", "CDEG", "EFGA"), 0, 3)
    compared = {name for name in measures if name.endswith(("prompt", "_prompt"))}
    assert all(math.isnan(measures[name]) for name in compared - {"equal_to_prompt"})
    assert measures["equal"] == pytest.approx(1 / 3)


def test_bars_are_padded_with_bars_as_long_as_the_last():
    notes = notes_of([(0, 12, 60, 80)], bars=2)
    assert notes.padded(4).lines.tolist() == [0, 48, 96, 144, 192]
    assert notes.padded(1) is notes
