"""Perplexity and exact match of an encoder-decoder, at each of the test sizes of its task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from relpe.decoding.transduce import transduce
from relpe.files import atomic_write
from relpe.models.encoder_decoder.model import EncoderDecoder
from training.evaluation.configurations import by_settings, facts_of_run, mean_of
from training.evaluation.costs import costs
from training.evaluation.run_options import RunOptions
from training.experiment import read_experiment
from training.runs.weights import load_encoder_decoder_of
from training.tasks.transduction.pair_task import START, nats_of
from training.tasks.transduction.pairs import NO_TARGET, Pair, batch_of
from training.tasks.transduction.task import TransductionTask


@dataclass(frozen=True, kw_only=True)
class TransductionOptions(RunOptions):
    """Settings of an evaluation."""


class Transduced(NamedTuple):
    """How well targets of one size are predicted."""

    perplexity: float
    """Exponential of the mean negative log-likelihood of target tokens, given those before."""
    exact: float
    """Share of the targets that are generated without an error, from the source alone."""
    examples: int


def evaluate_transduction(options: TransductionOptions) -> dict[str, Any]:
    """Measure a run on the test examples of its task; write results.json.

    Weights are rounded to bfloat16 as for a release; computation is in float32.

    Raises:
        TrainingError: the run cannot be used.
    """
    folder = Path(options.model)
    experiment = read_experiment(folder)
    task: TransductionTask = experiment.task
    model, origin = load_encoder_decoder_of(folder, options.weights)
    options.make_ready(model)
    batch = batch_of(task.test_set(task.test_sizes[0])[: options.batch_size])
    batch = batch.to(model.embedding.weight.device)
    found = costs(model, lambda: nats_of(model, batch, model.init_state(len(batch))), len(batch))
    results = facts_of_run(options.model, experiment, origin, found) | {
        "task": task.name,
        "size": task.size,
        "transduced": {
            str(size): transduced(model, task, task.test_set(size), options.batch_size)._asdict()
            for size in task.test_sizes
        },
    }
    options.write(results)
    return results


@torch.inference_mode()
def transduced(
    model: EncoderDecoder, task: TransductionTask, pairs: Sequence[Pair], batch_size: int
) -> Transduced:
    """Perplexity and exact match of greedy generation on some pairs.

    Generation sees the source only. It ends with the target, or after as many tokens as the longest
    target of a batch has.
    """
    nats, tokens, exact = 0.0, 0, 0
    ordered = sorted(pairs, key=lambda pair: len(pair.target))
    starts = range(0, len(ordered), batch_size)
    for start in tqdm(starts, desc=f"evaluate {task.name}", disable=None, delay=2):
        some = ordered[start : start + batch_size]
        batch = batch_of(some).to(model.embedding.weight.device)
        state = model.init_state(len(batch))
        nats += float(nats_of(model, batch, state))
        tokens += int((batch.targets != NO_TARGET).sum())
        state = model.read(batch.source, state, positions=batch.source_positions, mask=batch.mask)
        targets = [task.target_of(pair) for pair in some]
        found = transduce(model, state, START, targets, batch.targets.shape[1])
        wanted = [pair.target[1:, 0].tolist() for pair in some]
        exact += sum(map(list.__eq__, found, wanted))
    return Transduced(perplexity(nats, tokens), exact / len(pairs), len(pairs))


def perplexity(nats: float, tokens: int) -> float:
    """Exponential of the mean of `nats` over tokens; infinite if it is too large."""
    return math.exp(min(nats / tokens, 700.0))


def transduction_table(entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A Markdown table: a row for each configuration and size, with means over its seeds."""
    lines = [
        "| task | attention | encoding | parameters | size | perplexity | exact match | examples | "
        "seeds | runs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for names, runs in by_settings(entries):
        of = runs[0]
        for size, first in of["transduced"].items():
            measured = [results["transduced"][size] for results in runs]
            cells = [of["task"], of["attention"], of["encoding"], f"{of['parameters']:,}"]
            cells += [
                f"{size}{'' if int(size) <= of['size'] else ', beyond training'}",
                mean_of([one["perplexity"] for one in measured], 3),
                f"{mean_of([100 * one['exact'] for one in measured], 1)} %",
                f"{first['examples']:,}",
                ", ".join(str(results["seed"]) for results in runs),
                ", ".join(names),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def write_transductions(entries: Mapping[str, Mapping[str, Any]], output: Path) -> Path:
    """Write the table of some runs to report.md in a folder; return its path."""
    output.mkdir(parents=True, exist_ok=True)
    note = "Means and standard deviations (n - 1) over the seeds of each configuration."
    with atomic_write(output / "report.md") as path:
        path.write_text("\n".join([*transduction_table(entries), "", note, ""]), encoding="utf-8")
    return output / "report.md"
