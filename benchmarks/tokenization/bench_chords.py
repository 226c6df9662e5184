"""Agreement of recognised chords with those of POP909, and speed, as CSV.

    python -m benchmarks.tokenization.bench_chords FOLDER [--split validation]
        [--songs 1000] > chords.csv

FOLDER contains `pop909.zip`. All annotated beats count, also those annotated as no chord. Times of
`original/NNN/NNN.mid` are converted to seconds and then aligned to the annotated beats. Sixth
chords count as their triads, `sus4(b7)` as `sus4`. Families: major (M 7 M7), minor (m m7),
diminished (o o7 /o7), augmented, suspended. The annotations were also made by an algorithm, so the
results are agreement, not accuracy.
"""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path

import numpy as np

from benchmarks.timing import csv_output, run
from benchmarks.tokenization.midi_corpora import spread
from tokenization.analysis.bar_chords import find_bar_chords
from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.beats import pickup_beats, warp
from tokenization.analysis.chords import NO_CHORD, QUALITIES, recognise_chords
from tokenization.midi import read_midi
from tokenization.score import Score

ANNOTATED = {
    **{"maj": "M", "maj6": "M", "min": "m", "min6": "m", "minmaj7": "m", "dim": "o", "aug": "+"},
    **{"7": "7", "maj7": "M7", "min7": "m7", "dim7": "o7", "hdim7": "/o7"},
    **{"sus2": "sus2", "sus4": "sus4", "sus4(b7)": "sus4"},
}
UNKNOWN = -2
"""No annotation."""
FAMILIES = np.array([0, 1, 2, 3, 0, 0, 1, 2, 2, 4, 4, NO_CHORD])


def chord_index(name: str) -> int:
    """Return the index of a chord such as `Eb:min7/b3`: 11 root + quality, or NO_CHORD."""
    if name == "N":
        return NO_CHORD
    root, quality = name.split(":")
    pitch_class = "C D EF G A B".index(root[0]) + root.count("#") - root.count("b")
    return pitch_class % 12 * len(QUALITIES) + QUALITIES.index(ANNOTATED[quality.split("/")[0]])


def read_song(archive: zipfile.ZipFile, song: str) -> tuple[Score, np.ndarray, np.ndarray]:
    """Return a song, the middles of its beats in quarters (beats,), and their chords (beats,).

    A chord that is not annotated is UNKNOWN.
    """
    folder = f"pop909/original/{song}"
    lines = archive.read(f"{folder}/beat_midi.txt").decode().splitlines()
    beats, _, is_first = np.array([line.split() for line in lines if line.strip()], float).T
    lines = archive.read(f"{folder}/chord_midi.txt").decode().splitlines()
    begins, ends, names = zip(*(line.split() for line in lines if line.strip()), strict=True)
    score = read_midi(archive.read(f"{folder}/{song}.mid"), name=song)
    pickup = pickup_beats(score, beats)
    centres = (beats[1:] + beats[:-1]) / 2
    place = np.searchsorted(np.array(begins, float), centres, side="right") - 1
    annotated = (place >= 0) & (centres < np.array(ends, float)[place])
    chords = np.array([chord_index(name) for name in names])[place]
    score = warp(score, beats, np.flatnonzero(is_first))
    return score, np.arange(len(centres)) + pickup + 0.5, np.where(annotated, chords, UNKNOWN)


def recognise_by_beats(score: Score, beats: np.ndarray) -> np.ndarray:
    """Return the chords at these quarters (beats,), one per beat, from the whole piece."""
    return recognise_chords(score).at(beats)


def recognise_by_bars(score: Score, beats: np.ndarray) -> np.ndarray:
    """Return the chords at these quarters (beats,), at most two in a bar, recognised bar by bar."""
    bars = ScoreBars.of(score)
    ticks, chords = [], []
    for line, middle, bar in zip(bars.lines[:-1], bars.middles, find_bar_chords(bars), strict=True):
        for beat, chord in bar:
            ticks.append(middle if beat else line)
            chords.append(NO_CHORD if chord is None else len(QUALITIES) * chord[0] + chord[1])
    place = np.searchsorted(ticks, beats * bars.score.ticks_per_beat, side="right") - 1
    return np.array(chords)[place]


RECOGNISERS = {"beats": recognise_by_beats, "bars": recognise_by_bars}


def agreement(recognised: np.ndarray, annotated: np.ndarray) -> tuple[float, float, float]:
    """Return the shares of chords with the same root, the same root and family, and all equal."""
    same_root = np.where(recognised < 0, -1, recognised // 11) == np.where(
        annotated < 0, -1, annotated // 11
    )
    family = FAMILIES[np.where(recognised < 0, -1, recognised % 11)]
    same_family = family == FAMILIES[np.where(annotated < 0, -1, annotated % 11)]
    return same_root.mean(), (same_root & same_family).mean(), (recognised == annotated).mean()


def main(folder: Path, /, *, split: str = "validation", songs: int = 1000) -> None:
    """Measure and print."""
    rows: dict[str, list[np.ndarray]] = {name: [] for name in RECOGNISERS}
    milliseconds: dict[str, list[float]] = {name: [] for name in RECOGNISERS}
    with zipfile.ZipFile(folder / "pop909.zip") as archive:
        names = json.loads(archive.read("pop909/splits.json"))[split]
        for song in spread(names, songs):
            score, beats, annotated = read_song(archive, song)
            for name, recognise in RECOGNISERS.items():
                begin = time.process_time()
                recognised = recognise(score, beats)
                milliseconds[name].append(1e3 * (time.process_time() - begin))
                rows[name].append(np.stack([recognised, annotated])[:, annotated > UNKNOWN])
    columns = ("root", "root_and_family", "exact", "median_ms", "best_ms")
    out = csv_output("recogniser", "songs", "beats", *columns)
    for name, of_songs in rows.items():
        recognised, annotated = np.concatenate(of_songs, axis=1)
        times = (np.median(milliseconds[name]), min(milliseconds[name]))
        out(name, len(of_songs), len(recognised), *agreement(recognised, annotated), *times)


if __name__ == "__main__":
    run(main)
