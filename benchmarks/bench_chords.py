"""Agreement of `recognise_chords` with the chords of POP909, and its speed, as CSV.

    python -m benchmarks.bench_chords FOLDER [--split validation] [--songs 1000] > chords.csv

FOLDER contains `pop909.zip`. All annotated beats count, also those annotated as no chord. Times of
`original/NNN/NNN.mid` are converted to seconds and then aligned to the annotated beats. Sixth
chords count as their triads, `sus4(b7)` as `sus4`. Families: major (M 7 M7), minor (m m7),
diminished (o o7 /o7), augmented, suspended. The annotations were also made by an algorithm, so the
results are agreement, not accuracy.
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
from tokenization.analysis.beats import pickup_beats, warp
from tokenization.analysis.chords import NO_CHORD, QUALITIES, recognise_chords
from tokenization.midi import read_midi

ANNOTATED = {
    **{"maj": "M", "maj6": "M", "min": "m", "min6": "m", "minmaj7": "m", "dim": "o", "aug": "+"},
    **{"7": "7", "maj7": "M7", "min7": "m7", "dim7": "o7", "hdim7": "/o7"},
    **{"sus2": "sus2", "sus4": "sus4", "sus4(b7)": "sus4"},
}
FAMILIES = np.array([0, 1, 2, 3, 0, 0, 1, 2, 2, 4, 4, NO_CHORD])


def chord_index(name: str) -> int:
    """Index of an annotated chord such as `Eb:min7/b3`: 11 root + quality, or NO_CHORD."""
    if name == "N":
        return NO_CHORD
    root, quality = name.split(":")
    pitch_class = "C D EF G A B".index(root[0]) + root.count("#") - root.count("b")
    return pitch_class % 12 * len(QUALITIES) + QUALITIES.index(ANNOTATED[quality.split("/")[0]])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Agreement with POP909's chords, as CSV")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--songs", type=int, default=1000, help="maximum number of songs")
    options = parser.parse_args()
    rows: list[np.ndarray] = []
    milliseconds: list[float] = []
    with zipfile.ZipFile(options.folder / "pop909.zip") as archive:
        songs = json.loads(archive.read("pop909/splits.json"))[options.split]
        for song in spread(songs, options.songs):
            folder = f"pop909/original/{song}"
            lines = archive.read(f"{folder}/beat_midi.txt").decode().splitlines()
            beats = np.array([float(line.split()[0]) for line in lines if line.strip()])
            lines = archive.read(f"{folder}/chord_midi.txt").decode().splitlines()
            begins, ends, names = zip(
                *(line.split() for line in lines if line.strip()), strict=True
            )
            score = read_midi(archive.read(f"{folder}/{song}.mid"), name=song)
            pickup = pickup_beats(score, beats)
            score = warp(score, beats)
            centres = (beats[1:] + beats[:-1]) / 2
            place = np.searchsorted(np.array(begins, float), centres, side="right") - 1
            annotated = (place >= 0) & (centres < np.array(ends, float)[place])
            wanted = np.array([chord_index(name) for name in names])[place]
            begin = time.process_time()
            chords = recognise_chords(score)
            milliseconds.append(1e3 * (time.process_time() - begin))
            found = chords.at(np.arange(len(centres)) + pickup + 0.5)
            rows.append(np.stack([found, wanted])[:, annotated])
    found, wanted = np.concatenate(rows, axis=1)
    same_root = np.where(found < 0, -1, found // 11) == np.where(wanted < 0, -1, wanted // 11)
    family = FAMILIES[np.where(found < 0, -1, found % 11)]
    same_family = family == FAMILIES[np.where(wanted < 0, -1, wanted % 11)]
    out = csv.writer(sys.stdout)
    out.writerow(["# command", " ".join(sys.argv)])
    out.writerow(["# device", platform.processor() or platform.machine(), platform.platform()])
    out.writerow(["# versions", platform.python_version(), f"numpy {np.__version__}"])
    out.writerow(["songs", "beats", "root", "root_and_family", "exact", "median_ms", "best_ms"])
    figures = (same_root.mean(), (same_root & same_family).mean(), (found == wanted).mean())
    times = (np.median(milliseconds), min(milliseconds))
    out.writerow(
        [len(rows), len(found), *(f"{x:.4f}" for x in figures), *(f"{x:.2f}" for x in times)]
    )


if __name__ == "__main__":
    main()
