from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import scores
from tokenization.analysis import beat_salience
from tokenization.analysis.bar_evidence import file_probability
from tokenization.analysis.beat_salience import frames_of, salience
from tokenization.analysis.beat_tracker import estimate_beats
from tokenization.analysis.beats import pickup_beats, warp
from tokenization.errors import MidiError
from tokenization.score import Score, Tempo, Track

ROOTS = (48, 45, 41, 43)


def song(beats: np.ndarray, *, metre: int = 4, jitter: float = 0, seed: int = 0) -> Score:
    """Bass, chords and eighths of melody on beats in seconds; times in milliseconds."""
    generator = np.random.default_rng(seed)
    rows = []
    for beat in range(len(beats) - 1):
        root = ROOTS[beat // metre % 4]
        length = beats[beat + 1] - beats[beat]
        is_first = beat % metre == 0
        notes = [(0, metre if is_first else 0.9, root - 12 if is_first else root + 7, 80)]
        notes += [(0, 0.9, root + interval, 60) for interval in (12, 16, 19)]
        notes += [(half / 2, 0.45, 72 + int(generator.integers(12)), 70) for half in (0, 1)]
        for place, duration, pitch, velocity in notes:
            onset = beats[beat] + place * length + generator.normal(0, jitter)
            rows.append((max(0, 1000 * onset), 1000 * duration * length, pitch, velocity))
    return Score(1000, (Track.of(np.rint(rows).astype(int)),), (Tempo(0, 60.0),))


def share_found(found: np.ndarray, wanted: np.ndarray) -> float:
    """F-measure of beats within 70 ms."""
    near = np.abs(found[:, None] - wanted).min(axis=1) <= 0.07
    return 2 * np.count_nonzero(near) / (len(found) + len(wanted))


@given(
    seed=st.integers(0, 999),
    bpm=st.floats(60, 110),
    metre=st.sampled_from((3, 4)),
    shift=st.integers(1, 5000),
)
@settings(max_examples=10)
def test_later_music_has_later_beats_in_any_order_of_tracks(seed, bpm, metre, shift):
    score = song(1 + np.arange(49) * 60 / bpm, metre=metre, jitter=0.01, seed=seed)
    found = estimate_beats(score)
    notes = score.tracks[0].notes
    notes = np.add(notes, (shift, 0, 0, 0))
    halves = (Track(notes[1::2]), Track(notes[::2]))
    later = estimate_beats(Score(1000, halves, score.tempos))
    np.testing.assert_allclose(later.seconds, found.seconds + shift / 1000, atol=1e-6)
    assert later.downbeats.tolist() == found.downbeats.tolist()


@pytest.mark.parametrize(("metre", "seed"), [(3, 0), (4, 1)])
def test_beats_and_bars_of_a_performance(metre, seed):
    generator = np.random.default_rng(seed)
    drift = np.interp(np.arange(96), np.arange(0, 97, 12), generator.normal(0, 0.1, 9))
    periods = 60 / 80 * np.exp(drift + generator.normal(0, 0.02, 96))
    beats = 0.7 + np.append(0, np.cumsum(periods))
    score = song(beats, metre=metre, jitter=0.015, seed=seed)
    found = estimate_beats(score)
    assert share_found(found.seconds, beats[:-1]) > 0.95
    assert share_found(found.seconds[found.downbeats], beats[:-1:metre]) > 0.9
    warped = warp(score, found.seconds, found.downbeats)
    assert file_probability(score) < 0.5 < file_probability(warped)
    assert warped.time_signatures[-1].numerator == metre
    assert pickup_beats(score, found.seconds) == 0


@given(score=scores())
def test_any_score_has_beats_around_its_notes(score):
    if score.num_notes == 0 or score.seconds_at(score.end_ticks) > 1000:
        return
    found = estimate_beats(score)
    onsets = score.seconds_at(np.concatenate([track.notes[:, 0] for track in score.tracks]))
    assert (np.diff(found.seconds) > 0).all()
    assert len(found.seconds) >= 2
    assert found.seconds[0] <= onsets.min()
    assert found.seconds[-1] > onsets.max() - 3
    assert (np.diff(found.downbeats) > 0).all()
    assert 0 <= found.downbeats[0] <= found.downbeats[-1] < len(found.seconds)
    assert pickup_beats(score, found.seconds) == 0


def test_a_piece_of_one_chord_has_two_beats():
    for length in (1, 300, 10**9):
        score = Score(1000, (Track.of([(500, length, 60, 64), (510, length, 64, 64)]),))
        found = estimate_beats(score)
        assert len(found.seconds) == 2
        assert found.seconds[0] == score.seconds_at(500)


def test_a_score_without_beats_is_rejected():
    with pytest.raises(MidiError, match="found no notes"):
        estimate_beats(Score(480, (Track.of([]),)))
    far = Track.of([(0, 1, 60, 64), (30_000 * 480, 1, 60, 64)])
    with pytest.raises(MidiError, match="at most 14,400"):
        estimate_beats(Score(480, (far,)))


@pytest.mark.parametrize(("bpm", "jitter"), [(61.7, 0), (96, 0.008), (133.3, 0.008)])
def test_music_in_strict_time_has_one_tempo(bpm, jitter):
    score = song(0.4 + np.arange(65) * 60 / bpm, jitter=jitter)
    found = estimate_beats(score)
    assert np.ptp(np.diff(found.seconds)) < 1e-6
    assert len(warp(score, found.seconds).tempos) == 1
    assert abs(np.diff(found.seconds).mean() / (60 / bpm) - 1) < 0.002


def test_confidence_is_low_where_there_are_no_beats():
    regular = song(0.4 + np.arange(65) * 0.6)
    generator = np.random.default_rng(0)
    rows = np.column_stack(
        [
            np.sort(generator.integers(0, 40_000, 300)),
            np.full(300, 300),
            generator.integers(40, 90, 300),
            generator.integers(30, 90, 300),
        ]
    )
    noise = Score(1000, (Track.of(rows),), (Tempo(0, 60.0),))
    low, high = estimate_beats(noise).confidence, estimate_beats(regular).confidence
    assert 0 <= low < 0.65 < high <= 1


def test_long_music_is_read_in_parts_with_the_same_result(monkeypatch):
    read, _, _ = frames_of(song(0.4 + np.arange(97) * 0.7, jitter=0.02))
    whole = salience(read)
    monkeypatch.setattr(beat_salience, "_PART", 700)
    np.testing.assert_allclose(salience(read), whole, atol=1e-4)


def test_strange_music_has_beats():
    for rows in (
        [(0, 1, 60, 64), (900_000, 1, 60, 64)],  # a quarter of an hour of silence
        [(10 * at, 10, 60, 64) for at in range(1000)],  # a hundred notes a second
        [(60_000 * at, 10, 60, 64) for at in range(10)],  # a note a minute
        [(at // 10, 10, at % 128, 64) for at in range(2000)],  # all at once
    ):
        found = estimate_beats(Score(1000, (Track.of(rows),), (Tempo(0, 60.0),)))
        assert (np.diff(found.seconds) > 0).all()
        assert 0 <= found.confidence <= 1
