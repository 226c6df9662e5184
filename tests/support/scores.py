"""Scores that tests use as prompts."""

from __future__ import annotations

import numpy as np

from tokenization.score import Score, Tempo, TimeSignature, Track

BPM = 83.0
"""Tempo of the performance, in a file of 120 bpm."""


def two_hands(bars: int = 4, metre: tuple[int, int] = (4, 4)) -> Score:
    """Two tracks of `bars` bars at 96 bpm, 480 ticks a quarter."""
    length = 480 * 4 * metre[0] // metre[1]
    left = [(bar * length + i * 480, 460, 48 + 4 * i, 60) for bar in range(bars) for i in range(2)]
    right = [(bar * length + i * 240, 230, 72 + i, 90) for bar in range(bars) for i in range(5)]
    return Score(
        480,
        (Track.of(right), Track.of(left)),
        (Tempo(0, 96.0),),
        (TimeSignature(0, *metre),),
        bars * length,
    )


def performance(bars: int = 12, *, pedal: bool = False) -> Score:
    """A melody with bass in 4/4, played slightly unevenly at 83 bpm, beginning at 0.7 s."""
    random = np.random.default_rng(3)
    beat = 480 * 2 * 60 / BPM  # ticks at 120 bpm
    notes = []
    for bar in range(bars):
        for place in range(8):
            at = 0.7 * 960 + (4 * bar + place / 2) * beat + random.normal(0, 6)
            notes.append((round(at), 300, 72 + (3 * bar + 2 * place) % 11, 70))
            if place % 2 == 0:
                low = 40 if place == 0 else 52
                notes.append((round(at + random.normal(0, 5)), 800, low, 100 - 5 * place))
    controls = np.array([(0, 64, 127)] if pedal else np.empty((0, 3)))
    return Score(480, (Track(np.array(notes), controls=controls),), (Tempo(0, 120.0),))
