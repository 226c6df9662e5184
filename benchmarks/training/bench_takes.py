"""What ranking makes of takes: real music, first takes, and the best of 2, 4 and 8.

Run from the top of the repository: `python -m benchmarks.training.bench_takes piano --data
data/pop909`: model and prepared corpora. The model continues the beginnings of pieces of the test
split. Prints means over the prompts: the share of continuations with an accident, and measures of
form and harmony. `judge` and `second judge` are areas under the curve of two judges of real music
against these takes: the one that ranks, and one that is fitted on half of the prompts by measures
that the ranking never uses (registers, velocities, lengths, sizes of chords, histograms), and
tested on the other half; `likelihood` judges by nats per token of the new bars under the model with
its pointer. 0.5: cannot be told apart. The last row has the likeliest of 8. --corpora chooses
corpora of a mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import run, table_output
from benchmarks.training.fit_takes import Continued, MeasuredMusic, area_under_curve, continued, fit
from tokenization.measures.bars import BarNotes
from tokenization.measures.continuation import measure_continuation
from tokenization.measures.takes import judge, rank, take_seed
from tokenization.remi.vocabulary import BAR
from tokenization.score import Score
from training.evaluation.generated_music import figures_of
from training.evaluation.likelihood import pointer_nats, streaming_nats
from training.evaluation.metrics.structure import histograms
from training.evaluation.subject import load_subject

MEASURES = (
    "bars_of_any_earlier",
    "bars_of_prompt",
    *("self_similarity_4", "self_similarity_8", "melody_similarity_4", "melody_similarity_8"),
    *("harmonic_period", "static_chord", "roots_over_chance_4", "roots_over_chance_8"),
    *("falling_fifths", "root_in_bass", "diatonic", "in_scale"),
)
TAKES = 8
_SEED = 500


def main(
    model: str,
    /,
    *,
    data: list[str],
    corpora: str = "",
    split: str = "test",
    prompts: int = 60,
    prompt_bars: int = 8,
    bars: int = 32,
) -> None:
    """Run the comparison."""
    seeds = [take_seed(_SEED, take) for take in range(TAKES)]
    given = {"corpora": corpora, "split": split, "pieces": prompts, "seeds": seeds}
    groups = list(continued(model, data, [(prompt_bars, bars)], **given))
    table = table_output("", "accidents", *MEASURES, "judge", "likelihood", "second judge")
    likely = _log_likelihoods(model, Path(data[0]), groups)
    best = {
        "real": [0] * len(groups),
        "first take": [1] * len(groups),
        **{f"best of {count}": [_best(group, count) for group in groups] for count in (2, 4, 8)},
        "likeliest of 8": (likely[:, 1:].argmax(1) + 1).tolist(),
    }
    for name, indices in best.items():
        _row(table, name, groups, likely, indices)


def _row(
    table: Callable[..., None],
    name: str,
    groups: Sequence[Continued],
    likely: NDArray[np.float64],
    indices: Sequence[int],
) -> None:
    first, stop = groups[0].prompt_bars, groups[0].prompt_bars + groups[0].bars
    real = [group.real for group in groups]
    scores = [[group.real, *group.new][at] for group, at in zip(groups, indices, strict=True)]
    takes = [judge(score, first, stop) for score in scores]
    figures = [
        figures_of(BarNotes.of(score).between(0, stop), first)
        | measure_continuation(score, first, stop)
        for score in scores
    ]
    means = [np.nanmean([row[key] for row in figures]) for key in MEASURES]
    is_real = np.repeat([True, False], len(scores))
    scored = [judge(score, first, stop).likeness for score in real]
    areas = (
        area_under_curve(np.array([*scored, *(take.likeness for take in takes)]), is_real),
        area_under_curve(np.append(likely[:, 0], likely[range(len(groups)), indices]), is_real),
        _second(real, scores, first, stop),
    )
    shown = np.mean([take.accidents.any for take in takes]), *means, *areas
    table(name, *(f"{value:.3f}" for value in shown))


def _best(group: Continued, count: int) -> int:
    """Return the place of the best of the first takes, after the real continuation."""
    stop = group.prompt_bars + group.bars
    takes = [judge(score, group.prompt_bars, stop) for score in group.new[:count]]
    return rank(takes, group.prompt_bars, stop).order[0] + 1


def _log_likelihoods(model: str, data: Path, groups: Sequence[Continued]) -> NDArray[np.float64]:
    """Return the mean log-likelihoods of the tokens of the new bars (groups, 1 + takes)."""
    subject = load_subject(model, data, "best")
    decoder, families = subject.decoder, subject.tokenizer.families
    rows: list[list[float]] = []
    for group in groups:
        pieces = [ids.astype(np.int64) for ids in group.ids]
        nats = streaming_nats(decoder, pieces, 512, len(pieces), families=families)
        if (pointer := decoder.config.pointer) is not None:
            nats = pointer_nats(pointer, pieces, nats)
        begins = [np.flatnonzero(ids == BAR)[group.prompt_bars] for ids in pieces]
        rows.append([-row[at:].mean() for row, at in zip(nats, begins, strict=True)])
    return np.array(rows)


def _second(real: Sequence[Score], scores: Sequence[Score], first: int, stop: int) -> float:
    """Return the area under a judge's curve by other measures, each half judged by the other's."""
    examples = [
        [MeasuredMusic((0, 0), is_real, _others(score, first, stop)) for score in group]
        for is_real, group in ((True, real), (False, scores))
    ]
    judged = np.zeros((2, len(real)))
    for half in (0, 1):
        second = fit([row for group in examples for row in group[1 - half :: 2]])
        for group, row in zip(examples, judged, strict=True):
            row[half::2] = [second.score(example.measures) for example in group[half::2]]
    return area_under_curve(judged.ravel(), np.repeat([True, False], len(real)))


def _others(score: Score, first: int, stop: int) -> dict[str, float]:
    """Return the measures that the ranking never uses, each less that of the prompt."""
    notes = BarNotes.of(score).between(0, stop)
    parts = notes.between(0, first), notes.between(first)
    measures: dict[str, float] = {}
    described = [_describe(part) for part in parts]
    for name, value in described[1].items():
        measures[name] = value
        measures[f"{name} less prompt"] = value - described[0][name]
    before, new = (histograms(part) for part in parts)
    for name in new:
        shares = [counts / max(counts.sum(), 1) for counts in (before[name], new[name])]
        measures[f"overlap of {name}"] = float(np.minimum(*shares).sum())
    return measures


def _describe(notes: BarNotes) -> dict[str, float]:
    pitched = notes.only(~notes.is_drum)
    if not len(pitched.pitches):
        return dict.fromkeys(("low", "high", "velocity", "velocities", "length", "size"), np.nan)
    return {
        "low": float(np.percentile(pitched.pitches, 10)),
        "high": float(np.percentile(pitched.pitches, 90)),
        "velocity": float(notes.velocities.mean()),
        "velocities": float(notes.velocities.std()),
        "length": float(np.log2(pitched.durations).mean()),
        "size": len(pitched.pitches) / len(np.unique(pitched.onsets)),
    }


if __name__ == "__main__":
    run(main)
