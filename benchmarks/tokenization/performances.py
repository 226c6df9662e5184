"""Performances of scores: the notes of a score played in uneven time, with their true beats.

`benchmarks.tokenization.fit_beats` fits the beat tracker to such performances, and
`benchmarks.tokenization.bench_beats` measures it on those of other scores.
"""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokenization.errors import MidiError
from tokenization.midi import read_midi
from tokenization.score import Score, Tempo, Track, all_notes

CORPORA = (
    *("chopin", "mutopia", "polish", "lieder", "quartets", "leadsheets", "pop909"),
    *("groove", "groovemidi"),
)
RECORDED = ("Op. 10", "Op.10", "Op. 25", "Op. 44", "Op. 61")
"""Works of Chopin with recordings in `giantmidi`; they are never fitted to."""
_TICKS_PER_SECOND = 1000


class Performance(NamedTuple):
    """A performance whose beats are known."""

    score: Score
    beats: np.ndarray
    """Seconds (n,), ascending."""
    downbeats: np.ndarray
    """Indices of the beats that begin a bar."""


def score_names(folder: Path, corpus: str, split: str) -> list[str]:
    """Return the names of scores of a corpus with a piano, or of quartets, in usual metres."""
    if corpus == "pop909":
        splits = json.loads((folder / corpus / "splits.json").read_text(encoding="utf-8"))
        return [f"pop909/solo/{name}.mid" for name in splits[split]]
    lines = (folder / corpus / "pieces.tsv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    if corpus == "groove":
        split = {"validation": "val"}.get(split, split)
        return [f"groove/midi/{split}/{row['piece']}.mid" for row in rows if row["split"] == split]
    return [
        f"{corpus}/midi/{row['name']}.mid"
        for row in rows
        if row["split"] == split
        and row["time_signature"].split("/")[1] in ("2", "4", "8")
        and int(row["notes"]) >= 200
        and (
            corpus in ("quartets", "groovemidi")
            or _is_for_keyboard(row["instruments"], alone=corpus == "polish")
        )
        and (corpus != "chopin" or not any(work in row["title"] for work in RECORDED))
    ]


def _is_for_keyboard(instruments: str, *, alone: bool) -> bool:
    programs = [int(name.rsplit(":", 1)[1]) for name in instruments.split(", ") if ":" in name]
    return all(p < 8 for p in programs) if alone else any(p < 8 for p in programs)


def read_scores(folder: Path, corpus: str, names: list[str]) -> Iterator[tuple[str, Score]]:
    """Yield the scores by name; those that cannot be read are left out."""
    with zipfile.ZipFile(folder / corpus / f"{corpus}.zip") as archive:
        for name in names:
            try:
                yield name, read_midi(archive.read(name), name=name)
            except MidiError:
                continue


def metrical_beats(score: Score) -> tuple[np.ndarray, np.ndarray]:
    """Return the ticks of the beats, and indices of those that begin bars.

    A beat is the unit of the time signature, and three of them in compound metres (6, 9, 12).
    """
    changes = [(c.tick, c.numerator, c.denominator) for c in score.time_signatures] or [(0, 4, 4)]
    ends = [tick for tick, *_ in changes[1:]] + [score.end_ticks + 1]
    beats, lines = [], []
    for (tick, numerator, denominator), end in zip(changes, ends, strict=True):
        compound = numerator > 3 and numerator % 3 == 0
        unit = score.ticks_per_beat * 4 / denominator * (3 if compound else 1)
        count = max(1, numerator // 3 if compound else numerator)
        ticks = np.arange(tick, end - unit / 8, unit)
        beats.append(ticks)
        lines.append(np.arange(len(ticks)) % count == 0)
    return np.concatenate(beats), np.flatnonzero(np.concatenate(lines))


def perform(score: Score, seed: int, strength: float | None = None) -> Performance:
    """Play a score with a tempo that drifts, breathes with phrases and wavers from beat to beat.

    Notes of a chord are not quite together, the melody tends to be first, some chords are broken,
    some long notes trilled, some notes missed. `strength` scales all of it; 1 is an ordinary
    performance. None draws it, and the tempo as well; some performances are in strict time.
    """
    rng = np.random.default_rng(seed)
    ticks, lines = metrical_beats(score)
    rate = 1.0
    if strength is None:
        strength = 0.0 if rng.random() < 0.1 else float(rng.uniform(0.2, 2.2))
        rate = float(np.exp(rng.normal(0, 0.3)))
    seconds = score.seconds_at(np.rint(ticks).astype(np.int64))
    periods = np.diff(seconds, append=2 * seconds[-1] - seconds[-2]) / rate
    middle = float(np.median(periods))
    periods *= np.clip(middle, 60 / 260, 60 / 28) / middle
    periods *= np.exp(strength * _log_periods(rng, len(ticks), lines))
    # Halves of beats, since the tempo changes inside of beats too.
    half = 0.5 + np.clip(strength * rng.normal(0, 0.02, len(periods)), -0.1, 0.1)
    parts = np.column_stack([periods * half, periods * (1 - half)]).ravel()
    steps = np.append(ticks, 2 * ticks[-1] - ticks[-2])
    knots = np.interp(np.arange(len(parts) + 1) / 2, np.arange(len(steps)), steps)
    times = np.append(0, np.cumsum(parts)) + 0.2

    def at(tick: np.ndarray) -> np.ndarray:
        return np.interp(tick, knots, times)

    tracks: list[Track] = []
    together = strength * rng.uniform(0.003, 0.018)
    lead = strength * rng.uniform(0, 0.025)
    length = np.exp(rng.normal(-0.1, 0.25))
    for track in score.tracks:
        if not len(track):
            continue
        notes = track.notes[rng.random(len(track)) > 0.01 * strength]
        if not len(notes):
            continue
        onsets, ends = at(notes[:, 0]), at(notes[:, 0] + notes[:, 1])
        chord, inside, count = np.unique(notes[:, 0], return_inverse=True, return_counts=True)
        order = np.lexsort((notes[:, 2], inside))
        rank = np.empty(len(notes))
        rank[order] = np.arange(len(notes)) - np.repeat(np.append(0, np.cumsum(count)[:-1]), count)
        top = rank == count[inside] - 1
        onsets += rng.normal(0, together, len(notes)) - lead * (top & (count[inside] > 1))
        onsets += strength * rng.normal(0, 0.006, len(chord))[inside]
        broken = rng.random(len(chord)) < rng.choice([0, 0.02, 0.1]) * strength
        step = rng.uniform(0.02, 0.05)
        onsets += (broken & (count > 2))[inside] * (rank - count[inside] / 2) * step
        lengths = (ends - onsets) * length * np.exp(rng.normal(0, 0.2, len(notes)))
        velocity = notes[:, 3] * rng.uniform(0.7, 1.3) + rng.normal(0, 6, len(notes)) + 4 * top
        pitch = notes[:, 2]
        rows = np.column_stack([onsets, np.maximum(lengths, 0.03), pitch, velocity])
        rows = np.concatenate([rows, _trills(rng, rows[top], 0.04 * strength)])
        rows[:, :2] = np.maximum(np.rint(rows[:, :2] * _TICKS_PER_SECOND), 0)
        rows[:, 3] = np.clip(rows[:, 3], 1, 127)
        tracks.append(Track.of(np.rint(rows).astype(np.int64), is_drum=track.is_drum))
    played = Score(_TICKS_PER_SECOND, tuple(tracks), (Tempo(0, 60.0),))
    beats = at(ticks)
    onsets = all_notes(tracks)[:, 0] / _TICKS_PER_SECOND
    first, last = onsets.min(), onsets.max()
    begin, stop = np.searchsorted(beats, (first - 0.07, last + 0.07))
    stop = max(stop, begin + 2)
    lines = lines[(lines >= begin) & (lines < stop)] - begin
    return Performance(played, beats[begin:stop], lines)


def _log_periods(rng: np.random.Generator, count: int, lines: np.ndarray) -> np.ndarray:
    """Return the deviations (count,) of the logarithm of the beats' lengths."""
    beat = np.arange(count)

    def noise(every: float, deviation: float) -> np.ndarray:
        points = np.arange(0, count + 2 * every, every)
        return np.interp(beat, points, rng.normal(0, deviation, len(points)))

    log = noise(rng.uniform(24, 64), 0.12) + noise(rng.uniform(4, 12), 0.07)
    log += noise(2, 0.03) + rng.normal(0, rng.uniform(0.01, 0.06), count)
    # Phrases of some bars: faster in the middle, slower at the end.
    bars = lines[:: int(rng.choice([2, 4, 8]))]
    if len(bars) > 2:
        bar = np.clip(np.searchsorted(bars, beat, side="right") - 1, 0, len(bars) - 2)
        place = np.clip((beat - bars[bar]) / (bars[bar + 1] - bars[bar]), 0, 1)
        depth = np.abs(rng.normal(0, 0.12, len(bars)))[bar]
        log += depth * (4 * (place - 0.45) ** 2 - 0.4)
        ending = (rng.random(len(bars)) < 0.3)[bar] * np.clip(place - 0.75, 0, 1) * 4
        log += ending**2 * rng.uniform(0.1, 0.5)
    # A ritardando at the end, and fermatas.
    log += 0.6 * rng.random() * np.clip((beat - count + 6) / 6, 0, 1) ** 2
    log += (rng.random(count) < 0.004) * rng.uniform(0.2, 0.8, count)
    # Sections in another tempo.
    sections = np.sort(rng.integers(0, count, rng.integers(0, 3)))
    return log + np.append(0, rng.normal(0, 0.2, len(sections)))[np.searchsorted(sections, beat)]


def _trills(rng: np.random.Generator, rows: np.ndarray, share: float) -> np.ndarray:
    """Return the further notes of trills on some of the longer notes."""
    added = []
    is_trill = (rows[:, 1] > 0.3) & (rng.random(len(rows)) < share)
    for onset, length, pitch, velocity in rows[is_trill]:
        step = rng.uniform(0.05, 0.1)
        times = np.arange(onset + step, onset + length - step, step)
        pitches = pitch + np.where(np.arange(len(times)) % 2 == 0, rng.integers(1, 3), 0)
        same = np.ones(len(times))
        added.append(
            np.column_stack([times, step * same, np.minimum(pitches, 127), velocity * same])
        )
    return np.concatenate(added) if added else np.empty((0, 4))
