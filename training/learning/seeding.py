"""Random numbers as functions of (seed, step), so that they are the same in resumed runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

Stream = Literal["data", "noise", "draws", "validation", "test"]
_STREAMS: dict[Stream, int] = {"data": 1, "noise": 2, "draws": 4, "validation": 5, "test": 6}


def generator(seed: int, step: int, stream: Stream, row: int = 0) -> np.random.Generator:
    """Return a random generator for one row of one step; streams are independent."""
    return np.random.default_rng((seed, _STREAMS[stream], step, row))


def noise_seed(seed: int, step: int) -> int:
    """Return the seed of a step's positional noise, 0 to 2**31 - 1, for all rows and processes."""
    return int(generator(seed, step, "noise").integers(2**31))


def draw_seeds(seed: int, draws: int) -> list[int]:
    """Return seeds of noise for the draws of an evaluation: the model's own, then fixed ones."""
    others = (generator(seed, draw, "draws").integers(2**31) for draw in range(1, draws))
    return [seed, *map(int, others)]


@dataclass(frozen=True)
class Steps:
    """Endless sampler of step numbers, starting from `start`."""

    start: int = 0

    def __iter__(self) -> Iterator[int]:
        return itertools.count(self.start)
