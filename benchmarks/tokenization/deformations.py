"""Ways in which music with right bars does not begin on the grid of its file.

Each changes the notes of a score, never its bars: what people play into a sequencer with a click,
arpeggios, ornaments, tuplets, swing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tokenization.score import Score

Deformation = Callable[[Score, np.random.Generator], Score]


def jitter(milliseconds: float) -> Deformation:
    """Begin each note early or late, by a standard deviation."""

    def deform(score: Score, rng: np.random.Generator) -> Score:
        return _moved(score, lambda notes, track: rng.normal(0, milliseconds, len(notes)))

    return deform


def late(milliseconds: float) -> Deformation:
    """Delay one track, the first of several; all notes if there is only one track."""
    return lambda score, rng: _moved(
        score, lambda notes, track: np.full(len(notes), milliseconds if track == 0 else 0.0)
    )


def strum(milliseconds: float) -> Deformation:
    """Return the notes of a chord begin one after the other, from below."""

    def moves(notes: np.ndarray, track: int) -> np.ndarray:
        _, chord = np.unique(notes[:, 0], return_inverse=True)
        order = np.lexsort((notes[:, 2], chord))
        first = np.searchsorted(chord[order], np.arange(chord.max() + 1))
        rank = np.empty(len(notes))
        rank[order] = np.arange(len(notes)) - first[chord[order]]
        return rank * milliseconds

    return lambda score, rng: _moved(score, moves)


def swing(share: float, steps: int) -> Deformation:
    """Begin every second of `steps` equal parts of a quarter at `share` of its pair."""

    def deform(score: Score, rng: np.random.Generator) -> Score:
        pair = 2 * score.ticks_per_beat / steps

        def swung(ticks: np.ndarray) -> np.ndarray:
            number, place = np.floor(ticks / pair), ticks / pair % 1
            warped = np.where(place < 0.5, 2 * place * share, share + (2 * place - 1) * (1 - share))
            return np.rint((number + warped) * pair).astype(np.int64)

        return _retimed(score, swung)

    return deform


def graces(score: Score, rng: np.random.Generator) -> Score:
    """Add a grace note of 40 ms before every second note."""
    step = _ticks(score, 40.0)

    def add(notes: np.ndarray) -> np.ndarray:
        main_notes = notes[::2]
        main_notes = main_notes[main_notes[:, 0] >= step]
        added = np.column_stack(
            [
                main_notes[:, 0] - step,
                np.full(len(main_notes), step),
                main_notes[:, 2] - 1,
                main_notes[:, 3],
            ]
        )
        return np.concatenate([notes, added])

    return _each(score, add)


def divided(parts: int, share: float) -> Deformation:
    """Return a share of the notes of a quarter or longer is struck `parts` times in a quarter."""

    def deform(score: Score, rng: np.random.Generator) -> Score:
        quarter = score.ticks_per_beat

        def add(notes: np.ndarray) -> np.ndarray:
            long = (notes[:, 1] >= 0.9 * quarter) & (rng.random(len(notes)) < share)
            rows = []
            for onset, _, pitch, velocity in notes[long].tolist():
                starts = onset + np.rint(np.arange(parts) * quarter / parts).astype(np.int64)
                rows += [(start, quarter // parts, pitch, velocity) for start in starts.tolist()]
            return np.concatenate([notes[~long], np.array(rows, np.int64).reshape(-1, 4)])

        return _each(score, add)

    return deform


FITTED: dict[str, Deformation] = {
    "jitter 10 ms": jitter(10),
    "jitter 40 ms": jitter(40),
    "late 40 ms": late(40),
    "strum 15 ms": strum(15),
    "trills in 64ths": divided(16, 0.3),
    "swung eighths 64 %": swing(0.64, 2),
    "sextuplets": divided(6, 0.5),
}
"""Kinds to which the probability is fitted."""
HELD_OUT: dict[str, Deformation] = {
    "jitter 20 ms": jitter(20),
    "jitter 30 ms": jitter(30),
    "late 20 ms": late(20),
    "late 80 ms": late(80),
    "strum 30 ms": strum(30),
    "graces": graces,
    "rolls in 32nds": divided(8, 0.5),
    "quintuplets": divided(5, 0.5),
    "swung eighths 58 %": swing(0.58, 2),
    "swung 16ths 58 %": swing(0.58, 4),
    "swung 16ths 70 %": swing(0.70, 4),
}
"""Other kinds, which are only measured."""


def _ticks(score: Score, milliseconds: float) -> int:
    bpm = score.tempos[0].bpm if score.tempos else 120.0
    return max(1, round(milliseconds / 60_000 * bpm * score.ticks_per_beat))


def _each(score: Score, change: Callable[[np.ndarray], np.ndarray]) -> Score:
    tracks = []
    for track in score.tracks:
        notes = change(track.notes) if len(track) else track.notes
        tracks.append(replace(track, notes=notes[np.lexsort(notes.T[[3, 1, 2, 0]])]))
    return score.with_tracks(tracks)


def _moved(score: Score, moves: Callable[[np.ndarray, int], np.ndarray]) -> Score:
    """Return the notes moved by milliseconds, in the first tempo.

    The score is refined to a resolution of a millisecond.
    """
    score = score.refined(-(-480 // score.ticks_per_beat))
    bpm = score.tempos[0].bpm if score.tempos else 120.0
    number = iter(range(len(score.tracks)))

    def change(notes: np.ndarray) -> np.ndarray:
        ticks = moves(notes, next(number)) / 60_000 * bpm * score.ticks_per_beat
        notes = notes.copy()
        notes[:, 0] = np.maximum(notes[:, 0] + np.rint(ticks).astype(np.int64), 0)
        return notes

    return _each(score, change)


def _retimed(score: Score, place: Callable[[np.ndarray], np.ndarray]) -> Score:
    score = score.refined(-(-480 // score.ticks_per_beat))

    def change(notes: np.ndarray) -> np.ndarray:
        begin, end = place(notes[:, 0]), place(notes[:, 0] + notes[:, 1])
        return np.column_stack([begin, np.maximum(end - begin, 1), notes[:, 2:]])

    return _each(score, change)
