"""Tokens that the grammar allows: properties for each vocabulary, then examples of states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import MULTITRACK_CASE, PIANO_CASE, for_each_tokenizer
from tokenization.errors import TokenizerError
from tokenization.remi.documents.grammar import DocumentGrammar
from tokenization.remi.grammar import RemiGrammar, Rules
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR, BOS, EOS, PAD, POSITION, TEMPO, TIME_SIGNATURE
from tokenization.score import Track

PIANO, MULTITRACK = PIANO_CASE.remi, MULTITRACK_CASE.remi
NAMES = PIANO.vocabulary.ids
START = "BOS Bar TimeSignature_48 Tempo_120.0 "


def ids_of(text: str, remi: Remi = PIANO) -> list[int]:
    return [remi.vocabulary.ids[name] for name in text.split()]


def after(text: str, remi: Remi = PIANO, **rules: Any) -> RemiGrammar:
    return remi.grammar(**rules).resume(ids_of(text, remi))


def names_allowed(state: RemiGrammar) -> set[str]:
    """Kinds of the tokens that may follow."""
    names = state.families.vocabulary.names
    return {names[token].split("_")[0] for token in np.flatnonzero(state.allowed)}


def positions_allowed(state: RemiGrammar) -> list[int]:
    return np.flatnonzero(state.allowed[POSITION:TEMPO]).tolist()


def walk(remi: Remi, ids: Iterable[int]) -> RemiGrammar:
    """State after all tokens, each of which is checked."""
    state = remi.grammar()
    for token in ids:
        state = state.advance(int(token))
    return state


def accepts(remi: Remi, ids: list[int]) -> bool:
    try:
        walk(remi, ids)
    except ValueError:
        return False
    return True


def is_canonical(remi: Remi, ids: list[int]) -> bool:
    try:
        return np.array_equal(remi.encode(*remi.decode_document(ids)).ids, ids)
    except TokenizerError:
        return False


# ---- properties


@for_each_tokenizer
@given(data=st.data())
def test_what_is_encoded_is_accepted(case, data):
    ids = case.remi.encode(data.draw(case.scores)).ids
    for state in (walk(case.remi, ids), case.remi.grammar().resume(ids)):
        assert np.flatnonzero(state.allowed).tolist() == [PAD]


@for_each_tokenizer
@given(data=st.data())
def test_a_changed_sequence_is_accepted_if_and_only_if_it_is_canonical(case, data):
    ids, last = data.draw(case.ids), case.remi.families.size - 1
    place = data.draw(st.integers(1, len(ids) - 2))
    length = data.draw(st.integers(0, 4))
    near = st.integers(max(0, ids[place] - 3), min(last, ids[place] + 3))
    new = data.draw(st.lists(near | st.integers(0, last), max_size=4))
    changed = [*ids[:place], *new, *ids[place + length : -1], EOS]
    assert accepts(case.remi, changed) == is_canonical(case.remi, changed)


@for_each_tokenizer
@given(data=st.data())
def test_any_sequence_is_accepted_if_and_only_if_it_is_canonical(case, data):
    whole = [BOS, *data.draw(case.any_ids), EOS]
    assert accepts(case.remi, whole) == is_canonical(case.remi, whole)


@for_each_tokenizer
@given(data=st.data())
def test_the_grammar_gives_the_place_of_the_next_token(case, data):
    ids = data.draw(case.ids)
    beats = case.remi.encode(*case.remi.decode_document(ids)).beats
    state = case.remi.grammar()
    bars = 0
    for token, beat in zip(ids.tolist(), beats, strict=True):
        assert state.beat == beat
        assert state.bar == bars
        bars += token == BAR
        state = state.advance(token)


@for_each_tokenizer
@given(
    data=st.data(),
    tempo=st.sampled_from(["free", "bar_line", "never"]),
    time_signature=st.booleans(),
    end=st.booleans(),
    tracks=st.none() | st.frozensets(st.sampled_from([0, 4, 5, 36, 512]), min_size=1),
)
def test_rules_forbid_tokens_but_never_all_of_them(case, data, tempo, time_signature, end, tracks):
    free = case.remi.grammar()
    tracks = None if case.remi.families.only_track >= 0 else tracks
    rules = Rules(tempo, time_signature, end, tracks)
    for token in data.draw(case.ids).tolist():
        ruled = free._replace(rules=rules)
        assert not (ruled.allowed & ~free.allowed).any()
        in_a_track_of_its_own = rules.tracks is not None and free.track not in {-1, *rules.tracks}
        assert ruled.allowed.any() or in_a_track_of_its_own
        free = free.advance(token)


@for_each_tokenizer
@given(data=st.data())
def test_resuming_gives_the_state_that_walking_does(case, data):
    remi, ids = case.remi, data.draw(case.ids)
    first = data.draw(st.integers(0, int(np.count_nonzero(ids == BAR)) - 1))
    prompt = remi.crop(ids, first)
    prompt = prompt[: data.draw(st.integers(1, len(prompt)))]
    resumed, walked = remi.grammar().resume(prompt), walk(remi, prompt)
    for left in (resumed, remi.grammar().advance(int(prompt[0])).resume(prompt[1:])):
        now = 12 * walked.beat
        still = [{note for note in state.sounding if note[2] > now} for state in (left, walked)]
        assert still[0] == still[1]
        assert left._replace(sounding=()) == walked._replace(sounding=())
        np.testing.assert_array_equal(left.allowed, walked.allowed)


RINGING = {
    "piano": "Bar Position_3 Pitch_60 Velocity_9 Duration_48 ",
    "multitrack": "Bar Position_3 Program_Drums Drum_36 DrumVelocity_9 "
    "Program_33 Part_2 Pitch_60 Velocity_9 Duration_48 Pitch_62 Velocity_9 Duration_48 ",
}
"""A bar whose notes continue to sound in the next one."""


@for_each_tokenizer
def test_resuming_advances_over_the_last_bar_only(case, monkeypatch):
    calls = []
    advance = DocumentGrammar.advance
    monkeypatch.setattr(
        DocumentGrammar, "advance", lambda self, token: calls.append(token) or advance(self, token)
    )
    ids = ids_of(START, case.remi) + 1000 * ids_of(RINGING[case.name], case.remi)
    state = case.remi.grammar(tempo="never").resume(ids)
    assert len(calls) < 20
    assert (state.bar, state.beat) == (1001, 1000 * 4 + 0.25)


@for_each_tokenizer
@given(
    notes=st.lists(
        st.tuples(st.sampled_from([-1, 0, 1, 36, 37]), st.integers(0, 127), st.integers(0, 99))
    ),
    position=st.integers(1, 47),
)
def test_held_notes_are_not_struck_before_they_end(case, notes, position):
    start = after(START, case.remi).hold(notes)
    state = start.advance(POSITION + position)
    of, plays = case.remi.families, 1
    if case.remi.families.only_track < 0:
        state, plays = state.advance(case.remi.vocabulary.ids["Program_0"]), 36
    allowed = np.flatnonzero(state.allowed[of.pitch : of.drum])
    held = {pitch for rank, pitch, end in notes if rank == plays and end > position}
    assert set(allowed.tolist()) == set(range(128)) - held
    ends = [end for rank, pitch, end in notes if rank > 0]
    assert start.advance(BAR).allowed[of.last] == (max(ends, default=0) <= 96)


def test_the_last_bar_of_a_prompt_is_checked():
    with pytest.raises(ValueError, match="Position_2 is not allowed at bar 2"):
        after(START + "Bar Position_3 Pitch_60 Velocity_9 Duration_3 Position_2")


# ---- which tracks may play


KEYS, BASS, DRUMS = Track.of([]), Track.of([], program=33), Track.of([], is_drum=True)


def test_only_the_given_tracks_may_play():
    state = after(START + "Position_0", MULTITRACK, tracks=[BASS, DRUMS])
    of = MULTITRACK.families
    programs = np.flatnonzero(state.allowed[of.program : of.part]) + of.program
    assert set(programs) == set(ids_of("Program_Drums Program_33", MULTITRACK))
    np.testing.assert_array_equal(after(START, tracks=[DRUMS]).allowed, after(START).allowed)


def test_a_part_may_play_where_the_parts_before_it_may_not():
    second = MULTITRACK.track_ranks([KEYS, KEYS])[1]
    state = after(START + "Position_0 Program_0", MULTITRACK)
    state = state._replace(rules=Rules(tracks=frozenset({second})))
    assert np.flatnonzero(state.allowed).tolist() == ids_of("Part_1", MULTITRACK)


def test_positions_are_forbidden_if_no_track_can_strike_a_note():
    rank = MULTITRACK.track_ranks([KEYS])[0]
    held = [(rank, pitch, 20 + (pitch > 60)) for pitch in range(128)]

    def positions(notes: list[tuple[int, int, int]], *tracks: Track, tempo: str = "never"):
        state = after(START, MULTITRACK, tempo=tempo, tracks=tracks)
        return positions_allowed(state.hold(notes))

    assert positions(held, KEYS) == list(range(20, 48))
    assert positions(held + held, KEYS) == list(range(20, 48))
    assert positions(held[:-1], KEYS) == list(range(48))
    assert positions(held, KEYS, DRUMS) == list(range(48))
    assert positions(held, KEYS, tempo="free") == list(range(1, 48))
    assert positions([]) == []


def test_a_track_whose_pitches_all_sound_may_not_begin():
    rank = MULTITRACK.track_ranks([KEYS])[0]
    state = after(START, MULTITRACK).hold((rank, pitch, 20) for pitch in range(128))
    names = MULTITRACK.vocabulary.ids
    state = state.advance(names["Position_5"]).advance(names["Program_0"])
    assert names_allowed(state) == {"Part"}
    assert "Pitch" in names_allowed(state.advance(names["Part_1"]))


# ---- each state, for the piano tokenizer


def test_rules_of_tempo():
    for rule, in_head, within in (
        ("free", True, True),
        ("bar_line", True, False),
        ("never", False, False),
    ):
        assert ("Tempo" in names_allowed(after(START + "Bar", tempo=rule))) == in_head
        assert ("Tempo" in names_allowed(after(START + "Bar Position_12", tempo=rule))) == within


def test_rules_of_time_signature_and_end():
    assert {"TimeSignature", "Last"} <= names_allowed(after(START + "Bar"))
    assert "TimeSignature" not in names_allowed(after(START + "Bar", time_signature=False))
    state = after(START + "Bar", end=False).advance(BAR).advance(BAR)
    assert "Last" not in names_allowed(state)
    assert state.beat == 12


def test_a_prompt_may_break_the_rules_for_what_follows():
    prompt = START + "Bar TimeSignature_36 Position_12 Tempo_89.9"
    state = after(prompt, tempo="never", time_signature=False, end=False)
    assert state.rules == Rules("never", time_signature=False, end=False)
    assert state.bar_length == 36


@pytest.mark.parametrize("token", [-1, 1246, EOS, PAD, TIME_SIGNATURE])
def test_a_token_that_is_not_allowed_is_refused(token):
    with pytest.raises(ValueError, match="is not allowed at bar 0"):
        PIANO.grammar().advance(token)


def test_masks_cannot_be_written_to():
    for state in (PIANO.grammar(), after(START)):
        with pytest.raises(ValueError, match="read-only"):
            state.allowed[0] = True
