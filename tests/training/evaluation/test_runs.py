from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.paths import ROOT
from training.config import read_yaml
from training.evaluation.runs import facts_of_run
from training.experiment import build_experiment


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
