"""How many notes of real music are in the ranges of `tokenization.constraints.register`, as CSV.

    python -m benchmarks.tokenization.bench_registers CORPUS [CORPUS ...] [--files N]

A CORPUS is a folder or a zip of MIDI files, as in `bench_fidelity`. Each row has the notes of one
program in all corpora, its range, the share of the notes inside, and the 1 %, 50 % and 99 %
quantiles of their pitches; the last row has all notes.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.relpe.timing import csv_output
from benchmarks.tokenization.midi_corpora import corpora_parser, scores_of
from tokenization.constraints.register import instrument_range


def main() -> None:
    """Runs the benchmark."""
    options = corpora_parser(__doc__ or "").parse_args()
    pitches = defaultdict[int, list[np.ndarray]](list)
    for corpus in options.corpora:
        for score in scores_of(corpus, options.files):
            for track in score.tracks:
                if not track.is_drum:
                    pitches[track.program].append(track.notes[:, 2])
    out = csv_output("program", "notes", "lowest", "highest", "inside", "1%", "50%", "99%")
    total = inside = 0
    for program, tracks in sorted(pitches.items()):
        notes = np.concatenate(tracks)
        lowest, highest = instrument_range(program)
        count = int(((notes >= lowest) & (notes <= highest)).sum())
        total, inside = total + len(notes), inside + count
        quantiles = np.quantile(notes, [0.01, 0.5, 0.99]).round().astype(int).tolist()
        out.writerow(
            [program, len(notes), lowest, highest, f"{count / len(notes):.4f}", *quantiles]
        )
    out.writerow(["all", total, "", "", f"{inside / max(1, total):.4f}"])


if __name__ == "__main__":
    main()
