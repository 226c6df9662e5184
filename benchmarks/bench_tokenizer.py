"""Speed of `PianoRemi` beside MidiTok's REMI on a folder of MIDI files, as CSV.

    python -m benchmarks.bench_tokenizer FOLDER [--files 60] [--rounds 7] > tokenizer.csv

Machines are shared, so the two take turns in one process, processor time is measured, and what
counts is the ratio. MidiTok gets the same grid, velocities and tempos. Parsing is not in `encode`
and `decode`; it is in `file to ids`.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path

import miditok
import symusic

from tokenization.midi import read_midi
from tokenization.remi import PianoRemi

Step = Callable[[int], object]


def miditok_remi(*, with_tempo: bool) -> miditok.REMI:
    """MidiTok's REMI on twelve positions per quarter; tempos and time signatures if asked for."""
    return miditok.REMI(
        miditok.TokenizerConfig(
            pitch_range=(21, 109),
            beat_res={(0, 4): 12, (4, 64): 4},
            num_velocities=32,
            use_programs=False,
            use_tempos=with_tempo,
            num_tempos=211,
            tempo_range=(30, 240),
            use_time_signatures=with_tempo,
        )
    )


def milliseconds(step: Step, num_files: int) -> float:
    """Processor time of one step per file."""
    begin = time.process_time()
    for index in range(num_files):
        step(index)
    return 1e3 * (time.process_time() - begin) / num_files


def pairs(files: Sequence[bytes]) -> dict[str, tuple[Step, Step]]:
    """Ours and theirs, by the name of what both do."""
    remi = PianoRemi()
    plain, full = miditok_remi(with_tempo=False), miditok_remi(with_tempo=True)
    scores = [read_midi(content) for content in files]
    parsed = [symusic.Score.from_midi(content) for content in files]
    ids = [remi.encode(score).ids for score in scores]
    # MidiTok's preprocessing changes its argument, and decoding wants the type it encoded to.
    encoded = [full.encode(deepcopy(score)) for score in parsed]

    def encode(index: int) -> object:
        return remi.encode(scores[index])

    return {
        "encode, MidiTok without tempo and metre": (
            encode,
            lambda index: plain.encode(deepcopy(parsed[index])),
        ),
        "encode": (encode, lambda index: full.encode(deepcopy(parsed[index]))),
        "decode": (
            lambda index: remi.decode(ids[index]),
            lambda index: full.decode(encoded[index]),
        ),
        "file to ids": (
            lambda index: remi.encode(read_midi(files[index])),
            lambda index: full.encode(symusic.Score.from_midi(files[index])),
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Speed of PianoRemi beside MidiTok, as CSV")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=60, help="how many, spread over the folder")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    paths = sorted(options.folder.rglob("*.mid"))
    paths = paths[:: max(1, len(paths) // options.files)][: options.files]
    if not paths:
        parser.error(f"{options.folder} has no .mid files")
    files = [path.read_bytes() for path in paths]

    out = csv.writer(sys.stdout)
    out.writerow(["# command", " ".join(sys.argv)])
    out.writerow(["# device", platform.processor() or platform.machine(), platform.platform()])
    packages = ("numpy", "miditok", "symusic")
    out.writerow(
        ["# versions", platform.python_version(), *(f"{p} {version(p)}" for p in packages)]
    )
    ratios = ("ratio_median", "ratio_low", "ratio_high", "ratio_of_best")
    out.writerow(["step", "ours_ms", "theirs_ms", *ratios])
    for name, (ours, theirs) in pairs(files).items():
        rounds = [
            (milliseconds(ours, len(files)), milliseconds(theirs, len(files)))
            for _ in range(options.rounds)
        ]
        ratios = [other / own for own, other in rounds]
        own, other = zip(*rounds, strict=True)
        row = (
            *(statistics.median(own), statistics.median(other), statistics.median(ratios)),
            *(min(ratios), max(ratios), min(other) / min(own)),
        )
        out.writerow([name, *(f"{value:.3g}" for value in row)])
        sys.stdout.flush()


if __name__ == "__main__":
    main()
