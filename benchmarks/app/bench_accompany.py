"""How well new tracks fit the chords of a piece and the range of their instrument.

Run from the top of the repository: `python -m benchmarks.app.bench_accompany`. Prints for each
piece, over all seeds: notes in each track, the shares of its notes that belong to the chord of the
other tracks, and that are its root, and the lowest, median and highest pitch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.compose.continuation import fill_midi
from app.compose.fill.passage import Passage
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.prompt.prompt import read_prompt
from benchmarks.timing import run, table_output
from tokenization.analysis.bar_chords import find_bar_chords
from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.chords import CHORD_INTERVALS
from tokenization.score import Score, Track

EXAMPLES = [Path(f"examples/{name}.mid") for name in ("ballad", "pop", "waltz")]


def main(
    pieces: Sequence[Path] = EXAMPLES,
    /,
    *,
    model: str = "groove",
    instrument: int = 32,
    seeds: int = 4,
) -> None:
    """Run the measurement."""
    models = Models([model])
    out = table_output("piece", "notes", "in the chord", "root", "lowest, median, highest pitch")
    shares: list[tuple[float, float]] = []
    for path in pieces:
        data = path.read_bytes()
        score = read_prompt(data, path.name).score
        passage = Passage(instrument=instrument)
        loaded = models.to_fill(score, passage)
        counts, of_piece, pitches = [], [], []
        for seed in range(1, seeds + 1):
            (piece,) = fill_midi(loaded, data, passage, MusicOptions(seed=seed)).pieces
            new = next(t for t in piece.new.tracks if t.program == instrument)
            counts.append(len(new))
            of_piece.append(shares_of_chords(score, new, piece.new.ticks_per_beat))
            pitches.extend(new.notes[:, 2].tolist())
        shares.extend(of_piece)
        low, middle, high = np.quantile(pitches, [0, 0.5, 1]).astype(int)
        means = np.mean(of_piece, 0)
        out(path.stem, ", ".join(map(str, counts)), *means, f"{low}, {middle}, {high}")
    out("all", "", *np.mean(shares, 0), "")


def shares_of_chords(score: Score, track: Track, ticks_per_beat: int) -> tuple[float, float]:
    """Return the shares of notes in a score's chords, among those over a chord, and of roots."""
    bars = ScoreBars.of(score)
    chords, lines = find_bar_chords(bars), np.asarray(bars.lines)
    inside = roots = heard = 0
    for onset, _, pitch, _ in track.notes.tolist():
        tick = onset * score.ticks_per_beat // ticks_per_beat
        at = min(int(np.searchsorted(lines, tick, side="right")) - 1, len(chords) - 1)
        second = 2 * (tick - lines[at]) >= lines[at + 1] - lines[at]
        chord = chords[at][-1 if second else 0].chord
        if chord is not None:
            heard += 1
            inside += (pitch - chord.root) % 12 in CHORD_INTERVALS[chord.quality]
            roots += (pitch - chord.root) % 12 == 0
    return inside / max(1, heard), roots / max(1, heard)


if __name__ == "__main__":
    run(main)
