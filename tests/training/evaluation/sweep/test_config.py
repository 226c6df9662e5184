from __future__ import annotations

import pytest

from training.errors import TrainingError
from training.evaluation.sweep.config import read_sweep

RATES = {"optimizer.learning_rate": [0.001, 0.01]}


def test_cells_are_all_rows_with_all_values_and_seeds(sweep_file, tmp_path):
    sweep = read_sweep(sweep_file("a", "b", grid=RATES, seeds=[3, 4]), tmp_path / "runs")
    rows = [f"{row}, learning_rate {rate}" for row in "ab" for rate in (0.001, 0.01)]
    found = [(cell.row, cell.seed) for cell in sweep.cells]
    assert found == [(row, seed) for seed in (3, 4) for row in rows]
    assert len({cell.folder for cell in sweep.cells}) == len(found)
    assert sweep.baseline == rows[0]


def test_settings_of_a_row_replace_those_of_the_sweep_and_of_the_config(sweep_file, tmp_path):
    path = sweep_file(
        settings={"task.model.width": 32, "trainer.token_budget": 10},
        rows={"wide": {"task.model.width": 64, "task.model.encoding": {"kind": "rope"}}},
        evaluate={"weights": "last", "split": ["a", "b"], "music-only": True, "draws": False},
    )
    cell = read_sweep(path, tmp_path).cells[1]
    fit = cell.settings()["fit"]
    assert fit["task"]["model"]["width"] == 64
    assert fit["task"]["model"]["encoding"] == {"kind": "rope"}
    assert fit["task"]["model"]["hidden"] == 16
    assert fit["trainer"] == {"threads": 1, "token_budget": 10, "seed": 1}
    words = "--threads 1 --weights last --split a b --music-only"
    assert cell.evaluate == tuple(words.split())


def test_cells_are_chosen_by_patterns(sweep_file, tmp_path):
    sweep = read_sweep(sweep_file("delta, none", "delta, rope", "linear"), tmp_path)
    found = sweep.select(["copying"], ["delta*", "linear"], [1])
    assert [cell.row for cell in found] == ["delta, none", "delta, rope", "linear"]
    assert {cell.seed for cell in found} == {1}
    with pytest.raises(TrainingError, match="--rows rope: the sweep has no such row, only delta"):
        sweep.select([], ["rope"], [])
    with pytest.raises(TrainingError, match="--seeds 7"):
        sweep.select([], [], [7])


def test_wrong_sweeps_are_refused_in_a_sentence(sweep_file, tmp_path):
    for changes, message in (
        ({"configs": []}, "configs are"),
        ({"seeds": [1, 1]}, "expected different values"),
        ({"baseline": "c"}, "baseline is 'c', expected one of a; b"),
        ({"rows": {"a": 3}}, "rows.a: expected settings"),
        ({"rows": {1: None}}, "rows: found the key 1, expected a name in quotes"),
        ({"rows": ["a"]}, "rows: expected a section"),
        ({"rows": {"a b": None, "a, b": None}}, "the same name but for punctuation"),
        ({"configs": ["copying.yaml", "./copying.yaml"]}, "the same name but for punctuation"),
        ({"grid": {"trainer.threads": 2}}, "expected a list of values"),
        ({"configs": ["none.yaml"]}, r"none\.yaml: no such file"),
        ({"difference": 0}, "difference is 0"),
        ({"nonsense": 1}, "nonsense: unknown"),
    ):
        with pytest.raises(TrainingError, match=message):
            read_sweep(sweep_file("a", "b", **changes), tmp_path)
