from __future__ import annotations

import math

import muspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.passages import notes_of
from tests.support.strategies import scores
from tokenization.measures.bars import BarNotes, TrackKey, new_music
from tokenization.measures.similarity import bar_similarity
from tokenization.midi.convert import to_muspy
from tokenization.score import Score, TimeSignature, Track
from training.evaluation.metrics.structure import (
    histograms,
    jensen_shannon,
    muspy_measures,
    playing_at_end,
    pool,
    structure,
    stuck_notes,
)

HISTOGRAMS = ("pitch_class", "duration", "onset_in_bar", "velocity", "notes_per_bar")
ANY = scores(max_beats=20, programs=(0, 0, 33, 48))
few = settings(max_examples=20)


@few
@given(ANY, st.integers(0, 6))
def test_all_notes_are_counted_in_their_bars_of_the_prompt_or_new_music(score, first_bar):
    notes = BarNotes.of(score)
    assert len(notes.onsets) == score.num_notes
    assert (notes.positions >= 0).all()
    assert (notes.positions < np.diff(notes.lines)[notes.bars]).all()
    whole = histograms(notes)
    assert set(whole) == set(HISTOGRAMS)
    pitched = int((~notes.is_drum).sum())
    totals = (pitched, pitched, score.num_notes, score.num_notes, notes.num_bars)
    assert tuple(int(whole[name].sum()) for name in HISTOGRAMS) == totals
    parts = [notes.between(0, first_bar), notes.between(first_bar)]
    assert sum(len(part.onsets) for part in parts) == len(notes.onsets)
    added = pool(map(histograms, parts))
    if first_bar < notes.num_bars:
        for name in HISTOGRAMS:
            np.testing.assert_array_equal(added[name], whole[name])


def test_new_music_keeps_its_place_on_the_bar_grid():
    track = Track.of([(0, 6, 60, 80), (47, 6, 61, 80), (48, 6, 62, 80), (90, 6, 63, 80)])
    score = Score(12, (track,), end_ticks=200)
    new = new_music(score, 1)
    assert new.tracks[0].notes[:, 2].tolist() == [62, 63]
    np.testing.assert_array_equal(BarNotes.of(new).bars, [1, 1])
    assert not new_music(score, 9).num_notes


def test_divergence_by_hand():
    assert jensen_shannon(np.array([5, 0]), np.array([0, 2])) == 1
    # of (1, 0) and (1/2, 1/2): entropy of (3/4, 1/4) less half a bit
    expected = -0.75 * math.log2(0.75) + 0.25 * 2 - 0.5
    one, other = np.array([4, 0]), np.array([3, 3])
    assert jensen_shannon(one, other) == jensen_shannon(other, one) == pytest.approx(expected)
    assert jensen_shannon(one, 3 * one) == pytest.approx(0, abs=1e-12)
    assert math.isnan(jensen_shannon(one, 0 * one))


def random_song(seed: int, numerator: int, drums: bool) -> Score:
    """Random notes without overlaps at the same pitch of a track, which MIDI cannot represent."""
    draw = np.random.default_rng(seed)
    tracks = []
    for number in range(3):
        rows = []
        for pitch in draw.choice(128, 6, replace=False).tolist():
            onsets = np.cumsum(draw.integers(13, 90, 5))
            rows += [(int(on), int(draw.integers(1, 13)), pitch, 80) for on in onsets]
        tracks.append(Track.of(rows, 10 * number, is_drum=drums and number == 0))
        tracks[-1] = Track(tracks[-1].notes, 10 * number, drums and number == 0, channel=number)
    return Score(12, tuple(tracks), (), (TimeSignature(0, numerator, 4),))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.sampled_from([2, 3, 4, 5]), st.booleans())
def test_measures_match_muspy(seed, numerator, drums):
    assert_like_muspy(random_song(seed, numerator, drums), numerator)


def assert_like_muspy(score: Score, numerator: int) -> None:
    music, found = to_muspy(score), muspy_measures(BarNotes.of(score))
    assert music.resolution == 12
    expected = {
        name: getattr(muspy, name)(music)
        for name in found
        if name not in ("empty_measure_rate", "groove_consistency")
    }
    expected["empty_measure_rate"] = muspy.empty_measure_rate(music, 12 * numerator)
    expected["groove_consistency"] = muspy.groove_consistency(music, 12 * numerator)
    assert len(found) == 9
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_measures_without_notes_or_with_only_drums_are_defined():
    nothing = muspy_measures(notes_of([], bars=2))
    assert nothing.pop("pitch_range") == nothing.pop("n_pitch_classes_used") == 0
    assert all(math.isnan(value) for value in nothing.values())
    drums = muspy_measures(notes_of([(0, 1, 36, 80), (60, 1, 36, 80)], bars=2, drums=True))
    assert drums["pitch_range"] == drums["polyphony_rate"] == 0
    assert math.isnan(drums["polyphony"])
    assert drums["empty_beat_rate"] == pytest.approx(4 / 6)


def test_metres_may_change_within_the_music():
    """Bars of 4, 3 and 2 beats, each with a note on the first beat, so the groove is constant."""
    lines = [0, 48, 84, 108]
    signatures = tuple(
        TimeSignature(tick, beats, 4) for tick, beats in zip(lines[:3], (4, 3, 2), strict=True)
    )
    track = Track.of([(tick, 6, 60, 80) for tick in lines[:3]])
    found = muspy_measures(BarNotes.of(Score(12, (track,), (), signatures, 108)))
    assert found["groove_consistency"] == 1
    assert found["empty_measure_rate"] == 0


def test_stuck_notes_exceed_a_number_of_bars_and_all_notes_of_the_prompt():
    prompt = [(0, 20, 60, 80)]
    new = [(48, 20, 62, 80), (60, 21, 63, 80), (96, 96, 64, 80), (96, 97, 65, 80)]
    notes = notes_of(prompt + new, bars=8)
    assert stuck_notes(notes, 1) == (4, 1, 3, 1)
    assert stuck_notes(notes, 1, bars=0.4) == (4, 4, 3, 3)
    assert stuck_notes(notes, 0) == (5, 1, 5, 1)
    # one note is too long for its short bar, the other for the prompt, but neither for both
    notes = notes_of([(0, 130, 50, 80), (48, 120, 60, 80), (96, 140, 64, 80)], bars=8)
    short = notes._replace(lines=np.array([0, 48, 72, 168, 216, 264, 312, 360, 408]))
    assert stuck_notes(short, 1, bars=4) == (2, 1, 1, 0)
    drums = notes_of([(48, 400, 36, 80)], prompt, bars=8, drums=True)
    assert stuck_notes(drums, 1) == (0, 0, 0, 0)


def test_instruments_that_stop_playing_are_listed():
    bass, piano = [(0, 6, 40, 80), (100, 6, 40, 80)], [(0, 6, 60, 80), (470, 6, 60, 80)]
    later = [(300, 6, 70, 80)]
    notes = notes_of(bass, piano, later, bars=10)
    expected = {TrackKey(0, 0): False, TrackKey(10, 0): True}
    assert playing_at_end(notes, 1) == expected
    assert playing_at_end(notes, 1, last_bars=8) == dict.fromkeys(expected, True)
    # held chords count as played until the bar line at their end
    pads = notes_of(
        [(0, 6, 60, 80), (96, 193, 60, 80)], [(0, 6, 60, 80), (96, 192, 60, 80)], bars=10
    )
    assert playing_at_end(pads, 1) == {TrackKey(0, 0): True, TrackKey(10, 0): False}
    # never the prompt itself
    assert playing_at_end(notes_of([(0, 480, 60, 80)], bars=10), 1) == {TrackKey(0, 0): False}
    assert playing_at_end(notes_of(bass[:1], bars=2), 1) == {TrackKey(0, 0): False}


@few
@given(ANY, st.integers(0, 5))
def test_all_figures_are_defined_for_any_score_and_similarity_is_symmetric(score, first_bar):
    notes = BarNotes.of(score)
    similarity = bar_similarity(notes)
    np.testing.assert_array_equal(similarity, similarity.T)
    has_notes = np.isin(np.arange(len(similarity)), notes.bars)
    np.testing.assert_array_equal(np.diagonal(similarity)[has_notes], 1)
    assert np.isnan(np.diagonal(similarity)[~has_notes]).all()
    known = similarity[~np.isnan(similarity)]
    assert ((known >= 0) & (known <= 1)).all()
    found = structure(notes, first_bar)
    for name, value in found.items():
        assert isinstance(value, float), name
        if name.endswith(("rate", "consistency", "share", "playing")) or "lag" in name:
            assert math.isnan(value) or 0 <= value <= 1, name


def test_a_prompt_that_keeps_looping_is_a_copy_of_itself():
    loop = [(12 * beat, 6, 60 + beat % 4, 80) for beat in range(64)]
    found = structure(notes_of(loop, bars=16), 8)
    expected = {"bars_of_prompt": 1, "similarity_lag_1": 1, "still_playing": 1, "bars": 8}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["stuck_share"] == 0
