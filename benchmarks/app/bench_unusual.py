"""Continues the prompts of `examples/unusual/` with several models, to be judged by eye and ear.

Run from the top of the repository, with models for pianos and for bands (names or folders):

    python -m benchmarks.app.bench_unusual --piano piano --band groove --output unusual

Writes `PROMPT.png`, a piano roll for each model with the prompt shaded, and `MODEL/PROMPT.mid`.
Prints how near the new music is to its prompt: notes per bar, as a ratio; overlap of the histograms
of pitch classes and of places in the bar, 1 if they are equal; and the similarity of each new bar
to the most similar earlier bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.batch.excerpt import part_from
from app.compose.continuation import continue_midi
from app.compose.models import load_music_model, suited_to
from app.compose.options import MusicOptions
from benchmarks.timing import run, table_output
from tokenization.grid import notated_lines
from tokenization.measures.bars import BarNotes
from tokenization.measures.form import form
from tokenization.midi import read_midi
from tokenization.score import Score
from training.continuations import Bars, draw_piano_rolls

PROMPTS = Path("examples/unusual")
BEFORE = 8
"""Bars of the prompt in the pictures."""


def main(
    output: Path,
    *,
    piano: Sequence[str] = ("piano",),
    band: Sequence[str] = ("groove",),
    prompts: Path = PROMPTS,
    seed: int = 0,
) -> None:
    """Continue all prompts."""
    output.mkdir(parents=True, exist_ok=True)
    out = table_output(
        *("prompt", "model", "notes per bar", "pitch classes", "places in the bar", "earlier bar")
    )
    for path in sorted(prompts.glob("*.mid")):
        midi = path.read_bytes()
        prompt = read_midi(midi)
        models = piano if suited_to(prompt) == "piano" else band
        bars = len(notated_lines(prompt, prompt.end_ticks)) - 1
        rolls: dict[str, Bars] = {}
        for model in models:
            options = MusicOptions(bars=bars, seed=seed)
            piece = continue_midi(load_music_model(model), midi, options, name=path.name).pieces[0]
            folder = output / Path(model).name
            folder.mkdir(exist_ok=True)
            (folder / path.name).write_bytes(piece.midi)
            rolls[Path(model).name] = _last_bars(piece.score, bars - BEFORE)
            out(path.stem, Path(model).name, *_row(piece.score, bars))
        if rolls:
            draw_piano_rolls(rolls, output / f"{path.stem}.png", min(BEFORE, bars))


def _last_bars(score: Score, first_bar: int) -> Bars:
    """Return the bars from `first_bar` on."""
    lines = notated_lines(score, score.end_ticks)[max(first_bar, 0) :]
    return Bars(part_from(score, int(lines[0])), lines - lines[0])


def _row(score: Score, first_bar: int) -> tuple[float, ...]:
    """Return the measures."""
    notes = BarNotes.of(score)
    heard, new = notes.between(0, first_bar), notes.between(first_bar)
    ratio = (len(new.onsets) / new.num_bars) / (len(heard.onsets) / heard.num_bars)
    classes = _overlap(heard.pitches[~heard.is_drum] % 12, new.pitches[~new.is_drum] % 12)
    places = _overlap(heard.positions, new.positions)
    return ratio, classes, places, form(notes, first_bar)["most_similar_earlier"]


def _overlap(heard: np.ndarray, new: np.ndarray) -> float:
    """Return the overlap of the histograms of two arrays of numbers; NaN if one is empty."""
    if not (len(heard) and len(new)):
        return float("nan")
    counts = (np.bincount(values, minlength=256) / len(values) for values in (heard, new))
    return float(np.minimum(*counts).sum())


if __name__ == "__main__":
    run(main)
