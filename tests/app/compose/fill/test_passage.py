"""Bars, tracks and instruments as users name them."""

import pytest

from app.compose.fill.passage import DRUMS, Passage, find_instrument, find_tracks, parse_bars
from tests.support.bands import a_track
from tokenization.errors import MidiError

TRACKS = (
    a_track(name="Melody", program=73),
    a_track(name="Bass line", program=33),
    a_track(is_drum=True),
    a_track(program=33),
    a_track(name="2", program=0),
)


def test_bars_are_counted_from_one_and_inclusive():
    assert parse_bars("9-16") == (9, 16)
    assert parse_bars(" 3 - 3 ") == parse_bars("3") == (3, 3)
    for text in ("", "0-4", "5-4", "a", "1-2-3", "-3", "9" * 20):
        with pytest.raises(ValueError, match="are not bars, expected the first and the last one"):
            parse_bars(text)


def test_tracks_have_numbers_names_and_instruments():
    for text, numbers in (
        ("melody", {0}),
        ("Bass,drums", {1, 2, 3}),  # a part of a name, or of an instrument
        ("bass line", {1}),
        ("1, 3", {0, 2}),
        ("2", {4}),  # its name
        ("flute", {0}),
    ):
        assert find_tracks(text, TRACKS) == numbers


def test_an_unknown_track_gets_a_list_of_those_that_exist():
    tracks = r"1 Melody \(Flute\), 2 Bass line \(.*\), 3 Drums, 4 Electric .*, 5 2 \(Piano\)$"
    for text in ("6", "0", "bass,oboe", ","):
        with pytest.raises(MidiError, match=f"the tracks are {tracks}"):
            find_tracks(text, TRACKS)
    with pytest.raises(MidiError, match=r"and 60 others$"):
        find_tracks("oboe", [a_track() for _ in range(100)])


def test_instruments_have_the_names_of_general_midi():
    for text, program in (
        ("Acoustic Bass", 32),
        ("drums", DRUMS),
        ("Slap Bass 2", 37),
        ("flutes", 73),
        ("violins", 40),
        ("bells", 14),
    ):
        assert find_instrument(text) == program
    for text, problem in (
        ("bass", "fits several instruments, expected one name of General MIDI, such as Acoustic B"),
        ("Strings", "'Strings' fits several .* Tremolo Strings, .* String Ensemble 1, "),
        ("flutee", "is not an instrument, .* such as Flute"),
        ("", "such as Acoustic Bass, String Ensemble 1, Drums"),
    ):
        with pytest.raises(ValueError, match=problem):
            find_instrument(text)


def test_a_passage_has_an_instrument_of_general_midi():
    drums = Passage(instrument=DRUMS).new_track
    assert drums is not None
    assert (drums.is_drum, drums.program, drums.name, drums.chunk) == (True, 0, "Drums", None)
    with pytest.raises(ValueError, match="the instrument is 129, expected 0 to 127"):
        Passage(instrument=129)
