"""The time of a report on a listening test of simulated listeners.

Run from the top of the repository: `python -m benchmarks.app.bench_listen_report`. Simulates
listeners who rate and compare clips of five conditions after eight prompts, and measures `relpe
listen-report` as a process of its own, from its start to its end. Prints CSV: the answers, the
listeners, and the seconds of wall and of CPU time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from app.batch.manifest import NAME, Row, write_manifest
from app.listening.answers import TABLE, write_answers
from app.listening.clips import read_study
from app.listening.simulate import SimulatedListeners, simulate
from benchmarks.timing import csv_output, run

CONDITIONS = ("piano", "piano-spe", "groove", "real", "shuffled")
PROMPTS = 8


def write_study(folder: Path) -> None:
    """Writes the manifest and the key of a study without clips."""
    rows = [
        Row(
            file=f"midi/{prompt}-{place}-{repetition}.mid",
            audio="",
            prompt=f"prompt{prompt}.mid",
            condition=condition,
            repetition=str(repetition),
            model="",
            model_sha256="",
            backend="",
            seed="",
            settings="{}",
            clip_seconds="16.0",
        )
        for prompt in range(PROMPTS)
        for place, condition in enumerate(CONDITIONS)
        for repetition in (1, 2)
    ]
    write_manifest(folder / NAME, rows, blind=True)


def main(answers: int = 10_000) -> None:
    """Measures one report."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_study(folder)
        clips = list(read_study(folder).clips.values())
        of_one = len(simulate(clips, SimulatedListeners(count=1), 0))
        count = -(-answers // of_one)
        qualities = {"real": 0.8, "shuffled": -1.5}
        simulated = simulate(clips, SimulatedListeners(count=count, qualities=qualities), 0)
        write_answers(folder / TABLE, simulated)
        command = [sys.executable, "-m", "app", "listen-report", str(folder)]
        begin = time.perf_counter()
        subprocess.run(
            [*command, "--anchor", "shuffled"],
            check=True,
            stdout=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        seconds = time.perf_counter() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = csv_output("answers", "listeners", "wall_seconds", "cpu_seconds", "memory_mb")
        cpu = used.ru_utime + used.ru_stime
        out(len(simulated), count, seconds, cpu, used.ru_maxrss / 1000)


if __name__ == "__main__":
    run(main)
