"""Time of audio rendering: a piece with an empty and a filled cache, stems, and a mix.

Run from the top of the repository: `python -m benchmarks.page.bench_sound`. Prints CSV: wall and
CPU seconds for 200 seconds of solo piano and of a groove of five tracks with the built-in player,
each in a new process. `first` and `cached` render the whole piece; `flac` writes it to a file;
`stems` renders all tracks separately, as the page does; `mix` combines all tracks except one.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.audio import stems
from app.audio.render import render, save_audio
from benchmarks.timing import csv_output, in_new_process, run
from tokenization.score import Score, Tempo, Track

if TYPE_CHECKING:
    from collections.abc import Callable

TICKS_PER_BEAT = 500
"""At 120 beats per minute, a tick is one millisecond."""
NOTES_A_SECOND = {"piano": (7.4,), "groove": (8.0, 4.0, 5.0, 6.0, 7.0)}
"""Number of notes per second of each track, as in generated music."""
INSTRUMENTS = {"piano": (0,), "groove": (None, 33, 0, 27, 48)}
"""Programs of the tracks; None: drums."""
_SCALE = np.array([0, 2, 4, 5, 7, 9, 11])
_PITCHES = {"piano": np.arange(36, 85), "groove": np.concatenate([48 + _SCALE, 60 + _SCALE])}
_DRUMS = np.array([36, 38, 42, 42, 42, 46, 49])


def music(kind: str, seconds: float) -> Score:
    """Return the notes at random times and pitches, with a pedal for the piano.

    They are the same on every call. The piano plays in four octaves, the instruments of the groove
    in two octaves of one scale.
    """
    draw = np.random.default_rng(0)
    tracks: list[Track] = []
    for program, rate in zip(INSTRUMENTS[kind], NOTES_A_SECOND[kind], strict=True):
        count = int(rate * seconds)
        onsets = np.sort(draw.integers(0, int(1000 * seconds) - 1000, count))
        lengths = draw.integers(100, 1000, count)
        pitches = draw.choice(_DRUMS if program is None else _PITCHES[kind], count)
        notes = np.column_stack([onsets, lengths, pitches, draw.integers(40, 110, count)])
        bars = np.arange(0, int(1000 * seconds), 2000)
        pedal = [row for bar in bars.tolist() for row in ((bar, 64, 127), (bar + 1900, 64, 0))]
        controls = np.array(pedal if kind == "piano" else [], np.int64).reshape(-1, 3)
        tracks.append(
            Track(notes, program=program or 0, is_drum=program is None, controls=controls)
        )
    return Score(TICKS_PER_BEAT, tuple(tracks), (Tempo(0, 120.0),))


def measure(kind: str, seconds: float) -> None:
    """Print a line for each step."""
    piece = music(kind, seconds)

    def timed(step: str, work: Callable[[], object]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{kind},{seconds:g},{piece.num_notes},{step},{wall:.2f},{cpu:.2f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        timed("first", lambda: render(piece, renderer="builtin"))
        timed("cached", lambda: render(piece, renderer="builtin"))
        audio = render(piece, renderer="builtin")
        timed("flac", lambda: save_audio(audio, Path(folder) / "piece.flac"))
        timed("stems", lambda: stems.render(piece, Path(folder), "piece"))
        rendered = stems.render(piece, Path(folder), "piece")
        timed("mix", lambda: rendered.mix({0}, ".wav"))


def main(seconds: float = 200.0) -> None:
    """Measure both pieces."""
    csv_output("piece", "seconds", "notes", "step", "wall_seconds", "cpu_seconds")
    for kind in INSTRUMENTS:
        in_new_process(measure, kind, seconds)


if __name__ == "__main__":
    run(main)
