from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import strategies
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.presence import AGAINST_EMPTY, GAIN, LONGEST_REST, MOST, Presence
from tokenization.constraints.rule import biases_of_prompt
from tokenization.remi.grammar import After
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, NUM_PARTS, POSITION, PROGRAM_ORDER, TEMPO
from tokenization.score import Score, Tempo, TimeSignature, Track

REMI = MultitrackRemi()
FAMILIES = REMI.families
LIMIT = BarLimit(0, 1000)
BASS, STRINGS = (PROGRAM_ORDER.index(program) * NUM_PARTS for program in (33, 48))


def band(bass, strings=(), drums=(), length=240):
    """Ids of a piece in 4/4: each instrument plays one note on the first beat of its bars."""
    tracks = [
        Track.of([(bar * 1920, length, pitch, 80) for bar in bars], program, is_drum=is_drum)
        for bars, program, pitch, is_drum in (
            (drums, 0, 38, True),
            (bass, 33, 40, False),
            (strings, 48, 60, False),
        )
    ]
    bars = 1 + max((*bass, *strings, *drums))
    score = Score(480, tuple(tracks), (Tempo(0, 90.0),), (TimeSignature(0, 4, 4),), bars * 1920)
    return REMI.encode(score).ids


def presence_after(ids, num_bars):
    """Grammar and presence at the start of the bar after `num_bars`."""
    prompt = np.append(ids[: np.flatnonzero(ids == BAR)[num_bars]], BAR)
    grammar = REMI.grammar(end=False).resume(prompt)
    return grammar, Presence.after(prompt, grammar)


def played_on(grammar, presence, ids):
    for token in ids:
        presence, grammar = presence.advance(int(token), grammar), grammar.advance(int(token))
    return grammar, presence


@settings(max_examples=60, deadline=None)
@given(score=strategies.scores(programs=(0, 33, 48)), at=st.integers(1, 8), then=st.integers(1, 8))
def test_a_longer_prompt_equals_a_shorter_one_played_on(score, at, then):
    ids = REMI.encode(score).ids
    bars = np.flatnonzero(ids == BAR)
    if at >= len(bars):
        return
    until = min(at + then, len(bars) - 1)
    grammar, presence = presence_after(ids, at)
    _, presence = played_on(grammar, presence, ids[bars[at] + 1 : bars[until] + 1])
    _, later = presence_after(ids, until)
    assert presence.rests == {rank: later.rests[rank] for rank in presence.rests}
    known = presence.rests.keys()
    assert presence.played & known == later.played & known


def test_an_instrument_that_rests_no_longer_than_before_has_no_bias():
    grammar, presence = presence_after(band(bass=(0, 1, 2, 3), strings=(0, 3), drums=range(5)), 4)
    assert presence.longest == {0: 1, BASS: 1, STRINGS: 2}
    assert presence.rests == {0: 0, BASS: 0, STRINGS: 0}
    assert presence.logits(grammar, LIMIT) is None


def test_a_bar_in_which_an_instrument_is_preferred_is_not_empty():
    """If only time tokens are allowed, the bias is against a new bar until an instrument plays."""
    grammar, presence = presence_after(band(bass=range(5), drums=range(5)), 4)
    against = []
    for _ in range(5):
        bias = presence.logits(grammar, LIMIT)
        against.append(0 if bias is None else bias[grammar.allowed].sum())
        presence, grammar = presence.advance(BAR, grammar), grammar.advance(BAR)
    assert against == [-AGAINST_EMPTY * min(GAIN * times, MOST) for times in range(5)]
    position = POSITION + int(np.flatnonzero(grammar.allowed[POSITION:TEMPO])[0])
    presence, grammar = presence.advance(position, grammar), grammar.advance(position)
    bias = presence.logits(grammar, LIMIT)
    assert bias is not None
    assert bias[BAR] == 0
    assert (bias[grammar.allowed] > 0).sum() == 2


def test_the_bias_of_a_resting_instrument_rises_until_it_plays():
    ids = band(bass=(*range(5), 12, 13), drums=range(14))
    grammar, presence = presence_after(ids, 5)
    bars = np.flatnonzero(ids == BAR)
    called = []
    for bar in range(5, 12):
        bias = presence.logits(grammar, LIMIT)
        called.append(0 if bias is None else bias.max())
        assert bias is None or np.flatnonzero(bias > 0).tolist() == [
            FAMILIES.program + BASS // NUM_PARTS
        ]
        grammar, presence = played_on(grammar, presence, ids[bars[bar] + 1 : bars[bar + 1] + 1])
    assert called == [min(GAIN * times, MOST) for times in range(7)]
    end = bars[13]
    _, presence = played_on(grammar, presence, ids[bars[12] + 1 : end])
    assert presence.logits(grammar, LIMIT) is None
    assert BASS in presence.played


def test_the_longest_rest_is_limited():
    _, presence = presence_after(band(bass=(0, 9), drums=range(10)), 9)
    assert presence.longest[BASS] == LONGEST_REST
    assert presence.rests[BASS] == 8


def test_a_note_that_still_sounds_is_not_a_rest():
    ids = band(bass=(0, 1), strings=(0,), drums=range(8), length=5 * 1920)
    grammar, presence = presence_after(ids, 3)
    assert (presence.rests[STRINGS], STRINGS in presence.played) == (0, True)
    bars = np.flatnonzero(ids == BAR)
    _, presence = played_on(grammar, presence, ids[bars[3] + 1 : bars[6] + 1])
    assert (presence.rests[STRINGS], STRINGS in presence.played) == (1, False)


@pytest.mark.parametrize("both", [False, True])
def test_the_first_part_of_a_program_is_preferred_by_a_bias_against_parts(both):
    """Otherwise, a model that prefers the second part would always choose it."""
    bars = (range(2), range(2) if both else range(6))
    tracks = [Track.of([(bar * 1920, 240, 40, 80) for bar in some], 33) for some in bars]
    drums = Track.of([(bar * 1920, 60, 38, 80) for bar in range(6)], is_drum=True)
    score = Score(480, (drums, *tracks), (Tempo(0, 90.0),), (TimeSignature(0, 4, 4),))
    grammar, presence = presence_after(REMI.encode(score).ids, 5)
    program = FAMILIES.program + BASS // NUM_PARTS
    for token in (POSITION, program):
        presence, grammar = presence.advance(token, grammar), grammar.advance(token)
    bias = presence.logits(grammar, LIMIT)
    assert bias is not None
    assert (bias[FAMILIES.part : FAMILIES.pitch] == -MOST).all()
    assert not bias[FAMILIES.pitch :].any()
    assert grammar.allowed[FAMILIES.part]


def test_the_second_part_of_a_program_is_preferred_by_its_part():
    tracks = [
        Track.of([(bar * 1920, 240, 40, 80) for bar in bars], 33) for bars in (range(6), range(2))
    ]
    score = Score(480, tuple(tracks), (Tempo(0, 90.0),), (TimeSignature(0, 4, 4),))
    grammar, presence = presence_after(REMI.encode(score).ids, 5)
    program = FAMILIES.program + BASS // NUM_PARTS
    bias = presence.logits(grammar, LIMIT)
    assert bias is not None
    assert bias[program] > 0
    grammar, presence = played_on(grammar, presence, [POSITION, program])
    assert grammar.after is After.PROGRAM
    bias = presence.logits(grammar, LIMIT)
    assert bias is not None
    assert np.flatnonzero(bias).tolist() == [FAMILIES.part]


def test_tracks_that_may_not_play_and_a_solo_piano_have_no_bias():
    ids = band(bass=(0,), drums=range(8))
    prompt = np.append(ids[: np.flatnonzero(ids == BAR)[6]], BAR)
    drums = REMI.decode(ids).tracks[:1]
    grammar = REMI.grammar(end=False, tracks=drums).resume(prompt)
    assert set(Presence.after(prompt, grammar).rests) == {0}
    piano = PianoRemi()
    notes = Track.of([(0, 240, 60, 80), (6 * 1920, 240, 60, 80)], 0)
    score = Score(480, (notes,), (Tempo(0, 90.0),), (TimeSignature(0, 4, 4),))
    ids = piano.encode(score).ids
    prompt = ids[: np.flatnonzero(ids == BAR)[5] + 1]
    assert biases_of_prompt(prompt, piano.grammar(end=False).resume(prompt)) == ()
