"""Encodings of more axes than the positions of a task have are refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import training
from training.config import read_yaml
from training.errors import TrainingError
from training.experiment import build_experiment

CONFIGS = Path(training.__file__).parent / "configs"
AXES = {
    "tasks/copying": 1,
    "transduction/copy": 1,
    "transduction/tree_copy": 2,
    "translation/iso_codes": 1,
    "lra/listops_short": 1,
    "lra/retrieval": 1,
    "lra/image": 2,
    "images/digits": 2,
    "images/mnist1d": 1,
    "images/pixels": 3,
    "series/gun_point": 1,
    "series/forecasting": 1,
    "piano_rolls/jsb": 4,
    "harmonization/pop909": 5,
    "recall/flat_windowed": 5,
}
"""Number of axes of the positions of a configuration of each kind of task."""


def grid(name: str, axes: int) -> list[str]:
    """Settings of a model with a grid of some axes, for a configuration."""
    structure = f"{{kind: grid, num_axes: {axes}}}"
    kind, classifies = name.partition("/")[0], name != "images/pixels"
    return [
        f"task.model.encoding={{kind: algebraic, structure: {structure}}}",
        *("task.model.attention={kind: softmax}", "task.model.width=32", "task.model.num_heads=2"),
        *(["task.model.axes=null"] if kind == "transduction" else []),
        *(["task.model.pooling=mean"] if classifies and kind in ("lra", "images") else []),
    ]


def test_grids_of_more_axes_than_positions_have_are_refused():
    for name, axes in AXES.items():
        path = CONFIGS / f"{name}.yaml"
        config = build_experiment(read_yaml(path, grid(name, axes + 1)))
        message = f"reads {axes + 1} axes of positions, but those of this task have {axes};"
        with pytest.raises(TrainingError, match=message):
            config.task.build_module(config.optimizer, config.trainer)
        # the axes that it has, and a line, are no problem; music needs data to be built
        for fitting in {axes, 1} if config.task.kind != "music" else ():
            config = build_experiment(read_yaml(path, grid(name, fitting)))
            module = config.task.build_module(config.optimizer, config.trainer)
            assert module.decoder.num_axes <= axes
