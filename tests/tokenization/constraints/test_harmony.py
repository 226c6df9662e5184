from __future__ import annotations

import numpy as np
import pytest

from tests.support.guided import FAMILIES, rule_of, sample
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.harmony import (
    HELD,
    LOW,
    NOT_BASS,
    OFF_BEAT,
    ON_BEAT,
    Harmony,
)
from tokenization.grid import second_half
from tokenization.plan_text import parse_chart
from tokenization.remi.decode import Tokens, read_bars, read_notes
from tokenization.remi.documents.grammar import DocumentGrammar
from tokenization.remi.grammar import After
from tokenization.remi.vocabulary import BAR, DURATIONS, PIANO_FAMILIES, TIME_SIGNATURE, Families

LIMIT = BarLimit(3, 6)


def bias_of(
    chart: str, families: Families = PIANO_FAMILIES, bar: int = 3, at: int = 0
) -> dict[int, float]:
    """The bias of each MIDI pitch at a position of a 4/4 bar; bars count from 3.

    All tones of the chord have sounded.
    """
    grammar = DocumentGrammar(families)._replace(bar=bar, position=at, bar_length=48)
    begun = frozenset((at, pitch) for pitch in range(12))
    bias = Harmony.of(parse_chart(chart))._replace(begun=begun).logits(grammar, LIMIT)
    if bias is None:
        return {}
    assert not bias[: families.pitch].any()
    assert not bias[families.drum :].any()
    return dict(enumerate(bias[families.pitch : families.drum].tolist()))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_pitches_outside_the_chord_are_less_likely(name):
    families = FAMILIES[name]
    for at, against in ((0, ON_BEAT), (12, ON_BEAT), (6, OFF_BEAT), (13, OFF_BEAT)):
        bias = bias_of("Am7", families, at=at)
        inside = {pitch for pitch in bias if pitch % 12 in (9, 0, 4, 7)}
        assert all(bias[pitch] == 0 for pitch in inside if pitch >= LOW)
        assert all(bias[pitch] == -against for pitch in bias.keys() - inside if pitch >= LOW)


def test_a_low_note_is_the_bass_or_its_fifth():
    for chart, allowed in (("C", {0, 7}), ("C/E", {4}), ("Am", {9, 4})):
        bias = bias_of(chart)
        low = {pitch: value for pitch, value in bias.items() if pitch < LOW}
        assert {pitch % 12 for pitch, value in low.items() if value == 0} == allowed
        third = 40 if chart == "C" else 36
        if third % 12 not in allowed:
            assert low[third] == -NOT_BASS


def test_tones_that_a_chord_lacks_become_more_likely_until_they_sound():
    families, first = PIANO_FAMILIES, PIANO_FAMILIES.pitch
    grammar = DocumentGrammar(families)._replace(bar=3, bar_length=48)
    for chart, lacks in (("Am7", [9, 0, 7]), ("C/E", [0, 4]), ("C E7", [0, 4]), ("Gsus4", [7, 0])):
        harmony = Harmony.of(parse_chart(chart))
        for sounds in range(len(lacks) + 1):
            bias = harmony.logits(grammar._replace(position=0), LIMIT)
            later = harmony.logits(grammar._replace(position=20), LIMIT)
            assert bias is not None
            assert later is not None
            left = lacks[sounds:]
            for pitch in lacks:
                at = first + 60 + pitch
                assert (bias[at] > 0) == (later[at] > bias[at]) == (pitch in left)
            assert (bias[BAR] < 0) == bool(left)
            if left:
                played = grammar._replace(position=0)
                harmony = harmony.advance(first + 60 + left[0], played)
        assert harmony.advance(BAR, grammar).begun == frozenset()


def test_long_notes_against_a_chord_are_less_likely():
    families = PIANO_FAMILIES
    grammar = DocumentGrammar(families)._replace(
        bar=3, bar_length=48, position=0, after=After.VELOCITY
    )
    for chart, against in (
        ("Am7", {10, 1, 5, 8}),
        ("C", {1, 5, 8, 3}),
        ("Cmaj7", {1, 5, 8, 3}),
        ("Gsus4", {8, 1, 3}),
        ("C/D", {1, 5, 8, 3}),
    ):
        for pitch in range(60, 72):
            state = grammar._replace(pitch=families.pitch + pitch)
            bias = Harmony.of(parse_chart(chart)).logits(state, LIMIT)
            assert (bias is not None) == (pitch % 12 in against)
            if bias is not None:
                lasts = bias[families.duration : families.drum_velocity]
                assert ((lasts == -HELD) == (DURATIONS >= 12)).all()
                assert np.count_nonzero(bias) == np.count_nonzero(lasts)


def test_each_bar_has_its_chord_and_a_bar_may_have_two():
    chart = "C | N | G E"
    assert bias_of(chart, bar=3) == bias_of("C")
    assert bias_of(chart, bar=4) == {}
    assert bias_of(chart, bar=5, at=23) == bias_of("G", at=23)
    assert bias_of(chart, bar=5, at=24) == bias_of("E", at=24)
    assert bias_of(chart, bar=2) == bias_of(chart, bar=6) == {}


def test_a_chord_goes_on_in_bars_without_one():
    chord = parse_chart("G E")[0]
    bars = Harmony.of([None, chord, None, None, (), None]).bars
    assert bars == ((), chord, chord[1:], chord[1:], (), ())  # a bar of "?" is left to the model


@pytest.mark.parametrize(("length", "half"), [(48, 24), (36, 24), (60, 36), (24, 12), (42, 24)])
def test_the_second_chord_begins_at_half_of_the_bar_or_right_after(length, half):
    assert second_half(length) == half


def test_random_music_meets_the_chords():
    chart = parse_chart("C | F#")
    chords = [{0, 4, 7}, {6, 10, 1}]
    shares = []
    for biases in ([], [Harmony.of(chart * 10)] * 2):  # twice, so that it is strong
        rule = rule_of(*biases, bars=20, four_four=True)
        ids = np.array([BAR, TIME_SIGNATURE + 7, *sample(rule)[0]])
        tokens = Tokens.of(ids, PIANO_FAMILIES)
        bars = read_bars(tokens)
        notes = read_notes(tokens, bars, PIANO_FAMILIES)
        of_bar = np.searchsorted(bars.lines, notes.onsets, side="right") - 1
        pairs = zip(of_bar.tolist(), (notes.keys % 128).tolist(), strict=True)
        shares.append(np.mean([pitch % 12 in chords[bar % 2] for bar, pitch in pairs]))
    assert shares[0] < 0.4
    assert shares[1] > 0.8
