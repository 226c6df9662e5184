"""How exactly sections come back that are asked for with `--form`.

Run from the top of the repository: `python -m benchmarks.app.bench_form`. The form is asked of
pieces from nothing, and with a prompt of its second half, `B4 A4`, with several seeds. Prints how
many of the bars that were to return do, as `relpe generate` counts them, and how similar they are
to the bars that they were to repeat: the mean Jaccard index of places and pitches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from app.compose.continuation import continue_midi, generate_midi
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.plan.asked import asked_bars, form_met, heard_before
from app.compose.plan.lead_sheet import LeadSheet, plan_of
from benchmarks.timing import run, table_output
from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.returns import MAX_DISTANCE, similarity_to_earlier
from tokenization.midi import read_midi
from tokenization.score import Score

PROMPTS = {"piano": ("ballad", "pop", "waltz"), "groove": ("groove",)}
"""Examples that each model continues."""
FORMS = {"piano": "A8 B8 A8", "groove": "A4 B4 A4"}
"""Of pieces from nothing."""


def main(seeds: int = 16, models: Sequence[str] = tuple(PROMPTS)) -> None:
    """Run the measurement."""
    loaded = Models(list(models))
    out = table_output("model, piece", "form", "bars that return", "of", "similarity")
    for name in models:
        for piece in (None, *PROMPTS[name]):
            form = FORMS[name] if piece is None else "B4 A4"
            rows = list(measure(loaded, name, piece, form, seeds))
            met, asked = sum(row[0] for row in rows), sum(row[1] for row in rows)
            similar = np.nanmean([one for row in rows for one in row[2]])
            out(f"{name}, {piece or 'nothing'}", form, met, asked, similar)


def measure(
    models: Models, name: str, piece: str | None, form: str, seeds: int
) -> Iterator[tuple[int, int, list[float]]]:
    """Yield for each seed the bars that return, those that were to, and their similarities."""
    data = None if piece is None else Path(f"examples/{piece}.mid").read_bytes()
    for seed in range(1, seeds + 1):
        bars = sum(int(section[1:]) for section in form.split())
        options = MusicOptions(bars=bars, seed=seed, form=form, ending="bar")
        if data is None:
            result, before = generate_midi(models.load(name), options).pieces[0], []
        else:
            prompt = read_midi(data, name=str(piece))
            result = continue_midi(models.load(name), data, options).pieces[0]
            sheet = LeadSheet.of(prompt)
            before = heard_before(plan_of(prompt), len(sheet.chords))
        met = form_met(options, LeadSheet.of(result.score), before, bars)
        assert met is not None
        similar = [
            similarity(result.score, bar, asked.sources[0])
            for bar, asked in enumerate(asked_bars(options, bars, before), len(before))
            if asked.sources and asked.sources[0]
        ]
        yield met.asked - len(met.missed), met.asked, similar


def similarity(score: Score, bar: int, back: int) -> float:
    """Return the similarity of a bar and the bar `back` bars before it."""
    bars = ScoreBars.of(score)
    sounds = bars.places * 128 + bars.pitches
    table = similarity_to_earlier(bars.bars, bars.tracks, sounds, bar, bar + 1, MAX_DISTANCE)
    return float(table[0, back - 1])


if __name__ == "__main__":
    run(main)
