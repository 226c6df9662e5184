from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.strategies import scores
from tokenization.grid import bar_lines, nearest_step, notated_lines, quantize_time_signatures
from tokenization.remi.bars import BarMap
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, EOS
from tokenization.score import Score, Tempo, TimeSignature, Track

METRES = (
    *((4, 4), (3, 4), (6, 8), (7, 8), (2, 2), (5, 16), (7, 16), (9, 32)),
    *((9, 4), (13, 4), (33, 16), (1, 16)),
)
WHOLE = tuple(metre for metre in METRES if 8 * metre[0] % metre[1] == 0)


def changes(metres: tuple[tuple[int, int], ...]) -> st.SearchStrategy[list[TimeSignature]]:
    row = st.builds(
        lambda tick, metre: TimeSignature(tick, *metre),
        st.integers(0, 4000) | st.integers(0, 8).map(lambda beat: 480 * beat),
        st.sampled_from(metres),
    )
    return st.lists(row, max_size=3, unique_by=lambda change: change.tick)


def slow_lines(score: Score, end: int) -> list[Fraction]:
    """Notated bar lines from 0 to the first at or after `end`, if no bar is cut to nearly 0."""
    signatures = [TimeSignature(0, 4, 4), *score.time_signatures]
    at, now, lines = 0, Fraction(0), [Fraction(0)]
    while now < end:
        while at + 1 < len(signatures) and signatures[at + 1].tick <= now:
            at += 1
        bar = Fraction(4 * score.ticks_per_beat * signatures[at][1], signatures[at][2])
        now += bar
        later = [
            c.tick for c, before in zip(signatures[at + 1 :], signatures[at:], strict=False)
            if c[1:] != before[1:]
        ]  # fmt: skip
        if later and later[0] < now:
            now = Fraction(later[0])
        lines.append(now)
    return lines


@given(signatures=changes(METRES), end=st.integers(1, 9000))
# exactly half a grid step is left of the bar before the last change
@example(signatures=[TimeSignature(100, 1, 16), TimeSignature(240, 4, 4)], end=101)
def test_notated_lines_are_exact_and_a_change_cuts_the_bar(
    signatures: list[TimeSignature], end: int
) -> None:
    score = Score(480, time_signatures=tuple(signatures))
    lines = notated_lines(score, end).tolist()
    assert lines[-1] >= end > lines[-2]
    exact = [line for line in slow_lines(score, lines[-1]) if line <= lines[-1]]
    # bars of at most half a grid step disappear
    near = [line for line in exact if min(abs(line - found) for found in lines) <= Fraction(1, 2)]
    assert len(lines) <= len(exact)
    for line in set(exact) - set(near):
        assert min(abs(change.tick - line) for change in signatures) <= 20
    assert all(min(abs(line - found) for line in exact) <= Fraction(1, 2) for found in lines)


def test_lines_continue_after_the_end_in_the_metre_in_force() -> None:
    score = Score(480, time_signatures=(TimeSignature(0, 7, 16), TimeSignature(2520, 9, 4)))
    assert notated_lines(score, 1, 2).tolist() == [0, 840, 1680, 2520]
    assert notated_lines(score, 2520, 2).tolist() == [0, 840, 1680, 2520, 6840, 11160]


def test_a_change_just_beside_a_line_moves_it() -> None:
    for tick in (1915, 1925):
        score = Score(480, time_signatures=(TimeSignature(tick, 3, 4),))
        assert notated_lines(score, 3000).tolist() == [0, tick, tick + 1440]
        assert BarMap.of(notated_lines(score, 3000), 480).sizes.tolist() == [48, 36]


def test_coarse_ticks_do_not_drift() -> None:
    score = Score(13, time_signatures=(TimeSignature(0, 7, 8),))
    lines = notated_lines(score, 4550)
    assert len(lines) == 101
    assert lines[-1] == 4550
    assert set(BarMap.of(lines, 13).sizes.tolist()) == {42}


@settings(max_examples=50)
@given(score=scores(), signatures=changes(WHOLE), drawn=st.integers(0, 1 << 20))
# the rounded length of the last note passes the end of the piece, whose bars are split
@example(
    score=Score(480, (Track.of([(19211, 28249, 58, 1)]),)),
    signatures=[TimeSignature(1, 9, 4)],
    drawn=10,
)
# as above, with a change of time signature at the end
@example(
    score=Score(480, (Track.of([(0, 28800, 60, 80)]),)),
    signatures=[TimeSignature(28800, 3, 4)],
    drawn=14,
)
# of two time signatures at one tick the last applies, which is a repetition
@example(
    score=Score(480, end_ticks=4000),
    signatures=[TimeSignature(480, 3, 4), TimeSignature(481, 4, 4)],
    drawn=0,
)
def test_bars_of_whole_eighths_leave_the_ids_as_they_are(
    score: Score, signatures: list[TimeSignature], drawn: int
) -> None:
    beats = (TimeSignature(240 * (c.tick // 240), *c[1:]) for c in signatures)
    # `in_tempo_range` is applied to scores before their bars are counted
    tempos = tuple(tempo for tempo in score.tempos if 15 <= tempo.bpm <= 498)
    score = Score(480, score.tracks, tempos, tuple(beats), score.end_ticks)
    remi = PianoRemi()
    end = 40 * remi.decode(remi.encode(score).ids).end_ticks  # rounding may lengthen the last note
    lines = notated_lines(score, end)
    bars = BarMap.of(lines, 480)
    metres = quantize_time_signatures(score)
    np.testing.assert_array_equal(bar_lines(metres, int(bars.starts[-1])), bars.vocabulary_lines())
    ids = remi.encode(Score(480, score.tracks, score.tempos, score.time_signatures, lines[-1])).ids
    np.testing.assert_array_equal(remi.encode(bars.on_grid(score)).ids, ids)
    # a map of the first bars only gives their ids, whatever follows
    first = BarMap.of(lines[: 2 + drawn % (len(lines) - 1)], 480)
    part = remi.encode(first.on_grid(score), ends=False).ids
    ids = ids[ids != remi.families.last]
    num_bars = len(first.vocabulary_lines()) - 1
    ends = [
        [*np.flatnonzero((row == BAR) | (row == EOS)), len(row)][num_bars] for row in (part, ids)
    ]
    np.testing.assert_array_equal(part[: ends[0]], ids[: ends[1]])


@given(signatures=changes(METRES), ticks=st.lists(st.integers(0, 9000), min_size=1))
def test_every_line_is_a_bar_and_times_are_restored(
    signatures: list[TimeSignature], ticks: list[int]
) -> None:
    lines = notated_lines(Score(480, time_signatures=tuple(signatures)), 9001)
    bars = BarMap.of(lines, 480)
    np.testing.assert_array_equal(bars.steps(lines), bars.starts)
    np.testing.assert_array_equal(bars.ticks(bars.starts), lines)
    assert not (bars.starts % 6).any()
    assert np.diff(bars.vocabulary_lines()).max() <= 96
    times = np.sort(np.array(ticks))
    steps = bars.steps(times)
    assert (np.diff(steps) >= 0).all()
    assert np.abs(bars.ticks(steps) - times).max() <= 20
    # times remain in their bar or move to the bar line at its end
    bar = np.searchsorted(lines, times, side="right") - 1
    assert (steps >= bars.starts[bar]).all()
    assert (steps <= np.append(bars.starts, bars.starts[-1] + 10**6)[bar + 1]).all()


def test_a_bar_between_eighths_is_extended_to_the_next_one() -> None:
    score = Score(
        480,
        (Track.of([(0, 840, 60, 80), (840, 120, 62, 80), (1620, 60, 64, 80)]),),
        (Tempo(0, 90.0), Tempo(840, 95.0)),
        (TimeSignature(0, 7, 16),),
    )
    bars = BarMap.of(notated_lines(score, 1680), 480)
    counted = bars.on_grid(score)
    assert counted.tracks[0].notes[:, :2].tolist() == [[0, 24], [24, 3], [24 + 20, 4]]
    assert counted.tempos == (Tempo(0, 90.0), Tempo(24, 95.0))
    assert counted.time_signatures == (TimeSignature(0, 7, 16), TimeSignature(24, 2, 4))
    assert counted.end_ticks == 48
    np.testing.assert_array_equal(bars.notes(counted.tracks[0].notes), [
        [0, 840, 60, 80], [840, 120, 62, 80], [1640, 40, 64, 80],
    ])  # fmt: skip


def test_steps_after_the_last_line_continue_evenly() -> None:
    bars = BarMap.of(np.array([0, 840]), 480)
    assert bars.steps(np.array([839, 840, 880, 1320])).tolist() == [24, 24, 25, 36]
    assert nearest_step(839, 480) == 21
    assert bars.ticks(np.array([20, 21, 23, 24, 36])).tolist() == [800, 840, 840, 840, 1320]
