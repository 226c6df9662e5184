"""The best of several takes: continuations of the same music with different seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.returns import MAX_DISTANCE, contents, distance_to_equal
from tokenization.score import Score, all_notes

FEWEST_BARS: Final = 8
"""Bars that a prompt must have to be the standard for takes."""
BINS: Final = 32
HISTOGRAMS: Final = 5
_RETURNS_WEIGHT = 0.5
_DECIMALS = 6
_SEED_STRIDE = 1_000_003
"""Distance of the seeds of takes, so that those of neighbouring seeds differ."""
_SEEDS = 2**31


class Form(NamedTuple):
    """Form and notes of some bars; shares are of these bars, 0 to 1."""

    loops: float
    """Share of bars equal to the bar before."""
    returns: float
    """Share of bars equal to a bar up to 64 before, the bar before included."""
    silence: float
    """Share of bars in which no note begins."""
    histograms: NDArray[np.float64]
    """Shares of notes (5, 32), each row with the sum 1, or 0 without notes: by pitch class, by
    sixteenth of the bar, by length in half octaves, by pitch in steps of four semitones, by
    velocity in steps of four. Drums count only for the place in the bar and the velocity."""


class Take(NamedTuple):
    """What is known of a take when the best is chosen."""

    nats: float
    """Mean nats per token by the model, without biases and without its pointer."""
    form: Form


class Choice(NamedTuple):
    """The best take, and why."""

    best: int
    """Index of the best take."""
    penalties: tuple[float, ...]
    """Of each take; the best has the smallest one."""
    takes: tuple[Take, ...]
    agreement: float
    """Mean overlap of the histograms of the best take with those of the prompt, 0 to 1."""

    def line(self) -> str:
        """The reason in one line."""
        take = self.takes[self.best]
        nats = median(one.nats for one in self.takes)
        mean = sum(self.penalties) / len(self.penalties)
        return (
            f"take {self.best + 1} of {len(self.takes)} has the lowest penalty: "
            f"{self.penalties[self.best]:.2f} (mean {mean:.2f}), {take.nats:.2f} nats per token "
            f"(median {nats:.2f}), agreement {self.agreement:.0%}, {take.form.loops:.0%} of the "
            f"bars like the bar before, {take.form.returns:.0%} like an earlier one, "
            f"{take.form.silence:.0%} empty"
        )


def take_seed(seed: int, take: int) -> int:
    """Seed of a take, from 0; that of take 0 is `seed` itself."""
    return (seed + take * _SEED_STRIDE) % _SEEDS


def form_of(score: Score, first_bar: int, stop_bar: int) -> Form:
    """Form of the bars from `first_bar` up to but not including `stop_bar`, at least one bar.

    Bars are equal if the same notes (place, track and pitch) begin in them; empty bars are not
    equal to any.
    """
    bars = ScoreBars.of(score)
    distances = distance_to_equal(contents(bars, stop_bar))[first_bar:]
    notes = np.bincount(bars.bars, minlength=stop_bar)[first_bar:stop_bar]
    return Form(
        loops=float((distances == 1).mean()),
        returns=float(((distances > 0) & (distances <= MAX_DISTANCE)).mean()),
        silence=float((notes == 0).mean()),
        histograms=_histograms(bars, first_bar, stop_bar),
    )


def form_of_prompt(score: Score, bars: int) -> Form | None:
    """Form of a prompt with `bars` bars; None if there are fewer than `FEWEST_BARS`."""
    return form_of(score, 1, bars) if bars >= FEWEST_BARS else None


def _histograms(bars: ScoreBars, first_bar: int, stop_bar: int) -> NDArray[np.float64]:
    score, lines = bars.score, bars.lines

    def chosen(notes: NDArray[np.int64]) -> NDArray[np.int64]:
        places = np.searchsorted(lines, notes[:, 0], side="right") - 1
        return notes[(places >= first_bar) & (places < stop_bar)]

    every = chosen(all_notes(score.tracks))
    pitched = chosen(all_notes(track for track in score.tracks if not track.is_drum))
    since = every[:, 0] - lines[np.searchsorted(lines, every[:, 0], side="right") - 1]
    sixteenths = np.maximum(pitched[:, 1] * 4 / score.ticks_per_beat, 0.5)
    columns = (
        pitched[:, 2] % 12,
        since * 4 // score.ticks_per_beat,
        np.round(2 * np.log2(sixteenths)).astype(np.int64) + 2,
        pitched[:, 2] // 4,
        every[:, 3] // 4,
    )
    counts = np.stack([np.bincount(np.clip(x, 0, BINS - 1), minlength=BINS) for x in columns])
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


def choose(takes: Sequence[Take], prompt: Form | None = None) -> Choice:
    """The take with the smallest penalty, the first of equal ones.

    The penalty is the sum of

    - the distance of its nats per token from the median of the takes: loops are too likely, and
      music that has lost its thread is too unlikely;
    - the distances of its shares of loops, of empty bars and (half) of returns from those of the
      prompt;
    - for each of the five histograms, the share of notes by which it differs from that of the
      prompt.

    Without the form of a prompt, the standard is the median of the takes, no empty bars, and the
    mean of the histograms.
    """
    if prompt is None:
        loops, returns = (median(getattr(x.form, key) for x in takes) for key in Form._fields[:2])
        prompt = Form(loops, returns, 0.0, np.mean([take.form.histograms for take in takes], 0))
    nats = median(take.nats for take in takes)
    # rounded, since the two takes around a median are equally far from it
    penalties = tuple(
        round(abs(take.nats - nats) + _distance(take.form, prompt), _DECIMALS) for take in takes
    )
    best = penalties.index(min(penalties))
    agreement = float(_overlaps(takes[best].form, prompt).mean())
    return Choice(best, penalties, tuple(takes), agreement)


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
        known.append(Take(nats / max(len(tokens), 1), form_of(decode(ids), first, stop)))
    before = decode(context.astype(np.int64))
    return choose(known, form_of_prompt(before, first) if has_prompt else None)


def _distance(form: Form, other: Form) -> float:
    return float(
        abs(form.loops - other.loops)
        + _RETURNS_WEIGHT * abs(form.returns - other.returns)
        + abs(form.silence - other.silence)
        + (1 - _overlaps(form, other)).sum()
    )


def _overlaps(form: Form, other: Form) -> NDArray[np.float64]:
    """Common share of each histogram (5,); 1 where the other one is empty."""
    common = np.minimum(form.histograms, other.histograms).sum(1)
    return np.where(other.histograms.any(1), common, 1.0)
