"""Bars, tracks and instruments as users name them."""

from __future__ import annotations

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


def test_bars_are_counted_from_one_and_inclusive() -> None:
    assert parse_bars("9-16") == (9, 16)
    assert parse_bars(" 3 - 3 ") == parse_bars("3") == (3, 3)


@pytest.mark.parametrize("text", ["", "0-4", "5-4", "a", "1-2-3", "-3", "1e9", "9" * 20])
def test_other_bars_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="are not bars, expected the first and the last one"):
        parse_bars(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("melody", {0}),
        ("Bass,drums", {1, 2, 3}),  # a part of a name, or of an instrument
        ("bass line", {1}),
        ("drums", {2}),
        ("1, 3", {0, 2}),
        ("2", {4}),  # its name
        ("flute", {0}),
        ("piano", {4}),
    ],
)
def test_tracks_have_numbers_names_and_instruments(text: str, numbers: set[int]) -> None:
    assert find_tracks(text, TRACKS) == numbers


@pytest.mark.parametrize("text", ["oboe", "6", "0", "bass,oboe", ","])
def test_an_unknown_track_gets_a_list_of_those_that_exist(text: str) -> None:
    with pytest.raises(
        MidiError,
        match=r"the tracks are 1 Melody \(Flute\), 2 Bass line \(Electric Bass \(finger\)\), "
        r"3 Drums, 4 Electric Bass \(finger\), 5 2 \(Piano\)$",
    ):
        find_tracks(text, TRACKS)


def test_a_file_of_many_tracks_is_not_listed_in_full() -> None:
    with pytest.raises(MidiError, match=r"and 60 others$"):
        find_tracks("oboe", [a_track() for _ in range(100)])


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("Acoustic Bass", 32),
        ("flute", 73),
        ("drums", DRUMS),
        ("Slap Bass 2", 37),
        ("celesta", 8),
        ("flutes", 73),
        ("violins", 40),
        ("bells", 14),
    ],
)
def test_instruments_have_the_names_of_general_midi(text: str, program: int) -> None:
    assert find_instrument(text) == program


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bass", "are several instruments, expected one name of General MIDI, such as Acoustic B"),
        ("Strings", "'Strings' are several .* Tremolo Strings, .* String Ensemble 1, "),
        ("flutee", "is not an instrument, .* such as Flute"),
        ("", "such as Acoustic Bass, String Ensemble 1, Drums"),
    ],
)
def test_other_instruments_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        find_instrument(text)


def test_a_passage_has_an_instrument_of_general_midi() -> None:
    drums = Passage(instrument=DRUMS).new_track
    assert drums is not None
    assert (drums.is_drum, drums.program, drums.name, drums.chunk) == (True, 0, "Drums", None)
    with pytest.raises(ValueError, match="the instrument is 129, expected 0 to 127"):
        Passage(instrument=129)
