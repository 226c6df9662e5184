"""Sweeps by the commands themselves, on each kind of task."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from training.evaluation.sweep.config import read_sweep
from training.evaluation.sweep.processes import is_done, run_cells
from training.evaluation.sweep.results import tables_of, write_tables

pytestmark = pytest.mark.slow
MODEL: dict[str, Any] = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
MODEL |= {"attention": {"kind": "softmax"}}
TRAINER: dict[str, Any] = {"token_budget": 400, "device": "cpu", "precision": "32", "samples": 0}
TRAINER |= {"checkpoint_every": 1, "loggers": []}
COPYING = {"kind": "copying", "size": 12, "test_sizes": [12], "test_examples": 16, "batch_size": 4}
LISTOPS = {"kind": "listops", "shortest": 3, "max_length": 20, "batch_size": 8}
LISTOPS |= {"validation_examples": 20, "test_examples": 30}
TASKS = {
    "copying": COPYING | {"model": MODEL | {"vocabulary_size": 33, "encoding": {"kind": "none"}}},
    "listops": LISTOPS | {"model": MODEL | {"input": {"kind": "tokens", "vocabulary_size": 16}}},
    "music": {"kind": "music", "length": 32, "batch_size": 2, "validation_windows": 4}
    | {"model": MODEL},
}


def write_sweep(folder, kind, data, **changes):
    experiment = {"task": dict(TASKS[kind]), "trainer": TRAINER}
    if kind == "music":
        experiment["task"]["data"] = str(data)
    (folder / f"{kind}.yaml").write_text(yaml.safe_dump(experiment))
    plain = {"configs": [f"{kind}.yaml"], "seeds": [0], **changes}
    plain["rows"] = {name: {"task.model.encoding": {"kind": name}} for name in ("none", "rope")}
    if kind == "music":
        plain["rows"] = {"none": None, "longer warm-up": {"optimizer.warmup_steps": 3}}
        plain["settings"] = {"task.model.encoding": {"kind": "none"}}
        plain["evaluate"] = {"length": 32}
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(plain, sort_keys=False))
    return path


@pytest.mark.parametrize("kind", TASKS)
def test_a_sweep_of_each_kind_of_task_is_trained_and_compared(kind, data, tmp_path):
    sweep = read_sweep(write_sweep(tmp_path, kind, data), tmp_path / "runs")
    outcome = run_cells(sweep.cells, sweep.runs, 2)
    assert outcome.failures == {}
    assert all(map(is_done, sweep.cells))
    (table,) = tables_of(sweep, sweep.cells)
    assert len(table.results) == 2
    assert all(len(values) == 1 for rows in table.values.values() for values in rows.values())
    assert "Tests need two seeds" in write_tables(sweep, sweep.cells, {}).read_text()
