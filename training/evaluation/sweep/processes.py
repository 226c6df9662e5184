"""Runs the cells of a sweep in processes, each by `relpe-train fit` and `relpe-train evaluate`.

With `launch` they are jobs of a cluster. submitit is not used: its jobs on one machine all start at
once, and those that are cancelled are killed after a second, before `fit` writes a checkpoint.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from relpe.files import write_text
from training.evaluation.sweep.config import Cell
from training.experiment import build_experiment
from training.files import alone_in, read_json

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "training.cli")
"""`relpe-train`, whose script need not be on the path."""
_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
_POLL_SECONDS = 0.2
_LINE_SECONDS = 30.0
"""Time between two reports of the progress where there is no terminal."""


class SweepOutcome(NamedTuple):
    """How the work on some cells ended."""

    failures: Mapping[str, str]
    """Why a cell failed, by its name."""
    stopped_by: int | None
    """Signal that stopped the work; None: all cells were tried."""


def is_done(cell: Cell) -> bool:
    """Return whether a cell was trained and measured with the settings that it has in the sweep."""
    if not cell.record.is_file():
        return False
    record = read_json(cell.record, ("settings", "seconds"), f"delete {cell.record.parent}")
    return record["settings"] == cell.settings()


def run_cells(cells: Sequence[Cell], runs: Path, processes: int) -> SweepOutcome:
    """Train and measure the cells that are not done in the folder `runs`, `processes` at a time.

    A cell that was interrupted is resumed by `fit`. SIGINT, SIGTERM and SIGHUP end all processes;
    `fit` then writes a checkpoint. A second signal ends them without one.

    Raises:
        TrainingError: a setting is invalid, or another sweep works in the folder.
    """
    for cell in {(cell.config, cell.row): cell for cell in cells}.values():
        build_experiment(cell.settings()["fit"], f"{cell.config}, {cell.row}")
    with alone_in(runs, "sweep", "--runs"):
        work = _Work([cell for cell in cells if not is_done(cell)])
        done = len(cells) - len(work.left)
        pause = 0.1 if sys.stderr.isatty() else _LINE_SECONDS
        with (
            work.stops_on_signals(),
            tqdm(total=len(cells), initial=done, unit="run", mininterval=pause) as bar,
        ):
            try:
                while work.running or (work.left and work.stopped_by is None):
                    work.step(processes)
                    bar.set_postfix_str(work.counts, refresh=False)
                    bar.update(done + work.ended - bar.n)
            finally:
                for one in work.running:  # after an error of this process
                    one.process.terminate()
    return SweepOutcome(work.failures, work.stopped_by)


class _Running:
    """A cell whose commands are running."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.settings = cell.settings()
        self.since = time.monotonic()
        self._signals = 0
        cell.log.parent.mkdir(parents=True, exist_ok=True)
        words = ["fit", "--config", str(cell.path), "--run", str(cell.folder)]
        self._next = [self._evaluate()]
        self._log = cell.log.open("wb")
        self.process = self._start([*words, *(w for one in cell.overrides for w in ("--set", one))])

    def _evaluate(self) -> list[str]:
        words = ["evaluate", "--run", str(self.cell.folder), *self.cell.evaluate]
        task = self.settings["fit"]["task"]
        if task.get("kind", "music") == "music" and "--data" not in words:
            words += ["--data", str(task.get("data"))]
        return words

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        # a session of its own: Ctrl-C reaches only this process, which ends the others once
        return subprocess.Popen(
            [*self.cell.launch, *COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end_after(self, signals: int) -> None:
        """Pass on the signals that the process has not had yet."""
        if self._signals < signals:
            self._signals = signals
            self.process.terminate()

    def poll(self) -> str | None:
        """Return None while it runs, "" when the cell is done, or why it ended."""
        code = self.process.poll()
        if code is None:
            return None
        if code == 0 and self._next and not self._signals:
            self.process = self._start(self._next.pop())
            return None
        self._log.close()
        if code or self._next:
            return self._reason(code)
        record = {"settings": self.settings, "seconds": round(time.monotonic() - self.since, 1)}
        write_text(self.cell.record, json.dumps(record, indent=1) + "\n")
        return ""

    def _reason(self, code: int) -> str:
        if code < 0:
            return f"ended by signal {-code}; see {self.cell.log}"
        lines = self.cell.log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), f"exit code {code}")
        return f"{last.removeprefix('relpe-train: ')}; see {self.cell.log}"


@dataclass
class _Work:
    """Cells that are left, running, done and failed."""

    left: list[Cell]
    running: list[_Running] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    ended: int = 0
    """Cells that this process has finished, or that have failed."""
    stopped_by: int | None = None
    _signals: int = 0

    @property
    def counts(self) -> str:
        """The numbers of cells that run and that have failed."""
        return f"{len(self.running)} running, {len(self.failures)} failed"

    @contextmanager
    def stops_on_signals(self) -> Iterator[None]:
        """Take note of signals, which `step` passes on."""

        def stop(number: int, _: object) -> None:
            self.stopped_by = number
            self._signals += 1

        before = {number: signal.signal(number, stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def step(self, processes: int) -> None:
        """Start cells, wait a moment, and take note of those that have ended."""
        while self.left and self.stopped_by is None and len(self.running) < processes:
            self.running.append(_Running(self.left.pop(0)))
        time.sleep(_POLL_SECONDS)
        for one in [*self.running]:
            one.end_after(self._signals)
            said = one.poll()
            if said is not None:
                self.running.remove(one)
                self._note_end(one, said)

    def _note_end(self, one: _Running, said: str) -> None:
        if said and self.stopped_by is not None:
            said = "stopped"
        else:
            self.ended += 1
            if said:
                self.failures[one.cell.name] = said
        with tqdm.external_write_mode(file=sys.stderr):
            logger.info("%s: %s", one.cell.name, said or "done")
