"""Music that a model writes behind the beginnings of pieces, and its files: MIDI and a picture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch

from relpe.decoding.batch import ContinuousBatch, Row
from relpe.decoding.sampling import SamplingOptions
from relpe.decoding.steps import choose_steps, prefill
from tokenization.midi import write_midi
from tokenization.remi.bars import written_lines
from tokenization.remi.vocabulary import BAR, EOS
from training.files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from relpe.decoding.steps import Precision
    from relpe.models.decoder import Decoder
    from tokenization.score import Score, Track
    from tokenization.tokenizer import Grammar, Tokenizer

    Ids = NDArray[np.int64]

MOST_ROWS = 32
"""Continuations that are written at once: one of a model with a window of 2,048 tokens remembers
5 MB."""
BAR_TOKENS = 1024
"""A bar with so many tokens is ended: a model that has learnt little would never end it. Bars of
the corpora have 65 and 150 in the mean."""


class NewBars(NamedTuple):
    """A grammar that stops at the Bar which would open one bar too many; immutable."""

    grammar: Grammar
    last_bar: int
    """Number of the last new bar, as the grammar counts."""
    bar_tokens: int = 0
    """Tokens of the bar so far."""
    finished: bool = False

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """What is added to the logits (v,), or None."""
        return self.grammar.bias

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the tokens that may come next; all False where the row has ended."""
        allowed = self.grammar.allowed
        if self.finished:
            return np.zeros_like(allowed)
        if self.bar_tokens >= BAR_TOKENS and allowed[BAR]:
            return np.arange(len(allowed)) == BAR
        return allowed

    def advance(self, token: int) -> Self:
        """The rule after `token`."""
        if token != BAR:
            grammar = self.grammar.advance(token)
            return self._replace(grammar=grammar, bar_tokens=self.bar_tokens + 1)
        if self.grammar.bar == self.last_bar:
            return self._replace(finished=True)
        return self._replace(grammar=self.grammar.advance(BAR), bar_tokens=0)


def continuations(
    decoder: Decoder,
    tokenizer: Tokenizer,
    prompts: Sequence[NDArray[np.integer]],
    *,
    bars: int,
    seeds: Sequence[int] = (0,),
    temperature: float = SamplingOptions.temperature,
    top_p: float = SamplingOptions.top_p,
    presence: float = 1.0,
    recall: float = 1.0,
    precision: Precision = "int8",
    advance: Callable[[int], object] = lambda _: None,
    enough: Callable[[], bool] = lambda: False,
) -> list[Ids]:
    """Prompts with `bars` new bars behind them, one for each seed; all of one prompt in a row.

    Prompts are canonical ids of whole bars; what they hold behind an EOS does not count. New music
    is in the metre and tempo that hold at the prompt's end, for the prompt's instruments, and ends
    with the last new bar, without EOS. `presence` and `recall` are as in `Grammar.remember`. What a
    prompt becomes hangs on seed and sampling, not on the prompts beside it, as long as the same
    steps compute: on a CPU compiled ones, which the application takes too, where the decoder has
    them. `advance` is called with the number of bars done; from the first new bar on `enough` tells
    whether all shall end with the last bar that is whole.
    """
    device = decoder.embedding.weight.device
    maker = choose_steps(decoder, "auto", precision, threads=torch.get_num_threads())
    batch: ContinuousBatch[NewBars] = ContinuousBatch(maker.make())
    sampling = SamplingOptions(temperature=temperature, top_p=top_p)
    written: dict[Row[NewBars], list[int]] = {}
    openings: list[Ids] = []
    waiting = [(prompt, seeds[i : i + MOST_ROWS]) for prompt in prompts for i in _parts(seeds)]
    waiting.reverse()
    ended = False
    while waiting or batch.rows:
        while waiting and len(batch.rows) + len(waiting[-1][1]) <= MOST_ROWS:
            prompt, some = waiting.pop()
            heard = opening(prompt)
            tracks = tokenizer.decode(heard).tracks
            grammar = tokenizer.grammar(
                tempo="never",
                time_signature=False,
                end=False,
                tracks=tracks,
                silent=[place for place, track in enumerate(tracks) if not len(track)],
            ).resume(heard)
            state = prefill(
                decoder, decoder.init_state(1), torch.from_numpy(heard[None, :-1]).to(device)
            )
            grammar = grammar.remember(heard, presence=presence, recall=recall)
            rule = NewBars(grammar, grammar.bar + bars - 1)
            rows = batch.enter(state, len(heard) - 1, int(heard[-1]), rule, sampling, some)
            written |= {row: [] for row in rows}
            openings += [heard] * len(rows)
        for row, token in batch.step():
            if not row.rule.finished:
                written[row].append(token)
            if token == BAR:
                advance(1)
                ended = enough()
        if ended:
            break
    made = [
        np.concatenate([heard, np.array(ids, np.int64)])
        for heard, ids in zip(openings, written.values(), strict=True)
    ]
    for row, piece in enumerate(written):
        if not piece.rule.finished:  # the last Bar has opened one that is not whole
            made[row] = made[row][: np.flatnonzero(made[row] == BAR)[-1]]
    return made + [opening(prompt)[:-1] for prompt, some in waiting[::-1] for _ in some]


def opening(prompt: NDArray[np.integer]) -> Ids:
    """What a model hears before it goes on: a prompt, and the Bar that opens its first new bar."""
    ids = np.asarray(prompt, np.int64)
    ends = np.flatnonzero(ids == EOS)
    return np.append(ids[: ends[0]] if len(ends) else ids, BAR)


def _parts(seeds: Sequence[int]) -> range:
    """Where the parts of some seeds begin that are written at once."""
    return range(0, len(seeds), MOST_ROWS)


class Bars(NamedTuple):
    """A piece on the grid, and its bar lines."""

    score: Score
    """Twelve ticks a quarter note; its notes end with its last bar."""
    lines: NDArray[np.int64]
    """(bars + 1,), ticks."""


def in_bars(ids: NDArray[np.integer], tokenizer: Tokenizer) -> Bars:
    """A piece of ids with its bar lines; what rings over the last one is cut there."""
    score = tokenizer.decode(ids)
    count = int(np.count_nonzero(ids == BAR))
    lines = written_lines(score, 0, count)[: count + 1]
    tracks = tuple(_until(int(lines[-1]), track) for track in score.tracks)
    return Bars(replace(score, tracks=tracks, end_ticks=int(lines[-1])), lines)


def _until(end: int, track: Track) -> Track:
    """A track whose notes end at a time or before it; all begin before it."""
    onsets, durations = track.notes[:, 0], track.notes[:, 1]
    lengths = np.minimum(durations, end - onsets)
    return replace(track, notes=np.column_stack([onsets, lengths, track.notes[:, 2:]]))


def write_sample(
    ids: NDArray[np.integer], tokenizer: Tokenizer, path: Path, prompt_bars: int
) -> None:
    """Writes a piece of ids as `path`.mid and its piano roll as `path`.png.

    `path` has no suffix; the first `prompt_bars` bars are shaded.
    """
    piece = in_bars(ids, tokenizer)
    with replacing(path.with_name(f"{path.name}.mid")) as partial:
        partial.write_bytes(write_midi(piece.score))
    with replacing(path.with_name(f"{path.name}.png")) as partial:
        draw_piano_roll(piece, partial, prompt_bars)


def draw_piano_roll(piece: Bars, path: Path, prompt_bars: int) -> None:
    """Draws a piece as a PNG: pitches against bars, a colour for each track, drums in a lane below.

    The first `prompt_bars` bars are shaded, every bar line is drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    score, lines = piece
    beat = score.ticks_per_beat
    figure = Figure(figsize=(min(max(len(lines) * 0.45, 7), 30), 5), layout="constrained")
    FigureCanvasAgg(figure)
    has_drums = any(track.is_drum and len(track) for track in score.tracks)
    if has_drums:
        roll, lane = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    else:
        roll = lane = figure.subplots()
    for number, track in enumerate(track for track in score.tracks if len(track)):
        axes = lane if track.is_drum else roll
        onsets, durations, pitches, _ = track.notes.T
        # a drum has no length of its own: a twelfth of a quarter note could not be seen
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
            axes.set_ylabel("drums" if axes is lane and has_drums else "pitch")
    step = max(len(lines) // 16, 1)
    numbers = range(0, len(lines) - 1, step)
    lane.set_xticks(lines[:-1:step] / beat, [str(number + 1) for number in numbers])
    lane.set_xlabel("bar")
    if any(len(track) for track in score.tracks):
        figure.legend(loc="outside upper center", ncols=8, fontsize="small")
    figure.savefig(path, format="png", dpi=100, metadata={"Software": None})
