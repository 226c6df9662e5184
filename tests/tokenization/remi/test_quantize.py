from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import RESOLUTIONS, scores, time_signatures
from tokenization.grid import bar_lines, nearest_step, quantize_time_signatures
from tokenization.remi.quantize import name_bars, quantize_tempos, separate_notes
from tokenization.remi.vocabulary import DURATIONS, TEMPO_EDGES, TEMPO_GRID
from tokenization.score import Score, TimeSignature


def quantize_metres(
    metres: Iterable[tuple[int, int, int]], ticks_per_beat: int = 24
) -> tuple[TimeSignature, ...]:
    changes = tuple(TimeSignature(*metre) for metre in metres)
    return quantize_time_signatures(Score(ticks_per_beat, time_signatures=changes))


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


def test_bars_by_hand():
    """Pickups are short; changes cut bars; long bars are split; no bar is below an eighth."""
    for metres, end, lines in (
        ([], 100, [0, 48, 96, 144]),
        ([(0, 4, 4)], 0, [0, 48]),
        ([(0, 7, 8)], 84, [0, 42, 84]),
        ([(0, 1, 4), (12, 4, 4)], 100, [0, 12, 60, 108]),
        ([(0, 4, 4), (72, 3, 4)], 140, [0, 48, 72, 108, 144]),
        ([(0, 4, 4), (60, 4, 4)], 96, [0, 48, 96]),
        ([(0, 5, 16)], 60, [0, 18, 30, 48, 60]),
        ([(0, 13, 4)], 312, [0, 84, 156, 240, 312]),
        ([(0, 17, 8)], 102, [0, 60, 102]),
        *(([(0, 1, power)], 30, [0, 6, 12, 18, 24, 30]) for power in (8, 64, 1 << 60)),
    ):
        assert bar_lines(quantize_metres(metres, 12), end).tolist() == lines
    assert np.diff(bar_lines(quantize_metres([(0, 255, 1)], 12), 12240)).max() == 96
