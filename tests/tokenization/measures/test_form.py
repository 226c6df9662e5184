from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import scores
from tokenization.measures.bars import BarNotes
from tokenization.measures.form import (
    bar_harmony,
    bass_fits,
    clashes,
    density_drift,
    exact_similarity,
    fills,
    form,
    harmony,
    melody_breaths,
    melody_of,
    returns,
    root_agreement,
)
from tokenization.measures.similarity import repeated_bars
from tokenization.score import Score, Track

BAR = 48
ANY = scores(max_beats=20, programs=(0, 0, 33, 48))
few = settings(max_examples=20, deadline=None)
TRIADS = {"C": (48, 64, 67, 72), "F": (41, 65, 69, 72), "G": (43, 62, 67, 71), "Am": (45, 64, 69)}


def passage(*tracks, programs=None, drums=None, bars=None):
    """Bars of 4/4 in twelfths, from rows of (onset, duration, pitch) for each track."""
    programs = programs or [10 * i for i in range(len(tracks))]
    made = [
        Track.of([(*row, 80) for row in rows], program=program)
        for rows, program in zip(tracks, programs, strict=True)
    ]
    if drums is not None:
        made.append(Track.of([(*row, 80) for row in drums], is_drum=True))
    last = max((row[0] for track in (*tracks, drums or ()) for row in track), default=0)
    return BarNotes.of(Score(12, tuple(made), end_ticks=(bars or last // BAR + 1) * BAR))


def chorale(*names):
    """One chord a bar."""
    return [(i * BAR, BAR, pitch) for i, name in enumerate(names) for pitch in TRIADS[name]]


def random_bars(count, seed=0, size=8):
    """Bars of quavers with random pitches, all different."""
    pitches = np.random.default_rng(seed).integers(36, 96, (count, size))
    return [
        (bar * BAR + 6 * place, 6, int(pitch))
        for bar, row in enumerate(pitches)
        for place, pitch in enumerate(row)
    ]


def moved(notes, bars):
    """Rows moved by some bars."""
    return [(onset + bars * BAR, *rest) for onset, *rest in notes]


def same(found, expected, but=()):
    assert found.keys() == expected.keys()
    for name in found.keys() - set(but):
        assert found[name] == pytest.approx(expected[name], nan_ok=True, abs=1e-9), name


@few
@given(ANY, st.integers(0, 6))
def test_all_measures_are_numbers_in_their_ranges_or_nan(score, first_bar):
    similarity = exact_similarity(BarNotes.of(score))
    np.testing.assert_array_equal(similarity, similarity.T)
    own = np.diagonal(similarity)
    assert ((own == 1) | np.isnan(own)).all()
    found = form(BarNotes.of(score), first_bar)
    shares = ("most_similar", "like_bar", "self_simil", "static", "bass_fits", "clashes", "falling")
    for name, value in found.items():
        assert type(value) is float
        assert not math.isinf(value)
        if name.startswith(shares) and not math.isnan(value):
            assert 0 <= value <= 1, name
        if name.startswith("roots_over") and not math.isnan(value):
            assert -1 <= value <= 1


@few
@given(ANY, st.integers(0, 4), st.integers(-5, 6))
def test_transposing_changes_nothing(score, first_bar, semitones):
    def up(track):
        notes = track.notes.copy()
        notes[:, 2] += 0 if track.is_drum else semitones
        return replace(track, notes=notes)

    pitches = [p for t in score.tracks if not t.is_drum for p in t.notes[:, 2].tolist()]
    if not all(0 <= pitch + semitones <= 127 for pitch in pitches):
        return
    higher = score.with_tracks([up(track) for track in score.tracks])
    # of equally good chords the first is chosen, which may differ after transposing
    but = {name for name in form(BarNotes.of(score), 0) if name.startswith(CHORDS)}
    same(form(BarNotes.of(higher), first_bar), form(BarNotes.of(score), first_bar), but)


CHORDS = ("roots_over", "harmonic", "longest_chord", "static", "falling", "bass_fits")


def test_each_playing_track_has_an_equal_vote_in_the_similarity_of_bars():
    # the first track repeats all its notes, the second repeats one of three, and the third rests
    tune = [(0, 12, 60), (12, 12, 62), (24, 12, 64), (36, 12, 65)]
    bass = [(0, 12, 36), (12, 12, 38)], [(48, 12, 36), (60, 12, 40)]
    notes = passage([*tune, *moved(tune, 1)], [*bass[0], *bass[1]], [(96, 12, 80)])
    similarity = exact_similarity(notes)
    assert similarity[0, 1] == pytest.approx((1 + 1 / 3) / 2)
    assert similarity[0, 2] == 0
    # the same pitch an octave higher is another note
    assert exact_similarity(passage([(0, 12, 60), (48, 12, 72)]))[0, 1] == 0


def test_a_section_that_returns_has_an_equal_earlier_bar_and_new_music_has_none():
    section, other = random_bars(8, 1), random_bars(8, 2)
    again = passage([*section, *moved(section, 8)])
    new = passage([*section, *moved(other, 8)])
    assert returns(exact_similarity(again), again, 8)["most_similar_earlier"] == 1
    assert returns(exact_similarity(again), again, 8)["like_bar_before"] < 0.2
    assert returns(exact_similarity(new), new, 8)["most_similar_earlier"] < 0.3
    assert repeated_bars(again, 8).of_any_earlier == 1
    # nothing is repeated among the new bars alone
    found = form(passage([*section, *moved(section, 8), *moved(section, 16)]), 8)
    assert found["self_similarity_8"] == 1
    assert found["self_similarity_4"] < 0.2


def test_a_bar_without_notes_is_similar_to_nothing_and_not_counted():
    notes = passage([(0, 12, 60), (2 * BAR, 12, 60)], bars=4)
    assert returns(exact_similarity(notes), notes, 1) == {
        "most_similar_earlier": 1,
        "like_bar_before": 0,
    }
    assert math.isnan(form(notes, 3)["most_similar_earlier"])


@few
@given(st.lists(st.integers(-1, 4), max_size=40), st.sampled_from([1, 4, 8]), st.integers(0, 50))
def test_roots_agree_by_chance_as_often_in_any_order(roots, lag, first_bar):
    table = np.array(roots, np.int64)
    found = root_agreement(table, lag, first_bar)
    assert math.isnan(found) or -1 <= found <= 1
    # the names of the roots do not matter
    renamed = np.where(table < 0, -1, (7 * table + 3) % 12)
    assert root_agreement(renamed, lag, first_bar) == pytest.approx(found, nan_ok=True)


def test_root_agreement_is_high_for_a_loop():
    assert root_agreement(np.tile([0, 5, 7, 9], 6), 4) > 0.75
    assert root_agreement(np.zeros(16, np.int64), 4) == 0
    assert math.isnan(root_agreement(np.full(16, -1), 4))
    assert math.isnan(root_agreement(np.zeros(4, np.int64), 4))
    # the bars before may belong to the prompt
    assert root_agreement(np.array([0, 5, 7, 9] * 2), 4, 4) > 0.75


def test_the_main_chord_of_a_bar_sounds_longest():
    rows = chorale("C", "F") + [(2 * BAR, 36, p) for p in TRIADS["G"]]
    rows += [(2 * BAR + 36, 12, p) for p in TRIADS["C"]]
    assert bar_harmony(passage(rows)).roots.tolist() == [0, 5, 7]
    assert bar_harmony(passage([(0, 12, 60)], bars=1)).chords.shape == (1,)


def test_harmony_by_hand():
    found = harmony(passage(chorale(*("C", "F", "G", "C") * 6)), 4)
    assert found["harmonic_period"] == 1
    assert found["longest_chord"] == 2
    assert found["static_chord"] == 0
    # C to F and G to C of three changes
    assert found["falling_fifths"] == pytest.approx(2 / 3, abs=0.05)
    static = harmony(passage(chorale(*("C",) * 12)), 4)
    assert (static["longest_chord"], static["static_chord"]) == (8, 1)
    assert static["harmonic_period"] == 0
    assert math.isnan(static["falling_fifths"])
    assert harmony(passage(chorale(*("C",) * 11)), 4)["static_chord"] == 0
    silent = harmony(passage([(0, 12, 60)], bars=12), 4)
    assert all(math.isnan(silent[name]) for name in ("harmonic_period", "longest_chord"))


def test_a_bass_fits_the_chord_of_the_others_or_not():
    upper = [row for row in chorale("C", "F", "G", "C") if row[2] >= 60]

    def with_bass(*pitches):
        bass = [(i * BAR, BAR, pitch) for i, pitch in enumerate(pitches)]
        return passage(upper, bass, programs=[0, 33])

    assert bass_fits(with_bass(36, 41, 43, 36), 0) == 1
    assert bass_fits(with_bass(36, 41, 43, 37), 2) == 0.5
    assert bass_fits(with_bass(37, 42, 44, 37), 0) == 0
    assert math.isnan(bass_fits(passage(chorale("C", "F")), 0))
    assert math.isnan(bass_fits(passage(upper, drums=[(0, 12, 36)]), 0))


def test_semitones_clash_in_any_octave_and_not_sevenths():
    for interval, share in ((1, 1), (25, 1), (11, 0), (12, 0)):
        # one begins while the other sounds; or as it ends
        assert clashes(passage([(0, 12, 60)], [(11, 12, 60 + interval)]), 0) == share
        assert math.isnan(clashes(passage([(0, 12, 60)], [(12, 12, 60 + interval)]), 0))
    assert math.isnan(clashes(passage([], drums=[(0, 12, 36), (0, 12, 37)]), 0))


@few
@given(ANY, st.integers(0, 3))
def test_clashes_are_those_of_all_pairs(score, first_bar):
    notes = BarNotes.of(score)
    found = notes.only(~notes.is_drum)
    ends, new = found.onsets + found.durations, found.bars >= first_bar
    pairs = semitones = 0
    for i in range(len(ends)):
        for j in range(i):
            later = max(found.onsets[i], found.onsets[j])
            starts = (new[i] and found.onsets[i] == later) or (new[j] and found.onsets[j] == later)
            if starts and min(ends[i], ends[j]) > later:
                pairs += 1
                semitones += abs(int(found.pitches[i]) - int(found.pitches[j])) % 12 == 1
    expected = semitones / pairs if pairs else math.nan
    assert clashes(notes, first_bar) == pytest.approx(expected, nan_ok=True)


def test_a_drum_fill_ends_a_phrase():
    beat = [(12 * i, 6, 36 if i % 2 else 38) for i in range(4)]
    fill = [(6 * i, 6, 45 + i) for i in range(8)]
    phrase = [*moved(beat, 0), *moved(beat, 1), *moved(beat, 2), *moved(fill, 3)]
    with_fills = [row for turn in range(4) for row in moved(phrase, 4 * turn)]
    assert fills(passage([], drums=with_fills), 4) == 1
    steady = [row for bar in range(16) for row in moved(beat, bar)]
    assert fills(passage([], drums=steady), 4) == 0
    assert math.isnan(fills(passage([(0, 12, 60)], bars=16), 4))
    # a fill in the wrong place
    assert fills(passage([], drums=moved(with_fills, 2)), 6) < 0


def test_the_melody_is_the_highest_part_and_has_rests():
    tune = [(0, 12, 72), (12, 12, 74), (30, 18, 76)]
    under = [(6 * i, 6, 48) for i in range(8)]
    notes = passage([*tune, *under])
    melody = melody_of(notes, 0)
    assert melody.pitches.tolist() == [72, 74, 76]
    assert melody_breaths(melody, 1) == 1
    shorter = melody_of(passage([(0, 12, 72), (17, 12, 74)]), 0)
    assert melody_breaths(shorter, 1) == 0
    # the highest of several tracks
    assert melody_of(passage(tune, under), 0).pitches.tolist() == [72, 74, 76]
    assert math.isnan(melody_breaths(melody_of(notes, 5), 1))


def test_density_drift_is_in_doublings():
    rows = [(bar * BAR + 6 * i, 6, 60) for bar in range(8) for i in range(2 if bar < 6 else 8)]
    assert density_drift(passage(rows), 0) == 2
    assert math.isnan(density_drift(passage(rows), 5))
    assert math.isnan(density_drift(passage(rows, bars=12), 0))
    # without notes every measure is undefined
    found = form(BarNotes.of(Score(12, (), end_ticks=8 * BAR)), 4)
    assert all(math.isnan(value) for value in found.values())
