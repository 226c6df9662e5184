"""How music ends with `--ending cadence` and `--ending natural`.

Run from the top of the repository: `python -m benchmarks.app.bench_cadence DATA`, where DATA has a
folder for each corpus, with its zip file. Four bars end the first eight bars of held-back pieces:
bands, bands whose first bars are repeated and grown by as many, and pianos; and 16 bars end a piece
from nothing. Prints the shares of pieces that end

- on beat 1 or 3: nothing begins later in the last bar;
- in range: each track plays at most an octave beyond what it plays in the prompt;
- held: the last notes ring for at least a quarter;
- on the tonic of the first 8 or 16 bars: it is the lowest pitch that sounds with them;
- with the drums, if there are any: they play with the last notes;

and the pieces that do not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from app.compose.continuation import continue_midi, generate_midi
from app.compose.models import Models
from app.compose.options import Ending, MusicOptions
from app.compose.prompt.prompt import read_prompt
from benchmarks.corpora import held_back
from benchmarks.timing import run, table_output
from tokenization.analysis.keys import estimate_key
from tokenization.grid import notated_lines
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, TimeSignature

BANDS = {"groove": 16, "lieder": 12, "quartets": 10, "freedoom": 6, "billboard": 4}
LOOPS = {"groove": 12, "billboard": 6, "freedoom": 6}
PIANOS = {"pop909": 12, "mutopia": 12}
KINDS = {"bands": BANDS, "grown loops": LOOPS, "pianos": PIANOS, "nothing": {}}
"""Number of pieces of the test split of each corpus."""
PROMPT_BARS, ENDING_BARS, NEW_BARS = 8, 4, 16
FROM_NOTHING = 12
"""Number of pieces from nothing of each model."""


class Right(NamedTuple):
    """What is right in an ending."""

    place: bool
    range: bool
    held: bool
    tonic: bool
    drums: bool


def main(
    data: str,
    /,
    *,
    endings: Sequence[Ending] = ("cadence", "natural"),
    kinds: Sequence[str] = tuple(KINDS),
    every: int = 1,
    seed: int = 1,
) -> None:
    """Run the measurement, of every n-th piece alone."""
    models = Models(["piano", "groove"])
    out = table_output("ending, pieces", *Right._fields, "all", "of")
    failures: list[str] = []
    for kind in kinds:
        rows: dict[Ending, list[Right]] = {ending: [] for ending in endings}
        for name, prompt in tqdm(_prompts(models, data, kind, every), desc=kind):
            for ending in endings:
                judged = _ended(models, name, prompt, ending, seed)
                rows[ending].append(judged)
                if wrong := [what for what, right in judged._asdict().items() if not right]:
                    failures.append(f"{ending}, {kind}, {name}: {', '.join(wrong)}")
        for ending, judged in rows.items():
            shares = np.mean(judged, axis=0).tolist()
            out(f"{ending}, {kind}", *shares, np.mean([all(one) for one in judged]), len(judged))
    print(*failures, sep="\n")


def _prompts(
    models: Models, data: str, kind: str, every: int
) -> Sequence[tuple[str, bytes | None]]:
    """Return names and files that are to be ended; None: a new piece, by the model of the name."""
    if kind == "nothing":
        return [(f"{name} {n}", None) for name in models.names for n in range(FROM_NOTHING)][
            ::every
        ]
    pieces = [
        piece
        for corpus, count in KINDS[kind].items()
        for piece in _held_back(Path(data) / corpus / f"{corpus}.zip", count)
    ][::every]
    if kind != "grown loops":
        return [(name, write_midi(_first_bars(score, PROMPT_BARS))) for name, score in pieces]
    grown: list[tuple[str, bytes | None]] = []
    for index, (name, score) in enumerate(pieces):
        loop = _repeated(score, 2 + 2 * (index % 2), PROMPT_BARS)
        options = MusicOptions(bars=PROMPT_BARS, distance=0.5, seed=index)
        midi = write_midi(loop)
        grown.append((name, continue_midi(models.to_continue(loop), midi, options).pieces[0].midi))
    return grown


def _held_back(path: Path, count: int) -> Iterator[tuple[str, Score]]:
    """Yield pieces of a corpus that are long enough, and bands or piano music as the corpus is."""
    for name, midi in held_back(path):
        score = read_midi(midi)
        is_piano = {track.program for track in score.tracks} <= set(range(8))
        lines = notated_lines(score, score.end_ticks)
        if len(lines) < PROMPT_BARS + 2 or is_piano != (path.stem in PIANOS):
            continue
        if estimate_key(_first_bars(score, PROMPT_BARS)) is not None:
            count -= 1
            yield name, score
        if not count:
            return


def _first_bars(score: Score, bars: int) -> Score:
    """Return the first bars that have notes."""
    begins = min(int(track.notes[0, 0]) for track in score.tracks if len(track))
    lines = notated_lines(score, score.end_ticks)
    first = int(np.searchsorted(lines, begins, side="right")) - 1
    return score.between(int(lines[first]), int(lines[min(first + bars, len(lines) - 1)]))


def _repeated(score: Score, size: int, bars: int) -> Score:
    """Return the first bars that have notes, over and over."""
    loop = _first_bars(score, size)
    times, end = np.arange(bars // size) * loop.end_ticks, loop.end_ticks * (bars // size)
    tracks = (
        replace(track, notes=np.concatenate([track.notes - [-time, 0, 0, 0] for time in times]))
        for track in loop.tracks
    )
    return replace(loop, tracks=tuple(tracks), end_ticks=end)


def _ended(models: Models, name: str, prompt: bytes | None, ending: Ending, seed: int) -> Right:
    """End a piece, and judge it."""
    if prompt is None:
        model, number = name.split()
        options = MusicOptions(bars=NEW_BARS, seed=seed + int(number), ending=ending)
        score = generate_midi(models.load(model), options).pieces[0].score
        key, before = estimate_key(score), 0
        assert key is not None
        return judge(score, before, NEW_BARS, {key.tonic})
    heard = read_midi(prompt)
    model = models.to_continue(heard)
    options = MusicOptions(bars=ENDING_BARS, seed=seed, ending=ending, beats="file")
    score = continue_midi(model, prompt, options).pieces[0].score
    before = read_prompt(prompt, tokenizer=model.tokenizer, beats="file").bars_before
    keys = {estimate_key(_first_bars(heard, bars)) for bars in (PROMPT_BARS, 2 * PROMPT_BARS)}
    return judge(score, before, ENDING_BARS, {key.tonic for key in keys if key})


def judge(score: Score, before: int, bars: int, tonics: Collection[int]) -> Right:
    """Return the ending of a score of which the last `bars` are new."""
    lines = notated_lines(score, score.end_ticks, before + bars)
    start, stop = lines[before + bars - 1 : before + bars + 1].tolist()
    splice = int(lines[before]) if before else start
    last = max(int(track.notes[-1, 0]) for track in score.tracks if len(track))
    if not start <= last < stop:
        return Right(*[False] * len(Right._fields))
    in_range, held, has_drums, sounding, drums = True, True, False, [], []
    for track in score.tracks:
        onsets, durations, pitches = track.notes[:, :3].T
        given, closing = pitches[onsets < splice], pitches[onsets >= start]
        if track.is_drum:
            has_drums = has_drums or len(given) > 0
            drums += onsets.tolist()
            continue
        sounding += pitches[onsets + durations > last].tolist()
        held = held and bool((durations[onsets == last] >= score.ticks_per_beat).all())
        if len(closing) and (before or len(given)):
            low, high = (given.min() - 12, given.max() + 12) if len(given) else (128, -1)
            in_range = in_range and bool((low <= closing.min()) & (closing.max() <= high))
    return Right(
        place=_is_strong(score, last - start, stop - start, start),
        range=in_range,
        held=held and bool(sounding),
        tonic=bool(sounding) and min(sounding) % 12 in tonics,
        drums=not has_drums or last in drums,
    )


def _is_strong(score: Score, place: int, length: int, start: int) -> bool:
    """Return whether a place is beat 1 or 3, or the middle of a bar of two or four beats."""
    metre = TimeSignature(0, 4, 4)
    for change in score.time_signatures:
        metre = change if change.tick <= start else metre
    is_compound = metre.numerator % 3 == 0 and metre.numerator > 3
    is_even = metre.numerator % 2 == 0 and length >= 3 * score.ticks_per_beat
    strong = [0, *[length // 2] * is_even, *[2 * score.ticks_per_beat] * (not is_compound)]
    return place in strong


if __name__ == "__main__":
    run(main)
