from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.decoding.sampling import SamplingOptions, draw
from tests.support.guided import TOKENIZERS, A, B, C, piano_bar
from tokenization.constraints.bar_limit import BarLimit, PlannedBar
from tokenization.constraints.distance import AGAINST, NEVER, Distance
from tokenization.constraints.rule import ConstrainedGrammar
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    PIANO_FAMILIES,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
)

IDS = TOKENIZERS["piano"].vocabulary.ids
START = [BOS, BAR, TIME_SIGNATURE + 7, TEMPO + 108]
"""A bar of 4/4 at 120 beats a minute."""


def rule_after(prompt, bars, share, name="piano", ranks=None):
    """The rule for some new bars of 4/4 after the ids of a prompt, which ends with a Bar."""
    tokenizer = TOKENIZERS[name]
    grammar = tokenizer.grammar(tempo="never", time_signature=False, end=False).resume(prompt)
    planned = tuple(PlannedBar(48, 48, bar) for bar in range(bars))
    limit = BarLimit(grammar.bar, grammar.bar + bars - 1, planned)
    return ConstrainedGrammar(grammar, limit, (Distance.after(prompt, grammar, share, ranks),))


def piano_prompt(*bars):
    """Ids of some bars; the first of them after the metre and tempo."""
    tokens = [token for bar in bars for token in piano_bar(*bar)]
    return np.array([*START, *tokens[1:], BAR])


def content(tokens):
    """Position and pitch of the notes of each bar."""
    bars, place = [set()], -1
    for token in tokens:
        if token == BAR:
            bars.append(set())
        elif POSITION <= token < TEMPO:
            place = token - POSITION
        elif PIANO_FAMILIES.pitch <= token < PIANO_FAMILIES.velocity:
            bars[-1].add((place, token))
    return bars


def copied(rule, prompt, seed, urge):
    """Bars of a model with an urge to copy A, B and C, and whether each is a copy."""
    known = content(prompt)[1:-1]
    sources = [piano_bar(*bar)[1:] for bar in (A, B, C)]
    generator = np.random.Generator(np.random.PCG64(seed))
    bars = [[]]
    options = SamplingOptions(top_p=1.0)
    while rule.allowed.any():
        logits = np.zeros(PIANO_FAMILIES.size, np.float32)
        source = [*sources[(len(bars) - 1) % len(sources)], BAR]
        so_far = bars[-1]
        follows = source[len(so_far)] if so_far == source[: len(so_far)] else BAR
        logits[follows] = urge
        token = draw(logits, rule.allowed, options, generator, rule.bias)
        rule = rule.advance(token)
        bars.append([]) if token == BAR else bars[-1].append(token)
    new = [notes for bar in bars[:-1] for notes in content(bar)]
    return new, [bool(bar) and bar in known for bar in new]


@settings(max_examples=40, deadline=None)
@given(
    share=st.sampled_from([0.0, 0.125, 0.25, 1 / 3, 0.5, 0.75, 1.0]) | st.floats(0, 1),
    bars=st.integers(1, 10),
    seed=st.integers(0, 2**20),
    urge=st.sampled_from([0.0, 8.0, 30.0, 200.0]),
)
def test_of_the_first_n_new_bars_n_times_the_share_are_no_copies(share, bars, seed, urge):
    prompt = piano_prompt(A, B, C)
    new, copies = copied(rule_after(prompt, bars, share), prompt, seed, urge)
    assert len(new) == bars
    for n in range(1, bars + 1):
        assert sum(copies[:n]) <= n - int(n * share + 1e-9)


def test_without_distance_such_a_model_copies_every_bar():
    prompt = piano_prompt(A, B, C)
    _, copies = copied(rule_after(prompt, 6, 0.0), prompt, 0, 30.0)
    assert copies == [True] * 6
    _, copies = copied(rule_after(prompt, 8, 0.25), prompt, 0, 30.0)
    assert copies == [True, True, True, False] * 2  # the last of four bars, as a fill


def bias_after(*names, share=1.0):
    """The bias of the tokens that may follow in the first of four bars after A and B."""
    rule = rule_after(piano_prompt(A, B), 4, share)
    for name in names:
        rule = rule.advance(IDS[name])
    bias = rule.bias
    names = TOKENIZERS["piano"].vocabulary.names
    if bias is None:
        return {}
    biased = np.flatnonzero(bias * rule.allowed).tolist()
    return {names[token]: bias[token] for token in biased}


def test_a_note_that_continues_a_bar_of_the_prompt_is_less_likely():
    begun = ("Position_0", "Pitch_60", "Velocity_16", "Duration_6")  # of A
    other = ("Pitch_61", "Velocity_16", "Duration_6")
    assert bias_after() == bias_after("Position_0") == bias_after(*begun) == {}
    assert bias_after(*begun, "Position_6") == {}  # a note of B, with which nothing agrees
    assert bias_after(*begun, "Position_12") == {"Pitch_64": -AGAINST}
    assert bias_after(*begun, *other, "Position_12") == {"Pitch_64": -AGAINST / 4}


def test_a_bar_that_is_a_copy_does_not_end():
    whole = [
        *("Position_0", "Pitch_60", "Velocity_3", "Duration_1"),  # lengths and velocities differ
        *("Position_12", "Pitch_64", "Velocity_16", "Duration_6"),
    ]
    bias = bias_after(*whole)
    assert bias == {"Bar": -NEVER}
    assert "Bar" not in bias_after(*whole[:4])
    assert bias_after(*whole, share=0.5) == {}  # the first of two bars may be a copy
    assert bias_after(*whole, share=0.0) == {}


def test_tracks_count_separately_and_others_are_left_out():
    ids = TOKENIZERS["multitrack"].vocabulary.ids
    note = ["Position_0", "Program_Drums", "Drum_36", "DrumVelocity_16"]
    bass = ["Program_33", "Pitch_40", "Velocity_16", "Duration_6"]
    prompt = np.array([*START, *(ids[name] for name in [*note, *bass]), BAR])

    def is_copy(names, ranks=None):
        rule = rule_after(prompt, 2, 1.0, "multitrack", ranks)
        for name in names:
            rule = rule.advance(ids[name])
        [distance] = rule.biases
        assert isinstance(distance, Distance)
        return distance.is_copy

    assert is_copy([*note, *bass])
    assert not is_copy(note)
    assert is_copy(note, ranks={0})
    assert is_copy([*note, *bass], ranks={0})
    other = ["Program_32", *bass[1:]]
    assert not is_copy([*note, *other])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_prompt_without_notes_has_no_copies(share):
    prompt = np.array([*START[:3], BAR])
    grammar = TOKENIZERS["piano"].grammar().resume(prompt[:3])
    assert not Distance.after(prompt[:3], grammar, share).is_copy
