from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from tests.support.paths import ROOT
from tests.support.runs import short_experiment
from training.config import read_yaml
from training.evaluation.options import EvaluateOptions
from training.evaluation.runs import evaluate_run, facts_of_run, run_table, task_of, write_runs
from training.experiment import build_experiment
from training.runs.fit import fit
from training.tasks.copying import CopyingTask


def test_results_name_the_attention_and_encoding_of_each_kind_of_layer():
    path = ROOT / "training" / "configs" / "images" / "pixels.yaml"
    grid = "{axes: [1, 2], encoding: {kind: algebraic, structure: {kind: grid}}}"
    layers = (
        f"task.model.layers=[{grid}, {{attention: {{kind: softmax}}, encoding: {{kind: rope}}}}]"
    )
    origin: Any = SimpleNamespace(_asdict=dict)

    def named(*changes):
        model = "task.model.attention={kind: windowed, span: 4}"
        experiment = build_experiment(read_yaml(path, [model, *changes]))
        facts = facts_of_run("run", experiment, origin, {"parameters": 1})
        return facts["attention"], facts["encoding"]

    assert named("task.model.encoding={kind: rope}")[1] == "rope"
    attention, encoding = named(layers)
    assert encoding == "algebraic, grid, rope"
    assert attention == f"{named()[0]}, softmax"


def test_a_run_is_measured_on_the_chosen_data_and_its_results_are_written(tmp_path):
    model = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16, "vocabulary_size": 40}
    task = {"kind": "copying", "num_symbols": 20, "size": 8, "test_sizes": [8, 9]}
    task |= {"model": model, "batch_size": 4, "test_examples": 6}
    fit(short_experiment(task, 1), tmp_path / "run", show=False)
    run, output = str(tmp_path / "run"), tmp_path / "results"
    lines = evaluate_run(EvaluateOptions(model=run, batch_size=4, threads=1, output=output))
    assert lines[:2] == ["| size | token accuracy | exact match |", "|---|---|---|"]
    assert lines[3].startswith("| 9, beyond training |")
    results = json.loads((output / "results.json").read_text())
    assert results["costs"]["examples_at_once"] == 4
    assert lines[-1].startswith(f"{results['parameters']:,} parameters; per example ")
    assert results["weights"]["file"] == "best.ckpt"
    assert task_of(results) is CopyingTask
    assert evaluate_run(EvaluateOptions(model=run, threads=1))[:-1] == lines[:-1]
    again = json.loads((tmp_path / "run" / "evaluation" / "results.json").read_text())
    assert again["costs"]["examples_at_once"] == 6
    assert again["answers"] == results["answers"]


def test_tables_have_a_row_for_each_configuration_with_means_over_its_seeds(tmp_path):
    def results(seed, accuracy, attention="softmax"):
        facts = {"seed": seed, "parameters": 1234, "attention": attention, "encoding": "rope"}
        facts |= {"settings": {"task": {"kind": "digits"}, "of": attention}, "task": "digits"}
        return facts | {"data": "x", "split": "test", "examples": 2000, "accuracy": accuracy}

    entries = {"a": results(0, 0.5), "b": results(0, 1.0, "linear"), "c": results(3, 0.7)}
    table = [
        "| task | attention | encoding | parameters | accuracy | examples | seeds | runs |",
        "|---|---|---|---|---|---|---|---|",
        "| digits (x), test | softmax | rope | 1,234 | 60.00 ± 14.14 % | 2,000 | 0, 3 | a, c |",
        "| digits (x), test | linear | rope | 1,234 | 100.00 % | 2,000 | 0 | b |",
    ]
    assert run_table(entries) == table
    path = write_runs(entries, tmp_path / "new")
    note = "Means and standard deviations (n - 1) over the seeds of each configuration."
    assert path.read_text() == "\n".join([*table, "", note, ""])
    assert task_of({"data": "x"}) is None
