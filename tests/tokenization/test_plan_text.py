"""Forms and charts as text."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization.analysis.chord_symbols import SUFFIXES, parse_chord
from tokenization.plan import Chord, Key, PlannedChord
from tokenization.plan_text import fixed_bars, parse_chart, parse_form, parse_key
from tokenization.tokenizer import FixedBar


@pytest.mark.parametrize(
    ("text", "heard", "sources"),
    [
        ("A2 B2 A2", (), (0, 0, 0, 0, 4, 4)),
        ("A2 A", (), (0, 0, 2, 2)),
        ("A2 A5", (), (0, 0, 2, 2, 4, 4, 6)),
        ("B1 A3", ("A", "A", "B"), (1, 4, 4, 6)),
        ("C2 A", ["A", "A", "", "A"], (0, 0, 3)),
        ("A1 B64 A1", (), (0,) * 66),
        ("A1 B63 A1", (), (*(0,) * 64, 64)),
    ],
)
def test_letters_that_have_occurred_bring_back_their_bars(text, heard, sources):
    assert parse_form(text, heard) == sources


def test_equal_sections_in_a_row_are_two_where_the_second_begins():
    assert parse_form("A", "AAAA") == (4,) * 4
    assert parse_form("A", "AAAA", {0, 2}) == (2,) * 2
    assert parse_form("A3", "AAAA", {0, 2}) == (2, 2, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the form is empty"),
        ("A8 b8", "the section 'b8' of the form is not understood, expected a letter"),
        ("A8,B8", "'A8,B8' of the form is not understood"),
        ("A", "'A' of the form has 0 bars, expected 1 to 1024; write a number"),
        ("A0", "has 0 bars"),
        ("A1000 B100", "'B100' of the form has 100 bars, expected 1 to 24"),
        ("A9999999", "is not understood"),
    ],
)
def test_what_is_not_a_form_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_form(text)


def test_a_chart_has_one_or_two_chords_in_a_bar():
    c, g_b, am, f = (Chord(0, 0), Chord(7, 0, 11), Chord(9, 1), Chord(5, 0))
    expected = ((c,), (g_b,), (am, f), (am, f), (None,))
    for beats, half in ((4, 2), (3, 2), (6, 3), (1, 1)):
        assert parse_chart("? | C | ?") == ((), parse_chart("C")[0], ())  # left to the model
        bars = parse_chart("C | G/B | Am F | % | N |", beats)
        assert bars == tuple(tuple(map(PlannedChord, (0, half), bar)) for bar in expected)


@pytest.mark.parametrize(
    ("symbol", "chord"),
    [
        ("F#m7b5", Chord(6, 8)),
        ("Bb13", Chord(10, 4)),
        ("C6/9", Chord(0, 0)),
        ("C6/9/E", Chord(0, 0, 4)),
        ("E♭maj9/G", Chord(3, 5, 7)),
        ("Cb", Chord(11, 0)),
        ("C/C", Chord(0, 0)),
        ("B/o7", Chord(11, 8)),
        ("Gsus", Chord(7, 10)),
    ],
)
def test_chord_symbols_are_reduced_to_eleven_qualities(symbol, chord):
    assert parse_chord(symbol) == chord


def test_every_suffix_has_one_quality():
    endings = [suffix for of in SUFFIXES.values() for suffix in of]
    assert len(endings) == len(set(endings))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "the chart is empty"),
        ("C || F", "bar 2 of the chart has 0 chords, expected one or two"),
        ("C F G | A", "bar 1 of the chart has 3 chords"),
        ("% | C", "the chord '%' is not understood"),
        ("X | C", "the chord 'X' is not understood, expected a root from A to G"),
        ("Cm8", "the chord 'Cm8' is not understood"),
        ("| ".join(["C"] * 1025), "over 1024 bars"),
    ],
)
def test_what_is_not_a_chart_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_chart(text)


@given(text=st.text(st.sampled_from("ABCGHm7/#b|% N.12sudo"), max_size=12) | st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_chart, parse_form, parse_key):
        with suppress(ValueError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [("C", Key(0, minor=False)), ("F#m", Key(6, minor=True)), ("Bb minor", Key(10, minor=True))],
)
def test_keys(text, key):
    assert parse_key(text) == key
    with pytest.raises(ValueError, match="the key 'x' is not understood"):
        parse_key("x")


def test_what_is_not_in_the_lists_is_not_fixed():
    chart = parse_chart("C")
    assert fixed_bars(3, (1, 0), chart, ((), (), (21,))) == {
        3: FixedBar((1,), chart[0], ()),
        4: FixedBar((0,), None, ()),
        5: FixedBar(None, None, (21,)),
    }
