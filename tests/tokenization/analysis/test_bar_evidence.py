"""Whose bars a piece has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.paths import ROOT
from tests.support.scores import performance
from tokenization.analysis import bar_evidence
from tokenization.analysis.bar_evidence import file_evidence, file_probability
from tokenization.midi import read_midi
from tokenization.score import Score, Tempo, TimeSignature, Track

EXAMPLES = ("ballad", "waltz", "pop", "groove", "barcarole")


def example(name: str) -> Score:
    return read_midi((ROOT / "examples" / f"{name}.mid").read_bytes())


def moved(score: Score, track: int, ticks: int) -> Score:
    """The same score with one track later; its end stays."""
    tracks = list(score.tracks)
    tracks[track] = replace(tracks[track], notes=np.add(tracks[track].notes, [ticks, 0, 0, 0]))
    return score.with_tracks(tracks)


@pytest.mark.parametrize("name", EXAMPLES)
def test_barred_music_keeps_its_bars_however_it_is_played(name):
    score, rng = example(name).refined(2), np.random.default_rng(0)
    assert file_probability(score) > 0.99
    assert file_probability(moved(score, 0, score.ticks_per_beat // 13)) > 0.99
    deviations = rng.normal(0, score.ticks_per_beat / 25, 100_000).astype(int)
    uneven = []
    for track in score.tracks:
        notes = track.notes.copy()
        notes[:, 0] = np.maximum(0, notes[:, 0] + deviations[: len(notes)])
        uneven.append(Track.of(notes, track.program, is_drum=track.is_drum))
    assert file_probability(score.with_tracks(uneven)) > 0.9


@given(places=st.sets(st.integers(0, 479), min_size=2, max_size=6), bars=st.integers(8, 20))
@settings(max_examples=10)
def test_what_repeats_in_every_bar_is_explained_wherever_it_is(places, bars):
    rows = [(1920 * bar + 480 * beat + p, 9, 60, 64) for bar in range(bars) for p in places
            for beat in range(4)]  # fmt: skip
    assert file_probability(Score(480, (Track.of(rows),))) > 0.99


def test_recordings_without_a_click_have_other_bars():
    assert file_probability(performance()) < 0.1
    for seed in range(5):
        onsets = np.random.default_rng(seed).integers(0, 100_000, 300)
        rows = [(int(onset), 1, 60, 64) for onset in onsets]
        score = Score(480, (Track.of(rows),))
        assert file_evidence(score).gain < 0.05
        assert file_probability(score) < 0.5


def test_a_fill_keeps_its_bars_since_no_bars_explain_it():
    onsets = np.random.default_rng(0).choice(1920, 40, replace=False)
    fill = Score(480, (Track.of([(int(onset), 60, 38, 90) for onset in onsets], is_drum=True),))
    assert file_probability(fill) >= 0.5


def test_the_unit_of_time_and_the_order_of_tracks_make_no_difference():
    score = example("groove")
    evidence = file_evidence(score)
    assert file_evidence(score.refined(3)) == pytest.approx(evidence)
    assert file_evidence(score.with_tracks(score.tracks[::-1])) == pytest.approx(evidence)
    fast = replace(score, tempos=(Tempo(0, 200.0),))
    assert file_evidence(fast) == pytest.approx(evidence)


def test_sheet_music_and_a_few_notes_keep_the_bars_of_their_file():
    recording = performance()
    assert file_probability(replace(recording, is_notated=True)) == 1
    (track,) = recording.tracks
    few = recording.with_tracks([replace(track, notes=track.notes[:15])])
    assert file_probability(few) == 1
    assert file_probability(Score(480)) == 1


def test_bars_of_any_metre_are_counted():
    rows = [(bar * 1680 + at, 100, 60, 80) for bar in range(12) for at in (0, 240, 500, 1333)]
    score = Score(480, (Track.of(rows),), time_signatures=(TimeSignature(0, 7, 8),))
    seven, four = (file_evidence(s).gain for s in (score, replace(score, time_signatures=())))
    assert seven > four + 0.3


def test_blocks_are_compared_in_parts_with_the_same_evidence(monkeypatch):
    score = example("ballad")
    expected = file_evidence(score)
    monkeypatch.setattr(bar_evidence, "_MOST_BLOCKS", 3)
    assert file_evidence(score) == expected
