"""Beats and downbeats that `estimate_beats` finds in POP909, and grids in files, as CSV.

    python -m benchmarks.bench_beats FOLDER [ZIP ...] [--split validation] [--songs 1000] > x.csv

FOLDER contains `pop909.zip`, whose files `original/NNN/NNN.mid` have no beats; `beat_midi.txt`
annotates them. A beat is correct within 70 ms of an annotated one; F-measures count wrong and
missing beats (Davies et al., 2009, section 3). `beats_any_octave` is the best F-measure against the
annotated beats, twice as many, or every second one. `performed` is the same song with a tempo that
drifts by 15 % and fluctuates by 3 %, and onsets moved by 15 ms (standard deviations). Downbeats are
measured in songs whose beats are correct (F over 0.9). Of the MIDI files in each ZIP (such as
`giantmidi_sample.zip`), only the grid is measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import sys
import time
import zipfile
from pathlib import Path

import numpy as np

from benchmarks.bench_fidelity import spread
from tokenization.analysis.beats import ON_GRID, estimate_beats, on_grid
from tokenization.midi import read_midi
from tokenization.score import Score, Tempo, Track

TOLERANCE_SECONDS = 0.07


def f_measure(found: np.ndarray, wanted: np.ndarray) -> float:
    """F-measure of beats (n,) against (m,), in ascending seconds; each is matched at most once."""
    nearest = np.abs(found[:, None] - wanted).argmin(axis=1)
    is_near = np.abs(found - wanted[nearest]) <= TOLERANCE_SECONDS
    return 2 * len(np.unique(nearest[is_near])) / (len(found) + len(wanted))


def perform(score: Score, beats: np.ndarray, seed: int) -> tuple[Score, np.ndarray]:
    """The score in milliseconds with drifting tempo and uneven onsets, and its beats in seconds."""
    generator = np.random.default_rng(seed)
    times = np.arange(0, float(score.seconds_at(score.end_ticks)) + 40, 0.25)

    def wavering(every_seconds: float, deviation: float) -> np.ndarray:
        points = np.arange(0, times[-1] + every_seconds, every_seconds)
        return np.interp(times, points, generator.normal(0, deviation, len(points)))

    moved = np.cumsum(0.25 * np.exp(wavering(30, 0.15) + wavering(2, 0.03)))
    tracks: list[Track] = []
    for track in score.tracks:
        notes = track.notes.copy()
        ends = np.interp(score.seconds_at(notes[:, 0] + notes[:, 1]), times, moved)
        onsets = np.interp(score.seconds_at(notes[:, 0]), times, moved)
        onsets = np.maximum(onsets + generator.normal(0, 0.015, len(onsets)), 0)
        notes[:, 0] = np.rint(1000 * onsets)
        notes[:, 1] = np.maximum(np.rint(1000 * ends) - notes[:, 0], 30)
        tracks.append(Track(notes))
    return Score(1000, tuple(tracks), (Tempo(0, 60.0),)), np.interp(beats, times, moved)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Beats found in POP909, as CSV")
    parser.add_argument("folder", type=Path)
    parser.add_argument("others", type=Path, nargs="*", metavar="ZIP")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--songs", type=int, default=1000, help="maximum number of songs")
    options = parser.parse_args()
    results: dict[str, list[tuple[float, ...]]] = {}
    with zipfile.ZipFile(options.folder / "pop909.zip") as archive:
        songs = json.loads(archive.read("pop909/splits.json"))[options.split]
        for song in spread(songs, options.songs):
            folder = f"pop909/original/{song}"
            lines = archive.read(f"{folder}/beat_midi.txt").decode().splitlines()
            beats, short, long = np.array([line.split() for line in lines if line], float).T
            # In triple metre the third column marks every second bar.
            bars = np.flatnonzero(long)
            bars = np.flatnonzero(short) if np.median(np.diff(bars)) == 6 else bars
            original = read_midi(archive.read(f"{folder}/{song}.mid"), name=song)
            solo = read_midi(archive.read(f"pop909/solo/{song}.mid"), name=song)
            for kind, score, times in (
                ("original", original, beats),
                ("performed", *perform(original, beats, int(song))),
            ):
                results.setdefault(kind, []).append(measure(score, times, bars))
            results.setdefault("solo", []).append((on_grid(solo),))
    for path in options.others:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith((".mid", ".midi"))]
            results[path.stem] = [
                (on_grid(read_midi(archive.read(name), name=name)),)
                for name in spread(names, options.songs)
            ]
    out = csv.writer(sys.stdout)
    out.writerow(["# command", " ".join(sys.argv)])
    out.writerow(["# device", platform.processor() or platform.machine(), platform.platform()])
    out.writerow(["# versions", platform.python_version(), f"numpy {np.__version__}"])
    names = ("beats", "beats_any_octave", "downbeats", "metre_right", "median_ms")
    out.writerow(["files", "songs", "on_grid_songs", *names])
    for kind, rows in results.items():
        table = np.array(rows)
        shown = [f"{(table[:, 0] >= ON_GRID).mean():.3f}"]
        if table.shape[1] > 1:
            right = table[table[:, 1] > 0.9]
            shown += [f"{value:.3f}" for value in table[:, 1:3].mean(axis=0)]
            shown += [f"{value:.3f}" for value in right[:, 3:5].mean(axis=0)]
            shown.append(f"{np.median(table[:, 5]):.1f}")
        out.writerow([kind, len(rows), *shown])


def measure(score: Score, beats: np.ndarray, bars: np.ndarray) -> tuple[float, ...]:
    """The columns after `songs`, in order; the first is the share of notes on the grid."""
    begin = time.process_time()
    found = estimate_beats(score)
    milliseconds = 1e3 * (time.process_time() - begin)
    seconds = found.seconds
    double = np.interp(np.arange(2 * len(beats) - 1) / 2, np.arange(len(beats)), beats)
    octaves = [f_measure(seconds, wanted) for wanted in (beats, double, beats[::2], beats[1::2])]
    downbeats = f_measure(seconds[found.downbeats], beats[bars])
    metre = np.median(np.diff(found.downbeats)) == np.median(np.diff(bars))
    return (on_grid(score), octaves[0], max(octaves), downbeats, float(metre), milliseconds)


if __name__ == "__main__":
    main()
