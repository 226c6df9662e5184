"""Screening: which listeners did not do the test as asked."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from app.listening.answers import PREFERENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.listening.answers import Answer
    from app.listening.report.judgements import Clip, Test

LEAST_COUNT = 4
"""Repeated answers and comparisons with anchors that a listener is judged by at least."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Listeners beyond any of these values are excluded."""

    least_attention: float = 0.75
    """Lowest share of attention trials answered as expected."""
    least_agreement: float = 0.25
    """Lowest share of repeated preferences for the same clip; judged from four. Chance is a half;
    lower shares mean that sides were chosen, not clips."""
    most_difference: float = 1.25
    """Highest mean difference, in points, of repeated ratings; judged from four."""
    most_anchor_wins: float = 0.5
    """Highest share of comparisons won by low anchors; judged from four."""
    least_heard: float = 0.5
    """Lowest median share of a clip played before the answer."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            most = 4.0 if name == "most_difference" else 1.0
            if not 0.0 <= value <= most:
                raise ValueError(f"{name} is {value:g}, expected 0 to {most:g}")


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
    """Measures every listener, in the order of their codes."""
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
    agreement = _share(pairs) if len(pairs) >= LEAST_COUNT else None
    difference = statistics.fmean(apart) if len(apart) >= LEAST_COUNT else None
    wins = _anchor_wins(answers, test)
    anchor_wins = statistics.fmean(wins) if len(wins) >= LEAST_COUNT else None
    shares = [share for a in answers for share in _heard(a, test.clips)]
    heard = statistics.median(shares) if shares else None
    limits: tuple[tuple[float | None, float, bool, Callable[[float, float], str]], ...] = (
        (attention, thresholds.least_attention, False, _attention_failed),
        (agreement, thresholds.least_agreement, False, _disagreed),
        (difference, thresholds.most_difference, True, _differed),
        (anchor_wins, thresholds.most_anchor_wins, True, _liked_anchors),
        (heard, thresholds.least_heard, False, _heard_little),
    )
    reasons = [
        reason(value, limit)
        for value, limit, is_most, reason in limits
        if value is not None and (value > limit if is_most else value < limit)
    ]
    return Screened(
        listener, len(answers), attention, agreement, difference, anchor_wins, heard, tuple(reasons)
    )


def _attention_failed(value: float, limit: float) -> str:
    return f"{value:.0%} of the attention trials right, expected at least {limit:.0%}"


def _disagreed(value: float, limit: float) -> str:
    return f"same choice in {value:.0%} of the repeated pairs, expected at least {limit:.0%}"


def _differed(value: float, limit: float) -> str:
    return f"repeated ratings differ by {value:.2f} points, expected at most {limit:.2f}"


def _liked_anchors(value: float, limit: float) -> str:
    return f"low anchors won {value:.0%} of their comparisons, expected at most {limit:.0%}"


def _heard_little(value: float, limit: float) -> str:
    return f"played {value:.0%} of a clip in the median, expected at least {limit:.0%}"


def _attention_trials(answers: Sequence[Answer]) -> dict[int, bool]:
    """Whether all answers of each attention trial, given by its number, are those expected."""
    right: dict[int, bool] = {}
    for answer in answers:
        if answer.expected:
            right[answer.trial] = right.get(answer.trial, True) and answer.answer == answer.expected
    return right


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None


def _repeated(answers: Sequence[Answer]) -> list[tuple[Answer, Answer]]:
    """Pairs of an answer and its repetition."""
    original = {(answer.trial, answer.question): answer for answer in answers}
    return [
        (original[answer.repeats, answer.question], answer)
        for answer in answers
        if answer.repeats is not None and (answer.repeats, answer.question) in original
    ]


def _chosen(answer: Answer) -> str:
    return answer.first if answer.answer == "first" else answer.second


def _anchor_wins(answers: Sequence[Answer], test: Test) -> list[float]:
    """1, 0.5 or 0 for each comparison of a low anchor with another condition, the same prompt.

    Comparisons are the pairs that were presented, and clips that were rated apart.
    """
    wins: list[float] = []
    ratings: defaultdict[tuple[str, str], list[tuple[bool, int]]] = defaultdict(list)
    for answer in answers:
        if answer.expected or answer.repeats is not None:
            continue
        first = test.clips[answer.first]
        if answer.question == PREFERENCE:
            chosen, second = test.clips[_chosen(answer)], test.clips[answer.second]
            if (first.condition in test.anchors) != (second.condition in test.anchors):
                wins.append(float(chosen.condition in test.anchors))
        else:
            is_anchor = first.condition in test.anchors
            ratings[first.prompt, answer.question].append((is_anchor, int(answer.answer)))
    for together in ratings.values():
        anchors = [value for is_anchor, value in together if is_anchor]
        others = [value for is_anchor, value in together if not is_anchor]
        wins += [0.5 + 0.5 * ((a > o) - (a < o)) for a in anchors for o in others]
    return wins


def _heard(answer: Answer, clips: dict[str, Clip]) -> list[float]:
    """Share of each clip of an answer that was played, at most 1."""
    played = ((answer.first, answer.heard_first), (answer.second, answer.heard_second))
    return [
        min(1.0, seconds / length)
        for file, seconds in played
        if file in clips and seconds is not None and (length := clips[file].seconds)
    ]
