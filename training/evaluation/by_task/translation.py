"""Perplexity, BLEU, chrF and exact match of the translations of an encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from relpe.decoding.beam import beam_search
from relpe.files import atomic_write
from relpe.models.encoder_decoder.model import EncoderDecoder
from training.errors import missing_package
from training.evaluation.by_task.transduction import perplexity
from training.evaluation.configurations import by_settings, facts_of_run, mean_of
from training.evaluation.costs import costs
from training.evaluation.run_options import SplitOptions
from training.experiment import read_experiment
from training.runs.weights import load_encoder_decoder_of
from training.tasks.generated import NO_TARGET
from training.tasks.transduction.bpe import END, Bpe
from training.tasks.transduction.pair_task import START, nats_of
from training.tasks.transduction.pairs import Pair, batch_of
from training.tasks.transduction.parallel_text import TextPair
from training.tasks.transduction.translation import EncodedPairs, TranslationTask

NAME = "translations.tsv"
"""File beside results.json with the source, its translation, and that of the model."""


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(SplitOptions):
    """Settings of an evaluation; the data are a folder of parallel text."""


class Quality(NamedTuple):
    """How similar translations are to references, from 0 to 100."""

    bleu: float
    chrf: float
    exact: float
    """Percentage of translations that equal their references."""


def evaluate_translation(options: TranslationOptions) -> dict[str, Any]:
    """Measure the translations of a run; write results.json and translations.tsv.

    Weights are rounded to bfloat16 as for a release; computation is in float32.

    Raises:
        TrainingError: the run or its data cannot be used, or the package sacrebleu is missing.
    """
    folder = Path(options.model)
    experiment = read_experiment(folder)
    task: TranslationTask = options.task_of(experiment)
    metrics = _metrics()
    tokenizer = Bpe.load(folder)
    model, origin = load_encoder_decoder_of(folder, options.weights)
    options.make_ready(model)
    name: Any = options.split
    texts = task.texts(name)[: task.test_examples]
    pairs = EncodedPairs(texts, tokenizer)
    nats, tokens = likelihood(model, pairs, options.batch_size)
    references = [pair.target for pair in texts]
    found = {
        label: [
            tokenizer.decode(ids)
            for ids in translated(model, replace(task, beams=beams), pairs, options.batch_size)
        ]
        for label, beams in {"greedy": 1, "beam": task.beams}.items()
    }
    batch = batch_of(pairs[: options.batch_size]).to(model.embedding.weight.device)
    cost = costs(model, lambda: nats_of(model, batch, model.init_state(len(batch))), len(batch))
    results = facts_of_run(options.model, experiment, origin, cost) | {
        "task": task.name,
        "split": options.split,
        "pairs": len(pairs),
        "tokens": tokens,
        "perplexity": perplexity(nats, tokens),
        "signatures": {},
        "translated": {
            label: quality(metrics, lines, references)._asdict() for label, lines in found.items()
        }
        | {"source": quality(metrics, [pair.source for pair in texts], references)._asdict()},
    }
    results["signatures"] = {key: str(one.get_signature()) for key, one in metrics.items()}
    options.write(results)
    _write_translations(options.folder / NAME, texts, found["greedy"], found["beam"])
    return results


@torch.inference_mode()
def likelihood(model: EncoderDecoder, pairs: Sequence[Pair], batch_size: int) -> tuple[float, int]:
    """Negative log-likelihood of the targets of pairs, in nats, and the number of their tokens."""
    nats, tokens = 0.0, 0
    for part in _batches(pairs, batch_size, "likelihood"):
        batch = batch_of([pairs[number] for number in part]).to(model.embedding.weight.device)
        nats += float(nats_of(model, batch, model.init_state(len(batch))))
        tokens += int((batch.targets != NO_TARGET).sum())
    return nats, tokens


@torch.inference_mode()
def translated(
    model: EncoderDecoder, task: TranslationTask, pairs: Sequence[Pair], batch_size: int
) -> list[list[int]]:
    """The best translation of each source by beam search, as ids after the start."""
    found: list[list[int]] = [[] for _ in pairs]
    for part in _batches(pairs, batch_size, f"translate, {task.beams} at a time"):
        batch = batch_of([pairs[number] for number in part]).to(model.embedding.weight.device)
        state = model.read(
            batch.source,
            model.init_state(len(batch)),
            positions=batch.source_positions,
            mask=batch.mask,
        )
        most = [task.most_tokens(len(pairs[number].source)) for number in part]
        best = beam_search(
            *(model, state, START, END, most), beams=task.beams, strength=task.length_penalty
        )
        for number, (first, *_) in zip(part, best, strict=True):
            found[number] = first.tokens
    return found


def _batches(pairs: Sequence[Pair], batch_size: int, label: str) -> tqdm[list[int]]:
    """Numbers of pairs in batches of similar lengths."""
    order = sorted(range(len(pairs)), key=lambda number: len(pairs[number].source))
    parts = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    return tqdm(parts, desc=label, disable=None, delay=2)


def quality(metrics: Mapping[str, Any], lines: Sequence[str], references: Sequence[str]) -> Quality:
    """The quality of some translations, by metrics of sacrebleu."""
    scores = {
        name: float(metric.corpus_score(lines, [references]).score)
        for name, metric in metrics.items()
    }
    exact = sum(map(str.__eq__, lines, references))
    return Quality(**scores, exact=100 * exact / len(lines))


def _metrics() -> dict[str, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ModuleNotFoundError as error:
        raise missing_package("translation", "sacrebleu", "translation") from error

    return {"bleu": BLEU(), "chrf": CHRF()}


def _write_translations(path: Path, texts: Sequence[TextPair], *found: Sequence[str]) -> None:
    """Write a line per pair: source, reference, greedy translation, and that of beam search."""
    rows = [("source", "reference", "greedy", "beam")]
    rows += zip(*zip(*texts, strict=True), *found, strict=True)
    lines = ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]
    with atomic_write(path) as partial:
        partial.write_text("\n".join([*lines, ""]), encoding="utf-8")


def translation_table(entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A Markdown table: rows for each configuration, with means over its seeds."""
    lines = [
        "| task | attention | encoding | parameters | perplexity | search | BLEU | chrF | "
        "exact match | pairs | seeds | runs |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for names, runs in by_settings(entries):
        of = runs[0]
        beams = of["settings"]["task"]["beams"]
        searches = {"greedy": "greedy", "beam": f"{beams} beams", "source": "none: the source"}
        for key, search in searches.items():
            measured = [results["translated"][key] for results in runs]
            cells = [f"{of['task']}, {of['split']}", of["attention"], of["encoding"]]
            cells += [f"{of['parameters']:,}", mean_of([one["perplexity"] for one in runs], 2)]
            cells += [search]
            cells += [mean_of([one[name] for one in measured], 1) for name in ("bleu", "chrf")]
            cells += [f"{mean_of([one['exact'] for one in measured], 1)} %", f"{of['pairs']:,}"]
            cells += [", ".join(str(results["seed"]) for results in runs), ", ".join(names)]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def write_translations(entries: Mapping[str, Mapping[str, Any]], output: Path) -> Path:
    """Write the table of some runs to report.md in a folder; return its path."""
    output.mkdir(parents=True, exist_ok=True)
    signatures = sorted({text for of in entries.values() for text in of["signatures"].values()})
    notes = [
        "Means and standard deviations (n - 1) over the seeds of each configuration. The source is "
        "what the measures are if nothing is translated.",
        f"sacrebleu: {'; '.join(signatures)}.",
    ]
    lines = [*translation_table(entries), "", notes[0], "", notes[1], ""]
    with atomic_write(output / "report.md") as path:
        path.write_text("\n".join(lines), encoding="utf-8")
    return output / "report.md"
