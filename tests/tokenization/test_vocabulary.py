from __future__ import annotations

import numpy as np
import pytest

from tokenization import vocabulary
from tokenization.vocabulary import DURATIONS, PIANO_VOCABULARY, Vocabulary


def test_the_ids_are_those_of_the_released_weights():
    assert PIANO_VOCABULARY.hash == (
        "56dbc320aaae010e58335c17db066269dc843928689715e5e4ed938c4885c331"
    )
    assert len(PIANO_VOCABULARY) == 512


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("PAD", vocabulary.PAD),
        ("BOS", vocabulary.BOS),
        ("EOS", vocabulary.EOS),
        ("MASK", vocabulary.MASK),
        ("Bar", vocabulary.BAR),
        ("TimeSignature_6", vocabulary.TIME_SIGNATURE),
        ("Position_0", vocabulary.POSITION),
        ("Tempo_30", vocabulary.TEMPO),
        ("Pitch_21", vocabulary.PITCH),
        ("Velocity_0", vocabulary.VELOCITY),
        ("Duration_1", vocabulary.DURATION),
    ],
)
def test_constants_are_the_ids_of_names(name, first):
    assert PIANO_VOCABULARY.ids[name] == first
    assert PIANO_VOCABULARY.names[first] == name


def test_durations_grow_by_steps_and_then_by_quarter_octaves():
    assert DURATIONS[:48].tolist() == list(range(1, 49))
    ratios = DURATIONS[48:] / DURATIONS[47:-1]
    np.testing.assert_allclose(ratios, 2**0.25, rtol=0.01)
    assert DURATIONS[-1] == 768


def test_the_hash_depends_on_order_and_on_where_names_end():
    hashes = {Vocabulary(names).hash for names in [("a", "b"), ("b", "a"), ("ab",), ("a", "b", "")]}
    assert len(hashes) == 4


def test_names_are_unique():
    with pytest.raises(ValueError, match="same name"):
        Vocabulary(("Bar", "Bar"))
