from __future__ import annotations

import numpy as np

from tests.support.strategies import for_each_tokenizer
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import VOCABULARY


@for_each_tokenizer
def test_any_ids_are_decoded(case):
    ids = np.random.default_rng(0).integers(0, case.remi.families.size, 50_000)
    assert case.remi.decode(ids).num_notes > 0


def test_a_decoded_note_is_cut_where_its_pitch_is_struck_again():
    text = (
        "Bar Position_0 Pitch_60 Velocity_9 Duration_48 Position_7 Pitch_60 Velocity_9 Duration_1"
    )
    ids = [VOCABULARY.ids[name] for name in text.split()]
    assert PianoRemi().decode(ids).tracks[0].notes[:, 1].tolist() == [7, 1]
