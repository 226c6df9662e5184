"""Results of finished cells in one small file, which can replace their runs.

A sweep can then go on, and its table be made again, on another machine or without the runs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from relpe.files import write_text
from training.errors import TrainingError
from training.evaluation.sweep.config import Cell
from training.evaluation.sweep.measures import MeasuredValue
from training.files import read_json


class CellResult(NamedTuple):
    """What was measured of a finished cell."""

    cell: Cell
    measures: dict[str, MeasuredValue]
    parameters: int
    minutes: float
    """Of training."""
    megaflops: float
    """Of an example or token, in evaluation; nan if it was not measured."""
    chance: float | None
    """Percentage of guesses that are right, if the task knows it."""

    def as_plain(self) -> dict[str, Any]:
        """Return the result as plain values, without the cell."""
        return {
            "parameters": self.parameters,
            "minutes": _short(self.minutes),
            "megaflops": None if math.isnan(self.megaflops) else _short(self.megaflops),
            "chance": self.chance,
            "measures": {name: [_short(m.value), m.unit] for name, m in self.measures.items()},
        }

    @classmethod
    def from_plain(cls, cell: Cell, plain: dict[str, Any]) -> CellResult:
        """Return the inverse of `as_plain`. Raises KeyError, TypeError or ValueError."""
        flops = plain["megaflops"]
        measures = {name: MeasuredValue(*one) for name, one in plain["measures"].items()}
        return cls(
            cell,
            measures,
            plain["parameters"],
            plain["minutes"],
            math.nan if flops is None else flops,
            plain["chance"],
        )


def write_results(path: Path, results: Iterable[CellResult]) -> None:
    """Write one line of JSON for each result."""
    lines: list[str] = []
    for result in results:
        cell = result.cell
        seconds = read_json(cell.record, ("seconds",), f"delete {cell.folder}")["seconds"]
        name = {"config": cell.config, "row": cell.row, "seed": cell.seed}
        conditions = {"settings": _digest(cell), "seconds": seconds}
        lines.append(json.dumps(name | conditions | result.as_plain()) + "\n")
    write_text(path, "".join(lines))


def take_results(path: Path, cells: Sequence[Cell]) -> int:
    """Mark cells as done whose results, with the same settings, are in a file; count them.

    Cells that have a run of their own keep it.

    Raises:
        TrainingError: the file cannot be read.
    """
    by_name = {(cell.config, cell.row, cell.seed): cell for cell in cells}
    taken = 0
    for number, line in enumerate(_lines(path), 1):
        try:
            plain = json.loads(line)
            cell = by_name.get((plain["config"], plain["row"], plain["seed"]))
            seconds, settings = plain["seconds"], plain["settings"]
            if cell is None or cell.record.exists() or settings != _digest(cell):
                continue
            result = CellResult.from_plain(cell, plain).as_plain()
        except (KeyError, TypeError, ValueError) as error:
            raise TrainingError(
                f"{path}: line {number} is damaged ({error!r}), expected a result of relpe-train "
                "sweep; restore the file"
            ) from error
        cell.record.parent.mkdir(parents=True, exist_ok=True)
        record = {"settings": cell.settings(), "seconds": seconds, "result": result}
        write_text(cell.record, json.dumps(record, indent=1) + "\n")
        taken += 1
    return taken


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"{path}: cannot be read ({error}); give the cells.jsonl of a sweep"
        ) from error


def _digest(cell: Cell) -> str:
    """Return the hash of the settings, which are long."""
    content = json.dumps(cell.settings(), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _short(value: float) -> float:
    return float(f"{value:.8g}")
