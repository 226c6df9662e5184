"""Beats and bars found in performances, and music that loses the bars of its file, as CSV.

    python -m benchmarks.tokenization.bench_beats DATA [--split test] [--pieces 12]
        [--against REVISION] [--cases FOLDER] > x.csv

DATA is the folder of the corpora. The first table is that of `estimate_beats` in performances whose
beats are known:

- `recorded`: recordings of `giantmidi`, aligned with the scores of `chopin` that they play
  (`benchmarks.tokenization.alignment`), where at least three quarters of the notes agree. Op. 10 is
  for development, the others are for tests;
- `pop909 original`: songs as their arrangers played them, with the beats of the corpus;
- `played CORPUS`: scores played in uneven time (`benchmarks.tokenization.performances`);
- `even CORPUS`: the same scores in strict time.

Nothing is fitted to the test split. With a REVISION of the repository, the tracker of that revision
is measured in the same run. A beat is right within 70 ms of a true one; F-measures count wrong and
missing beats (Davies et al., 2009, section 3). `confidence_error` is the mean difference between
confidence and F-measure. Onsets are compared with the nearest twelfth of a beat, in
milliseconds, medians: `onset_ms` of the estimated beats, `raw_ms` of 120 beats per minute.
`seconds` is processor time per ten minutes of music.

The second table has the shares of music with bars that lose those of its file, and of recordings
that keep them (`benchmarks.tokenization.whose_bars`), with 95 % intervals; the third one how often
music has its bars beside `file_probability`. CASES are further files with right bars.
"""

from __future__ import annotations

import subprocess
import sys
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.timing import csv_output, run
from benchmarks.tokenization.alignment import align
from benchmarks.tokenization.midi_corpora import spread
from benchmarks.tokenization.performances import (
    CORPORA,
    Performance,
    perform,
    read_scores,
    score_names,
)
from benchmarks.tokenization.whose_bars import Example, examples, report
from tokenization.analysis.bar_evidence import file_probability
from tokenization.analysis.beat_tracker import estimate_beats
from tokenization.analysis.beats import Beats, warp
from tokenization.midi import read_midi
from tokenization.score import Score, all_notes

TOLERANCE_SECONDS = 0.07
STEPS_PER_BEAT = 12
LEAST_AGREEMENT = 0.75
ETUDES = "Chopin_Frederic_Etudes_Op_10_g0hoN6_HDVU.mid"
RECORDINGS = {
    "validation": {"010_": ETUDES},
    "test": {
        "025_": ETUDES,
        "044_": "Chopin_Polonaise_in_F-sharp_minor_Op44_ehm_kDU563Q.mid",
        "061_": "Chopin_Polonaise-fantaisie_Op61_177qJoCI9Zw.mid",
    },
}
"""Beginnings of the names of scores in `chopin`, and recordings in `giantmidi`."""


class Measures(NamedTuple):
    """Measures of one performance; see the top of the file."""

    beats: float
    downbeats: float
    confidence: float
    confidence_error: float
    onset_ms: float
    raw_ms: float
    seconds: float


def f_measure(estimated: np.ndarray, true_beats: np.ndarray) -> float:
    """Return the F-measure of beats (n,) and (m,), in ascending seconds; each is matched once."""
    if not len(estimated) or not len(true_beats):
        return 0.0
    nearest = np.abs(estimated[:, None] - true_beats).argmin(axis=1)
    is_near = np.abs(estimated - true_beats[nearest]) <= TOLERANCE_SECONDS
    return 2 * len(np.unique(nearest[is_near])) / (len(estimated) + len(true_beats))


def recorded(data: Path, split: str) -> Iterator[Performance]:
    """Return the recordings aligned with their scores."""
    with (
        zipfile.ZipFile(data / "chopin" / "chopin.zip") as scores,
        zipfile.ZipFile(data / "giantmidi" / "giantmidi_sample.zip") as recordings,
    ):
        for beginning, name in RECORDINGS[split].items():
            recording = read_midi(recordings.read(f"giantmidi/midi/{name}"), name=name)
            for path in sorted(scores.namelist()):
                if path.startswith(f"chopin/midi/{beginning}"):
                    aligned = align(read_midi(scores.read(path), name=path), recording)
                    if aligned and aligned[1] >= LEAST_AGREEMENT:
                        yield aligned[0]


def annotated(data: Path, names: list[str]) -> Iterator[Performance]:
    """Yield POP909's own files with its annotated beats."""
    with zipfile.ZipFile(data / "pop909" / "pop909.zip") as archive:
        for name in names:
            song = Path(name).stem
            folder = f"pop909/original/{song}"
            lines = archive.read(f"{folder}/beat_midi.txt").decode().splitlines()
            beats, short, long = np.array([line.split() for line in lines if line], float).T
            # In triple metre the third column marks every second bar.
            bars = np.flatnonzero(long)
            bars = np.flatnonzero(short) if np.median(np.diff(bars)) == 6 else bars
            score = read_midi(archive.read(f"{folder}/{song}.mid"), name=song)
            yield Performance(score, beats, bars)


def kinds(data: Path, split: str, pieces: int) -> Iterator[tuple[str, Iterator[Performance]]]:
    """Yield the names of kinds of performances, and the performances."""
    yield "recorded", recorded(data, split)
    songs = spread(score_names(data, "pop909", split), pieces)
    yield "pop909 original", annotated(data, songs)
    for kind, strength in (("played", None), ("even", 0.0)):
        for corpus in CORPORA:
            names = spread(score_names(data, corpus, split), pieces)
            scores = enumerate(read_scores(data, corpus, names))
            yield (
                f"{kind} {corpus}",
                (perform(score, number, strength) for number, (_, score) in scores),
            )


def tracker_of(revision: str) -> Callable[[Score], Beats]:
    """Return `estimate_beats` as it was at a revision of the repository."""
    module = types.ModuleType("tracker_of_revision")
    for path in ("tokenization/analysis/beats.py", "tokenization/analysis/beat_tracker.py"):
        shown = subprocess.run(["git", "show", f"{revision}:{path}"], capture_output=True)
        if shown.returncode == 0:
            sys.modules[module.__name__] = module  # dataclasses look their module up
            exec(compile(shown.stdout, path, "exec"), module.__dict__)
    return module.estimate_beats


def measure(track: Callable[[Score], Beats], performance: Performance) -> Measures:
    """Measure a tracker on one performance."""
    score, beats, bars = performance
    begin = time.process_time()
    estimate = track(score)
    seconds = time.process_time() - begin
    times = estimate.seconds
    right = f_measure(times, beats)
    confidence = getattr(estimate, "confidence", np.nan)
    warped = warp(score, times)
    onsets = np.unique(score.seconds_at(all_notes(score.tracks)[:, 0]))
    quarters = all_notes(warped.tracks)[:, 0] / warped.ticks_per_beat
    steps = np.unique(quarters) * STEPS_PER_BEAT
    nearest = np.rint(steps) / STEPS_PER_BEAT * warped.ticks_per_beat
    moved = warped.seconds_at(np.rint(nearest).astype(np.int64))
    errors = np.abs(moved - warped.seconds_at(np.unique(all_notes(warped.tracks)[:, 0])))
    raw = np.abs(np.rint(onsets * 2 * STEPS_PER_BEAT) / 2 / STEPS_PER_BEAT - onsets)
    return Measures(
        right,
        f_measure(times[estimate.downbeats], beats[bars]),
        confidence,
        abs(confidence - right),
        1000 * float(np.median(errors)),
        1000 * float(np.median(raw)),
        600 * seconds / max(onsets[-1] - onsets[0], 1.0),
    )


def main(
    data: Path,
    /,
    *,
    split: str = "test",
    pieces: int = 12,
    against: str | None = None,
    cases: Path | None = None,
) -> None:
    """Measure and print."""
    trackers = {"new": estimate_beats}
    if against:
        trackers = {against: tracker_of(against), **trackers}
    out = csv_output("performances", "tracker", "number", *Measures._fields)
    for kind, performances in kinds(data, split, pieces):
        rows: dict[str, list[Measures]] = {name: [] for name in trackers}
        for performance in performances:
            for name, track in trackers.items():
                rows[name].append(measure(track, performance))
        for name, measures in rows.items():
            out(kind, name, len(measures), *np.mean(measures, axis=0))
    drawn = list(examples(data, split, pieces))
    if cases:
        scores = [read_midi(path.read_bytes(), name=path.name) for path in sorted(cases.iterdir())]
        drawn += [Example("cases", has_bars=True, score=score) for score in scores]
    report(
        [example.kind for example in drawn],
        [example.has_bars for example in drawn],
        [file_probability(example.score) for example in drawn],
    )


if __name__ == "__main__":
    run(main)
