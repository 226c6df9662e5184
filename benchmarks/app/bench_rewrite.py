"""How single tracks of a band are written again: whether they play, and fit the other tracks.

Run from the top of the repository: `python -m benchmarks.app.bench_rewrite`. Bars of each track
with pitches are written again, with several seeds. Prints the share of these bars that stay empty,
although the track plays there in the file, the number of notes over that of the file, and the share
of notes that belong to the chord of the other tracks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.compose.continuation import fill_midi
from app.compose.fill.passage import Passage
from app.compose.models import Models
from app.compose.options import MusicOptions
from benchmarks.app.bench_accompany import shares_of_chords
from benchmarks.timing import run, table_output
from tokenization.grid import notated_lines
from tokenization.midi import read_midi


def main(
    pieces: Sequence[Path] = (Path("examples/groove.mid"),),
    /,
    *,
    model: str = "groove",
    bars: tuple[int, int] = (3, 4),
    seeds: int = 6,
) -> None:
    """Write tracks of `pieces` again in `bars`, first and last, and print a line for each track."""
    models = Models([model])
    first, last = bars
    columns = ("piece, track", "empty bars", "notes, over those of the file", "in the chord")
    out = table_output(*columns)
    tables: list[NDArray[np.float64]] = []
    for path in pieces:
        data = path.read_bytes()
        score = read_midi(data, name=path.name)
        edges = notated_lines(score, score.end_ticks + 1)[first - 1 : last + 1]
        for number, track in enumerate(score.tracks):
            old_counts = np.histogram(track.notes[:, 0], edges)[0]
            if track.is_drum or not old_counts.all():
                continue
            passage = Passage(first_bar=first, last_bar=last, tracks=frozenset({number}))
            loaded = models.to_fill(score, passage)
            others = score.with_tracks(t for at, t in enumerate(score.tracks) if at != number)
            rows: list[tuple[float, ...]] = []
            for seed in range(1, seeds + 1):
                (piece,) = fill_midi(loaded, data, passage, MusicOptions(seed=seed)).pieces
                # only the written track has new notes, if any
                notes = [track.notes[:0], *(written.notes for written in piece.new.tracks)]
                new = replace(track, notes=np.concatenate(notes))
                counts = np.histogram(new.notes[:, 0], edges)[0]
                inside, _ = shares_of_chords(others, new, score.ticks_per_beat)
                ratio = counts.sum() / old_counts.sum()
                rows.append(((counts == 0).mean(), ratio, inside if len(new) else np.nan))
            tables.append(np.array(rows))
            out(f"{path.stem}, {track.name or number + 1}", *np.nanmean(tables[-1], 0))
    if not tables:
        raise SystemExit("no track with pitches plays in all of these bars; choose other --bars")
    out("all", *np.nanmean(np.concatenate(tables), 0))


if __name__ == "__main__":
    run(main)
