"""The best of several takes: continuations of the same music with different seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.returns import MAX_DISTANCE, similarity_to_earlier
from tokenization.score import Score

FEWEST_BARS: Final = 8
"""Bars that a prompt must have to be the standard for the form of takes."""
_SAME = 0.999
"""Similarity from which two bars are equal."""
_DENSITY_WEIGHT = 0.25
_DECIMALS = 6
_SEED_STRIDE = 1_000_003
"""Distance of the seeds of takes, so that those of neighbouring seeds differ."""
_SEEDS = 2**31


class BarForm(NamedTuple):
    """Form of some bars; shares are of these bars, 0 to 1."""

    loops: float
    """Share of bars equal to the bar before."""
    returns: float
    """Share of bars equal to a bar up to 64 before, the bar before included."""
    silence: float
    """Share of bars in which no note begins."""
    density: float
    """Notes per bar."""


class Take(NamedTuple):
    """What is known of a take when the best is chosen."""

    nats: float
    """Mean nats per token by the model, without biases and without its pointer."""
    form: BarForm


class Choice(NamedTuple):
    """The best take, and why."""

    best: int
    """Index of the best take."""
    penalties: tuple[float, ...]
    """Of each take; the best has the smallest one."""
    takes: tuple[Take, ...]

    def line(self) -> str:
        """The reason in one line."""
        take = self.takes[self.best]
        nats = median(one.nats for one in self.takes)
        mean = sum(self.penalties) / len(self.penalties)
        return (
            f"take {self.best + 1} of {len(self.takes)}: penalty {self.penalties[self.best]:.2f} "
            f"(mean {mean:.2f}), {take.nats:.2f} nats per token (median {nats:.2f}), "
            f"{take.form.loops:.0%} of the bars like the bar before, {take.form.returns:.0%} like "
            f"an earlier one, {take.form.silence:.0%} empty"
        )


def take_seed(seed: int, take: int) -> int:
    """Seed of a take, from 0; that of take 0 is `seed` itself."""
    return (seed + take * _SEED_STRIDE) % _SEEDS


def bar_form(score: Score, first_bar: int, stop_bar: int) -> BarForm:
    """Form of the bars from `first_bar` up to but not including `stop_bar`, at least one bar.

    Bars are equal if the same notes (place, track and pitch) begin in them; empty bars are not
    equal to any.
    """
    bars = ScoreBars.of(score)
    count = stop_bar - first_bar
    table = similarity_to_earlier(
        bars.bars, bars.tracks, bars.places * 128 + bars.pitches, first_bar, stop_bar, MAX_DISTANCE
    )
    same = np.nan_to_num(table) >= _SAME
    notes = np.bincount(bars.bars, minlength=stop_bar)[first_bar:stop_bar]
    return BarForm(
        loops=float(same[:, 0].mean()),
        returns=float(same.any(1).mean()),
        silence=float((notes == 0).mean()),
        density=float(notes.sum() / count),
    )


def form_of_prompt(score: Score, bars: int) -> BarForm | None:
    """Form of a prompt of so many bars; None if it has fewer than `FEWEST_BARS`."""
    return bar_form(score, 1, bars) if bars >= FEWEST_BARS else None


def choose(takes: Sequence[Take], prompt: BarForm | None = None) -> Choice:
    """The take with the smallest penalty, the first of equal ones.

    The penalty is the sum of

    - the distance of its nats per token from the median of the takes: loops are too likely, and
      music that has lost its thread is too unlikely;
    - the distances of its shares of equal bars (`loops`, `returns`) and of empty bars from those of
      the prompt;
    - a quarter of the octaves between its notes per bar and those of the prompt.

    Without the form of a prompt, the standard is the median of the takes, and no empty bars.
    """
    if prompt is None:
        columns = zip(*(take.form for take in takes), strict=True)
        prompt = BarForm(*map(median, columns))._replace(silence=0.0)
    nats = median(take.nats for take in takes)
    # rounded, since the two takes around a median are equally far from it
    penalties = tuple(
        round(abs(take.nats - nats) + _distance(take.form, prompt), _DECIMALS) for take in takes
    )
    return Choice(penalties.index(min(penalties)), penalties, tuple(takes))


def choose_ids(
    context: NDArray[np.integer],
    takes: Sequence[tuple[Sequence[int], float]],
    decode: Callable[[NDArray[np.int64]], Score],
    bar: int,
    *,
    has_prompt: bool,
) -> Choice:
    """The best of several takes of token ids, each with the sum of its nats.

    `context` (l,) are the ids before them: those of a prompt and of the beginning of the new bar,
    or of the beginning of a piece. `bar` is the id that begins a bar.
    """
    first = int(np.count_nonzero(context == bar)) - has_prompt
    known: list[Take] = []
    for tokens, nats in takes:
        ids = np.append(context, tokens).astype(np.int64)
        stop = max(int(np.count_nonzero(ids == bar)), first + 1)
        known.append(Take(nats / max(len(tokens), 1), bar_form(decode(ids), first, stop)))
    before = decode(context.astype(np.int64))
    return choose(known, form_of_prompt(before, first) if has_prompt else None)


def _distance(form: BarForm, other: BarForm) -> float:
    octaves = abs(math.log2((form.density + 0.5) / (other.density + 0.5)))
    shares = zip(form[:3], other[:3], strict=True)
    return sum(abs(own - theirs) for own, theirs in shares) + _DENSITY_WEIGHT * octaves
