from __future__ import annotations

import numpy as np
from hypothesis import given

from tests.support.strategies import scores
from tokenization.grid import notated_lines
from tokenization.remi.tempo_range import in_tempo_range, tempos_out_of_range
from tokenization.score import Score, Tempo, TimeSignature, Track

ROWS = [(240 * i, 240, 60 + i % 12, 80) for i in range(40)]


@given(score=scores())
def test_tempos_are_in_the_range_and_seconds_are_kept(score):
    fitted = in_tempo_range(score)
    assert len(tempos_out_of_range(fitted)) == sum(not 0.25 < t.bpm < 31_000 for t in score.tempos)
    assert (fitted is score) == (not tempos_out_of_range(score))
    for before, after in zip(score.tracks, fitted.tracks, strict=True):
        for column in (0, 1):
            ends = [track.notes[:, : column + 1].sum(1) for track in (before, after)]
            old, new = (s.seconds_at(t) for s, t in zip((score, fitted), ends, strict=True))
            np.testing.assert_allclose(old, new, atol=1e-6)


def test_bars_stay_bars_also_if_the_tempo_changes_within_them():
    tempos = (Tempo(0, 100.0), Tempo(2400, 10.0), Tempo(3000, 100.0), Tempo(5760, 600.0))
    metres = (TimeSignature(0, 3, 4), TimeSignature(5760, 6, 8))
    score = Score(480, (Track.of(ROWS),), tempos, metres)
    fitted = in_tempo_range(score)
    lines, moved = notated_lines(score, 9600), notated_lines(fitted, fitted.end_ticks)
    np.testing.assert_allclose(score.seconds_at(lines), fitted.seconds_at(moved)[: len(lines)])
    expected = ((3, 4), (8, 8), (7, 8), (3, 4), (6, 16))
    assert [metre[1:] for metre in fitted.time_signatures] == [*expected]


def test_a_score_in_the_range_is_returned_as_it_is():
    score = Score(480, (Track.of(ROWS),), (Tempo(0, 15.0), Tempo(10, 498.0)))
    assert in_tempo_range(score) is score
