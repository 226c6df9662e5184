"""The time of a report on a listening test.

Run from the top of the repository: `python -m benchmarks.app.bench_listen_report`. Makes up answers
of listeners who rate and compare clips of five conditions after eight prompts, and measures `relpe
listen-report` as a process of its own, from its start to its end. Prints CSV: the answers, the
listeners, and the seconds of wall and of CPU time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from app.listening.answers import read_answers
from tests.support.blind_studies import answer_all, write_study

CONDITIONS = ("piano", "piano-spe", "groove", "real", "shuffled notes")


def main() -> None:
    """Measures one report."""
    parser = argparse.ArgumentParser(description="Measure the time of a report.")
    parser.add_argument("--listeners", type=int, default=40, help="how many (default: 40)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_study(folder, CONDITIONS, prompts=8)
        answer_all(folder, {"real": 0.8, "shuffled notes": -1.5}, listeners=given.listeners)
        command = [sys.executable, "-m", "app", "listen-report", str(folder)]
        begin = time.perf_counter()
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        seconds = time.perf_counter() - begin
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print("answers,listeners,wall_seconds,cpu_seconds,memory_mb")
        cpu = used.ru_utime + used.ru_stime
        memory = used.ru_maxrss / 1000
        print(f"{len(read_answers(folder))},{given.listeners},{seconds:.1f},{cpu:.1f},{memory:.0f}")


if __name__ == "__main__":
    main()
