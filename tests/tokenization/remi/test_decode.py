from __future__ import annotations

from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import VOCABULARY


def test_a_decoded_note_is_cut_where_its_pitch_is_struck_again():
    text = (
        "Bar Position_0 Pitch_60 Velocity_9 Duration_48 Position_7 Pitch_60 Velocity_9 Duration_1"
    )
    ids = [VOCABULARY.ids[name] for name in text.split()]
    assert PianoRemi().decode(ids).tracks[0].notes[:, 1].tolist() == [7, 1]
