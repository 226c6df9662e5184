"""What a piece from nothing can be asked for: tempo, metre and band."""

from __future__ import annotations

import pytest

from app.compose.continuation import generate_midi
from app.compose.fill.passage import find_band, music_like
from app.compose.options import MusicOptions
from tests.support.bands import model_of
from tokenization.errors import TokenizerError
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi


@pytest.mark.parametrize("metre", ["3/4", "7/8"])
def test_tempo_metre_and_band_are_those_that_were_asked_for(metre):
    options = MusicOptions(
        bars=4, seed=1, takes=1, tempo=90, metre=metre, band="cello, drums, violin, cello"
    )
    (piece,) = generate_midi(model_of(MultitrackRemi()), options).pieces
    assert [round(tempo.bpm, -1) for tempo in piece.score.tempos] == [90]
    first = piece.score.time_signatures
    assert [f"{one.numerator}/{one.denominator}" for one in first] == [metre]
    playing = sorted((track.is_drum, track.program) for track in piece.score.tracks)
    assert playing == [(False, 40), (False, 42), (False, 42), (True, 0)]


def test_a_band_needs_a_model_of_several_instruments_and_known_names():
    assert music_like("piano, bright acoustic piano") is None
    assert music_like("flute") is not None
    assert [track.program for track in find_band("violins, cello")] == [40, 42]
    for asked, reason in (
        ({"band": "cello, xyz"}, "not an instrument"),
        ({"band": " , "}, "has no instrument"),
        ({"metre": "6/8"}, "expected one of 2/4"),
        ({"tempo": 10.0}, "expected 20 to 300"),
    ):
        with pytest.raises(ValueError, match=reason):
            MusicOptions(**asked)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TokenizerError, match="one piano"):
        generate_midi(model_of(PianoRemi()), MusicOptions(bars=2, band="flute"))
