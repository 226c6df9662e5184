"""The trials of a listener: which clips, in which order, with which checks of attention."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from app.listening.answers import LEAST, PREFERENCE, Kind, Question
from app.listening.page.squares import latin_square, order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.listening.page.clips import Material

Side = Literal["first", "second"]


@dataclass(frozen=True)
class Trial:
    """A clip to rate, or a pair of clips of which one is chosen."""

    kind: Kind
    first: str
    """The clip, as its `file` in the manifest; of a pair, the one presented as A."""
    second: str = ""
    expected: str = ""
    """Of an attention trial: the answer of an attentive listener."""
    repeats: int | None = None
    """Number of the earlier trial, from 1."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """The clips of this trial."""
        return ("first", "second") if self.second else ("first",)

    @property
    def side_with_tones(self) -> Side | None:
        """The clip that tones interrupt; None if there is none."""
        if not self.expected:
            return None
        return "second" if self.second and self.expected == "first" else "first"

    def file(self, side: Side) -> str:
        """Return the clip of a side."""
        return self.first if side == "first" else self.second

    def questions(self, of_rating: Sequence[Question]) -> tuple[str, ...]:
        """Return the questions of this trial; `of_rating` are those about a rated clip."""
        return (PREFERENCE,) if self.second else tuple(of_rating)


def trials_of(material: Material, number: int) -> list[Trial]:
    """Return all trials of a listener, from the number of the listener, from 0.

    Ratings and pairs are two blocks, each with its practice trials; every other listener begins
    with the pairs.
    """
    config = material.listening
    draws = random.Random(f"{material.seed} {material.title} {number}")
    blocks = [_block(_ratings(material, number), config.ratings, config.training)]
    blocks.append(_block(_pairs(material, number), config.preferences, config.training))
    blocks = [block for block in blocks if block.trials]
    if number % 2:
        blocks.reverse()
    trials: list[Trial] = []
    for at, block in enumerate(blocks):
        attention, repeated = (
            (total + len(blocks) - 1 - at) // len(blocks)
            for total in (config.attention, config.repeated)
        )
        trials += block.practice
        trials += _with_checks(block, attention, repeated, len(trials), draws)
    return trials


@dataclass(frozen=True)
class _Block:
    """Trials of one kind; `spare` are for attention trials."""

    trials: list[Trial]
    practice: list[Trial]
    spare: list[Trial]


def _block(all_trials: list[Trial], count: int, training: int) -> _Block:
    """Return the first `count` trials; practice and spare trials are taken from the end."""
    if not count or not all_trials:
        return _Block([], [], [])
    spare = all_trials[::-1]
    practice = [replace(trial, kind="training") for trial in spare[:training]]
    return _Block(all_trials[:count], practice, spare[training:] or spare)


def _ratings(material: Material, number: int) -> list[Trial]:
    conditions = len(material.conditions)
    turn = number // len(latin_square(conditions))
    cells = order(number, conditions, len(material.items))
    return [Trial("rating", material.clip(*cell, turn + sum(cell)).file) for cell in cells]


def _pairs(material: Material, number: int) -> list[Trial]:
    """Return the pairs of two conditions, which take turns to be A."""
    pairs = list(combinations(range(len(material.conditions)), 2))
    if not pairs:
        return []
    turn = number // len(latin_square(len(pairs)))
    trials: list[Trial] = []
    for pair, item in order(number, len(pairs), len(material.items)):
        clips = (material.clip(one, item, turn + pair + item) for one in pairs[pair])
        one, other = (clip.file for clip in clips)
        first, second = (other, one) if (number + pair + item) % 2 else (one, other)
        trials.append(Trial("preference", first, second))
    return trials


def _with_checks(
    block: _Block, attention: int, repeated: int, before: int, draws: random.Random
) -> list[Trial]:
    """Return the trials of a block, attention trials, and repeated trials near its end.

    `before` is the number of trials before this block.
    """
    count = len(block.trials)
    placed: list[tuple[Trial, int | None]] = [(trial, None) for trial in block.trials]
    sources = sorted(draws.sample(range((count + 1) // 2), min(repeated, (count + 1) // 2)))
    for source in sources:
        trial = block.trials[source]
        if trial.second:
            trial = replace(trial, first=trial.second, second=trial.first)
        least = max(source + 1, len(placed) * 3 // 4)
        placed.insert(draws.randint(least, len(placed)), (trial, source))
    for at in range(attention):
        trial = block.spare[at % len(block.spare)]
        expected = draws.choice(["first", "second"]) if trial.second else str(LEAST)
        place = round((at + 0.5 + draws.uniform(-0.3, 0.3)) * len(placed) / attention)
        placed.insert(min(max(place, 1), len(placed)), (replace(trial, expected=expected), None))
    numbers = {
        id(trial): before + at for at, (trial, source) in enumerate(placed, 1) if source is None
    }
    return [
        trial if source is None else replace(trial, repeats=numbers[id(block.trials[source])])
        for trial, source in placed
    ]
