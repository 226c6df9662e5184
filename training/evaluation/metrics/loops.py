"""Loss on a repeated bar, which shows whether a model uses its context.

After the first time, the bar contains no new information. A model that cannot copy cannot keep a
groove.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR
from training.data.augmentation import looped

TIMES = (1, 2, 4, 8, 16)
"""Repetitions, of 16, for which the loss is measured."""
MOST_PIECES = 24
_BAR = 4
"""Index of the looped bar, after an upbeat and most introductions."""
_LEAST_NOTES = 4


class RepeatedBar(NamedTuple):
    """A bar of a piece, repeated."""

    ids: NDArray[np.int64]
    """Canonical token ids, from BOS to EOS."""
    bars: NDArray[np.int64]
    """(times + 1,): start of each repetition, then the end of the last one."""


def loops(pieces: Sequence[NDArray[np.integer]], tokenizer: Remi) -> list[RepeatedBar]:
    """Return the fifth bar of pieces, repeated 16 times.

    At most 24 pieces are used, evenly spaced over those that are suitable. A piece is
    suitable if it has at least six bars, and at least four notes in the fifth.
    """
    long = [piece for piece in pieces if np.count_nonzero(piece == BAR) > _BAR + 1]
    candidates = [_loop(tokenizer.crop(piece, _BAR, 1), tokenizer) for piece in long]
    suitable_loops = [loop for loop in candidates if loop is not None]
    count = min(len(suitable_loops), MOST_PIECES)
    return [suitable_loops[index * len(suitable_loops) // count] for index in range(count)]


def _loop(ids: NDArray[np.integer], tokenizer: Remi) -> RepeatedBar | None:
    score = tokenizer.decode(ids)
    if score.num_notes < _LEAST_NOTES or not score.time_signatures:
        return None
    ticks = round(score.time_signatures[0].bar_quarters() * score.ticks_per_beat)
    times = TIMES[-1]
    tracks = [looped(track, ticks, times) for track in score.tracks]
    whole = replace(score, tracks=tuple(tracks), end_ticks=ticks * times)
    new_ids = np.asarray(tokenizer.encode(whole).ids, np.int64)
    bars = np.append(np.flatnonzero(new_ids == BAR), len(new_ids) - 1)[
        : times + 1
    ]  # a last note may add a bar
    return RepeatedBar(new_ids, bars) if len(bars) == times + 1 else None


def loop_nats(
    nats: Sequence[NDArray[np.float64]], repetitions: Sequence[RepeatedBar]
) -> dict[int, float]:
    """Return nats per token of each repetition in `TIMES`, without Bar tokens; empty without loops.

    `nats` holds, per loop, the nats of each token except the first.
    """
    if not repetitions:
        return {}
    means: dict[int, float] = {}
    for time in TIMES:
        spans = [(loop.bars[time - 1], loop.bars[time] - 1) for loop in repetitions]
        tokens = [values[a:b] for values, (a, b) in zip(nats, spans, strict=True)]
        means[time] = float(np.concatenate(tokens).mean())
    return means
