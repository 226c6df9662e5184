"""Music with bars and recordings without a click, and how often one is taken for the other.

Music with bars: scores of each corpus, whole and cut to eight and three bars, and deformed
(`benchmarks.tokenization.deformations`). Recordings: scores played in uneven time
(`benchmarks.tokenization.performances`) with ticks of 120 beats per minute, whole and cut to 8, 16
and 30 seconds, and those of `giantmidi`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from benchmarks.timing import csv_output
from benchmarks.tokenization.deformations import FITTED, HELD_OUT
from benchmarks.tokenization.midi_corpora import spread
from benchmarks.tokenization.performances import perform, read_scores, score_names
from tokenization.analysis.bar_evidence import FEWEST_NOTES
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
    """A piece, and whether the bars of its file are right."""

    kind: str
    has_bars: bool
    score: Score


def cut(score: Score, first: int, bars: int = CUT_BARS) -> Score:
    """Return some bars of a score, with the tempo and the metre at their beginning."""
    lines = notated_lines(score, score.end_ticks, bars)
    first = min(first, len(lines) - 2)
    begin, stop = int(lines[first]), int(lines[min(first + bars, len(lines) - 1)])
    tracks = []
    for track in score.tracks:
        notes = track.notes[(track.notes[:, 0] >= begin) & (track.notes[:, 0] < stop)]
        tracks.append(replace(track.without_events(), notes=notes - [begin, 0, 0, 0]))
    tempos = [tempo for tempo in score.tempos if tempo.tick <= begin][-1:]
    metres = [metre for metre in score.time_signatures if metre.tick <= begin][-1:]
    return Score(
        score.ticks_per_beat,
        tuple(tracks),
        tuple(tempo._replace(tick=0) for tempo in tempos),
        tuple(metre._replace(tick=0) for metre in metres),
    )


def retimed(score: Score) -> Score:
    """Return a performance in ticks of milliseconds as a file of 120 beats per minute."""
    return replace(score, ticks_per_beat=score.ticks_per_beat // 2, tempos=(Tempo(0, 120.0),))


def examples(data: Path, split: str, count: int) -> Iterator[Example]:
    """Return examples of a split with enough notes; those of `train` are deformed by `FITTED`."""
    return (
        example
        for example in _examples(data, split, count)
        if example.score.num_notes >= FEWEST_NOTES
    )


def _examples(data: Path, split: str, count: int) -> Iterator[Example]:
    for corpus in CORPORA:
        names = spread(score_names(data, corpus, split), count)
        for number, (_, score) in enumerate(read_scores(data, corpus, names)):
            rng = np.random.default_rng(number)
            part = cut(score, (len(notated_lines(score, score.end_ticks)) - 1) // 3)
            yield Example("whole", True, score)
            yield Example("eight bars", True, part)
            yield Example("three bars", True, cut(part, 0, 3))
            for kind, deform in (FITTED if split == "train" else HELD_OUT).items():
                yield Example(kind, True, deform(part, rng))
            played = retimed(perform(score, number).score)
            yield Example("played", False, played)
            yield Example("8 s, played", False, cut(played, int(rng.integers(0, 4)), 4))
            yield Example("16 s, played", False, cut(played, int(rng.integers(0, 4))))
            yield Example("30 s, played", False, cut(played, int(rng.integers(0, 4)), 15))
    with zipfile.ZipFile(data / "giantmidi" / "giantmidi_sample.zip") as archive:
        names = [name for name in sorted(archive.namelist()) if name.endswith(".mid")]
        for name in names[split == "test" :: 2]:
            score = read_midi(archive.read(name), name=name)
            yield Example("recorded", False, score)
            yield Example("16 s, recorded", False, cut(score, 8))


def report(kinds: Sequence[str], has_bars: Sequence[bool], chances: Sequence[float]) -> None:
    """Print shares of wrong choices with 95 % intervals, the Brier score and the reliability."""
    kind, target, chance = np.array(kinds), np.array(has_bars), np.array(chances)
    wrong = (chance < 0.5) == target
    out = csv_output("kind", "number", "wrong", "from", "to")
    groups = [(name, kind == name) for name in dict.fromkeys(kinds)]
    for name, is_in in (*groups, ("all with bars", target), ("all recordings", ~target)):
        count, number = int(wrong[is_in].sum()), int(is_in.sum())
        share = binomtest(count, number).proportion_ci(method="wilson")
        out(name, number, count / number, share.low, share.high)
    out("Brier score", len(kind), float(np.mean((chance - target) ** 2)))
    out = csv_output("probability from", "to", "number", "with bars")
    for low, high in pairwise(PROBABILITIES):
        inside = (chance >= low) & (chance < high)
        if inside.any():
            out(low, min(high, 1), int(inside.sum()), float(target[inside].mean()))
