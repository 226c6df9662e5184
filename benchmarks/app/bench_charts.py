"""Whether chords come that are asked for with `--chords`, judged by notes.

Run from the top of the repository: `python -m benchmarks.app.bench_charts DATA`, where DATA has a
folder for each corpus, with its zip file. Each model plays charts of held-back songs from nothing:
of `leadsheets`, as their block chords say, and of `billboard`, as they are recognised in its files.
These files are MMA's playing of the chart, and are measured beside. Prints the shares of bars

- in which the root or the bass of each chord sounds;
- in which its third sounds, or the tone in its place, and its seventh;
- without a note against it: a semitone above a tone of the chord, or the other third, for a quarter
  or longer;

and how stiff the music is: pitched notes a bar, and different rhythms of all bars of a piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.compose.continuation import generate_midi
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.plan.lead_sheet import plan_of
from benchmarks.corpora import held_back
from benchmarks.timing import run, table_output
from tokenization.analysis.chord_symbols import chord_symbol
from tokenization.analysis.chords import CHORD_INTERVALS
from tokenization.constraints.harmony import clashes
from tokenization.grid import STEPS_PER_BEAT, notated_lines
from tokenization.midi import read_midi
from tokenization.plan import Chord
from tokenization.score import Score, all_notes

CORPORA = ("leadsheets", "billboard")


class Heard(NamedTuple):
    """What is heard in a bar of a chart."""

    root: bool
    """The root or the bass of each chord."""
    third: bool
    """The third of each chord, and its seventh if it has one."""
    clean: bool
    """No held note is against the chord."""


def main(
    data: str,
    /,
    *,
    models: Sequence[str] = ("piano", "groove"),
    pieces: int = 12,
    bars: int = 16,
    seed: int = 1,
) -> None:
    """Run the measurement."""
    loaded = Models(list(models))
    out = table_output("player, charts", *Heard._fields, "bars", "notes a bar", "rhythms a bar")
    for corpus in CORPORA:
        charts = list(_charts(Path(data) / corpus / f"{corpus}.zip", pieces, bars))
        played = {"MMA": [(score, chart) for score, chart in charts if corpus == "billboard"]}
        for name in models:
            played[name] = [
                (_played(loaded, name, chart, seed + n), chart)
                for n, (_, chart) in enumerate(charts)
            ]
        for name, rows in played.items():
            if rows:
                heard = [one for score, chart in rows for one in judge(score, chart)]
                shares = np.mean(heard, axis=0).tolist()
                liveliness = np.mean([lively(score, len(chart)) for score, chart in rows], axis=0)
                out(f"{name}, {corpus}", *shares, len(heard), *liveliness.tolist())


def _played(models: Models, name: str, chart: Sequence[Sequence[Chord]], seed: int) -> Score:
    text = " | ".join(" ".join(map(chord_symbol, bar)) for bar in chart)
    options = MusicOptions(bars=len(chart), chords=text, seed=seed, ending="bar")
    return generate_midi(models.load(name), options).pieces[0].score


def _charts(path: Path, count: int, bars: int) -> Iterator[tuple[Score, list[list[Chord]]]]:
    """Yield the songs in 4/4, from their first bar with a chord on, and their charts."""
    for _, midi in held_back(path):
        score = read_midi(midi)
        if {(4, 4)} != {change[1:] for change in score.time_signatures}:
            continue
        chords = [track for track in score.tracks if track.name.startswith(("Chords", "Bass"))]
        bars_of = plan_of(score.with_tracks(chords)).bars
        planned = [[chord for _, chord in bar.chords if chord is not None] for bar in bars_of]
        first = next((n for n, bar in enumerate(planned) if bar), len(planned))
        chart = planned[first : first + bars]
        if len(chart) == bars and all(chart):
            lines = notated_lines(score, score.end_ticks)
            yield score.between(int(lines[first]), int(lines[first + bars])), chart
            count -= 1
        if not count:
            return


def judge(score: Score, chart: Sequence[Sequence[Chord]]) -> list[Heard]:
    """Return what is heard in the first bars of a score, whose chords are those of a chart."""
    lines = notated_lines(score, score.end_ticks, len(chart))
    notes = all_notes(track for track in score.tracks if not track.is_drum)
    onsets, pitches = notes[:, 0], notes[:, 2] % 12
    heard: list[Heard] = []
    for bar, chords in enumerate(chart):
        edges = np.linspace(lines[bar], lines[bar + 1], len(chords) + 1).astype(int)
        right: list[Heard] = []
        for chord, start, stop in zip(chords, edges[:-1], edges[1:], strict=True):
            sounds = np.minimum(onsets + notes[:, 1], stop) - np.maximum(onsets, start)
            held = {*pitches[sounds >= score.ticks_per_beat].tolist()}
            right.append(_in_chord({*pitches[sounds > 0].tolist()}, held, chord))
        heard.append(Heard(*(all(of) for of in zip(*right, strict=True))))
    return heard


def _in_chord(sounding: set[int], held: set[int], chord: Chord) -> Heard:
    """Return what pitch classes that sound, and held ones, are with a chord."""
    root, third, _, *seventh = (
        (chord.root + above) % 12 for above in CHORD_INTERVALS[chord.quality]
    )
    return Heard(
        root in sounding or chord.bass in sounding,
        {third, *seventh} <= sounding,
        not held & clashes(chord),
    )


def lively(score: Score, count: int) -> tuple[float, float]:
    """Return the pitched notes a bar, and different rhythms a bar, of the first bars."""
    lines = notated_lines(score, score.end_ticks, count)[: count + 1]
    notes = all_notes(track for track in score.tracks if not track.is_drum)
    onsets = notes[notes[:, 0] < lines[-1], 0]
    bars = np.searchsorted(lines, onsets, side="right") - 1
    places = (onsets - lines[bars]) * STEPS_PER_BEAT // score.ticks_per_beat
    rhythms = {frozenset(places[bars == bar].tolist()) for bar in range(count)}
    return len(onsets) / count, len(rhythms) / count


if __name__ == "__main__":
    run(main)
