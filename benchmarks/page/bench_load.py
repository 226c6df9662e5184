"""Many users at once behind Caddy, as on the internet: errors, waits for the page, memory.

Run from the top of the repository: `python -m benchmarks.page.bench_load`. Needs Debian's Caddy and
Linux. For a small machine, within `systemd-run --scope -p MemoryMax=4G taskset -c 0,1`. Prints CSV.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.timing import csv_output, run
from tests.support.loaded import caddy_before, load, program


def main(users: int = 24, seconds: float = 600, rest: float = 300) -> None:
    """Print what the users met; memory is measured again after a rest of some seconds."""
    with tempfile.TemporaryDirectory() as name, program(Path(name) / "page.txt") as page:
        with caddy_before(page.address, Path(name), 12_000_000) as port:
            met = load(page, seconds, users, rest, f"http://127.0.0.1:{port}/")
        log = (Path(name) / "page.txt").read_text("utf-8")
    print(*met.errors, sep="\n", file=sys.stderr)
    write = csv_output("users", "seconds", "errors", "requests", "p95_s", "before_mb", "after_mb")
    errors = len(met.errors) + log.count("Traceback")
    p95 = float(np.percentile(met.looks, 95))
    write(users, seconds, errors, met.jobs, p95, met.before / 1000, met.after / 1000)


if __name__ == "__main__":
    run(main)
