from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization.analysis.chord_symbols import SUFFIXES, chord_symbol, parse_chord
from tokenization.analysis.chords import QUALITIES
from tokenization.plan import Chord, Key

chords = st.builds(
    Chord, st.integers(0, 11), st.integers(0, 10), st.none() | st.integers(0, 11)
).filter(lambda chord: chord.bass != chord.root)
keys = st.none() | st.builds(Key, st.integers(0, 11), st.booleans())


@given(chord=st.none() | chords, key=keys)
def test_a_symbol_is_read_as_its_chord(chord, key):
    assert parse_chord(chord_symbol(chord, key)) == chord


@pytest.mark.parametrize(
    ("symbol", "reduced"),
    [("C6", "C"), ("Am9", "Am7"), ("G13", "G7"), ("Dm6", "Dm"), ("C6/9", "C"), ("E♭9", "D#7")],
)
def test_added_notes_are_left_out(symbol, reduced):
    assert chord_symbol(parse_chord(symbol)) == reduced


def test_every_quality_has_endings_and_no_ending_has_two():
    assert tuple(SUFFIXES) == QUALITIES
    endings = [ending for of in SUFFIXES.values() for ending in of]
    assert len(endings) == len(set(endings))


def test_spelling_follows_the_key():
    chord = Chord(10, 0, 2)
    assert chord_symbol(chord, Key(5, minor=False)) == "Bb/D"
    assert chord_symbol(chord, Key(2, minor=True)) == "Bb/D"
    assert chord_symbol(chord, Key(11, minor=False)) == "A#/D"


@pytest.mark.parametrize("symbol", ["", "H", "c", "Cx", "C/", "C/H", "C" * 30])
def test_other_texts_are_refused(symbol):
    with pytest.raises(ValueError, match="is not understood"):
        parse_chord(symbol)
