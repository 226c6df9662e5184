"""Whether the take that `--takes` chooses is better than the others, by measures not in its score.

Run from the top of the repository: `python -m benchmarks.app.bench_takes pop909.zip --include
'pop909/solo/*.mid'`. Each prompt is the beginning of a piece. All takes are compared with the real
continuation, which the choice does not know: `style` is the mean cosine of profiles of onsets,
durations and intervals (Cífka et al., 2020), `pitch classes` the overlap of histograms, and
`similarity 8 bars apart` and `most similar earlier bar` the distance of these figures of form from
those of the real continuation. Prints the mean of the chosen takes, of all takes, and in how many
prompts the chosen take is better than the mean.
"""

from __future__ import annotations

import fnmatch
import json
import zipfile
from pathlib import PurePosixPath

import numpy as np
from tqdm import tqdm

from app.compose.continuation import finish
from app.compose.engine import Engine
from app.compose.models import load_music_model
from app.compose.options import MusicOptions
from app.compose.piece import Draft, Opening
from app.compose.prompt import read_prompt
from benchmarks.timing import run, table_output
from tokenization.measures.bars import BarNotes, new_music
from tokenization.measures.form import form
from tokenization.midi import read_midi
from tokenization.score import Score, all_notes
from training.evaluation.metrics.style import mean_style, style_by_quarter

MEASURES = {
    "style": 1,
    "pitch classes": 1,
    "similarity 8 bars apart": -1,
    "most similar earlier bar": -1,
}
"""Measures, and whether more (1) or less (-1) is better."""


def main(
    corpus: str,
    /,
    *,
    include: str = "*.mid",
    model: str = "piano",
    split: str = "validation",
    prompts: int = 20,
    prompt_bars: int = 16,
    bars: int = 16,
    takes: int = 8,
) -> None:
    """Run the comparison."""
    loaded = load_music_model(model)
    music = MusicOptions(bars=bars, takes=takes, seed=0)
    rows: list[tuple[list[dict[str, float]], int]] = []
    for data in tqdm(_prompts(corpus, include, split, prompts), unit="prompt"):
        prompt = read_prompt(data, "prompt.mid", prompt_bars, tokenizer=loaded.tokenizer)
        engine = Engine(loaded)
        opening = Opening.after(loaded, prompt, music)
        [draft] = engine.add(opening, [0])
        while not draft.done:
            engine.step()
        assert draft.choice is not None
        real = read_midi(data)
        pieces = [finish(Draft(opening, sample)).score for sample in draft.samples]
        measured = [_measured(real, piece, prompt_bars, bars) for piece in pieces]
        rows.append((measured, draft.choice.best))
    columns = ("chosen", "mean of all takes", "difference", "±", "chosen is better", "of")
    out = table_output("measure", *columns, "best possible")
    for name, sign in MEASURES.items():
        values = np.array([[one[name] for one in measured] for measured, _ in rows])
        values = np.nan_to_num(values, nan=float(np.nanmean(values)))
        best_takes = values[np.arange(len(rows)), [index for _, index in rows]]
        means = values.mean(1)
        better = np.count_nonzero(sign * (best_takes - means) > 0)
        error = (best_takes - means).std(ddof=1) / len(rows) ** 0.5
        difference = best_takes.mean() - means.mean()
        out(
            *(name, best_takes.mean(), means.mean(), difference, error, better, len(rows)),
            (sign * values).max(1).mean() * sign,
        )


def _prompts(corpus: str, include: str, split: str, count: int) -> list[bytes]:
    """Files of a split, evenly spaced."""
    with zipfile.ZipFile(corpus) as archive:
        names = sorted(n for n in archive.namelist() if fnmatch.fnmatchcase(n, include))
        listed = next(name for name in archive.namelist() if name.endswith("splits.json"))
        splits = json.loads(archive.read(listed))
        held = {*splits[split]}
        names = [name for name in names if {name, PurePosixPath(name).stem} & held]
        count = min(count, len(names))
        return [archive.read(names[index * len(names) // count]) for index in range(count)]


def _measured(real: Score, piece: Score, first_bar: int, bars: int) -> dict[str, float]:
    after = new_music(real, first_bar)
    styles = mean_style(style_by_quarter(after, [piece], first_bar, quarters=1))
    new = new_music(piece, first_bar)
    own, other = (
        form(BarNotes.of(score).between(0, first_bar + bars), first_bar) for score in (piece, real)
    )
    apart = {name: abs(own[name] - other[name]) for name in own}
    return {
        "style": float(np.mean([values.mean() for values in styles.values()])),
        "pitch classes": float(np.minimum(_classes(after), _classes(new)).sum()),
        "similarity 8 bars apart": apart["self_similarity_8"],
        "most similar earlier bar": apart["most_similar_earlier"],
    }


def _classes(score: Score) -> np.ndarray:
    """Share of each pitch class (12,)."""
    counts = np.bincount(all_notes(score.tracks)[:, 2] % 12, minlength=12)
    return counts / max(counts.sum(), 1)


if __name__ == "__main__":
    run(main)
