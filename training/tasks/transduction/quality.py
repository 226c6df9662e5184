"""The quality of translations, and their file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from relpe.files import write_text
from training.errors import missing_package
from training.tasks.transduction.parallel_text import TextPair

TABLE = "translations.tsv"
"""File beside results.json with the source, its translation, and that of the model."""


class Quality(NamedTuple):
    """How similar translations are to references, from 0 to 100."""

    bleu: float
    chrf: float
    exact: float
    """Percentage of translations that equal their references."""


def quality(metrics: Mapping[str, Any], lines: Sequence[str], references: Sequence[str]) -> Quality:
    """Return the quality of some translations, by metrics of sacrebleu."""
    scores = {
        name: float(metric.corpus_score(lines, [references]).score)
        for name, metric in metrics.items()
    }
    exact = sum(map(str.__eq__, lines, references))
    return Quality(**scores, exact=100 * exact / len(lines))


def sacrebleu_metrics() -> dict[str, Any]:
    """Return the metrics by name; raise TrainingError if the package sacrebleu is missing."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ModuleNotFoundError as error:
        raise missing_package("translation", "sacrebleu", "translation") from error

    return {"bleu": BLEU(), "chrf": CHRF()}


def write_translations(path: Path, texts: Sequence[TextPair], *translations: Sequence[str]) -> None:
    """Write a line per pair: source, reference, greedy translation, and that of beam search."""
    rows = [("source", "reference", "greedy", "beam")]
    rows += zip(*zip(*texts, strict=True), *translations, strict=True)
    lines = ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]
    write_text(path, "\n".join([*lines, ""]))
