"""What the plan of a piece costs by itself, by n-gram models of plan tokens, as CSV.

    python -m benchmarks.training.bench_plan_cost DATA [--split test] [--order 5] > plan_cost.csv
    python -m benchmarks.training.bench_plan_cost DATA --models RUN [RUN ...] > plan_models.csv

DATA is a prepared corpus. With `--models`, nats per note of trained
models over whole pieces, each read from its beginning: of the plan, of tempos and of all other
tokens; then the same pieces without their plans.

Without `--models`, n-gram models (modified Kneser-Ney) of plan tokens: of one kind alone, or of the
whole plan. Chords are counted in all 12 transpositions. Costs are in nats and bits per bar of the
split; bars of drums alone have no chords.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.timing import csv_output, run
from benchmarks.tokenization.midi_corpora import spread
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import Families, Kind
from training.data.corpus import Corpus, note_ids
from training.data.masks import masked_ids
from training.evaluation.likelihood import streaming_nats
from training.evaluation.metrics.by_family import nats_by_family, nats_by_part
from training.evaluation.metrics.ngram import Counts, NGram
from training.evaluation.subject import load_split, load_subject

KINDS = {
    "Return": (Kind.RETURN,),
    "Chord, Bass": (Kind.CHORD, Kind.BASS),
    "all": (Kind.RETURN, Kind.CHORD, Kind.BASS),
}
SHIFTS = range(-5, 7)


def main(
    data: Path,
    /,
    *,
    split: str = "test",
    order: int = 5,
    models: Sequence[str] = (),
    pieces: int = 100,
) -> None:
    """Measure and print."""
    tokenizer = load_tokenizer(data)
    families = tokenizer.families
    train, held = (Corpus.load(data, split) for split in ("train", split))
    if models:
        out = csv_output("model", "pieces", "notes", "plans", "plan", "tempo", "music", "sum")
        for model in models:
            for plans, (count, notes, parts) in of_model(model, data, split, pieces).items():
                nats = (*parts.values(), sum(parts.values()))
                out(model, count, notes, plans, *nats)
        return
    out = csv_output("model of", "order", "cost of", "bars", "nats", "bits")
    bars = sum(len(held.piece_bars(index)) for index in range(len(held)))
    for name, kinds in KINDS.items():
        counted = np.isin(families.kinds, kinds)

        def plan_of(corpus: Corpus, index: int) -> NDArray[np.int32]:
            ids = corpus.piece(index)
            return ids[counted[ids]]  # noqa: B023

        plans = [plan_of(train, index) for index in tqdm(range(len(train)), desc=name)]
        moved = plans if name == "Return" else list(transposed(plans, tokenizer))
        heard = [plan_of(held, index) for index in range(len(held))]
        for length in (1, order):
            model = NGram(Counts.of(moved, length, len(tokenizer.vocabulary)), "kneser_ney")
            nats = np.concatenate([-np.log(model.probabilities(plan)) for plan in heard])
            of_kind = families.kinds[np.concatenate(heard)]
            rows = {"Return": of_kind == Kind.RETURN, "Chord, Bass": of_kind != Kind.RETURN}
            for cost, which in rows.items():
                if name in (cost, "all"):
                    per_bar = nats[which].sum() / bars
                    out(name, length, cost, bars, per_bar, per_bar / np.log(2))


def of_model(
    model: str, data: Path, split: str, most: int
) -> dict[str, tuple[int, int, dict[str, float]]]:
    """Return the numbers of pieces and notes, and nats per note by part, with and without plans."""
    subject = load_subject(model, data, "best")
    corpus = load_split(data, split)
    indices = spread(list(range(len(corpus))), most)
    families = Families(subject.tokenizer.vocabulary)
    of_plans = np.isin(families.kinds, KINDS["all"]) | (families.kinds == Kind.KEY)
    results: dict[str, tuple[int, int, dict[str, float]]] = {}
    for plans in ("with", "without"):
        some = [corpus.piece(i).astype(np.int64) for i in indices]
        if plans == "without":
            some = [piece[~of_plans[piece]] for piece in some]
        flags = [corpus.facts(index).masked for index in indices]
        with tqdm(total=sum(map(len, some)), desc=f"{model}, {plans} plans", unit="token") as bar:
            nats = streaming_nats(
                subject.decoder, some, 1024, 8, advance=bar.update, families=families
            )
        for piece, values, flag in zip(some, nats, flags, strict=True):
            values[masked_ids(piece, flag, subject.tokenizer.vocabulary)[1:] < 0] = np.nan
        notes = sum(int(np.isin(piece, note_ids(subject.tokenizer)).sum()) for piece in some)
        by_family = nats_by_family(subject.tokenizer.vocabulary, some, nats)
        results[plans] = len(some), notes, nats_by_part(by_family, notes)
    return results


def transposed(plans: list[NDArray[np.int32]], tokenizer: Remi) -> Iterator[NDArray[np.integer]]:
    """Yield the plans in all 12 transpositions."""
    for shift in SHIFTS:
        for plan in plans:
            moved = tokenizer.transpose(plan, shift)
            assert moved is not None, "plans have no range of pitches"
            yield moved


if __name__ == "__main__":
    run(main)
