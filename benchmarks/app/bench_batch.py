"""Speed and memory of batches of clips: from nothing, of a prompt, or of a study.

Run from the top of the repository: `python -m benchmarks.app.bench_batch`; `--audio flac` includes
audio files, and `--prompt FILE` continues a file in clips with the last four bars of the prompt.
`--study CONFIG.yaml --repetitions N` makes the clips of a study instead.
Prints CSV; files go to a temporary folder. `cpu_seconds` is the time of all processes together on
the processors, which other work on the machine hardly affects. Memory is the peak resident memory
of this process, and of the largest process that renders audio, which is only known on Linux.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import torch

from app.batch.run import BatchOptions, BatchResult, make_batch
from app.batch.study import models_of, options_of, read_study
from app.compose.models import Models
from app.compose.options import MusicOptions
from benchmarks.relpe.timing import peak_megabytes, print_machine


def main() -> None:
    """Makes a batch of each width, in ascending order, and prints a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="piano")
    parser.add_argument("--prompt", type=Path)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--bars", type=int, default=8)
    parser.add_argument("--widths", type=int, nargs="+", default=[32])
    parser.add_argument("--audio", choices=("flac", "wav", "ogg"))
    parser.add_argument("--study", type=Path)
    parser.add_argument("--repetitions", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print_machine("torch")
    print(
        "width,clips,bars,seconds,cpu_seconds,clips_per_minute,tokens_per_second,peak_MB,"
        "peak_MB_of_sound"
    )
    models, study, place = Models(options.model), None, Path()
    if options.study is not None:
        study, place = read_study(options.study), options.study.parent
        study = replace(study, repetitions=options.repetitions or study.repetitions)
        models = Models(models_of(study, place))
    for width in sorted(options.widths):
        with tempfile.TemporaryDirectory() as folder:
            batch = (
                options_of(study, place, Path(folder), width=width)
                if study
                else BatchOptions(
                    output=Path(folder),
                    music=MusicOptions(bars=options.bars, seed=0),
                    prompts=(options.prompt,) if options.prompt else (),
                    clip="tail",
                    count=options.clips,
                    audio=options.audio,
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
        print(
            f"{width},{result.made},{batch.music.bars},{result.seconds:.1f},"
            f"{cpu_seconds() - began:.1f},{result.clips_per_minute:.0f},"
            f"{result.tokens_per_second:.0f},{peak_megabytes():.0f},{of_sound:.0f}",
            flush=True,
        )


def cpu_seconds() -> float:
    """Processor time of this process and of those that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
