"""What coarser velocities and durations change, and what they save, as CSV.

    python -m benchmarks.tokenization.bench_resolution CORPUS [CORPUS ...]
        [--files N] > resolution.csv

A CORPUS is a folder or a zip of MIDI files, as in `bench_fidelity`. Each row has the errors of one
set of values, and the entropy of these values in bits per note: without any context, and given the
value of the note before.

- `velocity`: bins of equal width in MIDI velocities. Errors are in decibels of level, with the
  velocity curve of General MIDI and SoundFonts, 40 log10(v / 127). A difference of 1 dB is just
  noticeable (Jesteadt, Wier & Green, 1977).
- `duration`: lengths in grid steps: all up to a number of steps, then some per octave.
  Errors are in percent of the length. A difference of 10 % is just noticeable in single tones of
  0.1 to 1 s (Abel, 1972).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.timing import csv_output, run
from benchmarks.tokenization.midi_corpora import scores_of
from tokenization.grid import STEPS_PER_BEAT
from tokenization.score import Score

WIDTHS = (1, 2, 4, 8, 16)
LENGTHS = ((384, 1), (48, 4), (24, 4), (12, 4), (12, 2))
"""All lengths up to the first number, then that many per octave up to 768 steps; 48 and 4 are those
of the vocabulary."""


def level(velocities: np.ndarray) -> np.ndarray:
    """Return the level of MIDI velocities in decibels below the loudest."""
    return 40 * np.log10(np.maximum(velocities, 1) / 127)


def lengths(whole: int, per_octave: int) -> np.ndarray:
    """Return all lengths up to `whole` steps, then `per_octave` per octave up to 768 steps."""
    octaves = np.log2(768 / whole)
    more = whole * 2 ** (np.arange(1, int(octaves * per_octave) + 1) / per_octave)
    return np.array([*range(1, whole + 1), *np.floor(more + 0.5)])


def nearest(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the index of the nearest known value of each."""
    return np.searchsorted((table[1:] + table[:-1]) / 2, values, "right")


def entropies(values: list[np.ndarray]) -> tuple[float, float]:
    """Return the bits per value: without context, and given the value before it in the piece."""

    def bits(keys: np.ndarray) -> float:
        _, counts = np.unique(keys, return_counts=True)
        shares = counts / counts.sum()
        return float(-(shares * np.log2(shares)).sum())

    pairs = np.concatenate([1000 * piece[:-1] + piece[1:] for piece in values])
    return bits(np.concatenate(values)), bits(pairs) - bits(pairs // 1000)


def notes_of(score: Score) -> tuple[np.ndarray, np.ndarray]:
    """Return velocities and lengths in steps of all notes but those of drums, by onset."""
    tables = [track.notes for track in score.tracks if not track.is_drum]
    notes = np.concatenate([np.empty((0, 4), np.int64), *tables])
    notes = notes[np.lexsort((notes[:, 2], notes[:, 0]))]
    return notes[:, 3], np.maximum(notes[:, 1] * STEPS_PER_BEAT / score.ticks_per_beat, 1e-3)


def main(corpora: Sequence[str], /, *, files: int | None = None) -> None:
    """Measure and print."""
    out = csv_output(
        *("corpus", "notes", "values", "number", "error_mean", "error_p95"),
        *("noticeable_percent", "bits", "bits_after_the_last"),
    )
    for corpus in corpora:
        pieces = [notes_of(score) for score in scores_of(corpus, files)]
        pieces = [piece for piece in pieces if len(piece[0]) > 1]
        if not pieces:
            sys.exit(f"{corpus}: found no .mid files with pitched notes")
        velocities, steps = map(list, zip(*pieces, strict=True))
        played, held = np.concatenate(velocities), np.concatenate(steps)

        def row(what: str, number: int, errors: np.ndarray, limit: float, bits: tuple) -> None:
            shown = (errors.mean(), np.percentile(errors, 95), 100 * (errors >= limit).mean())
            out(Path(corpus).name, len(played), what, number, *shown, *bits)  # noqa: B023

        for width in WIDTHS:
            heard = played // width * width + width // 2
            bins = [piece // width for piece in velocities]
            errors = np.abs(level(heard) - level(played))
            row(f"velocity: bins of {width}", 128 // width, errors, 1, entropies(bins))
        for whole, per_octave in LENGTHS:
            table = lengths(whole, per_octave)
            errors = 100 * np.abs(table[nearest(held, table)] / held - 1)
            bins = [nearest(piece, table) for piece in steps]
            name = f"duration: all up to {whole}, then {per_octave} per octave"
            row(name, len(table), errors, 10, entropies(bins))


if __name__ == "__main__":
    run(main)
