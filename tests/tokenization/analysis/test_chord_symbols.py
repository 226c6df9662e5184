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


def test_added_notes_are_left_out_and_other_spellings_are_read():
    added = {"C6": "C", "Am9": "Am7", "G13": "G7", "Dm6": "Dm", "C6/9": "C", "E♭9": "D#7"}
    for symbol, reduced in added.items():
        assert chord_symbol(parse_chord(symbol)) == reduced
    for symbol, same in {"H7": "B7", "Db△7": "C#maj7", "Bb^7": "A#maj7", "f": "F"}.items():
        assert chord_symbol(parse_chord(symbol)) == same


def test_every_quality_has_endings_and_no_ending_has_two():
    assert tuple(SUFFIXES) == QUALITIES
    endings = [ending for of in SUFFIXES.values() for ending in of]
    assert len(endings) == len(set(endings))


def test_chords_are_spelled_as_musicians_do_in_the_key():
    for key, symbols in (
        (Key(0, minor=False), "Bb Eb Ab Db F#m7b5 C#dim7 G#dim A/C# E7/G# Fm/Ab Bdim7/Ab Caug/G#"),
        (Key(5, minor=False), "Bb/D Eb Gm/Bb D7/F# A7/C# F#dim7 B"),
        (Key(2, minor=True), "Bb/D Gm/Bb A/C# C#dim7 Eb/G E7/G# Fdim7 Cdim7"),
        (Key(4, minor=True), "F# B7/D# D#dim7 F C#m7b5 A#dim7"),
        (Key(6, minor=False), "Gb Cb/Eb Db7/F Ebm Abm/Cb Bb7/D"),
        (Key(6, minor=True), "F#m C#7/E# E#dim D Bm/D G#m7b5"),
        (Key(1, minor=True), "C#m G#7/B# B#dim A E/G#"),
        (None, "C# D# F# G# A# A/C#"),
    ):
        spelled = [chord_symbol(parse_chord(one), key) for one in symbols.split()]
        assert spelled == symbols.split()


@given(st.builds(Key, st.integers(0, 11), st.booleans()))
def test_the_chords_of_a_key_have_its_signs(key):
    """Seven neighbours on the line of fifths, one for each letter."""
    scale = (0, 2, 3, 5, 7, 8, 10) if key.minor else (0, 2, 4, 5, 7, 9, 11)
    names = [chord_symbol(Chord((key.tonic + step) % 12, 0), key) for step in scale]
    assert sorted(name[0] for name in names) == list("ABCDEFG")
    assert not ("b" in "".join(names) and "#" in "".join(names))


def test_other_texts_are_refused():
    for symbol in ("", "X", "Cx", "C/", "C/X", "C" * 30):
        with pytest.raises(ValueError, match="is not understood"):
            parse_chord(symbol)
