"""The configuration of a sweep, and its cells."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from training.config import build, read_yaml
from training.errors import TrainingError, check_range

RECORD = "sweep.json"
"""File in the evaluation of a finished run, with the settings that were measured."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Settings that are trained with several seeds and compared.

    Every config is trained with every row, every combination of the grid and every seed.
    """

    configs: tuple[str, ...]
    """YAML files of `relpe-train fit`, relative to that of the sweep."""
    settings: Any = field(default_factory=dict)
    """Settings of all runs, as name: value, with the names of `--set`."""
    rows: Any = field(default_factory=dict)
    """Settings by the name of a row."""
    grid: Any = field(default_factory=dict)
    """Lists of values by the name of a setting; all combinations are trained."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Values of `trainer.seed`."""
    evaluate: Any = field(default_factory=dict)
    """Options of `relpe-train evaluate`, without their dashes."""
    launch: tuple[str, ...] = ()
    """Words before the commands of a run, such as [srun, --gpus=1] for jobs of SLURM."""
    baseline: str | None = None
    """Row with which all others are compared; None: the first."""
    compare: tuple[str, ...] = ()
    """Measures that are compared, as shell patterns; empty: the first of each config."""
    difference: float | None = None
    """Smallest difference of interest, in the unit of the measure, for the number of seeds that
    would show it."""

    def __post_init__(self) -> None:
        check_range("difference", self.difference, 0, above=True)
        for name in ("configs", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise TrainingError(f"{name} are {list(values)}, expected different values")
        for name in ("settings", "rows", "grid", "evaluate"):
            if not isinstance(getattr(self, name), dict):
                raise TrainingError(f"{name}: expected a section of lines KEY: VALUE")
            for key in getattr(self, name):
                if not isinstance(key, str):
                    raise TrainingError(f"{name}: found the key {key!r}, expected a name in quotes")
        for row, values in self.rows.items():
            if not isinstance(values, dict | None):
                raise TrainingError(f"rows.{row}: expected settings as a section, or nothing")
        for key, values in self.grid.items():
            if not isinstance(values, list) or not values:
                raise TrainingError(f"grid.{key}: found {values!r}, expected a list of values")


class Cell(NamedTuple):
    """One run of a sweep."""

    config: str
    """Name of the YAML file, without suffix."""
    row: str
    seed: int
    path: Path
    """The YAML file."""
    overrides: tuple[str, ...]
    """Settings as for `--set`."""
    evaluate: tuple[str, ...]
    """Options of `relpe-train evaluate`."""
    folder: Path
    """Folder of the run."""
    launch: tuple[str, ...]
    """Words before its commands."""

    @property
    def name(self) -> str:
        """The cell as text."""
        return f"{self.config}, {self.row}, seed {self.seed}"

    @property
    def log(self) -> Path:
        """File with the output of its commands."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def record(self) -> Path:
        """File that is written when the cell is finished."""
        return self.folder / "evaluation" / RECORD

    def settings(self) -> dict[str, Any]:
        """Return all settings of the run and of its evaluation, as plain values.

        Raises:
            TrainingError: the YAML file or a setting cannot be read.
        """
        mapping = read_yaml(self.path, self.overrides)
        return json.loads(json.dumps({"fit": mapping, "evaluate": self.evaluate}))


class PlannedSweep(NamedTuple):
    """A sweep whose runs are in a folder."""

    name: str
    config: SweepConfig
    runs: Path
    cells: tuple[Cell, ...]
    """In the order in which they are trained: all rows of a config, the next config, the next
    seed."""

    @property
    def baseline(self) -> str:
        """The row with which others are compared."""
        return self.config.baseline or next(row for row, _ in rows_of(self.config))

    def select(
        self, configs: Sequence[str], rows: Sequence[str], seeds: Sequence[int]
    ) -> tuple[Cell, ...]:
        """Return the cells of some configs and rows, as shell patterns, and seeds; empty: of all.

        Raises:
            TrainingError: there are none.
        """
        conditions = {"config": configs, "row": rows, "seed": [str(seed) for seed in seeds]}
        cells = self.cells
        for name, patterns in conditions.items():
            values = dict.fromkeys(str(getattr(cell, name)) for cell in cells)
            for pattern in patterns:
                if not any(_fits(value, pattern) for value in values):
                    raise TrainingError(
                        f"--{name}s {pattern}: the sweep has no such {name}, only "
                        f"{'; '.join(values)}"
                    )
            cells = tuple(
                cell
                for cell in cells
                if not patterns or any(_fits(str(getattr(cell, name)), p) for p in patterns)
            )
        return cells


def _fits(value: str, pattern: str) -> bool:
    return value == pattern or fnmatchcase(value, pattern)


def read_sweep(path: Path, runs: Path) -> PlannedSweep:
    """Read a sweep, whose runs are to be in the folder `runs`.

    Raises:
        TrainingError: the configuration cannot be read; the settings of the runs are not checked.
    """
    config = build(SweepConfig, read_yaml(path), str(path))
    rows = [*rows_of(config)]
    names = [name for name, _ in rows]
    if config.baseline is not None and config.baseline not in names:
        raise TrainingError(
            f"{path}: baseline is {config.baseline!r}, expected one of {'; '.join(names)}"
        )
    paths = {Path(name).stem: path.parent / name for name in config.configs}
    threads = {name: _threads_of(read_yaml(file)) for name, file in paths.items()}
    cells: list[Cell] = []
    for seed, (stem, file), (row, settings) in itertools.product(config.seeds, paths.items(), rows):
        first = {"trainer.threads": threads[stem], **config.settings, **settings}
        overrides = tuple(
            f"{key}={json.dumps(value, default=str)}"
            for key, value in {**first, "trainer.seed": seed}.items()
        )
        options = (*_words({"threads": 1} | config.evaluate),)
        folder = runs / stem / f"{re.sub(r'[^A-Za-z0-9]+', '_', row).strip('_')}_{seed}"
        cells.append(Cell(stem, row, seed, file, overrides, options, folder, config.launch))
    if len(paths) < len(config.configs) or len({cell.folder for cell in cells}) < len(cells):
        raise TrainingError(
            f"{path}: configs or rows have the same name but for punctuation; rename them"
        )
    return PlannedSweep(path.stem, config, runs, tuple(cells))


def _threads_of(mapping: Mapping[str, Any]) -> int:
    """Return the threads of the runs of a config; one if it does not say."""
    section = mapping.get("trainer")
    return (section.get("threads") if isinstance(section, dict) else None) or 1


def rows_of(config: SweepConfig) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the name and settings of each row, with each combination of the grid."""
    for name, settings in (config.rows or {"": {}}).items():
        for values in itertools.product(*config.grid.values()):
            combination = dict(zip(config.grid, values, strict=True))
            parts = [
                name,
                *(f"{key.rpartition('.')[2]} {_label(v)}" for key, v in combination.items()),
            ]
            yield (
                ", ".join(filter(None, parts)) or "as configured",
                {**(settings or {}), **combination},
            )


def _label(value: object) -> str:
    """Return a value of the grid in the name of a row."""
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return str(value)


def _words(options: Mapping[str, Any]) -> Iterator[str]:
    """Return options of a command as its words; true is an option without a value, false none."""
    for name, value in options.items():
        if value is False:
            continue
        yield f"--{name}"
        if value is not True:
            yield from map(str, value if isinstance(value, list) else [value])
