from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import any_ids, canonical_ids, scores
from tokenization.grammar import PianoGrammar, Rules
from tokenization.remi import PianoRemi
from tokenization.vocabulary import (
    BAR,
    BOS,
    DURATION,
    EOS,
    PAD,
    PIANO_VOCABULARY,
    PITCH,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    VELOCITY,
)

REMI = PianoRemi()
NAMES = PIANO_VOCABULARY.ids


def ids_of(text: str) -> list[int]:
    return [NAMES[name] for name in text.split()]


def after(text: str, **rules: Any) -> PianoGrammar:
    return REMI.grammar(**rules).resume(ids_of(text))


def names_allowed(state: PianoGrammar) -> set[str]:
    """Kinds of the tokens that may follow."""
    return {PIANO_VOCABULARY.names[token].split("_")[0] for token in np.flatnonzero(state.allowed)}


def walk(ids: Iterable[int]) -> PianoGrammar:
    """State after each token was checked."""
    state = REMI.grammar()
    for token in ids:
        state = state.advance(int(token))
    return state


def accepts(ids: list[int]) -> bool:
    try:
        walk(ids)
    except ValueError:
        return False
    return True


def is_canonical(ids: list[int]) -> bool:
    return np.array_equal(REMI.encode(REMI.decode(ids)).ids, ids)


# ---- laws


@given(score=scores())
def test_what_is_encoded_is_accepted(score):
    ids = REMI.encode(score).ids
    for state in (walk(ids), REMI.grammar().resume(ids)):
        assert np.flatnonzero(state.allowed).tolist() == [PAD]


@given(ids=canonical_ids())
def test_what_is_accepted_is_canonical(ids):
    assert is_canonical(ids)


@given(ids=canonical_ids(), data=st.data())
def test_a_changed_sequence_is_accepted_if_and_only_if_it_is_canonical(ids, data):
    place = data.draw(st.integers(1, len(ids) - 2))
    length = data.draw(st.integers(0, 4))
    near = st.integers(max(0, ids[place] - 3), min(511, ids[place] + 3))
    new = data.draw(st.lists(near | st.integers(0, 511), max_size=4))
    changed = [*ids[:place], *new, *ids[place + length : -1], EOS]
    assert accepts(changed) == is_canonical(changed)


@given(ids=any_ids())
def test_any_row_is_accepted_if_and_only_if_it_is_canonical(ids):
    whole = [BOS, *ids, EOS]
    assert accepts(whole) == is_canonical(whole)


@given(ids=canonical_ids())
def test_the_grammar_tells_the_place_of_the_next_token(ids):
    beats = REMI.encode(REMI.decode(ids)).beats
    state = REMI.grammar()
    bars = 0
    for token, beat in zip(ids.tolist(), beats, strict=True):
        assert state.beat == beat
        assert state.bar == bars
        bars += token == BAR
        state = state.advance(token)


@given(
    ids=canonical_ids(),
    tempo=st.sampled_from(["free", "bar_line", "never"]),
    time_signature=st.booleans(),
    end=st.booleans(),
)
def test_rules_only_forbid_and_never_leave_nothing(ids, tempo, time_signature, end):
    free = REMI.grammar()
    ruled = REMI.grammar(tempo=tempo, time_signature=time_signature, end=end)
    for token in ids.tolist():
        assert not (ruled.allowed & ~free.allowed).any()
        assert ruled.allowed.any()
        free = free.advance(token)
        ruled = free._replace(rules=ruled.rules)


@given(ids=canonical_ids(), data=st.data())
def test_resuming_gives_the_state_that_walking_does(ids, data):
    first = data.draw(st.integers(0, int(np.count_nonzero(ids == BAR)) - 1))
    prompt = REMI.crop(ids, first)
    prompt = prompt[: data.draw(st.integers(1, len(prompt)))]
    resumed, walked = REMI.grammar().resume(prompt), walk(prompt)
    for left in (resumed, REMI.grammar().advance(int(prompt[0])).resume(prompt[1:])):
        now = 12 * walked.beat
        still = [{note for note in state.sounding if note[1] > now} for state in (left, walked)]
        assert still[0] == still[1]
        assert left._replace(sounding=()) == walked._replace(sounding=())
        np.testing.assert_array_equal(left.allowed, walked.allowed)


def test_resuming_a_long_prompt_costs_little():
    ids = ids_of(START) + 200_000 * ids_of("Bar Position_3 Pitch_60 Velocity_9 Duration_3")
    begin = time.process_time()
    state = REMI.grammar(tempo="never").resume(ids)
    assert time.process_time() - begin < 2
    assert (state.bar, state.beat) == (200_001, 200_000 * 4 + 0.25)


def test_the_last_bar_of_a_prompt_is_checked():
    with pytest.raises(ValueError, match="Position_2 may not stand here: bar 2"):
        after(START + "Bar Position_3 Pitch_60 Velocity_9 Duration_3 Position_2")


# ---- one state after the other


def test_the_first_bar_has_a_time_signature_a_position_and_a_tempo():
    state = REMI.grammar(tempo="never", time_signature=False, end=False)
    assert np.flatnonzero(state.allowed).tolist() == [BOS, BAR]
    state = state.advance(BOS)
    assert np.flatnonzero(state.allowed).tolist() == [BAR]
    state = state.advance(BAR)
    assert names_allowed(state) == {"TimeSignature"}
    assert np.count_nonzero(state.allowed) == 16
    state = state.advance(NAMES["TimeSignature_36"])
    assert np.flatnonzero(state.allowed).tolist() == [POSITION]
    state = state.advance(POSITION)
    assert names_allowed(state) == {"Tempo"}
    assert np.count_nonzero(state.allowed) == 211
    state = state.advance(NAMES["Tempo_90"])
    assert names_allowed(state) == {"Bar", "Position", "Pitch"}
    assert (state.bar, state.position, state.bar_length) == (1, 0, 36)


START = "BOS Bar TimeSignature_48 Position_0 Tempo_120 "


def test_positions_rise_within_the_bar():
    state = after(START + "Pitch_60 Velocity_16 Duration_3 Position_7 Tempo_90")
    positions = state.allowed[POSITION:TEMPO]
    assert np.flatnonzero(positions).tolist() == list(range(8, 48))


def test_pitches_rise_within_a_position():
    state = after(START + "Pitch_60 Velocity_16 Duration_3")
    assert np.flatnonzero(state.allowed[PITCH:VELOCITY]).tolist() == list(range(40, 88))


def test_a_sounding_pitch_is_not_struck():
    state = after(
        START + "Pitch_60 Velocity_16 Duration_6 Position_5 Pitch_58 Velocity_1 Duration_1"
    )
    assert not state.allowed[NAMES["Pitch_60"]]
    assert state.allowed[NAMES["Pitch_61"]]
    assert state.advance(NAMES["Position_6"]).allowed[NAMES["Pitch_60"]]


def test_a_piece_ends_when_its_notes_have():
    state = after(START + "Position_47 Pitch_60 Velocity_16 Duration_2")
    assert not state.allowed[EOS]
    assert state.advance(BAR).allowed[EOS]


def test_tempo_and_time_signature_change():
    state = after(START + "Bar")
    assert not state.allowed[NAMES["TimeSignature_48"]]
    assert state.allowed[NAMES["TimeSignature_42"]]
    state = state.advance(NAMES["Position_12"])
    assert not state.allowed[NAMES["Tempo_120"]]
    assert state.allowed[NAMES["Tempo_121"]]


def test_rules_of_tempo():
    assert "Tempo" in names_allowed(after(START + "Bar Position_12"))
    for rule in ("bar_line", "never"):
        assert names_allowed(after(START + "Bar Position_12", tempo=rule)) == {"Pitch"}
    assert "Tempo" in names_allowed(after(START + "Bar Position_0", tempo="bar_line"))
    assert "Tempo" not in names_allowed(after(START + "Bar Position_0", tempo="never"))


def test_rules_of_time_signature_and_end():
    assert {"TimeSignature", "EOS"} <= names_allowed(after(START + "Bar"))
    assert "TimeSignature" not in names_allowed(after(START + "Bar", time_signature=False))
    state = after(START + "Bar", end=False).advance(BAR).advance(BAR)
    assert not state.allowed[EOS]
    assert state.beat == 12


def test_a_prompt_may_break_the_rules_for_what_follows():
    prompt = START + "Bar TimeSignature_36 Position_12 Tempo_90"
    state = after(prompt, tempo="never", time_signature=False, end=False)
    assert state.rules == Rules("never", time_signature=False, end=False)
    assert state.bar_length == 36


def test_where_every_key_sounds_nothing_can_be_struck():
    chord = "".join(f" Pitch_{pitch} Velocity_9 Duration_20" for pitch in range(21, 108))
    text = START + chord + " Pitch_108 Velocity_9 Duration_30"
    for rule, positions in [
        ("free", range(1, 48)),
        ("bar_line", range(20, 48)),
        ("never", range(20, 48)),
    ]:
        state = after(text, tempo=rule)
        assert np.flatnonzero(state.allowed[POSITION:TEMPO]).tolist() == list(positions)
    long = after(
        text.replace("Duration_20", "Duration_768").replace("Duration_30", "Duration_768") + " Bar"
    )
    assert "Pitch" not in names_allowed(long.advance(POSITION))
    ruled = long._replace(rules=Rules("bar_line"))
    assert np.flatnonzero(ruled.allowed[POSITION:TEMPO]).tolist() == [0]
    assert not long._replace(rules=Rules("never")).allowed[POSITION:TEMPO].any()


@pytest.mark.parametrize("token", [-1, 512, EOS, PAD, TIME_SIGNATURE, DURATION])
def test_a_token_that_is_not_allowed_is_refused(token):
    with pytest.raises(ValueError, match="may not stand here: bar 0"):
        REMI.grammar().advance(token)


def test_masks_cannot_be_written_to():
    for state in (REMI.grammar(), after(START)):
        with pytest.raises(ValueError, match="read-only"):
            state.allowed[0] = True
