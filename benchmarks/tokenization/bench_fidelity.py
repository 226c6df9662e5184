"""Quantization errors of onsets, durations, velocities and tempos, as CSV.

    python -m benchmarks.tokenization.bench_fidelity CORPUS [CORPUS ...] [--files N] > fidelity.csv

A CORPUS is a folder or a zip of MIDI files, or a part of it: `pop909.zip#solo/` selects the files
with `solo/` in their paths. Onsets and ends are rounded to the nearest of 4, 8, 12 or 24 positions
of a quarter note, lengths to those of the vocabulary (`docs/pages/concepts/tokens.md`) there.
Errors are in seconds at the tempos of the file. Drift is the change of the end of the piece when
tempos are rounded to whole quarters per minute from 30 to 240.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.timing import csv_output, run
from benchmarks.tokenization.midi_corpora import scores_of
from tokenization.score import Score, Tempo

GRIDS = (4, 8, 12, 24)


class Errors(NamedTuple):
    """Errors of one file on one grid."""

    onsets: np.ndarray
    """Seconds, of all notes."""
    durations: np.ndarray
    """Seconds, of all notes except those of drums."""
    velocities: np.ndarray
    merged: int
    """Number of notes with the track, pitch and position of another."""
    drift: float
    """Seconds at the end of the piece."""


def errors(score: Score, positions: int) -> Errors:
    """Return the errors of a score on a grid of `positions` per quarter note."""
    # at this resolution, times of the file and of the grid are integers
    resolution = score.ticks_per_beat * positions
    changes = score.tempos or (Tempo(0, 120.0),)
    exact = Score(resolution, (), tuple(Tempo(tick * positions, bpm) for tick, bpm in changes))
    seconds = exact.seconds_at

    def steps(ticks: np.ndarray) -> np.ndarray:
        return (2 * positions * ticks + score.ticks_per_beat) // (2 * score.ticks_per_beat)

    whole = 4 * positions
    lengths = np.array(
        [*range(1, whole + 1), *(int(whole * 2 ** (k / 4) + 0.5) for k in range(1, 17))]
    )
    onset_errors, duration_errors, velocity_errors = [], [], []
    merged = 0
    for track in score.tracks:
        ticks, durations, pitches, velocities = track.notes.T
        onsets = steps(ticks)
        merged += len(onsets) - len(np.unique(onsets * 128 + pitches))
        begins = seconds(onsets * score.ticks_per_beat)
        onset_errors.append(begins - seconds(ticks * positions))
        velocity_errors.append(velocities // 4 * 4 + 2 - velocities)
        if not track.is_drum:
            lengths_in_steps = np.maximum(steps(ticks + durations) - onsets, 1)
            nearest = lengths[
                np.searchsorted((lengths[1:] + lengths[:-1] + 1) // 2, lengths_in_steps, "right")
            ]
            rounded = seconds((onsets + nearest) * score.ticks_per_beat) - begins
            played = seconds((ticks + durations) * positions) - seconds(ticks * positions)
            duration_errors.append(rounded - played)
    end = np.array(score.end_ticks * positions)
    # of several tempos at one position, the last counts
    bpm_at = {
        int(steps(np.array(tick))) * score.ticks_per_beat: min(max(round(bpm), 30), 240)
        for tick, bpm in changes
    }
    moved = Score(resolution, (), tuple(Tempo(tick, float(bpm_at[tick])) for tick in bpm_at))
    return Errors(
        onsets=np.abs(np.concatenate(onset_errors)),
        durations=np.abs(np.concatenate([np.empty(0), *duration_errors])),
        velocities=np.abs(np.concatenate(velocity_errors)),
        merged=merged,
        drift=abs(float(moved.seconds_at(end) - seconds(end))),
    )


def main(corpora: Sequence[str], /, *, files: int | None = None) -> None:
    """Measure and print."""
    out = csv_output(
        *("corpus", "files", "notes", "positions", "onset_ms_mean", "onset_ms_p95"),
        *("duration_ms_mean", "duration_ms_p95", "velocity_mean", "velocity_p95"),
        *("merged_percent", "drift_s_mean", "drift_s_p95", "drift_s_max"),
    )
    for corpus in corpora:
        scores = scores_of(corpus, files)
        if not scores:
            sys.exit(f"{corpus}: found no .mid files with notes")
        for positions in GRIDS:
            measured = [errors(score, positions) for score in scores]
            onsets, durations, velocities, merged, drifts = zip(*measured, strict=True)
            notes = sum(map(len, onsets))
            row = (
                *mean_and_p95(1e3 * np.concatenate(onsets)),
                *mean_and_p95(1e3 * np.concatenate(durations)),
                *mean_and_p95(np.concatenate(velocities)),
                100 * sum(merged) / notes,
                *mean_and_p95(np.array(drifts)),
                max(drifts),
            )
            out(Path(corpus).name, len(scores), notes, positions, *row)


def mean_and_p95(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and 95th percentile; NaN if there are no values."""
    if not len(values):
        return float("nan"), float("nan")
    return float(values.mean()), float(np.percentile(values, 95))


if __name__ == "__main__":
    run(main)
