"""How many new bars are copies of bars of the prompt, by `--distance`.

Run from the top of the repository: `python -m benchmarks.app.bench_distance`. A bar is a copy if
its onsets, tracks and pitches are those of a bar of the prompt. Prints, for each setting, the
copies in each of the pieces, and how similar the other bars are to the most similar bar of the
prompt: common notes by all notes of both (Jaccard, 1912).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.compose.engine import Engine
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt.prompt import read_prompt
from benchmarks.timing import run, table_output
from tokenization.remi.decode import Tokens, read_bars, read_notes
from tokenization.remi.vocabulary import Families

DISTANCES = (0.0, 0.125, 0.25, 0.5, 1.0)


def main(
    prompts: Sequence[Path] = (),
    /,
    *,
    model: str | None = None,
    bars: int = 16,
    seeds: int = 3,
    distances: Sequence[float] = DISTANCES,
) -> None:
    """Run the comparison."""
    models = Models([model] if model else ["piano", "groove"])
    out = table_output(
        "prompt", "model", "distance", "copies in each piece", "similarity of the other bars"
    )
    for path in prompts:
        if ".continued" in path.name or path.stem == "piece":
            continue
        data = path.read_bytes()
        loaded = models.to_continue(read_prompt(data, path.name).score)
        prompt = read_prompt(data, path.name, tokenizer=loaded.tokenizer)
        for distance in distances:
            options = MusicOptions(bars=bars, distance=distance, seed=0)
            opening = Opening.after(loaded, prompt, options)
            engine = Engine(loaded)
            drafts = engine.add(opening, range(seeds))
            while not all(draft.done for draft in drafts):
                engine.step()
            prompt_bars = bars_of(opening.context, loaded.tokenizer.families)[:-1]
            nearest = [
                [max(_similarity(bar, one) for one in prompt_bars) for bar in new]
                for draft in drafts
                for new in [bars_of(np.array(draft.ids), loaded.tokenizer.families)]
            ]
            others = [value for piece in nearest for value in piece if value < 1]
            copies = ", ".join(str(sum(value == 1 for value in piece)) for piece in nearest)
            out(path.stem, loaded.name, distance, copies, np.mean(others) if others else "")


def bars_of(ids: np.ndarray, families: Families) -> list[set[tuple[int, int]]]:
    """Return the notes of each bar: place in grid steps, and rank of the track with the pitch."""
    tokens = Tokens.of(ids, families)
    bars = read_bars(tokens)
    notes = read_notes(tokens, bars, families)
    starts = bars.lines[:-1]
    first = np.searchsorted(starts, notes.onsets, side="right") - 1
    notes_of_bars: list[set[tuple[int, int]]] = [set() for _ in starts]
    for bar, onset, key in zip(
        first.tolist(), notes.onsets.tolist(), notes.keys.tolist(), strict=True
    ):
        notes_of_bars[bar].add((onset - int(starts[bar]), key))
    return notes_of_bars


def _similarity(one: set[tuple[int, int]], other: set[tuple[int, int]]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


if __name__ == "__main__":
    run(main)
