"""The judgements of a listening test: answers joined with the conditions of their clips."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from app.batch.manifest import NAME
from app.errors import CommandError
from app.listening.answers import DATABASE, PREFERENCE, QUESTIONS, TABLE, Answer, read_answers
from app.listening.clips import read_study

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from app.listening.clips import JudgedClip

OVERALL = "overall"
"""The mean of a listener's answers to all questions about a clip."""
RATED = (OVERALL, *QUESTIONS)


class Rating(NamedTuple):
    """An answer from 1 to 5, or the mean of several."""

    listener: str
    question: str
    clip: JudgedClip
    value: float


class Preference(NamedTuple):
    """A choice between two clips of different conditions."""

    listener: str
    first: JudgedClip
    second: JudgedClip
    first_won: bool
    confidence: float

    @property
    def winner(self) -> JudgedClip:
        """The clip that was chosen."""
        return self.first if self.first_won else self.second

    @property
    def loser(self) -> JudgedClip:
        """The clip that was not chosen."""
        return self.second if self.first_won else self.first


@dataclass(frozen=True, kw_only=True)
class Test:
    """All answers of a listening test, and the clips that they are about."""

    title: str
    clips: dict[str, JudgedClip]
    answers: list[Answer]
    anchors: tuple[str, ...]
    """Conditions that every attentive listener should find worse than the others."""


@dataclass(frozen=True, kw_only=True)
class Judgements:
    """The answers that are analysed, of the listeners who are not excluded."""

    listeners: tuple[str, ...]
    prompts: tuple[str, ...]
    conditions: tuple[str, ...]
    ratings: list[Rating]
    preferences: list[Preference]
    same_condition: int
    """Pairs of clips of one condition, which say nothing about conditions."""


def read_test(folder: Path, anchors: Sequence[str] | None = None) -> Test:
    """Read a listening test from the folder of its study.

    Args:
        folder: the folder that `relpe batch` and `relpe listen` filled.
        anchors: names of the low anchors; by default the shuffled conditions of `study.yaml`.

    Raises:
        CommandError: a file is missing or cannot be read, there are no answers, or answers are
            about clips that are not in the manifest.
    """
    study = read_study(folder)
    clips = study.clips
    answers = read_answers(folder)
    path = folder / (DATABASE if (folder / DATABASE).exists() else TABLE)
    if not any(is_counted(answer) for answer in answers):
        raise CommandError(
            f"{path}: found no answers other than those of practice trials; let listeners take "
            "part with relpe listen first"
        )
    unknown = [
        file
        for answer in answers
        if is_counted(answer)
        for file in (answer.first, answer.second)
        if file and file not in clips
    ]
    if unknown:
        raise CommandError(
            f"{path}: the clip {unknown[0]} is not in {NAME} ({len(set(unknown)):,} clips are "
            "missing); give the folder of the study in which these answers were collected"
        )
    conditions = {clip.condition for clip in clips.values()}
    for name in anchors or ():
        if name not in conditions:
            names = ", ".join(sorted(conditions))
            raise CommandError(f"--anchor {name}: no such condition, expected one of {names}")
    low_anchors = study.anchors if anchors is None else anchors
    return Test(
        title=study.title,
        clips=clips,
        answers=answers,
        anchors=tuple(sorted(set(low_anchors) & conditions)),
    )


def judgements_of(test: Test, listeners: Iterable[str]) -> Judgements:
    """Return the judgements of these listeners, without practice, attention and repeated trials.

    Raises CommandError if they are of fewer than two listeners or two conditions.
    """
    kept = set(listeners)
    answers = [a for a in test.answers if a.listener in kept and is_counted(a)]
    ratings, preferences, num_same = [], [], 0
    by_trial: defaultdict[tuple[str, int], list[Rating]] = defaultdict(list)
    for answer in answers:
        first = test.clips[answer.first]
        if answer.question == PREFERENCE:
            second = test.clips[answer.second]
            if first.condition == second.condition:
                num_same += 1
                continue
            won, confidence = answer.answer == "first", float(answer.confidence or 1)
            preferences.append(Preference(answer.listener, first, second, won, confidence))
        else:
            rating = Rating(answer.listener, answer.question, first, float(answer.answer))
            ratings.append(rating)
            by_trial[answer.listener, answer.trial].append(rating)
    ratings += [
        Rating(trial[0].listener, OVERALL, trial[0].clip, fmean(r.value for r in trial))
        for trial in by_trial.values()
    ]
    judged = [rating.clip for rating in ratings]
    judged += [clip for choice in preferences for clip in (choice.first, choice.second)]
    conditions = sorted({clip.condition for clip in judged})
    judges = sorted({rating.listener for rating in ratings} | {p.listener for p in preferences})
    if len(conditions) < 2:
        raise CommandError(
            f"found answers about {_no_or_one(conditions, 'condition')}, expected at least two, "
            "since a report compares conditions"
        )
    if len(judges) < 2:
        raise CommandError(
            f"found answers of {_no_or_one(judges, 'listener')}, expected at least two, since "
            "intervals are computed from the differences between listeners"
        )
    return Judgements(
        listeners=tuple(judges),
        prompts=tuple(sorted({clip.prompt for clip in judged})),
        conditions=tuple(conditions),
        ratings=ratings,
        preferences=preferences,
        same_condition=num_same,
    )


def is_counted(answer: Answer) -> bool:
    """Return whether an answer is about conditions, not practice or a check of the listener."""
    return answer.kind != "training" and not answer.expected and answer.repeats is None


def _no_or_one(names: Sequence[str], thing: str) -> str:
    """Return `one thing (its name)` or `no thing`; there is at most one name."""
    return f"one {thing} ({names[0]})" if names else f"no {thing}"
