"""What study is worth: nats a note of the bars after a prompt that the model has studied.

Run from the top of the repository: `python -m benchmarks.app.bench_study CORPORA PIECES`, with the
folder that has `easyrpg/easyrpg.zip` and `freedoom/freedoom.zip`. The model reads a prompt, of 16
bars with `piano` and 24 with `groove`, studies it for `--seconds` of CPU time in one thread, and
then reads the next 16 bars. Of long pieces of `easyrpg`, there are several prompts, 16 bars apart.
Of the pieces of `freedoom`, every fourth is left out, from the second on: they served to choose the
settings. Prints nats a note before and after, alone and with pointer, and the largest loss.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from app.compose import study
from app.compose.models import MusicModel, load_music_model
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.prompt.prompt import Prompt, read_prompt
from benchmarks.timing import run, table_output
from relpe.models.decoder import Decoder
from relpe.models.pointer.odds import pointer_odds
from tokenization.errors import MidiError
from tokenization.remi.vocabulary import BAR
from training.data.corpus import note_ids
from training.evaluation.likelihood import streaming_nats

CORPORA = {"easyrpg": ("piano", 16), "freedoom": ("groove", 24)}
"""Model, and bars of a prompt."""
NEXT = 16
"""Bars that are measured; fewer where a piece ends, but at least half."""
FEWEST_NOTES = 30


class Excerpt(NamedTuple):
    """A prompt and what follows it."""

    name: str
    prompt: Prompt
    ids: NDArray[np.int64]
    """Of the bars of the prompt and the next ones."""
    first: int
    """Tokens of the prompt."""
    notes: int
    """Notes after it."""


def main(
    corpora: Path, pieces: int, /, *, seconds: float = 8.0, only: Sequence[str] = tuple(CORPORA)
) -> None:
    """Run the comparison."""
    torch.set_num_threads(1)
    study.study = partial(study.study, now=time.process_time)
    out = table_output("corpus, model", "", "before", "after", "change", "largest loss", "worse, %")
    for corpus in only:
        name, bars = CORPORA[corpus]
        model = load_music_model(name)
        rows: list[NDArray[np.float64]] = []
        for excerpt in excerpts(corpora / corpus / f"{corpus}.zip", model, bars, pieces):
            copied, report = studied(model, excerpt, seconds)
            both = np.array([nats(decoder, excerpt) for decoder in (model.decoder, copied)])
            rows.append(np.append(both, [[excerpt.notes] * 2], 0))
            change = both[1] / both[0] - 1
            print(f"# {excerpt.name}: {change[1]:+.1%} with pointer; {report}", flush=True)
        before, after, notes = np.transpose(rows, (1, 2, 0))
        for at, how in enumerate(("alone", "with pointer")):
            old, new = before[at].sum() / notes[at].sum(), after[at].sum() / notes[at].sum()
            changes = after[at] / before[at] - 1
            worse = 100 * np.mean(changes > 0.01)
            name_of = f"{corpus}, {name}, {len(rows)} prompts"
            out(name_of, how, old, new, f"{new / old - 1:+.1%}", f"{changes.max():+.1%}", worse)


def excerpts(path: Path, model: MusicModel, bars: int, most: int) -> Iterator[Excerpt]:
    """Yield the prompts of a corpus, at most `most`."""
    tokenizer, count = model.tokenizer, 0
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".mid"))
        several = len(names) < 20
        for number, name in enumerate(names):
            if not several and number % 4 == 1:
                continue
            try:
                data = archive.read(name)
                whole = read_prompt(data, name, tokenizer=tokenizer, beats="file")
            except MidiError:
                continue
            last = whole.bars - bars - NEXT // 2
            for start in range(0, last + 1, NEXT if several else last + 1):
                begin, splice, end = whole.bar_tokens[
                    [start, start + bars, min(start + bars + NEXT, whole.bars)]
                ].tolist()
                ids = tokenizer.crop(whole.ids, begin, end - begin).astype(np.int64)
                first = int(np.flatnonzero(ids == BAR)[splice - begin])
                notes = int(np.isin(ids[first:], note_ids(tokenizer)).sum())
                if notes >= FEWEST_NOTES and count < most:
                    count += 1
                    prompt = read_prompt(
                        data,
                        name,
                        start + bars,
                        tokenizer=tokenizer,
                        beats="file",
                        first_bar=start + 1,
                    )
                    yield Excerpt(f"{Path(name).stem} {start + 1}", prompt, ids, first, notes)


def studied(model: MusicModel, excerpt: Excerpt, seconds: float) -> tuple[Decoder, str]:
    """Return the decoder after a study of the prompt, and what is said of it."""
    opening = Opening.after(model, excerpt.prompt, MusicOptions(bars=1, study=seconds))
    *_, opening = study.study_prompt(opening, lambda: False)
    assert isinstance(opening, Opening)
    assert opening.studied is not None
    return opening.model.decoder, opening.studied.line


def nats(decoder: Decoder, excerpt: Excerpt) -> Sequence[float]:
    """Return the nats of the tokens after the prompt: alone, and with pointer."""
    [alone] = streaming_nats(decoder, [excerpt.ids], 1024, 1)
    assert decoder.config.pointer is not None
    mixed = pointer_odds(decoder.config.pointer, excerpt.ids).mixed(alone)
    return [float(one[excerpt.first - 1 :].sum()) for one in (alone, mixed)]


if __name__ == "__main__":
    run(main)
