"""Speed and memory of batches of clips, from nothing or of a prompt.

Run from the top of the repository: `python -m benchmarks.app.bench_batch`; `--audio flac` includes
audio files, and `--prompt FILE` continues a file in clips with the last four bars of the prompt.
Prints CSV; files go to a temporary folder. Memory is the peak resident memory of this process, and
of the largest process that renders audio.
"""

from __future__ import annotations

import argparse
import platform
import resource
import sys
import tempfile
from pathlib import Path

import torch

from app.batch.run import BatchOptions, BatchResult, make_batch
from app.compose.models import Models
from app.compose.options import MusicOptions


def main() -> None:
    """Makes a batch of each width, in ascending order, and prints a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="piano")
    parser.add_argument("--prompt", type=Path)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--bars", type=int, default=8)
    parser.add_argument("--widths", type=int, nargs="+", default=[32])
    parser.add_argument("--audio", choices=("flac", "wav", "ogg"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"# {platform.machine()}, torch {torch.__version__}")
    print(f"# {' '.join(sys.argv)}")
    print("width,clips,bars,seconds,clips_per_minute,tokens_per_second,peak_MB,peak_MB_of_sound")
    models = Models(options.model)
    for width in sorted(options.widths):
        with tempfile.TemporaryDirectory() as folder:
            batch = BatchOptions(
                output=Path(folder),
                music=MusicOptions(bars=options.bars, seed=0),
                prompts=(options.prompt,) if options.prompt else (),
                clip="tail",
                count=options.clips,
                audio=options.audio,
                width=width,
            )
            *_, result = make_batch(batch, models)
        assert isinstance(result, BatchResult)
        print(
            f"{width},{result.made},{options.bars},{result.seconds:.1f},"
            f"{result.clips_per_minute:.0f},{result.tokens_per_second:.0f},"
            f"{peak_megabytes(resource.RUSAGE_SELF):.0f},"
            f"{peak_megabytes(resource.RUSAGE_CHILDREN):.0f}",
            flush=True,
        )


def peak_megabytes(whose: int) -> float:
    """Peak resident memory so far; for children, that of the largest one."""
    peak = resource.getrusage(whose).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
