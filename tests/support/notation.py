"""Scores for the piano, and what is written of them."""

from __future__ import annotations

from hypothesis import strategies as st

from tokenization.grid import STEPS_PER_BEAT
from tokenization.notation.staves import Notation
from tokenization.score import Score, TimeSignature, Track

METRES = ((4, 4), (3, 4), (2, 4), (6, 8), (12, 8), (5, 8), (2, 2))
rows = st.tuples(st.integers(0, 200), st.integers(0, 90), st.integers(0, 127), st.just(80))


@st.composite
def scores(draw: st.DrawFn) -> Score:
    """Pieces of one or two tracks, with any onsets and lengths on the grid."""
    tracks = draw(st.lists(st.lists(rows, min_size=1, max_size=30), min_size=1, max_size=2))
    first, second = draw(st.sampled_from(METRES)), draw(st.sampled_from(METRES))
    metres = (TimeSignature(0, *first), TimeSignature(draw(st.integers(1, 150)), *second))
    return Score(STEPS_PER_BEAT, tuple(map(Track.of, tracks)), time_signatures=metres)


def strikes(notation: Notation) -> list[tuple[int, int, int]]:
    """Onset, end and pitch of all notes."""
    return sorted(
        (strike.onset, strike.end, pitch)
        for staff in (notation.right, notation.left)
        for voice in staff.voices
        for strike in voice
        for pitch in strike.pitches
    )
