"""Accuracy of a model of a generated task, at each of its test sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from relpe.models.decoder import Decoder
from relpe.models.pointer.config import BalanceConfig, PointerConfig
from relpe.models.pointer.pointer import Pointer
from training.errors import TrainingError
from training.evaluation.costs import costs
from training.evaluation.run_options import RunOptions
from training.experiment import is_run, read_experiment
from training.learning.positions import positions_of
from training.runs.weights import load_decoder
from training.tasks.generated import NO_TARGET, GeneratedTask


@dataclass(frozen=True, kw_only=True)
class AnswersOptions(RunOptions):
    """Settings of an evaluation."""

    batch_size: int = 64


class Answers(NamedTuple):
    """Share of right answers to examples of one size."""

    tokens: float
    """Of all targets: token accuracy."""
    examples: float
    """Of all examples, those whose targets are all right: exact match."""


def evaluate_answers(options: AnswersOptions) -> dict[str, Any]:
    """Measure the answers of a run to the test examples of its task; write results.json.

    Weights are rounded to bfloat16 as for a release; computation is in float32.

    Raises:
        TrainingError: the model is not a run of a generated task.
    """
    folder = Path(options.model)
    task = read_experiment(folder).task if is_run(folder) else None
    if not isinstance(task, GeneratedTask):
        raise TrainingError(
            f"{options.model}: a model of music is measured on a prepared corpus; give it with "
            "--data"
        )
    decoder, origin = load_decoder(folder, options.weights)
    options.make_ready(decoder)
    tokens = task.test_set(task.size)[: options.batch_size, :, 0].to(
        decoder.embedding.weight.device
    )
    positions = positions_of(tokens, decoder.num_axes)
    state = decoder.init_state(len(tokens))
    results = {
        "model": options.model,
        "weights": origin._asdict(),
        "task": task.kind,
        "size": task.size,
        "chance": task.chance,
        "answers": {
            str(size): answers(decoder, task.test_set(size), options.batch_size)._asdict()
            for size in task.test_sizes
        },
        "costs": costs(decoder, lambda: decoder(tokens, positions, state), len(tokens)),
    }
    options.write(results)
    return results


def answers(decoder: Decoder, examples: Tensor, batch_size: int) -> Answers:
    """Share of right answers to examples (n, l, 2), by the most likely token at each target.

    If the model has a pointer, it is that of the mixture with its proposals.
    """
    device = decoder.embedding.weight.device
    right = asked = exact = 0
    with torch.inference_mode():
        for batch in examples.split(batch_size):
            tokens, targets = batch.to(device).unbind(-1)
            state = decoder.init_state(len(batch))
            logits, _ = decoder(tokens, positions_of(tokens, decoder.num_axes), state)
            if decoder.config.pointer is not None:
                logits = with_pointer(decoder.config.pointer, tokens, logits)
            wanted = targets != NO_TARGET
            hits = (logits.argmax(-1) == targets) & wanted
            right, asked = right + int(hits.sum()), asked + int(wanted.sum())
            exact += int((hits == wanted).all(-1).sum())
    return Answers(right / asked, exact / len(examples))


def with_pointer(config: PointerConfig, tokens: Tensor, logits: Tensor) -> Tensor:
    """Log-probabilities (b, l, v) of the mixture of a decoder with a pointer, up to a constant.

    See `relpe.models.pointer`. The balance of generation is left out.
    """
    ids, mixed = np.arange(logits.shape[-1]), np.empty(logits.shape)
    scores = logits.float().cpu().numpy()
    for row, given in enumerate(tokens.tolist()):
        pointer = Pointer(replace(config, balance=BalanceConfig()))
        for place, token in enumerate(given):
            pointer.extend([token])
            mixed[row, place] = pointer.mix(scores[row, place], ids)
    return torch.from_numpy(mixed).to(logits.device)


def answers_table(results: dict[str, Any]) -> list[str]:
    """Lines of a Markdown table of results."""
    lines = ["| size | token accuracy | exact match |", "|---|---|---|"]
    for size, values in results["answers"].items():
        note = "" if int(size) <= results["size"] else ", beyond training"
        lines.append(f"| {size}{note} | {values['tokens']:.1%} | {values['examples']:.1%} |")
    return [*lines, f"| chance | {results['chance']:.1%} | |"]
