from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import scores
from tokenization.analysis.chords import (
    CHORD_NAMES,
    NO_CHORD,
    QUALITIES,
    ROOTS,
    _best_path,
    recognise_chords,
)
from tokenization.score import Score, Track

INTERVALS = {
    **{"M": (0, 4, 7), "m": (0, 3, 7), "o": (0, 3, 6), "+": (0, 4, 8), "7": (0, 4, 7, 10)},
    **{"M7": (0, 4, 7, 11), "m7": (0, 3, 7, 10), "o7": (0, 3, 6, 9), "/o7": (0, 3, 6, 10)},
    **{"sus2": (0, 2, 7), "sus4": (0, 5, 7)},
}


def played(chords: list[tuple[int, str, int]], bass: int = 48) -> Score:
    """Block chords of (root, quality, beats), in root position."""
    rows, beat = [], 0
    for root, quality, length in chords:
        rows += [
            (24 * beat, 24 * length, bass + root + interval, 64) for interval in INTERVALS[quality]
        ]
        beat += length
    return Score(24, (Track.of(rows),))


def progressions() -> st.SearchStrategy[list[tuple[int, str, int]]]:
    chord = st.tuples(st.integers(0, 11), st.sampled_from(QUALITIES), st.integers(1, 4))
    return st.lists(chord, min_size=1, max_size=8)


# ---- properties


@given(chords=progressions(), semitones=st.integers(-12, 12))
def test_transposed_music_has_transposed_chords(chords, semitones):
    here = recognise_chords(played(chords))
    there = recognise_chords(played(chords, 48 + semitones))
    assert there.beats.tolist() == here.beats.tolist()
    assert there.qualities.tolist() == here.qualities.tolist()
    assert there.roots.tolist() == [
        NO_CHORD if root < 0 else (root + semitones) % 12 for root in here.roots.tolist()
    ]


@given(score=scores(), order=st.randoms(use_true_random=False))
def test_neither_order_of_tracks_nor_drums_nor_velocities_matter(score, order):
    score = replace(score, end_ticks=max(score.end_ticks, 1))  # for the drums
    tracks = [track for track in score.tracks if not track.is_drum]
    order.shuffle(tracks)
    tracks = [Track(np.column_stack([t.notes[:, :3], t.notes[:, 3] % 9 + 1])) for t in tracks]
    drums = Track.of([(0, 1, pitch, 127) for pitch in range(30, 60)], is_drum=True)
    here, there = (recognise_chords(s) for s in (score, score.with_tracks([*tracks, drums])))
    assert here.beats.tolist() == there.beats.tolist()
    assert here.names == there.names


@given(score=scores(), factor=st.integers(2, 5))
def test_resolution_does_not_matter(score, factor):
    notes = [np.multiply(track.notes, (factor, factor, 1, 1)) for track in score.tracks]
    tracks = tuple(Track(n, is_drum=t.is_drum) for n, t in zip(notes, score.tracks, strict=True))
    finer = Score(score.ticks_per_beat * factor, tracks, end_ticks=score.end_ticks * factor)
    here, there = recognise_chords(score), recognise_chords(finer)
    assert here.beats.tolist() == there.beats.tolist()
    assert here.names == there.names


@given(score=scores())
def test_chords_are_runs_of_beats_from_the_beginning(score):
    chords = recognise_chords(score)
    assert (chords.beats == np.floor(chords.beats)).all()
    assert (np.diff(chords.beats) > 0).all()
    assert (np.diff(chords.indices) != 0).all()
    assert len(chords.beats) == 0 or chords.beats[0] == 0
    assert len(chords.beats) > 0 or score.end_ticks == 0
    assert [CHORD_NAMES[index] for index in chords.at(chords.beats)] == chords.names
    ends = np.arange(-(-score.end_ticks // score.ticks_per_beat))
    again = recognise_chords(score, ends)
    assert again.names == chords.names
    assert again.beats.tolist() == chords.beats.tolist()


# ---- compared with a naive implementation


@given(rows=st.lists(st.tuples(*[st.integers(0, 24)] * 3), min_size=1, max_size=6))
def test_no_path_has_a_larger_sum(rows):
    fits = np.multiply(rows, 0.5, dtype=np.float32)

    def total(path: tuple[int, ...]) -> float:
        changes = sum(a != b for a, b in pairwise(path))
        return sum(fits[beat, chord] for beat, chord in enumerate(path)) - 2.5 * changes

    best = max(map(total, product(range(3), repeat=len(rows))))
    assert total(tuple(_best_path(fits).tolist())) == best


# ---- examples


@pytest.mark.parametrize("length", [1, 4])
def test_textbook_chords_are_recognised(length):
    for place, quality in enumerate(QUALITIES):
        for root in {place, (5 * place + 7) % 12}:
            found = recognise_chords(played([(root, quality, length)]))
            assert found.names == [f"{ROOTS[root]}_{quality}"]


def test_a_progression_with_its_beats():
    chords = recognise_chords(played([(0, "M", 4), (9, "m7", 4), (2, "m", 2), (7, "7", 2)]))
    assert chords.names == ["C_M", "A_m7", "D_m", "G_7"]
    assert chords.beats.tolist() == [0, 4, 8, 10]
    assert chords.roots.tolist() == [0, 9, 2, 7]
    assert chords.at([0, 3.9, 4, 100]).tolist() == [
        CHORD_NAMES.index(name) for name in ("C_M", "C_M", "A_m7", "G_7")
    ]


def test_inversions_and_passing_notes_do_not_hide_a_chord():
    rows = [(0, 96, 52, 64), (0, 96, 60, 64), (0, 96, 67, 64), (24, 12, 74, 64), (36, 12, 72, 64)]
    assert recognise_chords(Score(24, (Track.of(rows),))).names == ["C_M"]


def test_a_note_that_only_reaches_into_a_beat_is_not_its_bass():
    first = [(0, 26, 40, 64), (0, 24, 64, 64), (0, 24, 67, 64), (0, 24, 71, 64)]
    second = [(24, 24, pitch, 64) for pitch in (48, 64, 67, 72)]
    score = Score(24, (Track.of([*first, *second]),))
    assert recognise_chords(score).names == ["E_m", "C_M"]


def test_silence_has_no_chord():
    score = played([(0, "M", 4)])
    silent = recognise_chords(Score(24, score.tracks, end_ticks=24 * 8))
    assert silent.names == ["C_M", "N_N"]
    assert silent.beats.tolist() == [0, 4]
    assert silent.indices.tolist() == [0, NO_CHORD]
    assert recognise_chords(Score(24)).names == []
    assert recognise_chords(Score(24), []).at([1.0]).tolist() == [NO_CHORD]


def test_an_endless_note_sounds_for_sixteen_quarters():
    chords = recognise_chords(Score(1, (Track.of([(8, 10**12, 60, 64)]),)))
    assert chords.names == ["N_N", "C_M", "N_N"]
    assert chords.beats.tolist() == [0, 8, 24]


def test_beats_may_be_anywhere_and_must_rise():
    score = played([(0, "M", 3), (5, "M", 3)])
    chords = recognise_chords(score, [0, 1.5, 3, 4.5])
    assert chords.names == ["C_M", "F_M"]
    assert chords.beats.tolist() == [0, 3]
    with pytest.raises(ValueError, match="not ascending"):
        recognise_chords(score, [0, 2, 1])
