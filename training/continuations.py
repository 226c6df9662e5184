"""Continuations of prompts by a model, and their files: MIDI and piano roll."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from relpe.decoding.choose import choose_steps
from relpe.decoding.generate import Generation, Request
from relpe.decoding.sampling import SamplingOptions
from relpe.files import atomic_write
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.rule import ConstrainedGrammar, rule_after_prompt
from tokenization.grid import notated_lines
from tokenization.measures.takes import rank_ids, take_seed
from tokenization.midi import write_midi
from tokenization.remi.documents.coordinates import Coordinates
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR, EOS
from training.files import picture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure, SubFigure
    from numpy.typing import NDArray

    from relpe.decoding.base import Precision
    from relpe.decoding.generate import Sample
    from relpe.models.decoder import Decoder
    from tokenization.score import Score

    Ids = NDArray[np.int64]

MAX_ROWS = 32
"""Continuations generated at once; with a window of 2,048 tokens, each has a state of 5 MB."""
MAX_BAR_TOKENS = 1024
"""Maximum tokens of a bar, for models with little training that might never end one. The means of
the two corpora are 65 and 150 tokens."""


def continuations(
    decoder: Decoder,
    tokenizer: Remi,
    prompts: Sequence[NDArray[np.integer]],
    *,
    bars: int,
    seeds: Sequence[int] = (0,),
    takes: int = 1,
    temperature: float = SamplingOptions.temperature,
    top_p: float = SamplingOptions.top_p,
    presence: float = 1.0,
    recall: float = 1.0,
    memory: float = SamplingOptions.memory,
    precision: Precision = "int8",
    advance: Callable[[int], object] = lambda _: None,
    enough: Callable[[], bool] = lambda: False,
) -> list[Ids]:
    """Continue each prompt by `bars` new bars, once for each seed; ordered by prompt, then by seed.

    Prompts are canonical ids of whole bars; ids after an EOS are ignored. New music keeps the metre
    and tempo at the end of the prompt and the prompt's instruments, and ends with its last bar,
    without EOS. `presence` and `recall` are the strengths of `biases_of_prompt`. Of several `takes`
    of a seed, the best is returned, as in the application. The loop and the rules are those of the
    application, so that measurements apply to it. With the same kind of steps, a continuation
    depends only on the prompt, the seed and the sampling options.

    A bar is ended after `MAX_BAR_TOKENS` tokens. `advance` is called with the number of bars that
    were just completed. Then `enough` is called; if it returns True, generation stops, and each
    continuation ends with its last complete bar.
    """
    maker = choose_steps(decoder, "auto", precision, threads=torch.get_num_threads())
    generation: Generation[ConstrainedGrammar] = Generation(decoder, maker.make(), MAX_ROWS)
    sampling = SamplingOptions(temperature=temperature, top_p=top_p, memory=memory)
    contexts: list[Ids] = []
    samples: list[Sample[ConstrainedGrammar]] = []
    take_seeds = [take_seed(seed, take) for seed in seeds for take in range(takes)]
    for prompt in prompts:
        context = opening(prompt, tokenizer)
        tracks = tokenizer.decode(context).tracks
        grammar = tokenizer.grammar(
            tempo="never",
            time_signature=False,
            end=False,
            tracks=tracks,
            silent=[place for place, track in enumerate(tracks) if not len(track)],
            write=False,
        )
        limit = BarLimit(0, bars - 1, max_tokens=MAX_BAR_TOKENS)
        rule = rule_after_prompt(context, grammar, limit, presence=presence, recall=recall)
        coordinates = Coordinates.before(context, tokenizer.families)
        request = Request(context, rule, take_seeds, sampling, coordinates)
        samples += generation.add(request)
        contexts += [context] * len(seeds)
    completed = 0
    while len(generation):
        for sample in generation.step():
            if sample.error is not None:
                raise sample.error
        rules = [sample.rule for sample in samples]
        done = sum(rule.limit.notated_bar(rule.grammar) + rule.finished for rule in rules)
        before, completed = completed, done // takes
        if completed > before:
            advance(completed - before)
            if enough():
                break
    groups = [samples[at : at + takes] for at in range(0, len(samples), takes)]
    return [
        _best(context, group, tokenizer) for context, group in zip(contexts, groups, strict=True)
    ]


def _best(context: Ids, samples: Sequence[Sample[ConstrainedGrammar]], tokenizer: Remi) -> Ids:
    """Return the ids of the best take, prompt included; an incomplete bar is left out."""
    sequences = [np.concatenate([context, np.array(sample.tokens, np.int64)]) for sample in samples]
    whole = [
        ids if sample.rule.finished else ids[: np.flatnonzero(ids == BAR)[-1]]
        for ids, sample in zip(sequences, samples, strict=True)
    ]
    if len(samples) == 1:
        return whole[0]
    takes = [sample.tokens for sample in samples]
    return whole[rank_ids(context, takes, tokenizer, has_prompt=True).order[0]]


def opening(prompt: NDArray[np.integer], tokenizer: Remi) -> Ids:
    """Return the ids that a model reads before it generates: the prompt and a new Bar token.

    The end of the prompt is left out: an EOS and a Last.
    """
    ids, families = np.asarray(prompt, np.int64), tokenizer.families
    ends = np.flatnonzero(ids == EOS)
    ids = ids[: ends[0]] if len(ends) else ids
    return np.append(ids[ids != families.last], BAR)


class Bars(NamedTuple):
    """A piece on the grid, and its bar lines."""

    score: Score
    """Score with twelve ticks per quarter note; its notes end with its last bar."""
    lines: NDArray[np.int64]
    """(bars + 1,), ticks."""


def in_bars(ids: NDArray[np.integer], tokenizer: Remi) -> Bars:
    """Return the piece that ids encode, with its bar lines; notes are cut at the last bar line."""
    score = tokenizer.decode(ids)
    count = int(np.count_nonzero(ids == BAR))
    lines = notated_lines(score, 0, count)[: count + 1]
    tracks = tuple(track.until(int(lines[-1])) for track in score.tracks)
    return Bars(replace(score, tracks=tracks, end_ticks=int(lines[-1])), lines)


def write_sample(ids: NDArray[np.integer], tokenizer: Remi, path: Path, prompt_bars: int) -> None:
    """Write the piece that ids encode as `path`.mid, and its piano roll as `path`.png.

    `path` has no suffix. The first `prompt_bars` bars are shaded.
    """
    piece = in_bars(ids, tokenizer)
    with atomic_write(path.with_name(f"{path.name}.mid")) as partial:
        partial.write_bytes(write_midi(piece.score))
    draw_piano_rolls({"": piece}, path.with_name(f"{path.name}.png"), prompt_bars)


def draw_piano_rolls(pieces: Mapping[str, Bars], path: Path, prompt_bars: int) -> None:
    """Draw piano rolls as PNG: pitch by bar, a colour for each track, drums in a lane below.

    Several pieces are one below the other, each with its name. Drums have no lane if nothing else
    plays. The first `prompt_bars` bars are shaded. All bar lines are drawn.
    """
    bars = max(len(piece.lines) for piece in pieces.values())
    with picture(path, min(max(bars * 0.45, 7), 30), 5 * len(pieces), 100) as figure:
        places = figure.subfigures(len(pieces), squeeze=False)
        for place, (name, piece) in zip(places[:, 0], pieces.items(), strict=True):
            _draw_roll(place, piece, prompt_bars)
            if name:
                place.supylabel(name)


def _draw_roll(figure: Figure | SubFigure, piece: Bars, prompt_bars: int) -> None:
    from matplotlib.collections import LineCollection

    score, lines = piece
    beat = score.ticks_per_beat
    kinds = {track.is_drum for track in score.tracks if len(track)}
    if len(kinds) == 2:  # pitched notes and drums
        roll, lane = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    else:
        roll = lane = figure.subplots()
    for number, track in enumerate(track for track in score.tracks if len(track)):
        axes = lane if track.is_drum else roll
        onsets, durations, pitches, _ = track.notes.T
        # drum notes have no duration; a twelfth of a quarter note would be too short to see
        ends = onsets + (beat // 3 if track.is_drum else durations)
        name = "drums" if track.is_drum else track.name or f"program {track.program}"
        rows = np.stack([np.stack([onsets, pitches], 1), np.stack([ends, pitches], 1)], 1)
        axes.add_collection(
            LineCollection(list(rows / [beat, 1]), colors=f"C{number % 10}", lw=2.5, label=name)
        )
    for axes in {roll, lane}:
        axes.autoscale()
        axes.vlines(lines / beat, 0, 1, transform=axes.get_xaxis_transform(), color="0.85", lw=0.6)
        if prompt_bars:
            axes.axvspan(0, lines[min(prompt_bars, len(lines) - 1)] / beat, color="0.9", zorder=-1)
        axes.set_xlim(0, lines[-1] / beat)
        if axes.collections:
            axes.set_ylabel("drums" if axes is lane and True in kinds else "pitch")
    step = max(len(lines) // 16, 1)
    numbers = range(0, len(lines) - 1, step)
    lane.set_xticks(lines[:-1:step] / beat, [str(number + 1) for number in numbers])
    lane.set_xlabel("bar")
    if any(len(track) for track in score.tracks):
        figure.legend(loc="outside upper center", ncols=8, fontsize="small")
