"""Estimated times of jobs of the page, compared with the times that they take.

Run from the top of the repository: `python -m benchmarks.page.bench_eta`. Runs jobs of several
lengths one after the other on the released models, as the page does but without a browser, and
prints CSV: the estimate beside the button, the time until all variations are written, both in
seconds, and their ratio. The first job of each model has no estimate, since nothing is
known about its speed. The last line has the number of ratios within a factor of 1.5.
"""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from app.compose.models import Models
from app.compose.new_bars import in_bars
from app.compose.options import MAX_FILE_BYTES, MusicOptions
from app.server.studio import EMPTY, Studio
from app.server.uploads import read_upload
from app.web.session import Workspace
from app.web.view import View
from benchmarks.timing import run

WITHIN = 1.5
"""Largest factor between estimate and time that counts as right."""


class BenchJob(NamedTuple):
    """A job: music after a prompt, or a piece from nothing."""

    prompt: str
    """A file of `examples/` without suffix; empty for a piece from nothing."""
    length: int
    unit: str
    variations: int


JOBS = tuple(
    BenchJob(prompt, length, unit, variations)
    for prompt, length, unit, variations in (
        ("ballad", 8, "bars", 1),
        ("ballad", 32, "bars", 1),
        ("ballad", 4, "bars", 1),
        ("ballad", 64, "bars", 1),
        ("waltz", 16, "bars", 1),
        ("ballad", 16, "bars", 4),
        ("waltz", 60, "seconds", 1),
        ("", 32, "bars", 1),
        ("", 8, "bars", 1),
        ("", 64, "bars", 1),
        ("", 60, "seconds", 1),
        ("", 16, "bars", 4),
        ("waltz", 32, "bars", 2),
        ("groove", 8, "bars", 1),
        ("groove", 32, "bars", 1),
        ("groove", 16, "bars", 4),
        ("groove", 60, "seconds", 1),
        ("groove", 4, "bars", 1),
    )
)


def seconds_of(view: View, job: BenchJob, seed: int) -> tuple[float | None, float]:
    """Return the estimate before a job, None if there is none, and the time that it takes."""
    studio, upload = view.studio, None
    if job.prompt:
        upload = read_upload(Path(f"examples/{job.prompt}.mid"), MAX_FILE_BYTES, studio.models)
    work = Workspace(upload, EMPTY, job.length, unit=job.unit, variations=job.variations)
    estimate = view.seconds_needed(work, job.length)
    options = MusicOptions(seed=seed, variations=job.variations)
    if job.unit == "bars":
        options = replace(options, bars=job.length)
    elif upload is None:
        # two seconds a bar, as the page assumes
        options = replace(options, seconds=job.length, bars=job.length // 2)
    else:
        options = in_bars(replace(options, seconds=job.length), upload.prompt)
    began = time.monotonic()
    for frame in studio.compose("bench", upload, options):
        if alert := frame.get("alert"):
            raise RuntimeError(alert)
    return estimate, time.monotonic() - began


def main(seeds: int = 1) -> None:
    """Print a line for each job."""
    logging.disable(logging.WARNING)
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        view = View(Studio(Models(), Path(folder)))
        print("prompt,length,variations,estimate,seconds,ratio")
        for seed in range(seeds):
            for job in JOBS:
                estimate, took = seconds_of(view, job, seed)
                columns = f"{job.prompt or 'nothing'},{job.length} {job.unit},{job.variations}"
                if estimate is None:
                    print(f"{columns},,{took:.2f},", flush=True)
                    continue
                ratios.append(estimate / took)
                print(f"{columns},{estimate:.2f},{took:.2f},{estimate / took:.2f}", flush=True)
        view.studio.stop_all()
    right = sum(1 / WITHIN <= ratio <= WITHIN for ratio in ratios)
    print(f"within a factor of {WITHIN}: {right} of {len(ratios)}")


if __name__ == "__main__":
    run(main)
