"""What the plan of a piece costs by itself, by n-gram models of plan tokens, as CSV.

    python -m benchmarks.bench_plan_cost DATA [--split test] [--order 5] > plan_cost.csv

DATA is a corpus prepared with a tokenizer of version 2. The models (modified Kneser-Ney) see only
tokens of one kind, or all tokens of the plan; chords are counted in all 12 transpositions. The
costs are in nats and bits per bar of the split; bars of drums alone have no chords.
"""

from __future__ import annotations

import argparse
import csv
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import Kind
from tokenization.tokenizer import Tokenizer
from training.data.corpus import Corpus
from training.evaluation.metrics.ngram import Counts, NGram

KINDS = {
    "Return": (Kind.RETURN,),
    "Chord, Bass": (Kind.CHORD, Kind.BASS),
    "all": (Kind.RETURN, Kind.CHORD, Kind.BASS),
}
SHIFTS = range(-5, 7)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Nats per bar of plan tokens, as CSV")
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--order", type=int, default=5)
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.data)
    if not isinstance(tokenizer, Remi) or not tokenizer.families.has_plans:
        parser.error(f"{options.data}: found a tokenizer without plans, expected version 2")
    families = tokenizer.families
    train, held = (Corpus.load(options.data, split) for split in ("train", options.split))
    out = csv.writer(sys.stdout)
    out.writerow(["# command", " ".join(sys.argv)])
    out.writerow(["# versions", platform.python_version(), f"numpy {np.__version__}"])
    out.writerow(["model of", "order", "cost of", "bars", "nats", "bits"])
    bars = sum(len(held.piece_bars(index)) for index in range(len(held)))
    for name, kinds in KINDS.items():
        counted = np.isin(families.kinds, kinds)

        def plan_of(corpus: Corpus, index: int) -> NDArray[np.int32]:
            ids = corpus.piece(index)
            return ids[counted[ids]]  # noqa: B023

        plans = [plan_of(train, index) for index in tqdm(range(len(train)), desc=name)]
        moved = plans if name == "Return" else list(transposed(plans, tokenizer))
        heard = [plan_of(held, index) for index in range(len(held))]
        for order in (1, options.order):
            model = NGram(Counts.of(moved, order, len(tokenizer.vocabulary)), "kneser_ney")
            nats = np.concatenate([-np.log(model.probabilities(plan)) for plan in heard])
            of_kind = families.kinds[np.concatenate(heard)]
            rows = {"Return": of_kind == Kind.RETURN, "Chord, Bass": of_kind != Kind.RETURN}
            for cost, which in rows.items():
                if name in (cost, "all"):
                    per_bar = nats[which].sum() / bars
                    shown = [f"{value:.3f}" for value in (per_bar, per_bar / np.log(2))]
                    out.writerow([name, order, cost, bars, *shown])
            sys.stdout.flush()


def transposed(
    plans: list[NDArray[np.int32]], tokenizer: Tokenizer
) -> Iterator[NDArray[np.integer]]:
    """Plans in all 12 transpositions."""
    for shift in SHIFTS:
        for plan in plans:
            moved = tokenizer.transpose(plan, shift)
            assert moved is not None, "plans have no range of pitches"
            yield moved


if __name__ == "__main__":
    main()
