"""Likelihood of the test data of a run, value by value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from training.errors import TrainingError
from training.evaluation.by_task.generated_images import draw_images
from training.evaluation.configurations import facts_of_run
from training.evaluation.costs import costs
from training.evaluation.run_options import SplitOptions
from training.experiment import read_experiment
from training.runs.weights import load_decoder
from training.tasks.generated import NO_TARGET
from training.tasks.images.pixels import PixelsTask
from training.tasks.likelihood import LikelihoodTask


@dataclass(frozen=True, kw_only=True)
class NextValuesOptions(SplitOptions):
    """Settings of an evaluation."""


def evaluate_next_values(options: NextValuesOptions) -> dict[str, Any]:
    """Measure the likelihood of a split of the data of a run; write results.json.

    For images, `images.png` beside it has some that the model completes or generates.

    Weights are rounded to bfloat16 as for a release; computation is in float32.

    Raises:
        TrainingError: the run or its data cannot be used.
    """
    folder = Path(options.model)
    experiment = read_experiment(folder)
    task: LikelihoodTask = options.task_of(experiment)
    decoder, origin = load_decoder(folder, options.weights)
    options.make_ready(decoder)
    name: Any = options.split
    rows = task.rows(name)
    if not len(rows):
        raise TrainingError(f"--split {name}: there are no such data")
    device = decoder.embedding.weight.device
    nats = np.zeros(rows.shape[:2])
    starts = range(0, len(rows), options.batch_size)
    with torch.inference_mode():
        for start in tqdm(starts, desc="evaluate", disable=None, delay=2):
            part = slice(start, start + options.batch_size)
            tokens, targets = torch.from_numpy(rows[part]).to(device, torch.int64).unbind(-1)
            logits, _ = decoder(tokens, task.positions(tokens), decoder.init_state(len(tokens)))
            found = -logits.double().log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])
            nats[part] = found[..., 0].where(targets != NO_TARGET, 0.0).cpu().numpy()
    tokens = torch.from_numpy(rows[: options.batch_size, :, 0]).to(device, torch.int64)
    positions, state = task.positions(tokens), decoder.init_state(len(tokens))
    cost = costs(decoder, lambda: decoder(tokens, positions, state), len(tokens))
    results = facts_of_run(options.model, experiment, origin, cost) | {
        "task": task.kind,
        "data": task.origin,
        "split": options.split,
        "targets": int((rows[..., 1] != NO_TARGET).sum()),
        "figures": task.figures(name, nats),
    }
    options.write(results)
    if isinstance(task, PixelsTask):
        draw_images(decoder, task, task.ids(name), options.folder / "images.png")
    return results


def next_values_line(results: Mapping[str, Any]) -> str:
    """The figures of some results, in one line."""
    figures = ", ".join(
        f"{value:.4f} {name.replace('_', ' ')}" for name, value in results["figures"].items()
    )
    return (
        f"{results['task']} ({results['data']}), {results['split']}, {results['targets']:,} "
        f"values: {figures}"
    )
