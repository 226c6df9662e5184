from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import canonical_ids
from tokenization.multitrack import MultitrackRemi
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.vocabulary import BOS, EOS
from training.augmentation import FAMILY, NOTHING, Augmentation
from training.errors import TrainingError

REMI = MultitrackRemi()
ALL = Augmentation(program=0.7, drums=0.7, dropped=0.3, velocity=0.7, tempo=1.5)


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
    out = augmentation(band(), REMI, lambda: other, np.random.default_rng(seed))
    return REMI.decode(out)


@given(
    ids=canonical_ids(REMI), other=canonical_ids(REMI), seed=st.integers(0, 99), whole=st.booleans()
)
def test_examples_stay_canonical_and_repeat(ids, other, seed, whole):
    ids, other = np.array(ids), np.array(other)
    example = ids if whole else ids[:-1]
    first, again = (
        ALL(example, REMI, lambda: other, np.random.default_rng(seed)) for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    REMI.grammar().resume(first)
    assert (first[:1].tolist() == [BOS]) == (example[:1].tolist() == [BOS])
    assert (first[-1:].tolist() == [EOS]) == (example[-1:].tolist() == [EOS])
    assert not np.isin([BOS, EOS], first[1:-1]).any()


def test_nothing_is_nothing():
    ids = band()
    assert NOTHING(ids, REMI, lambda: ids, np.random.default_rng(0)) is ids


def test_programs_change_within_their_kind_mostly_and_drums_never():
    found = [change(Augmentation(program=1.0), seed) for seed in range(60)]
    assert all(sum(t.is_drum for t in score.tracks) == 1 for score in found)
    kinds = [t.program // FAMILY for score in found for t in score.tracks if not t.is_drum]
    same = sum(kind in (0, 33 // FAMILY, 48 // FAMILY) for kind in kinds) / len(kinds)
    assert 0.7 < same < 0.95
    assert len({t.program for score in found for t in score.tracks}) > 20


@pytest.mark.parametrize(("metre", "drum"), [((4, 4), 38), ((3, 4), 36)])
def test_drums_come_from_music_of_the_same_metre_alone(metre, drum):
    score = change(Augmentation(drums=1.0), 0, band(38, metre))
    (drums,) = [track for track in score.tracks if track.is_drum]
    assert set(drums.notes[:, 2]) == {drum}


def test_instruments_are_left_out_but_never_all():
    counts = {len(change(Augmentation(dropped=0.5), seed).tracks) for seed in range(60)}
    assert min(counts) == 1
    assert len(counts) > 2
    assert len(change(Augmentation(dropped=1.0), 0).tracks) == 1


def test_tempo_and_loudness_stay_in_their_bounds():
    scores = [change(Augmentation(velocity=1.0, tempo=1.25), seed) for seed in range(60)]
    tempos = [score.tempos[0].bpm for score in scores]
    assert 80 <= min(tempos) < 90 < 110 < max(tempos) <= 125
    loud = [int(t.notes[0, 3]) for score in scores for t in score.tracks]
    assert 54 <= min(loud) < 62 < 108 < max(loud) <= 118


@pytest.mark.parametrize("wrong", [{"drums": 1.5}, {"dropped": -0.1}, {"tempo": 0.5}])
def test_what_is_no_probability_is_refused(wrong):
    with pytest.raises((TrainingError, ValueError), match="expected"):
        Augmentation(**wrong)
