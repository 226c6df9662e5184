from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import RESOLUTIONS, scores
from tokenization.analysis.beats import (
    MIN_TICKS_PER_BEAT,
    extend_by_pedal,
    pickup_beats,
    warp,
)
from tokenization.score import Score, Tempo, TimeSignature, Track


@st.composite
def rising_seconds(draw: st.DrawFn) -> np.ndarray:
    periods = draw(st.lists(st.floats(0.2, 2), min_size=1, max_size=20))
    return draw(st.floats(0, 3)) + np.append(0, np.cumsum(periods))


@st.composite
def steady_scores(draw: st.DrawFn) -> Score:
    """Scores that change tempo only on quarter notes, and metre only on bar lines."""
    resolution = draw(st.sampled_from(RESOLUTIONS))
    times = st.integers(0, 30 * resolution)
    notes = st.tuples(times, times, st.integers(0, 127), st.integers(1, 127))
    tempos, signatures, line = [], [], 0
    for numerator, bars in draw(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 3)))):
        if not signatures or signatures[-1].numerator != numerator:
            signatures.append(TimeSignature(line * resolution, numerator, 4))
        line += numerator * bars
    microseconds = st.integers(200_000, 2_000_000)
    for beat, period in enumerate(draw(st.lists(microseconds, min_size=1, unique=True))):
        tempos.append(Tempo(3 * beat * resolution, 60e6 / period))
    tracks = draw(st.lists(st.lists(notes, min_size=1), max_size=3))
    return Score(
        *(resolution, tuple(map(Track.of, tracks)), tuple(tempos), tuple(signatures)),
        end_ticks=max(line, 60, 3 * len(tempos) + 3) * resolution,
    )


@st.composite
def pedalled(draw: st.DrawFn) -> Score:
    """Few pitches and times, so that notes and pedals often coincide."""
    time = st.integers(0, 30)
    note = st.tuples(time, st.integers(0, 12), st.integers(60, 62), st.integers(1, 127))
    control = st.tuples(time, st.sampled_from((64, 64, 64, 1)), st.integers(0, 127))
    tracks = draw(st.lists(st.tuples(st.lists(note), st.lists(control)), max_size=2))
    return Score(
        12,
        tuple(
            Track(np.array(n), controls=np.array(sorted(c, key=lambda r: r[0]))) for n, c in tracks
        ),
        end_ticks=draw(st.integers(0, 60)),
    )


# ---- warping


@given(score=steady_scores())
def test_warping_to_the_beats_of_the_file_changes_nothing(score):
    num_beats = score.end_ticks // score.ticks_per_beat
    beats = score.seconds_at(np.arange(num_beats + 1) * score.ticks_per_beat)
    lines, line = [], 0
    bars = {change.tick // score.ticks_per_beat: change[1] for change in score.time_signatures}
    while bars and line <= num_beats:
        lines.append(line)
        line += bars[max(start for start in bars if start <= line)]
    warped = warp(score, beats, lines)
    factor = warped.ticks_per_beat // score.ticks_per_beat
    assert warped.ticks_per_beat == factor * score.ticks_per_beat >= MIN_TICKS_PER_BEAT
    for before, after in zip(score.tracks, warped.tracks, strict=True):
        np.testing.assert_array_equal(after.notes, before.notes * (factor, factor, 1, 1))
    assert warped.end_ticks == factor * score.end_ticks
    wanted = [Tempo(factor * tick, bpm) for tick, bpm in score.tempos]
    assert [tempo.tick for tempo in warped.tempos] == [tempo.tick for tempo in wanted]
    assert [t.bpm for t in warped.tempos] == pytest.approx([t.bpm for t in wanted], rel=1e-12)
    known = [
        change
        for change in score.time_signatures
        if change.tick // score.ticks_per_beat in lines[:-1]
    ]
    assert list(warped.time_signatures) == [
        TimeSignature(factor * tick, *rest) for tick, *rest in known
    ]


@given(score=scores(), beats=rising_seconds())
def test_warping_keeps_seconds(score, beats):
    score = Score(score.ticks_per_beat, score.tracks, (Tempo(0, 90.0), Tempo(70, 45.5)))
    warped = warp(score, beats)
    pickup = pickup_beats(score, beats)
    shift = warped.seconds_at(pickup * warped.ticks_per_beat) - beats[0]
    half_tick = np.diff(beats).max() / warped.ticks_per_beat / 2
    for before, after in zip(score.tracks, warped.tracks, strict=True):
        wanted = score.seconds_at(before.notes[:, 0]) + shift
        # half a microsecond per quarter note
        slack = half_tick + 1e-6 * (2 + after.end_ticks / warped.ticks_per_beat)
        found = warped.seconds_at(after.notes[:, 0])
        np.testing.assert_allclose(found, np.sort(wanted), rtol=0, atol=slack)
        assert sorted(after.notes[:, 2]) == sorted(before.notes[:, 2])


def test_an_upbeat_precedes_the_first_beat():
    rows = [(250, 250, 60, 64), (1000, 500, 62, 64), (1500, 1750, 64, 64), (3250, 10, 65, 64)]
    score = Score(1000, (Track.of(rows),), (Tempo(0, 60.0),))
    beats = [0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    assert pickup_beats(score, beats) == 1
    warped = warp(score, beats, [1, 4])
    assert warped.ticks_per_beat == 1000
    assert warped.tracks[0].notes[:, :2].tolist() == [
        *([500, 500], [2000, 1000], [3000, 3500], [6500, 20]),
    ]
    assert warped.tempos == (Tempo(0, 120.0),)
    assert warped.time_signatures == (TimeSignature(0, 2, 4), TimeSignature(2000, 3, 4))


def test_controllers_and_bends_move_with_the_notes():
    track = Track(
        np.array([(480, 480, 60, 64)]),
        controls=np.array([(0, 64, 127), (480, 64, 0)]),
        bends=np.array([(720, 100)]),
    )
    warped = warp(Score(480, (track,)), [0.5, 1.5])
    assert warped.tracks[0].notes.tolist() == [[0, 240, 60, 64]]
    assert warped.tracks[0].controls.tolist() == [[0, 64, 127], [0, 64, 0]]
    assert warped.tracks[0].bends.tolist() == [[120, 100]]


def test_pedal_is_applied_before_warping():
    rows = [(0, 240, 60, 64), (960, 240, 60, 64), (960, 240, 67, 64), (1920, 240, 72, 64)]
    pedal = np.array([(120, 64, 64), (1440, 64, 63)])
    score = Score(480, (Track(np.array(rows), controls=pedal),))
    warped = warp(score, [0, 1, 2], pedal=True)
    assert [row[1] for row in warped.tracks[0].notes.tolist()] == [480, 240, 240, 120]


def test_beats_must_rise():
    for beats in ([], [1.0], [0.0, 1.0, 1.0], [[0.0, 1.0]], [0.0, np.nan, 1.0]):
        with pytest.raises(ValueError, match="ascending seconds, at least two"):
            warp(Score(480), beats)
    with pytest.raises(ValueError, match="downbeats are not ascending"):
        warp(Score(480), [0, 1, 2], [1, 1])


# ---- pedal


def slow_pedal(track: Track, end_ticks: int) -> list[list[int]]:
    """Notes extended by the sustain pedal; a slow reference that moves each end tick by tick."""
    events = track.controls[track.controls[:, 1] == 64].tolist()
    last = max([end_ticks, *(tick for tick, *_ in events)])

    def is_down(tick: int) -> bool:
        values = [value for at, _, value in events if at <= tick]
        return bool(values) and values[-1] >= 64

    rows = []
    for onset, length, pitch, velocity in track.notes.tolist():
        strikes = {row[0] for row in track.notes.tolist() if row[2] == pitch and row[0] > onset}
        end = onset + length
        while end < last and is_down(end) and not any(onset < tick <= end for tick in strikes):
            end += 1
        rows.append([onset, end - onset, pitch, velocity])
    return sorted(rows)


@given(score=pedalled())
def test_the_pedal_holds_until_it_is_released_or_the_pitch_struck(score):
    extended = extend_by_pedal(score)
    for before, after in zip(score.tracks, extended.tracks, strict=True):
        assert sorted(after.notes.tolist()) == slow_pedal(before, score.end_ticks)
    assert extend_by_pedal(extended) == extended
