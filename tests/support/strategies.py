"""Hypothesis strategies: unusual but valid scores, and sequences of token ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi, Remi
from tokenization.remi.vocabulary import BAR, BOS, EOS
from tokenization.score import Score, Tempo, TimeSignature, Track

PIANO = PianoRemi()
RESOLUTIONS = (1, 5, 12, 24, 96, 120, 480, 1000)
METRES = (
    *((4, 4), (3, 4), (2, 4), (6, 8), (7, 8), (12, 8), (2, 2)),
    *((1, 4), (1, 8), (5, 16), (13, 4), (17, 8), (3, 32), (255, 1), (1, 1 << 20), (0, 4), (4, 0)),
)


def notes(last_tick: int) -> st.SearchStrategy[tuple[int, int, int, int]]:
    """Rows of a track; a few pitches are frequent, so that notes overlap."""
    return st.tuples(
        st.integers(0, last_tick),
        st.integers(0, last_tick),
        st.integers(58, 62) | st.integers(0, 127),
        st.integers(1, 127),
    )


@st.composite
def time_signatures(draw: st.DrawFn, last_tick: int = 2000) -> list[TimeSignature]:
    """Metre changes on and off the bar lines."""
    rows = st.tuples(st.integers(0, last_tick), st.sampled_from(METRES))
    return [TimeSignature(tick, *metre) for tick, metre in draw(st.lists(rows, max_size=4))]


@st.composite
def scores(draw: st.DrawFn, max_beats: int = 40, programs: tuple[int, ...] = (0,)) -> Score:
    """Scores of any resolution, with drums, overlaps, ignored pitches, odd metres and tempos."""
    ticks_per_beat = draw(st.sampled_from(RESOLUTIONS))
    last = max_beats * ticks_per_beat
    tracks = [
        Track.of(
            draw(st.lists(notes(last), max_size=12)),
            program=draw(st.sampled_from(programs)),
            is_drum=draw(st.integers(0, 5)) == 0,
        )
        for _ in range(draw(st.integers(0, 3 if len(programs) == 1 else 7)))
    ]
    bpm = st.floats(1, 1000) | st.integers(20, 300).map(float) | st.just(float("inf"))
    return Score(
        ticks_per_beat=ticks_per_beat,
        tracks=tuple(tracks),
        tempos=tuple(draw(st.lists(st.builds(Tempo, st.integers(0, last), bpm), max_size=4))),
        time_signatures=tuple(draw(time_signatures(last))),
        end_ticks=draw(st.integers(0, last)),
    )


def first_ids(remi: Remi) -> tuple[int, ...]:
    """The first id of each family of tokens, in ascending order."""
    return tuple(sorted({BOS, *remi.families.first_ids.values()} - {0}))


def to_the_end(state: RemiGrammar) -> list[int]:
    """Tokens that lead to the end of a piece, the first of them that is allowed soonest."""
    families = state.families
    needs_write = state.document.gap > 0
    return [families.last, *([families.write] if needs_write else []), BAR, families.write]


@st.composite
def canonical_ids(
    draw: st.DrawFn, remi: Remi = PIANO, max_tokens: int = 60, *, write: bool = False
) -> np.ndarray:
    """Whole pieces drawn from the grammar; for each token, first its kind is drawn.

    With `write`, they are documents of all kinds; half of them have a gap.
    """
    families = first_ids(remi)
    state = remi.grammar(write=write).advance(BOS)
    ids = [BOS]
    if write and draw(st.booleans()):
        ids.append(remi.families.gap + draw(st.integers(0, 2)))
        state = state.advance(ids[-1])
    choices = st.tuples(st.integers(0, len(families) - 1), st.integers(0, 255))
    for kind, which in draw(st.lists(choices, max_size=max_tokens)):
        # kinds are in the order of their ids, so each is a range of the allowed ids
        allowed = np.flatnonzero(state.allowed)
        allowed = allowed[allowed != EOS]
        if not len(allowed):  # only the end may follow
            break
        kinds = np.searchsorted(families, allowed, side="right")
        of_kind = allowed[kinds == np.unique(kinds)[kind % len(np.unique(kinds))]]
        ids.append(int(of_kind[which % len(of_kind)]))
        state = state.advance(ids[-1])
    while not state.allowed[EOS]:
        allowed = np.flatnonzero(state.allowed)
        ids.append(next(token for token in (*to_the_end(state), *allowed) if token in allowed))
        state = state.advance(int(ids[-1]))
    return np.array([*ids, EOS], dtype=np.int32)


def any_ids(remi: Remi = PIANO, max_tokens: int = 60) -> st.SearchStrategy[list[int]]:
    """Sequences of integers, most of them ids, some in a plausible order."""
    of = remi.families
    token = (
        st.integers(0, of.size - 1)
        | st.sampled_from(first_ids(remi))
        | st.integers(-3, of.size + 3)
    )
    velocity = st.integers(of.velocity, of.duration - 1)
    drum_velocity = st.integers(of.drum_velocity, of.return_ - 1)
    few = st.integers(0, 3)
    duration = st.integers(of.duration, of.drum_velocity)
    note = st.tuples(few.map(of.pitch.__add__), velocity, duration)
    drum = st.tuples(few.map(of.drum.__add__), drum_velocity)
    pieces = st.lists(st.tuples(token) | note | drum, max_size=max_tokens)
    return pieces.map(lambda rows: [token for row in rows for token in row])


class Case(NamedTuple):
    """A tokenizer, and strategies to test its properties."""

    name: str
    remi: Remi
    scores: st.SearchStrategy[Score]
    ids: st.SearchStrategy[np.ndarray]
    """Canonical pieces without bars to be written."""
    any_ids: st.SearchStrategy[list[int]]

    @classmethod
    def of(cls, name: str, remi: Remi, programs: tuple[int, ...]) -> Case:
        return cls(name, remi, scores(programs=programs), canonical_ids(remi), any_ids(remi))


PROGRAMS = (0, 0, 0, 33, 48, 65)
PIANO_CASE = Case.of("piano", PIANO, (0,))
MULTITRACK = MultitrackRemi()
MULTITRACK_CASE = Case.of("multitrack", MULTITRACK, PROGRAMS)


def for_each_tokenizer(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with the argument `case` for each tokenizer."""
    cases = (PIANO_CASE, MULTITRACK_CASE)
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])(test)
