from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.paths import GOLDEN_FOLDER
from tokenization.measures.bars import TrackKey
from tokenization.score import Score, TimeSignature, Track
from training.evaluation.metrics import style
from training.evaluation.metrics.style import (
    Form,
    cosine_similarity,
    mean_style,
    style_by_quarter,
)

GOLDEN = np.load(GOLDEN_FOLDER / "spe.npz", allow_pickle=False)
FORMS: list[Form] = ["exact", "compat"]
few = settings(max_examples=20)


def golden_score(piece: str) -> Score:
    """Three tracks, the second one drums."""
    notes = GOLDEN[f"style_notes_{piece}"]
    tracks = [
        Track(notes[notes[:, 0] == track][:, [1, 3, 2, 4]], is_drum=track == 1)
        for track in range(3)
    ]
    return Score(int(GOLDEN["style_resolution"]), tuple(tracks))


def song(seed: int, bars: int = 8, metre: tuple[int, int] = (4, 4)) -> Score:
    """Drums, bass and two pianos, at random on the grid of twelfths."""
    draw = np.random.default_rng(seed)
    length = bars * 48 * metre[0] // metre[1]

    def track(program: int, low: int, *, is_drum: bool = False) -> Track:
        onsets = np.sort(draw.integers(0, length, 5 * bars))
        columns = (draw.integers(1, 30, len(onsets)), draw.integers(low, low + 12, len(onsets)))
        notes = np.stack([onsets, *columns, np.full(len(onsets), 80)], 1)
        return Track(notes, program, is_drum=is_drum)

    tracks = (track(0, 36, is_drum=True), track(33, 30), track(0, 60), track(0, 72))
    return Score(12, tracks, (), (TimeSignature(0, *metre),), length + 60)


def shifted(score: Score, ticks: int, semitones: int = 0) -> Score:
    tracks = [
        track.with_tables(
            notes=track.notes + np.array((ticks, 0, semitones * (not track.is_drum), 0))
        )
        for track in score.tracks
    ]
    return Score(12, tuple(tracks), (), score.time_signatures, score.end_ticks + ticks)


def profiles(score, track, form: Form = "exact") -> dict[Any, np.ndarray]:
    """Counts of a track; in the compatible form, densities as in the publication."""
    counts = style.profiles(track.notes, track.is_drum, score, form)
    if form == "exact":
        return counts
    areas = {"time_pitch_diff": 1 / 6, "onset_duration": 1 / 36, "onset_drum": 1 / 6}
    return {name: x / (areas[name] * max(x.sum(), 1)) for name, x in counts.items()}


def test_profiles_match_golden_values():
    for piece, (number, track) in product("ab", enumerate(golden_score("a").tracks)):
        score = golden_score(piece)
        exact, compat = (profiles(score, score.tracks[number], form) for form in FORMS)
        name = f"style_{piece}_t{number}"
        expected = {"onset_drum": "onset.drum"}
        if not track.is_drum:
            expected = {"onset_duration": "onset.duration", "time_pitch_diff": "time_pitch_diff"}
        assert exact.keys() == compat.keys() == expected.keys()
        for key, golden in expected.items():
            wanted = GOLDEN[f"{name}_{golden}"]
            assert compat[key].shape == wanted.shape
            np.testing.assert_allclose(compat[key], wanted, rtol=1e-12, atol=1e-12)
            counted = "exact" if key == "time_pitch_diff" else "fixed"
            wanted = GOLDEN[f"{name}_{golden}_{counted}"]
            np.testing.assert_array_equal(exact[key][: len(wanted)], wanted)
            assert not exact[key][len(wanted) :].any()  # beyond a bar of four beats


def test_similarities_match_golden_values():
    names, values = GOLDEN["style_sim_names"].tolist(), GOLDEN["style_sim_values"].tolist()
    for name, value in zip(names, values, strict=True):
        track, rest = name.split("_", 1)
        profile, form = rest.rsplit("_", 1)
        counted = "compat" if form == "original" else "exact"
        a, b = (
            profiles(score, score.tracks[int(track[1])], counted)
            for score in (golden_score("a"), golden_score("b"))
        )
        key = profile.replace(".", "_")
        assert cosine_similarity(a[key], b[key]) == pytest.approx(value, rel=1e-12)


@few
@given(
    seed=st.integers(0, 20),
    bars=st.integers(0, 5),
    metre=st.sampled_from([(4, 4), (3, 4), (6, 8), (12, 8), (5, 4), (2, 2)]),
    semitones=st.integers(-12, 12),
    factor=st.sampled_from([1, 2, 10, 40]),
)
def test_whole_bars_transposition_and_resolution_change_no_profile(
    seed, bars, metre, semitones, factor
):
    score = song(seed, metre=metre)
    moved = shifted(score, bars * 48 * metre[0] // metre[1], semitones)
    tracks = [t.with_tables(notes=t.notes * [factor, factor, 1, 1]) for t in moved.tracks]
    metres, end = moved.time_signatures, moved.end_ticks * factor
    fine = Score(12 * factor, tuple(tracks), (), metres, end)
    for track, other in zip(score.tracks, fine.tracks, strict=True):
        # the published form counts bars of four beats, and in ticks
        for form in FORMS if bars == 0 and factor == 1 else FORMS[:1]:
            a, b = profiles(score, track, form), profiles(fine, other, form)
            assert all(np.array_equal(a[name], b[name]) for name in a)
            for values in b.values():
                assert cosine_similarity(values, 3 * values) == pytest.approx(float(values.any()))
                assert cosine_similarity(values, 0 * values) == 0


@few
@given(seed=st.integers(0, 20), ticks=st.integers(1, 3).map(lambda k: 12 * k))
def test_a_shift_within_the_bar_changes_onsets_but_no_time_differences(seed, ticks):
    score = song(seed)
    moved = shifted(score, ticks)
    a, b = (profiles(s, s.tracks[1]) for s in (score, moved))
    assert np.array_equal(a["time_pitch_diff"], b["time_pitch_diff"])
    assert not np.array_equal(a["onset_duration"], b["onset_duration"])


def test_a_change_of_metre_starts_a_new_bar():
    track = Track.of([(48 + 36, 6, 60, 80)])
    signatures = (TimeSignature(0, 4, 4), TimeSignature(48, 3, 4))
    for metre, expected in ((signatures, 0), (signatures[:1], 18)):
        found = profiles(Score(12, (track,), (), metre), track)
        assert np.argwhere(found["onset_duration"]).tolist() == [[expected, 3]]


def looped(bars: int) -> Score:
    """A repeated bar of drums, bass and two pianos."""
    tracks = []
    for program, pitch in ((128, 36), (33, 40), (0, 60), (0, 72)):
        onsets = np.arange(4 * bars) * 12
        pitches = pitch + np.tile([0, 4, 7, 4], bars)
        notes = np.stack([onsets, np.full_like(onsets, 6), pitches, np.full_like(onsets, 80)], 1)
        tracks.append(Track(notes, program % 128, is_drum=program == 128))
    return Score(12, tuple(tracks))


def test_a_loop_that_continues_keeps_its_style_in_all_quarters():
    of_notes = ("time_pitch_diff", "onset_duration")
    tracks = (TrackKey(33, 0), TrackKey(0, 0), TrackKey(0, 1))
    for form in FORMS:
        rows = style_by_quarter(looped(40), [looped(40)] * 3, 8, form=form)
        expected = [(TrackKey(128, 0), "onset_drum"), *product(tracks, of_notes)]
        assert [(row.track, row.profile) for row in rows] == expected
        # only pairs across the ends of a quarter are missing
        assert min(row.similarities.min() for row in rows) > 0.99
        means = mean_style(rows)
        assert set(means) == {"onset_drum", *of_notes}
        assert means["onset_drum"].shape == (4,)


def test_a_track_that_is_missing_counts_as_zero():
    reference = looped(12)
    without_bass = reference.with_tracks(t for t in reference.tracks if t.program != 33)
    rows = style_by_quarter(reference, [without_bass], 4)
    for row in rows:
        assert (row.similarities.max() == 0) == (row.track == TrackKey(33, 0))
    means = mean_style(rows)
    assert means["time_pitch_diff"] == pytest.approx(
        2 / 3 * mean_style([r for r in rows if r.track.program != 33])["time_pitch_diff"]
    )


def test_continuations_are_pooled_before_they_are_compared():
    """If each of two continuations has half of a profile, both together match it."""
    reference, empty = looped(8), looped(8).tracks[1].notes
    beat = (empty[:, 0] // 12) % 4
    halves = [
        reference.with_tracks([reference.tracks[1].with_tables(notes=empty[beat % 2 == part])])
        for part in (0, 1)
    ]

    def onsets(continuations: list[Score]) -> float:
        rows = style_by_quarter(reference, continuations, 0)
        return next(r.similarities[0] for r in rows if r[:2] == (TrackKey(33, 0), "onset_duration"))

    assert onsets(halves) == pytest.approx(1)
    assert onsets(halves[:1]) == pytest.approx(0.5**0.5)


def test_quarters_divide_the_time_of_the_new_music():
    reference = looped(8)
    for quarter in range(-1, 4):  # the prompt itself is not scored
        start = 48 * (4 + quarter)
        one_bar = reference.with_tracks(
            t.with_tables(notes=t.notes[(t.notes[:, 0] >= start) & (t.notes[:, 0] < start + 48)])
            for t in reference.tracks
        )
        for row in style_by_quarter(reference, [one_bar], 4):
            assert np.flatnonzero(row.similarities).tolist() == [quarter][: quarter + 1]
