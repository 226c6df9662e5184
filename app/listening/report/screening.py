"""Screening: which listeners did not do the test as asked."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from app.listening.answers import PREFERENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.listening.answers import Answer
    from app.listening.report.judgements import JudgedClip, Test
    from app.listening.report.options import Thresholds

LEAST_COUNT = 4
"""Repeated answers and comparisons with anchors that a listener is judged by at least."""


class Screened(NamedTuple):
    """A listener with the measures of screening; None where there is too little to measure."""

    listener: str
    answers: int
    attention: float | None
    agreement: float | None
    difference: float | None
    anchor_wins: float | None
    heard: float | None
    reasons: tuple[str, ...]
    """Why the listener is excluded; empty if not."""


def screen(test: Test, thresholds: Thresholds) -> list[Screened]:
    """Measure every listener, in the order of their codes."""
    of_listener: defaultdict[str, list[Answer]] = defaultdict(list)
    for answer in test.answers:
        if answer.kind != "training":
            of_listener[answer.listener].append(answer)
    return [
        _screened(listener, of_listener[listener], test, thresholds)
        for listener in sorted(of_listener)
    ]


def _screened(
    listener: str, answers: Sequence[Answer], test: Test, thresholds: Thresholds
) -> Screened:
    attention = _share(list(_attention_trials(answers).values()))
    repeated = _repeated(answers)
    pairs = [_chosen(a) == _chosen(b) for a, b in repeated if a.question == PREFERENCE]
    apart = [abs(int(a.answer) - int(b.answer)) for a, b in repeated if a.question != PREFERENCE]
    wins = _anchor_wins(answers, test)
    shares = [share for a in answers for share in _heard(a, test.clips)]
    measures = {
        "attention": attention,
        "agreement": _share(pairs) if len(pairs) >= LEAST_COUNT else None,
        "difference": statistics.fmean(apart) if len(apart) >= LEAST_COUNT else None,
        "anchor_wins": statistics.fmean(wins) if len(wins) >= LEAST_COUNT else None,
        "heard": statistics.median(shares) if shares else None,
    }
    reasons = []
    for one in fields(thresholds):
        bound, _, measure = one.name.partition("_")
        value, limit = measures[measure], getattr(thresholds, one.name)
        if value is not None and (value > limit if bound == "most" else value < limit):
            reasons.append(one.metadata["reason"].format(value, limit))
    return Screened(listener, len(answers), **measures, reasons=tuple(reasons))


def _attention_trials(answers: Sequence[Answer]) -> dict[int, bool]:
    """Return whether all answers of each attention trial, by its number, are those expected."""
    right: dict[int, bool] = {}
    for answer in answers:
        if answer.expected:
            right[answer.trial] = right.get(answer.trial, True) and answer.answer == answer.expected
    return right


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None


def _repeated(answers: Sequence[Answer]) -> list[tuple[Answer, Answer]]:
    """Return the pairs of an answer and its repetition."""
    original = {(answer.trial, answer.question): answer for answer in answers}
    return [
        (original[answer.repeats, answer.question], answer)
        for answer in answers
        if answer.repeats is not None and (answer.repeats, answer.question) in original
    ]


def _chosen(answer: Answer) -> str:
    return answer.first if answer.answer == "first" else answer.second


def _anchor_wins(answers: Sequence[Answer], test: Test) -> list[float]:
    """Return 1, 0.5 or 0 for each comparison of a low anchor with another condition, same prompt.

    Comparisons are the pairs that were presented, and clips that were rated apart.
    """
    wins: list[float] = []
    ratings: defaultdict[tuple[str, str], list[tuple[bool, int]]] = defaultdict(list)
    for answer in answers:
        if answer.expected or answer.repeats is not None:
            continue
        first = test.clips[answer.first]
        if answer.question == PREFERENCE:
            winner, second = test.clips[_chosen(answer)], test.clips[answer.second]
            if (first.condition in test.anchors) != (second.condition in test.anchors):
                wins.append(float(winner.condition in test.anchors))
        else:
            is_anchor = first.condition in test.anchors
            ratings[first.prompt, answer.question].append((is_anchor, int(answer.answer)))
    for together in ratings.values():
        anchors = [value for is_anchor, value in together if is_anchor]
        others = [value for is_anchor, value in together if not is_anchor]
        wins += [0.5 + 0.5 * ((a > o) - (a < o)) for a in anchors for o in others]
    return wins


def _heard(answer: Answer, clips: dict[str, JudgedClip]) -> list[float]:
    """Return the share of each clip of an answer that was played, at most 1."""
    played = ((answer.first, answer.heard_first), (answer.second, answer.heard_second))
    return [
        min(1.0, seconds / length)
        for file, seconds in played
        if file in clips and seconds is not None and (length := clips[file].seconds)
    ]
