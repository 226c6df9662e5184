"""Passages from rows of notes."""

from __future__ import annotations

from tokenization.measures.bars import BarNotes
from tokenization.score import Score, Track

BAR = 48


def notes_of(*tracks: list[tuple[int, ...]], bars: int, drums: bool = False) -> BarNotes:
    """Bars of 4/4 in twelfths; the first track contains the drums, if any."""
    made = [
        Track.of(rows, program=10 * i, is_drum=drums and i == 0) for i, rows in enumerate(tracks)
    ]
    return BarNotes.of(Score(12, tuple(made), end_ticks=bars * BAR))
