"""Speed and memory of batches of clips: from nothing, of a prompt, or of a study.

Run from the top of the repository: `python -m benchmarks.app.bench_batch`; `--audio flac` includes
audio files, and `--prompt FILE` continues a file in clips with the last four bars of the prompt.
`--study CONFIG.yaml --repetitions N` makes the clips of a study instead.
Prints CSV; files go to a temporary folder. `cpu_seconds` is the time of all processes together on
the processors, which other work on the machine hardly affects. Memory is the peak resident memory
of this process, and of the largest process that renders audio, which is only known on Linux.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import Literal

import torch

from app.batch.run import BatchOptions, BatchResult, make_batch
from app.batch.study import models_of, options_of, read_study
from app.compose.models import Models
from app.compose.options import MusicOptions
from benchmarks.timing import csv_output, peak_megabytes, run


def main(
    *,
    model: str = "piano",
    prompt: Path | None = None,
    clips: int = 1000,
    bars: int = 8,
    widths: Sequence[int] = (32,),
    audio: Literal["flac", "wav", "ogg"] | None = None,
    study: Path | None = None,
    repetitions: int | None = None,
) -> None:
    """Make a batch of each width, in ascending order, and print a row for each."""
    torch.set_num_threads(1)
    columns = ("width", "clips", "bars", "seconds", "cpu_seconds", "clips_per_minute")
    more = ("tokens_per_second", "peak_MB", "peak_MB_of_sound")
    out = csv_output(*columns, *more, packages=["torch"])
    models, config, place = Models(model), None, Path()
    if study is not None:
        config, place = read_study(study), study.parent
        config = replace(config, repetitions=repetitions or config.repetitions)
        models = Models(models_of(config, place))
    for width in sorted(widths):
        with tempfile.TemporaryDirectory() as folder:
            batch = (
                options_of(config, place, Path(folder), width=width)
                if config
                else BatchOptions(
                    output=Path(folder),
                    music=MusicOptions(bars=bars, seed=0),
                    prompts=(prompt,) if prompt else (),
                    clip="tail",
                    count=clips,
                    audio=audio,
                    width=width,
                )
            )
            began, of_sound, result = cpu_seconds(), 0.0, None
            for step in make_batch(batch, models):
                result = step
                of_sound = max(
                    [of_sound, *(peak_megabytes(child.pid or 0) for child in active_children())]
                )
        assert isinstance(result, BatchResult)
        spent = cpu_seconds() - began
        out(
            *(width, result.made, batch.music.bars, result.seconds, spent),
            *(result.clips_per_minute, result.tokens_per_second, peak_megabytes(), of_sound),
        )


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    run(main)
