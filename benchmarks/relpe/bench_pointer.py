"""Time of a generation step with a pointer compared with one without.

Run from the top of the repository: `python -m benchmarks.relpe.bench_pointer`. Prints CSV. Two
batches of the same rows, one of them with a pointer, take turns in one process on one thread;
results are medians of CPU time. A step includes the model, sampling, the grammar and its biases, as
in `relpe-train evaluate`. The context is an example prompt, repeated, so that there are many
matches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.timing import csv_output, medians, run, turns
from relpe.decoding.batch import ContinuousBatch
from relpe.decoding.choose import choose_steps
from relpe.decoding.eager import prefill
from relpe.decoding.sampling import SamplingOptions
from relpe.models.checkpoint import find_checkpoint, load_model
from relpe.models.pointer.config import GateConfig, PointerConfig
from relpe.models.pointer.pointer import Pointer
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.rule import ConstrainedGrammar, rule_after_prompt
from tokenization.midi import read_midi
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relpe.models.decoder import Decoder

EXAMPLES = {"piano": "pop", "piano-spe": "pop", "groove": "groove"}
"""Models, and the example prompt of each."""
READ = 2048
"""Tokens of the context that the model reads."""


def main(
    models: Sequence[str] = tuple(EXAMPLES),
    rows: Sequence[int] = (1, 8, 32),
    context: int = 16_384,
    steps: int = 256,
    tokens: int = 1_000_000,
) -> None:
    """Print a line per model and number of rows, then a line per length of a sequence."""
    torch.set_num_threads(1)
    columns = ("ms_per_step_without", "ms_per_step_with", "ratio", "pointer_us_per_token")
    out = csv_output("model", "rows", *columns, packages=["torch"])
    for name in models:
        folder = find_checkpoint(name)
        decoder, tokenizer = load_model(folder), load_tokenizer(folder)
        ids = long_prompt(tokenizer, Path("examples", f"{EXAMPLES[name]}.mid"), context)
        for count in rows:
            without, with_pointer = step_times(decoder, tokenizer, ids, count, steps)
            spent = 1000 * (with_pointer - without) / count
            out(name, count, without, with_pointer, with_pointer / without, spent)
    out("token", "us_per_token")
    marks = [mark for mark in (1_000, 10_000, 100_000) if mark < tokens]
    for row in pointer_times([*marks, tokens]):
        out(*row)


def pointer_of(tokenizer: Remi) -> PointerConfig:
    """Return a pointer for the vocabulary of a tokenizer: bars are units, gates are not fitted."""
    families = tokenizer.families
    firsts = (0, families.pitch, families.velocity, families.duration)
    return PointerConfig(
        unit=BAR,
        ignored=((families.velocity, families.duration), (families.duration, families.return_)),
        families=firsts,
        gates=GateConfig(family=(0.0,) * len(firsts)),
    )


def long_prompt(tokenizer: Remi, path: Path, length: int) -> np.ndarray:
    """Return at least `length` ids of a repeated file, followed by the Bar token of a new bar."""
    ids = np.asarray(tokenizer.encode(read_midi(path.read_bytes())).ids)
    bars = np.flatnonzero(ids == BAR)
    once = ids[bars[0] : bars[-1]]
    repeated = np.tile(once, -(-length // len(once)))
    return np.concatenate([ids[: bars[0]], repeated, ids[bars[0] : bars[0] + 1]])


def step_times(
    decoder: Decoder, tokenizer: Remi, ids: np.ndarray, rows: int, steps: int
) -> tuple[float, float]:
    """Return the median CPU milliseconds of a step of all rows, without and with a pointer."""
    grammar = tokenizer.grammar(tempo="never", time_signature=False, end=False)
    rule = rule_after_prompt(ids, grammar, BarLimit(0, 10_000))
    start = max(len(ids) - READ, 0)
    read = torch.from_numpy(ids[None, start:-1].astype(np.int64))
    state = prefill(decoder, decoder.init_state(1), read, start)
    maker = choose_steps(decoder, "auto")
    batches: list[ContinuousBatch[ConstrainedGrammar]] = []
    pointer = Pointer(pointer_of(tokenizer))
    pointer.extend(ids.tolist())
    pointer.end_prompt()
    for row_pointer in (None, pointer):
        batch: ContinuousBatch[ConstrainedGrammar] = ContinuousBatch(maker.make())
        options = SamplingOptions()
        batch.enter(state, len(ids) - 1, int(ids[-1]), rule, options, range(rows), row_pointer)
        batches.append(batch)
    ways = {"without": batches[0].step, "with": batches[1].step}
    turns(ways, 1)  # compiles, and fills caches
    times = medians(turns(ways, steps))
    return times["without"], times["with"]


def pointer_times(marks: Sequence[int]) -> list[tuple[int, float]]:
    """Return the microseconds of CPU time per token of a random sequence, at each of `marks`.

    For each token, the pointer reads it and is mixed with 100 logits. Results are means over the
    last tenth of the tokens before the mark, at most 10,000.
    """
    rng = np.random.default_rng(0)
    pointer = Pointer(PointerConfig(unit=0))
    logits, allowed = np.zeros(100, np.float32), np.arange(100)
    rows: list[tuple[int, float]] = []
    for mark in marks:
        last = min(mark // 10, 10_000)
        pointer.extend(rng.integers(100, size=mark - last - pointer.count).tolist())
        tokens = rng.integers(100, size=last).tolist()
        started = time.process_time()
        for token in tokens:
            pointer.extend([token])
            pointer.mix(logits, allowed)
        rows.append((mark, 1e6 * (time.process_time() - started) / last))
    return rows


if __name__ == "__main__":
    run(main)
