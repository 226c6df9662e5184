"""Simulated listeners with known preferences, who answer as listeners of `relpe listen` do.

They are for trying a study and its report before listeners come, and for measuring how often the
report is right. `python -m app.listening.simulate DIR` writes `answers.csv` into the folder of a
study; the codes of the listeners say that they are simulated, and so does the report.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.errors import CommandError, UserError
from app.listening.answers import (
    DATABASE,
    PREFERENCE,
    QUESTIONS,
    TABLE,
    Answer,
    read_answers,
    write_answers,
)
from app.listening.clips import read_study

if TYPE_CHECKING:
    from app.listening.clips import Clip, Study

_PREFIX = "simulated-"
_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)


def is_simulated(listener: str) -> bool:
    """Whether the code of a listener is that of a simulated one."""
    return listener.startswith(_PREFIX)


@dataclass(frozen=True, kw_only=True)
class SimulatedListeners:
    """A population of listeners, and what each of them is asked.

    A clip has the quality of its condition, and is preferred to another with the probability
    1 / (1 + exp(−difference)). Ratings are 3 plus the quality, rounded and limited to 1 to 5.
    Spreads are standard deviations.
    """

    qualities: Mapping[str, float] = field(default_factory=dict)
    """Quality of each condition; 0 if it is not named."""
    count: int = 24
    taste: float = 0.3
    """Spread of what a listener adds to a condition."""
    fit: float = 0.2
    """Spread of what a prompt adds to a condition."""
    clip: float = 0.2
    """Spread of the clips of a prompt and condition."""
    mildness: float = 0.3
    """Spread of what a listener adds to all ratings."""
    noise: float = 0.7
    """Spread of each rating."""
    order: float = 0.0
    """What being presented first adds in a pair."""
    careless: int = 0
    """How many of the listeners answer at random and hear little."""
    ratings: bool = True
    """Whether each listener rates a clip of every prompt and condition."""
    pairs: bool = True
    """Whether each listener compares every pair of conditions after every prompt."""
    repeated: int = 4
    """Repeated trials of each kind."""
    attention: int = 4
    """Attention trials, a pair of which one clip is evidently better."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"listeners is {self.count}, expected 1 or more")
        if not 0 <= self.careless <= self.count:
            raise ValueError(f"careless is {self.careless}, expected 0 to {self.count}")


def simulate(
    clips: Sequence[Clip], listeners: SimulatedListeners, seed: int, anchors: Sequence[str] = ()
) -> list[Answer]:
    """The answers of simulated listeners.

    Args:
        clips: the clips of a study.
        listeners: the population; each has a generator of its own.
        seed: of everything random; the same seed gives the same answers.
        anchors: conditions that are used for attention trials, beside the best one.
    """
    rng = np.random.default_rng([seed, 0])
    cells: defaultdict[str, defaultdict[str, list[Clip]]] = defaultdict(lambda: defaultdict(list))
    worth: dict[str, float] = {}
    for clip in sorted(clips):
        cells[clip.prompt][clip.condition].append(clip)
    for prompt in sorted(cells):
        for condition, together in sorted(cells[prompt].items()):
            added = listeners.fit * rng.normal()
            for clip in together:
                quality = listeners.qualities.get(condition, 0.0)
                worth[clip.file] = quality + added + listeners.clip * rng.normal()
    width = max(3, len(str(listeners.count)))
    return [
        answer
        for number in range(1, listeners.count + 1)
        for answer in _Listener(
            f"{_PREFIX}{number:0{width}d}",
            np.random.default_rng([seed, number]),
            listeners,
            worth,
            is_careless=number > listeners.count - listeners.careless,
        ).answers(cells, anchors)
    ]


class _Listener:
    """One listener during the test."""

    def __init__(
        self,
        code: str,
        rng: np.random.Generator,
        population: SimulatedListeners,
        worth: dict[str, float],
        *,
        is_careless: bool,
    ) -> None:
        self._code, self._rng, self._population = code, rng, population
        self._worth, self._is_careless = worth, is_careless
        self._mildness = population.mildness * rng.normal()
        self._taste: dict[str, float] = {}
        self._trial = 0
        self._clock = _BEGIN

    def answers(
        self, cells: Mapping[str, Mapping[str, Sequence[Clip]]], anchors: Sequence[str]
    ) -> list[Answer]:
        """All answers, in the order of the trials: practice, and the rest shuffled."""
        conditions = sorted({name for of_prompt in cells.values() for name in of_prompt})
        self._taste = {n: self._population.taste * self._rng.normal() for n in conditions}
        rated, paired = self._trials(cells)
        attention = self._attention(cells, anchors)
        trials = [*rated, *paired, *attention]
        order = self._rng.permutation(len(trials))
        found: list[Answer] = []
        if trials:
            found += self._answer(trials[0], kind="training")
        done: list[tuple[int, tuple[Clip, ...]]] = []
        for index in order:
            trial = trials[index]
            is_check = index >= len(rated) + len(paired)
            found += self._answer(trial, expected="first" if is_check else "")
            if not is_check:
                done.append((self._trial, trial))
        for size in (1, 2):
            kind = [one for one in done if len(one[1]) == size][: self._population.repeated]
            for number, trial in kind:
                # pairs are repeated in the other order
                found += self._answer(trial, repeats=number, swapped=True)
        return found

    def _trials(
        self, cells: Mapping[str, Mapping[str, Sequence[Clip]]]
    ) -> tuple[list[tuple[Clip, ...]], list[tuple[Clip, ...]]]:
        rated: list[tuple[Clip, ...]] = []
        paired: list[tuple[Clip, ...]] = []
        for prompt in sorted(cells):
            if self._population.ratings:
                rated += [(self._one(clips),) for _, clips in sorted(cells[prompt].items())]
            if self._population.pairs:
                for one, other in combinations(sorted(cells[prompt]), 2):
                    pair = self._one(cells[prompt][one]), self._one(cells[prompt][other])
                    paired.append(pair if self._rng.random() < 0.5 else pair[::-1])
        return rated, paired

    def _attention(
        self, cells: Mapping[str, Mapping[str, Sequence[Clip]]], anchors: Sequence[str]
    ) -> list[tuple[Clip, ...]]:
        """Pairs whose first clip is of the best condition, and whose second is a low anchor."""
        found: list[tuple[Clip, ...]] = []
        qualities = self._population.qualities
        for prompt in sorted(cells):
            low = [name for name in sorted(cells[prompt]) if name in anchors]
            high = [name for name in sorted(cells[prompt]) if name not in anchors]
            if low and high:
                best = max(high, key=lambda name: qualities.get(name, 0.0))
                found += [
                    (self._one(cells[prompt][best]), self._one(cells[prompt][name])) for name in low
                ]
        return found[: self._population.attention]

    def _one(self, clips: Sequence[Clip]) -> Clip:
        return clips[int(self._rng.integers(len(clips)))]

    def _answer(
        self,
        trial: tuple[Clip, ...],
        *,
        kind: str = "",
        expected: str = "",
        repeats: int | None = None,
        swapped: bool = False,
    ) -> list[Answer]:
        """The answers of one trial: a preference, or a rating for each question."""
        self._trial += 1
        clips = trial[::-1] if swapped else trial
        heard = [self._heard(clip) for clip in clips]
        seconds = round(sum(heard) + 2 + 3 * self._rng.random(), 2)
        self._clock += timedelta(seconds=seconds)
        of_pair = len(clips) == 2
        answers = (
            {PREFERENCE: self._preference(clips[0], clips[1], expected)}
            if of_pair
            else {question: (self._rating(clips[0]), None) for question in QUESTIONS}
        )
        return [
            Answer(
                listener=self._code,
                trial=self._trial,
                kind="training" if kind else "preference" if of_pair else "rating",
                question=question,
                first=clips[0].file,
                second=clips[1].file if of_pair else "",
                answer=answer,
                confidence=confidence,
                heard_first=heard[0],
                heard_second=heard[1] if of_pair else None,
                seconds=seconds,
                expected=expected,
                repeats=repeats,
                answered_at=self._clock.isoformat(timespec="milliseconds"),
            )
            for question, (answer, confidence) in answers.items()
        ]

    def _heard(self, clip: Clip) -> float:
        share = 0.2 * self._rng.random() if self._is_careless else 0.8 + 0.6 * self._rng.random()
        return round(share * clip.seconds, 2)

    def _liked(self, clip: Clip) -> float:
        return self._worth[clip.file] + self._taste[clip.condition]

    def _preference(self, first: Clip, second: Clip, expected: str) -> tuple[str, int]:
        if self._is_careless:
            return ("first", "second")[self._rng.integers(2)], int(self._rng.integers(1, 6))
        if expected:
            # what is evident is sometimes missed by slips
            slip = self._rng.random() < 0.02
            return ("second" if expected == "first" else "first") if slip else expected, 5
        apart = self._liked(first) - self._liked(second) + self._population.order
        chosen = "first" if self._rng.random() < 1 / (1 + math.exp(-apart)) else "second"
        sure = 2 + abs(apart) + self._rng.normal()
        return chosen, int(min(5, max(1, round(sure))))

    def _rating(self, clip: Clip) -> str:
        if self._is_careless:
            return str(self._rng.integers(1, 6))
        value = 3 + self._liked(clip) + self._mildness + self._population.noise * self._rng.normal()
        return str(min(5, max(1, round(value))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command, and returns its exit code: 0, or 2 if the input cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m app.listening.simulate",
        description="Write answers of simulated listeners into the folder of a study.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder made by relpe batch")
    parser.add_argument(
        "--listeners", type=int, default=24, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument(
        "--careless",
        type=int,
        default=0,
        metavar="N",
        help="how many of them answer at random (default: %(default)s)",
    )
    parser.add_argument(
        "--quality",
        action="append",
        default=[],
        metavar="CONDITION=X",
        help="quality of a condition; 1 more is preferred by 73 %% (default: 0, low anchors -1.5)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    try:
        _write(given.folder, given, read_study(given.folder))
    except UserError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    return 0


def _write(folder: Path, given: argparse.Namespace, study: Study) -> None:
    for name in (DATABASE, TABLE):
        if (folder / name).exists() and not _all_simulated(folder):
            raise CommandError(
                f"{folder / name}: found answers of listeners, expected none; simulate in a copy "
                "of the folder"
            )
    conditions = {clip.condition for clip in study.clips.values()}
    qualities = dict.fromkeys(study.anchors, -1.5)
    for text in given.quality:
        name, _, value = text.rpartition("=")
        try:
            qualities[name] = float(value)
        except ValueError as error:
            raise CommandError(f"--quality {text}: expected one such as piano=0.5") from error
        if name not in conditions:
            known = ", ".join(sorted(conditions))
            raise CommandError(f"--quality {text}: no such condition, expected one of {known}")
        if not math.isfinite(qualities[name]):
            raise CommandError(f"--quality {text}: expected a finite number")
    try:
        listeners = SimulatedListeners(
            qualities=qualities, count=given.listeners, careless=given.careless
        )
        if given.seed < 0:
            raise ValueError(f"seed is {given.seed}, expected 0 or more")
    except ValueError as error:
        raise CommandError(f"--{error}") from error
    answers = simulate(list(study.clips.values()), listeners, given.seed, study.anchors)
    try:
        write_answers(folder / TABLE, answers)
    except OSError as error:
        raise CommandError(f"{folder / TABLE}: {error.strerror or error}") from error


def _all_simulated(folder: Path) -> bool:
    return not (folder / DATABASE).exists() and all(
        is_simulated(answer.listener) for answer in read_answers(folder)
    )


if __name__ == "__main__":
    sys.exit(main())
