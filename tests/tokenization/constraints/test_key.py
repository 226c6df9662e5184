from __future__ import annotations

import numpy as np
import pytest

from tests.support.guided import FAMILIES, rule_of, sample
from tokenization.constraints.key import OUTSIDE_KEY, KeyBias
from tokenization.remi.vocabulary import PIANO_FAMILIES


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_pitches_outside_the_key_are_less_likely_and_drums_unchanged(name):
    families = FAMILIES[name]
    bias = KeyBias.of("G", families).outside
    pitches = np.arange(128)
    outside = np.isin(pitches % 12, [1, 3, 5, 8, 10])
    assert np.array_equal(bias[families.pitch : families.drum] == -OUTSIDE_KEY, outside)
    assert np.count_nonzero(bias) == np.count_nonzero(outside)


def test_a_key_lowers_the_share_of_notes_outside():
    shares = []
    for biases in ([], [KeyBias.of("D dorian", PIANO_FAMILIES)]):
        notes = np.array(sample(rule_of(*biases, bars=20, four_four=True))[0])
        notes = notes[(notes >= PIANO_FAMILIES.pitch) & (notes < PIANO_FAMILIES.drum)]
        pitches = notes - PIANO_FAMILIES.pitch
        shares.append(np.isin(pitches % 12, [1, 3, 6, 8, 10]).mean())
    assert shares[0] > 0.3
    assert 0 < shares[1] < 0.05
