from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import RESOLUTIONS, scores, time_signatures
from tokenization.grid import bar_lines, nearest_step, quantize_time_signatures
from tokenization.remi.quantize import name_bars, quantize_tempos, separate_notes
from tokenization.remi.vocabulary import DURATIONS, TEMPO_EDGES, TEMPO_GRID
from tokenization.score import Score, Tempo, TimeSignature


def quantize_metres(
    metres: Iterable[tuple[int, int, int]], ticks_per_beat: int = 24
) -> tuple[TimeSignature, ...]:
    changes = tuple(TimeSignature(*metre) for metre in metres)
    return quantize_time_signatures(Score(ticks_per_beat, time_signatures=changes))


def lines_of(*metres: tuple[int, int, int], end: int, ticks_per_beat: int = 12) -> list[int]:
    return bar_lines(quantize_metres(metres, ticks_per_beat), end).tolist()


@given(ticks=st.lists(st.integers(0, 10**9)), ticks_per_beat=st.sampled_from(RESOLUTIONS))
def test_steps_are_nearest_and_halves_are_rounded_up(ticks, ticks_per_beat):
    expected = [int(Fraction(12 * tick, ticks_per_beat) + Fraction(1, 2)) for tick in ticks]
    steps = nearest_step(np.array(ticks, dtype=np.int64), ticks_per_beat)
    assert steps.tolist() == expected
    assert [nearest_step(tick, ticks_per_beat) for tick in ticks] == expected


# ---- notes


def slow_separate(rows: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Rows with one note per pitch and onset, cut where the pitch is repeated."""
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for pitch, onset, duration, velocity in rows:
        best[pitch, onset] = max(best.get((pitch, onset), (0, 0)), (duration, velocity))
    kept = []
    for (pitch, onset), (duration, velocity) in sorted(best.items()):
        later = [o for p, o in best if p == pitch and o > onset]
        kept.append((pitch, onset, min([duration, *(o - onset for o in later)]), velocity))
    return kept


ROWS = st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 60), st.integers(0, 31))


@given(rows=st.lists(ROWS, max_size=20))
def test_separated_notes_are_those_of_the_slow_definition(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    notes = separate_notes(*columns)
    found = zip(
        *(column.tolist() for column in (notes.keys, notes.onsets, notes.durations)),
        notes.velocities.tolist(),
        strict=True,
    )
    assert list(found) == slow_separate(rows)


@given(duration=st.integers(1, 1023), gap=st.integers(1, 2000))
def test_a_duration_token_is_the_nearest_that_leaves_room(duration, gap):
    two = np.array([0, 0]), np.array([0, gap]), np.array([duration, 1]), np.array([0, 0])
    token = int(separate_notes(*two).duration_tokens()[0])
    length = min(duration, gap)
    fitting = [index for index, steps in enumerate(DURATIONS) if steps <= gap]
    assert token == min(
        fitting, key=lambda index: (abs(int(DURATIONS[index]) - length), -DURATIONS[index])
    )


# ---- tempos


@given(score=scores())
def test_a_tempo_map_starts_at_0_and_changes_at_every_entry(score):
    steps, tempos, clipped = quantize_tempos(score)
    bpm = TEMPO_GRID[tempos]
    assert steps[0] == 0
    assert (np.diff(steps) > 0).all()
    assert np.diff(bpm).all()
    low, high = TEMPO_EDGES[[0, -1]].tolist()
    assert clipped == sum(not low <= tempo.bpm < high for tempo in score.tempos)
    last = {nearest_step(tick, score.ticks_per_beat): exact for tick, exact in score.tempos}
    for step, exact in last.items():
        in_force = bpm[np.searchsorted(steps, step, side="right") - 1]
        exact = min(max(exact, TEMPO_GRID[0]), TEMPO_GRID[-1])
        assert 0.99 <= in_force / exact <= 1.01


def test_the_last_tempo_at_a_step_counts():
    score = Score(480, tempos=(Tempo(480, 100.2), Tempo(490, 60.0), Tempo(1000, 60.4)))
    steps, tempos, _ = quantize_tempos(score)
    bpm = TEMPO_GRID[tempos].tolist()
    assert list(zip(steps.tolist(), bpm, strict=True)) == [(0, 120), (12, 60)]


# ---- bars


@given(metres=time_signatures(), end=st.integers(0, 1000))
def test_bars_have_lengths_of_the_vocabulary(metres, end):
    lines = bar_lines(quantize_metres(metres), end)
    lengths = np.diff(lines)
    assert lines[0] == 0
    assert lines[-1] >= end > lines[-2] or (end == 0 and len(lines) == 2)
    assert set(lengths.tolist()) <= set(range(6, 97, 6))


@given(metres=time_signatures(), end=st.integers(0, 1000))
def test_every_notated_bar_line_is_kept_and_none_drifts(metres, end):
    signatures = quantize_metres(metres)
    lines = bar_lines(signatures, end)
    assert not any(lines[-2] < change.tick < lines[-1] for change in signatures)
    ends = [change.tick for change in signatures[1:]] + [int(lines[-1])]
    for (start, numerator, denominator), stop in zip(signatures, ends, strict=True):
        length = Fraction(48 * numerator, denominator)
        if start >= lines[-1] or length < 6:
            continue
        assert start in lines
        exact = start
        while exact < min(stop, lines[-1]):
            assert np.abs(lines - float(exact)).min() <= 3
            exact += length


@given(metres=time_signatures(), end=st.integers(0, 1000))
def test_bars_named_by_their_length_are_the_same_bars(metres, end):
    written = quantize_metres(metres)
    lines = bar_lines(written, end)
    np.testing.assert_array_equal(bar_lines(name_bars(lines, ()), end), lines)
    np.testing.assert_array_equal(bar_lines(name_bars(lines, written), end), lines)


@given(metres=time_signatures(), lengths=st.lists(st.integers(1, 16), min_size=1, max_size=12))
def test_notated_signatures_apply_only_as_long_as_they_fit(metres, lengths):
    lines = np.append(0, np.cumsum(6 * np.array(lengths)))
    named = name_bars(lines, quantize_metres(metres))
    np.testing.assert_array_equal(bar_lines(named, int(lines[-1])), lines)


def test_common_metres():
    assert lines_of(end=100) == [0, 48, 96, 144]
    assert lines_of((0, 3, 4), end=36) == [0, 36]
    assert lines_of((0, 7, 8), end=84) == [0, 42, 84]
    assert lines_of((0, 4, 4), end=0) == [0, 48]


def test_a_pickup_is_a_short_first_bar():
    assert lines_of((0, 1, 4), (480, 4, 4), end=100, ticks_per_beat=480) == [0, 12, 60, 108]


def test_lines_between_eighths_move_to_the_nearest():
    assert lines_of((0, 5, 16), end=60) == [0, 18, 30, 48, 60]


def test_a_long_bar_is_split_at_quarters():
    assert lines_of((0, 13, 4), end=312) == [0, 84, 156, 240, 312]
    assert lines_of((0, 17, 8), end=102) == [0, 60, 102]
    assert np.diff(lines_of((0, 255, 1), end=12240)).max() == 96


def test_a_change_of_metre_cuts_the_bar():
    assert lines_of((0, 4, 4), (72, 3, 4), end=140) == [0, 48, 72, 108, 144]


def test_a_repeated_metre_moves_no_bar_line():
    assert lines_of((0, 4, 4), (60, 4, 4), end=96) == [0, 48, 96]


@pytest.mark.parametrize("metre", [(1, 1 << 60), (1, 64), (1, 8)])
def test_bars_are_never_shorter_than_an_eighth(metre):
    assert lines_of((0, *metre), end=30) == [0, 6, 12, 18, 24, 30]


def test_bar_lines_are_exact_where_the_metre_is():
    for first, second in pairwise(lines_of((0, 9, 8), end=5000)):
        assert second - first == 54
