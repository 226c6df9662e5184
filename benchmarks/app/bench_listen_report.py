"""The time of a report on a listening test.

Run from the top of the repository: `python -m benchmarks.app.bench_listen_report`. Makes up answers
of listeners who rate and compare clips of five conditions after eight prompts, and measures `relpe
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

from app.listening.answers import read_answers
from benchmarks.timing import csv_output, run
from tests.support.blind_studies import answer_all, write_study

CONDITIONS = ("piano", "piano-spe", "groove", "real", "shuffled notes")


def main(listeners: int = 40) -> None:
    """Measure one report."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_study(folder, CONDITIONS, prompts=8)
        answer_all(folder, {"real": 0.8, "shuffled notes": -1.5}, listeners=listeners)
        command = [sys.executable, "-m", "relpe", "listen-report", str(folder)]
        begin = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        seconds = time.perf_counter() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = csv_output("answers", "listeners", "wall_seconds", "cpu_seconds", "memory_mb")
        cpu = used.ru_utime + used.ru_stime
        answers = len(read_answers(folder))
        out(answers, listeners, seconds, cpu, used.ru_maxrss / 1000)


if __name__ == "__main__":
    run(main)
