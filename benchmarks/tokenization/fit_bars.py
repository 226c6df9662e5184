"""Fits the probability that the bars of a piece are those of its file, and says how good it is.

    python -m benchmarks.tokenization.fit_bars DATA [--pieces 24] [--output examples.csv]

DATA is the folder of the corpora. Music with bars: scores of each corpus, whole and cut to eight
bars, as they are and deformed (`benchmarks.tokenization.deformations`). Recordings without a click:
scores played in uneven time (`benchmarks.tokenization.performances`), with ticks of 120 beats per
minute, whole and cut to 16 seconds, and those of `giantmidi`. The coefficients are fitted to train
splits and half of the kinds of deformation. Test splits and the other half are measured: Brier
score, and a table of how often music has its bars beside the probability.
"""

from __future__ import annotations

import argparse
import csv
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from benchmarks.tokenization.deformations import FITTED, HELD_OUT
from benchmarks.tokenization.midi_corpora import spread
from benchmarks.tokenization.performances import perform, read_scores, score_names
from tokenization.analysis.bar_evidence import (
    FEWEST_NOTES,
    estimate_evidence,
    estimate_features,
    file_evidence,
    file_features,
)
from tokenization.analysis.beat_tracker import estimate_beats
from tokenization.grid import notated_lines
from tokenization.midi import read_midi
from tokenization.score import Score, Tempo

CORPORA = (
    *("chopin", "mutopia", "polish", "lieder", "quartets", "leadsheets", "pop909", "groove"),
    *("groovemidi", "billboard", "hymns", "orchestra"),
)
CUT_BARS = 8
PROBABILITIES = (0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0001)


class Example(NamedTuple):
    """A piece, whether the bars of its file are right, and what the probability depends on."""

    split: str
    corpus: str
    kind: str
    name: str
    has_bars: bool
    features: list[float]


def cut(score: Score, first: int, bars: int = CUT_BARS) -> Score:
    """Some bars of a score, with the tempo and the metre at their beginning."""
    lines = notated_lines(score, score.end_ticks, bars)
    begin, stop = (
        int(lines[min(first, len(lines) - 2)]),
        int(lines[min(first + bars, len(lines) - 1)]),
    )
    tracks = []
    for track in score.tracks:
        notes = track.notes[(track.notes[:, 0] >= begin) & (track.notes[:, 0] < stop)].copy()
        notes[:, 0] -= begin
        tracks.append(
            replace(track, notes=notes, controls=track.controls[:0], bends=track.bends[:0])
        )
    tempos = [tempo for tempo in score.tempos if tempo.tick <= begin][-1:]
    metres = [metre for metre in score.time_signatures if metre.tick <= begin][-1:]
    return Score(
        score.ticks_per_beat,
        tuple(tracks),
        tuple(tempo._replace(tick=0) for tempo in tempos),
        tuple(metre._replace(tick=0) for metre in metres),
    )


def retimed(score: Score) -> Score:
    """A performance in ticks of milliseconds as a file of 120 beats per minute."""
    return replace(score, ticks_per_beat=score.ticks_per_beat // 2, tempos=(Tempo(0, 120.0),))


def pieces(data: Path, split: str, count: int) -> Iterator[tuple[str, str, str, bool, Score]]:
    """Corpus, kind, name, whether the bars are right, and the score."""
    kinds = FITTED if split == "train" else HELD_OUT
    for corpus in CORPORA:
        names = spread(score_names(data, corpus, split), count)
        for number, (name, score) in enumerate(read_scores(data, corpus, names)):
            rng = np.random.default_rng(number)
            num_bars = len(notated_lines(score, score.end_ticks)) - 1
            part = cut(score, num_bars // 3)
            yield corpus, "whole", name, True, score
            yield corpus, "eight bars", name, True, part
            for kind, deform in kinds.items():
                yield corpus, kind, name, True, deform(part, rng)
            played = retimed(perform(score, number).score)
            yield corpus, "played", name, False, played
            yield corpus, "16 s, played", name, False, cut(played, int(rng.integers(0, 4)))
            yield corpus, "30 s, played", name, False, cut(played, int(rng.integers(0, 4)), 15)
    path = data / "giantmidi" / "giantmidi_sample.zip"
    with zipfile.ZipFile(path) as archive:
        names = [name for name in sorted(archive.namelist()) if name.endswith(".mid")]
        for name in names[split == "test" :: 2]:
            score = read_midi(archive.read(name), name=name)
            yield "giantmidi", "recorded", name, False, score
            yield "giantmidi", "16 s, recorded", name, False, cut(score, 8)


def examples(data: Path, split: str, count: int) -> Iterator[Example]:
    """Examples of a split."""
    for corpus, kind, name, has_bars, score in pieces(data, split, count):
        if score.num_notes >= FEWEST_NOTES:
            file = file_features(score, file_evidence(score))
            estimate = estimate_features(estimate_evidence(score, estimate_beats(score)))
            yield Example(split, corpus, kind, name, has_bars, [*file, *estimate])


def logistic_regression(table: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Coefficients by Newton's method, slightly regularised; both classes weigh the same."""
    weight = np.where(target, 0.5 / target.mean(), 0.5 / (1 - target.mean()))
    coefficients = np.zeros(table.shape[1])
    for _ in range(100):
        chance = 1 / (1 + np.exp(-table @ coefficients))
        slope = table.T @ (weight * (target - chance)) - 0.1 * coefficients
        curvature = (table.T * (weight * chance * (1 - chance))) @ table
        coefficients += np.linalg.solve(curvature + 0.1 * np.eye(len(coefficients)), slope)
    return coefficients


def interval(count: int, number: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, z = count / number, 1.96
    middle = (share + z**2 / (2 * number)) / (1 + z**2 / number)
    half = z / (1 + z**2 / number) * np.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def report(rows: list[Example], chance: np.ndarray) -> None:
    """Print the share of wrong choices of each kind, the Brier score and the reliability."""
    target = np.array([row.has_bars for row in rows])
    print("kind,number,wrong,from,to")
    for kind in dict.fromkeys(row.kind for row in rows):
        of_kind = np.array([row.kind == kind for row in rows])
        wrong = (chance[of_kind] < 0.5) == target[of_kind]
        low, high = interval(int(wrong.sum()), len(wrong))
        print(f"{kind},{len(wrong)},{wrong.mean():.4f},{low:.4f},{high:.4f}")
    for has_bars in (True, False):
        wrong = ((chance < 0.5) == target)[target == has_bars]
        low, high = interval(int(wrong.sum()), len(wrong))
        name = "all with bars" if has_bars else "all recordings"
        print(f"{name},{len(wrong)},{wrong.mean():.4f},{low:.4f},{high:.4f}")
    print(f"Brier score,{len(rows)},{np.mean((chance - target) ** 2):.4f}")
    print("probability from,to,number,share with bars")
    for low, high in pairwise(PROBABILITIES):
        inside = (chance >= low) & (chance < high)
        if inside.any():
            print(f"{low},{min(high, 1)},{inside.sum()},{target[inside].mean():.3f}")


def main() -> None:
    """Fit and report."""
    parser = argparse.ArgumentParser(description="Fit whose bars a piece has")
    parser.add_argument("data", type=Path)
    parser.add_argument("--pieces", type=int, default=24, help="maximum number of each corpus")
    parser.add_argument("--output", type=Path, help="also write the examples as CSV")
    options = parser.parse_args()
    rows = [
        example
        for split in ("train", "test")
        for example in tqdm(examples(options.data, split, options.pieces), desc=split)
    ]
    if options.output:
        with options.output.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerows([*row[:-1], *row.features] for row in rows)
    fitted = [row for row in rows if row.split == "train"]
    measured = [row for row in rows if row.split == "test"]
    target = np.array([row.has_bars for row in fitted], float)
    for name, count in (("file alone", 3), ("beside the estimate", 5)):
        table = np.array([row.features[:count] for row in fitted])
        coefficients = logistic_regression(table, target)
        print(f"{name}: {', '.join(f'{number:.3f}' for number in coefficients)}")
        tested = np.array([row.features[:count] for row in measured])
        report(measured, 1 / (1 + np.exp(-tested @ coefficients)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
