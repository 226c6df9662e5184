"""The classifier of a run as an ONNX file, which other programs can execute."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relpe.command_line import install
from relpe.files import atomic_write
from relpe.models.classifier.model import Classifier
from training.errors import TrainingError
from training.experiment import read_experiment
from training.runs.weights import load_run

_NEEDED = ("onnx", "onnxscript")
_ROWS = 3
"""Rows of the traced batch; torch treats 0 and 1 as constants."""
_LOOKED_AT = 1000
"""Examples of which the lengths are compared."""


def export_onnx(run: Path, output: Path, weights: str = "best") -> Path:
    """Write the classifier of a run as an ONNX file; return its path.

    Its input `x` is a batch of any size, as the task makes it, and its output `logits` (b, c).

    Raises:
        TrainingError: packages are missing, the data cannot be read, or examples differ in length,
            so that they need a mask, or in the times of their values.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise TrainingError(
            f"ONNX files need the packages {' and '.join(missing)}; {install('onnx')}"
        )
    model, _ = load_run(run, weights)
    if not isinstance(model, Classifier):
        raise TrainingError(f"{run}: the run of a decoder, expected one of a classifier")
    task = read_experiment(run).task
    examples = task.split("train")  # others may be empty
    shapes = {examples[n].inputs[0].shape for n in range(min(len(examples), _LOOKED_AT))}
    batch = task.batch(examples, [index % len(examples) for index in range(_ROWS)])
    if batch.positions is not None:
        raise TrainingError(
            f"{run}: examples of the task {task.kind} have times as positions, which ONNX export "
            "does not support; train with --set task.times=index"
        )
    if batch.mask is not None or (len(shapes) > 1 and task.padded_length is None):
        raise TrainingError(
            f"{run}: examples of the task {task.kind} differ in length and need a mask, which ONNX "
            "files do not have; expected images, signals, or sequences with lra_compat"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as partial:
        write_onnx(model, batch.inputs, partial)
    return output


def write_onnx(model: Classifier, x: Tensor, path: Path) -> None:
    """Write a classifier for batches of any size, with inputs like those of the rows of x.

    What the encoding computes from places and weights is stored as constants.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that are not installed
        program = torch.onnx.export(
            _OnOneGrid(model.eval(), x),
            (x,),
            dynamo=True,
            dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
            input_names=["x"],
            output_names=["logits"],
            verbose=False,
        )
    assert program is not None
    program.save(path)


class _OnOneGrid(nn.Module):
    """A classifier whose encoding was computed for the grid of x."""

    def __init__(self, model: Classifier, x: Tensor) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        self.state = self.model.init_state()
        encoding = self.model.encoding
        # arguments that distinguish calls: the layer, or the number of positions that are left
        keys: dict[str, Callable[..., object]] = {
            "prepare": lambda positions, state: positions.shape[1],
            "grid_table": lambda offsets, layer, step: layer,
            "reach": lambda layer: layer,
        }
        for name, key_of in keys.items():
            setattr(encoding, name, _computed_once(getattr(encoding, name), key_of))
        self.model(x, self.state)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (b, c)."""
        return self.model(x, self.state)


def _computed_once(
    function: Callable[..., Any], key_of: Callable[..., object]
) -> Callable[..., Any]:
    """Return a function that returns the result of the first call with the same key."""
    results: dict[object, Any] = {}

    def run(*arguments: object) -> Any:  # noqa: ANN401
        key = key_of(*arguments)
        if key not in results:
            results[key] = function(*arguments)
        return results[key]

    return run
