"""Rates of accidents in real continuations.

    python -m benchmarks.tokenization.bench_accidents FOLDER

reads zips of corpora in a folder, such as FOLDER/groove/groove.zip, and prints a table: the share
of pieces of the held-out splits with each accident, and with any; then the time of a call. Piano is
measured in 32 bars after 8 and in 16 after 40, bands in 16 after 8. With --everywhere, the bars
that follow are prompts and continuations too, so that there are more of both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.tokenization.midi_corpora import midi_files
from tokenization.analysis.accidents import KINDS, accidents
from tokenization.analysis.bars import ScoreBars
from tokenization.errors import MidiError
from tokenization.midi import read_midi
from tokenization.score import Score

LENGTHS = {
    **dict.fromkeys(("pop909", "mutopia", "chopin"), ((8, 32), (40, 16))),
    **dict.fromkeys(("groove", "billboard", "lieder", "quartets", "freedoom"), ((8, 16),)),
}
"""Bars of prompt and of continuation."""
SPLITS = {"test", "validation", "val"}


def held_out(path: Path) -> Iterator[Score]:
    """Yield the pieces of the held-out splits, by `splits.json` in the zip or by their folders."""
    with zipfile.ZipFile(path) as archive:
        listed = [name for name in archive.namelist() if name.endswith("splits.json")]
        splits = json.loads(archive.read(listed[0])) if listed else {}
    stems = {stem for split in SPLITS for stem in splits.get(split, ())}
    part = "#/solo/" if path.stem == "pop909" else ""  # beside the songs as they were published
    for name, content in midi_files(f"{path}{part}"):
        file = Path(name)
        if file.stem in stems or (not listed and file.parent.name in SPLITS):
            try:
                yield read_midi(content, name=name)
            except MidiError as error:
                sys.stderr.write(f"left out: {error}\n")


def passages(score: Score, bars: int, *, everywhere: bool) -> Iterator[Score]:
    """Yield the prompts with the bars that follow: the first one, or all that follow each other."""
    counted = ScoreBars.of(score)
    last = counted.num_bars - bars
    for first in range(0, last + 1 if everywhere else min(last + 1, 1), bars):
        yield counted.score.between(*counted.lines[[first, first + bars]].tolist())


def main(arguments: list[str] | None = None) -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--everywhere", action="store_true")
    options = parser.parse_args(arguments)
    print("| corpus | bars | passages | any |", " | ".join(KINDS), "| ms |")
    print("|---" * (len(KINDS) + 5) + "|")
    for name, lengths in LENGTHS.items():
        pieces = list(held_out(options.folder / name / f"{name}.zip"))
        for first, new in lengths:
            scores = [
                part
                for score in pieces
                for part in passages(score, first + new, everywhere=options.everywhere)
            ]
            begun = time.process_time()
            rows = [accidents(score, first, first + new) for score in scores]
            milliseconds = (time.process_time() - begun) / len(rows) * 1e3
            rates = np.array(
                [[row.any, *(getattr(row, kind) for kind in KINDS)] for row in rows], np.float64
            ).mean(0)
            cells = " | ".join(f"{rate:.3f}" for rate in rates)
            print(f"| {name} | {first} + {new} | {len(rows)} | {cells} | {milliseconds:.2f} |")


if __name__ == "__main__":
    main()
