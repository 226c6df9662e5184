from __future__ import annotations

import numpy as np
import pytest

from tests.support.guided import rule_of, sample
from tokenization.constraints.bar_limit import BarLimit, PlannedBar
from tokenization.constraints.rule import ConstrainedGrammar
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, POSITION, TEMPO, VOCABULARY

IDS = VOCABULARY.ids


def opening(*names: str) -> list[int]:
    return [IDS[name] for name in ("Bar", *names, "Tempo_89.9")]


@pytest.mark.parametrize("bars", [1, 2, 5])
def test_music_ends_at_the_bar_after_the_last(bars):
    tokens, rule = sample(rule_of(bars=bars))
    assert tokens.count(BAR) == bars + 1
    assert tokens[-1] == BAR
    assert rule.finished
    assert not rule.allowed.any()


@pytest.mark.parametrize("seed", range(8))
def test_a_piece_of_some_seconds_ends_with_the_bar_in_which_they_are_over(seed):
    _, rule = sample(rule_of(bars=1, seconds=20), seed)
    assert rule.finished
    assert rule.limit.seconds_before < 20 <= rule.limit.seconds_after(rule.grammar)


def test_planned_bars_have_their_lengths_and_room():
    planned = (PlannedBar(60, 60, 0), PlannedBar(42, 39, 0), PlannedBar(60, 60, 1))
    grammar = PianoRemi().grammar(end=False).resume(opening("TimeSignature_60"))
    rule = ConstrainedGrammar(grammar, BarLimit(1, 3, planned)).advance(BAR)
    assert np.flatnonzero(rule.allowed).tolist() == [IDS["TimeSignature_42"]]
    rule = rule.advance(IDS["TimeSignature_42"])
    assert np.flatnonzero(rule.allowed[POSITION:TEMPO]).tolist() == list(range(39))
    assert rule.limit.notated_bar(rule.grammar) == 0
    rule = rule.advance(BAR).advance(IDS["TimeSignature_60"])
    assert rule.limit.notated_bar(rule.grammar) == 1
    assert rule.advance(BAR).finished


def test_a_bar_with_too_many_tokens_must_end():
    grammar = PianoRemi().grammar(end=False).resume(opening("TimeSignature_48"))
    limited = ConstrainedGrammar(grammar, BarLimit(1, 3, max_tokens=5))
    for name in ("Position_0", "Pitch_60", "Velocity_16", "Duration_6"):
        assert limited.allowed.sum() > 1
        limited = limited.advance(IDS[name])
    limited = limited.advance(IDS["Position_12"])
    assert not limited.allowed[BAR]  # a Position without a note is not canonical
    for name in ("Pitch_60", "Velocity_16", "Duration_6"):
        limited = limited.advance(IDS[name])
    assert np.flatnonzero(limited.allowed).tolist() == [BAR]
    assert limited.advance(BAR).allowed.sum() > 1
