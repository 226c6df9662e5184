from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import canonical_ids
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.score import Score, Tempo, TimeSignature, Track
from training.data.augmentation import FAMILY, NOTHING, Augmentation
from training.errors import TrainingError

REMI = MultitrackRemi()
ALL = Augmentation(
    program=0.7,
    drums=0.7,
    dropped=0.3,
    velocity=0.7,
    sounds=0.7,
    shifted=0.7,
    looped=0.5,
    tempo=1.5,
)


def band(drum: int = 36, metre: tuple[int, int] = (4, 4)) -> np.ndarray:
    """Two bars of bass, piano and drums."""
    tracks = [
        Track.of([(480 * at, 240, pitch, 80) for at in range(8)], program)
        for program, pitch in ((33, 40), (0, 60), (48, 70))
    ]
    drums = Track.of([(480 * at, 60, drum, 90) for at in range(8)], is_drum=True)
    metres = (TimeSignature(0, *metre),)
    return REMI.encode(Score(480, (*tracks, drums), (Tempo(0, 100.0),), metres)).ids


def change(augmentation: Augmentation, seed: int, other: np.ndarray | None = None) -> Score:
    other = band(38) if other is None else other
    return changed(augmentation, band(), seed, other)


def changed(
    augmentation: Augmentation, ids: np.ndarray, seed: int, other: np.ndarray | None = None
) -> Score:
    """The score of an example after the changes, as a model reads it."""
    other = ids if other is None else other
    score = augmentation(REMI.decode(ids), lambda: REMI.decode(other), np.random.default_rng(seed))
    return REMI.decode(REMI.encode(score).ids)


@given(ids=canonical_ids(REMI), other=canonical_ids(REMI), seed=st.integers(0, 99))
def test_changes_are_reproducible_and_can_be_encoded(ids, other, seed):
    first, again = (changed(ALL, np.array(ids), seed, np.array(other)) for _ in range(2))
    assert first == again
    REMI.grammar().resume(REMI.encode(first).ids)


def test_without_augmentation_nothing_changes():
    score = REMI.decode(band())
    assert NOTHING(score, lambda: score, np.random.default_rng(0)) is score
    metres = (TimeSignature(0, 4, 4), TimeSignature(1920, 3, 4))
    tracks = (Track.of([(240 * at, 120, 40 + at, 80) for at in range(40)], 33),)
    ids = REMI.encode(Score(480, tracks, (Tempo(0, 100.0),), metres)).ids
    # where the metre changes, nothing is shifted or looped
    for seed in range(5):
        assert changed(Augmentation(shifted=1.0, looped=1.0), ids, seed) == REMI.decode(ids)


def test_programs_change_mostly_within_their_family_and_drums_never():
    found = [change(Augmentation(program=1.0), seed) for seed in range(60)]
    assert all(sum(t.is_drum for t in score.tracks) == 1 for score in found)
    kinds = [t.program // FAMILY for score in found for t in score.tracks if not t.is_drum]
    same = sum(kind in (0, 33 // FAMILY, 48 // FAMILY) for kind in kinds) / len(kinds)
    assert 0.7 < same < 0.95
    assert len({t.program for score in found for t in score.tracks}) > 20


def test_drums_come_only_from_music_of_the_same_metre():
    for metre, drum in (((4, 4), 38), ((3, 4), 36)):
        score = change(Augmentation(drums=1.0), 0, band(38, metre))
        assert set(drums_of(score)[:, 2]) == {drum}


def test_instruments_are_left_out_but_never_all_of_them():
    counts = {len(change(Augmentation(dropped=0.5), seed).tracks) for seed in range(60)}
    assert min(counts) == 1
    assert len(counts) > 2
    assert len(change(Augmentation(dropped=1.0), 0).tracks) == 1


def drums_of(score: Score) -> np.ndarray:
    (drums,) = [track for track in score.tracks if track.is_drum]
    return drums.notes


def test_drum_sounds_are_exchanged_at_the_same_times():
    two = Track.of([(240 * at, 60, 36 + 2 * (at % 3), 90) for at in range(32)], is_drum=True)
    ids = REMI.encode(Score(480, (two,), (Tempo(0, 100.0),), (TimeSignature(0, 4, 4),))).ids
    plain = drums_of(REMI.decode(ids))
    kits = set()
    for seed in range(20):
        notes = drums_of(changed(Augmentation(sounds=1.0), ids, seed))
        np.testing.assert_array_equal(notes[:, 0], plain[:, 0])
        pairs = set(zip(plain[:, 2].tolist(), notes[:, 2].tolist(), strict=True))
        assert len(pairs) == len({new for _, new in pairs}) == 3
        kits.add(frozenset(pairs))
    assert len(kits) > 15


def test_instruments_are_shifted_within_their_bars():
    tracks = [
        Track.of([(1920 * bar + 480 * at, 240, 60 + at, 80) for bar in range(4)], program)
        for at, program in enumerate((0, 33, 48))
    ]
    ids = REMI.encode(Score(480, tuple(tracks), (), (TimeSignature(0, 4, 4),))).ids
    found: set[tuple[int, ...]] = set()
    for seed in range(30):
        score = changed(Augmentation(shifted=0.7), ids, seed)
        places = {}
        for track in score.tracks:
            bars, place = np.divmod(track.notes[:, 0], 48)
            assert bars.tolist() == [0, 1, 2, 3]
            assert len(set(place.tolist())) == 1
            places[track.program] = int(place[0])
        assert sorted(places) == [0, 33, 48]
        found.add(
            tuple((places[program] - 12 * at) // 6 % 8 for at, program in enumerate((0, 33, 48)))
        )
    assert {shift for shifts in found for shift in shifts} == set(range(8))
    assert len(found) > 15


@pytest.mark.parametrize("metre", [(4, 4), (3, 4), (7, 8)])
def test_loops_repeat_their_first_bars(metre):
    draw = np.random.default_rng(0)
    notes = [(240 * at, 120, int(p), 80) for at, p in enumerate(draw.integers(30, 90, 64))]
    drums = [(240 * at, 60, int(p), 80) for at, p in enumerate(draw.integers(35, 60, 64))]
    tracks = (Track.of(notes, 33), Track.of(drums, is_drum=True))
    ids = REMI.encode(Score(480, tracks, (), (TimeSignature(0, *metre),))).ids
    bar = 12 * 4 * metre[0] // metre[1]
    whole = REMI.decode(ids)
    lengths = set()
    for seed in range(20):
        score = changed(Augmentation(looped=1.0), ids, seed)
        assert score.end_ticks >= whole.end_ticks
        fits = []
        for length in (1, 2, 4):
            same = True
            for track, plain in zip(score.tracks, whole.tracks, strict=True):
                first = plain.notes[plain.notes[:, 0] < length * bar]
                at = track.notes[:, 0]
                for start in range(0, score.end_ticks, length * bar):
                    part = track.notes[(at >= start) & (at < start + length * bar)]
                    same &= np.array_equal(part - [start, 0, 0, 0], first)
            fits += [length] * same
        assert len(fits) == 1
        lengths |= set(fits)
    assert lengths == {1, 2, 4}


def test_tempo_and_loudness_stay_within_their_ranges():
    scores = [change(Augmentation(velocity=1.0, tempo=1.25), seed) for seed in range(60)]
    tempos = [score.tempos[0].bpm for score in scores]
    assert 80 <= min(tempos) < 90 < 110 < max(tempos) <= 125
    loud = [int(t.notes[0, 3]) for score in scores for t in score.tracks]
    assert 54 <= min(loud) < 62 < 108 < max(loud) <= 118


def test_values_that_are_not_probabilities_are_refused():
    for name, wrong in (("drums", 1.5), ("looped", -0.1), ("tempo", 0.5)):
        with pytest.raises((TrainingError, ValueError), match="expected"):
            Augmentation(**{name: wrong})
