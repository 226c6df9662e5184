"""What was found, in plain sentences."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from app.listening.report.power import LEVEL, WANTED, least_listeners
from app.text import listed, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.listening.report.comparisons import Comparison
    from app.listening.report.preferences import Preferences
    from app.listening.report.ratings import Ratings
    from app.listening.report.report import Report


ABOUT_RANGES = (
    "Brackets contain the estimate for the condition named first, and its 95% interval. A "
    "difference is reported if its p after Holm's correction for all pairs is below 0.05. "
    "Intervals are not corrected."
)


def findings(report: Report) -> list[str]:
    """Return all sentences."""
    return [sentence for _, sentences in findings_by_subject(report) for sentence in sentences]


def findings_by_subject(report: Report) -> list[tuple[str, list[str]]]:
    """Return the results as subjects and their sentences."""
    subjects = []
    if report.preferences:
        subjects.append(("Preferences", _of_preferences(report.preferences)))
    if report.ratings:
        subjects.append(("Ratings", _of_ratings(report.ratings[0])))
    if not subjects:
        none = "No two conditions have answers to the same question; nothing was compared."
        subjects.append(("Answers", [none]))
    return [*subjects, ("Listeners", [_of_listeners(report)])]


def is_found(comparison: Comparison) -> bool:
    """Return whether a comparison shows a difference, at least on these prompts."""
    return comparison.p_holm < LEVEL


def _of_preferences(preferences: Preferences) -> list[str]:
    best = preferences.strengths[0]
    least = preferences.strengths[-1]
    sentences = [
        f"{best.condition} was preferred most, with {best.wins:,.0f} of its {best.answers:,} "
        f"pairs, and {least.condition} least, with {least.wins:,.0f} of {least.answers:,}."
    ]
    sentences += _differences(
        preferences.comparisons,
        lambda c: c.estimate.value >= 0.5,
        "was preferred to",
        _share,
        lambda size: f"A preference of {0.5 + size / 2:.0%}",
    )
    if preferences.first_p < LEVEL:
        often = "more" if preferences.first > 0.5 else "less"
        sentences.append(
            f"The clip presented first was chosen in {preferences.first:.0%} of the pairs, {often} "
            "often than chance explains. Balanced orders keep this out of the comparisons."
        )
    for name in preferences.unbounded:
        sentences.append(
            f"{name} won or lost all its pairs: how much stronger or weaker it is cannot be "
            "estimated."
        )
    return sentences


def _of_ratings(ratings: Ratings) -> list[str]:
    best, least = ratings.means[0], ratings.means[-1]
    asked = "on average of all questions" if ratings.question == "overall" else ratings.question
    sentences = [
        f"{best.condition} was rated highest ({asked}: {best.mean.value:.2f} of 5) and "
        f"{least.condition} lowest ({least.mean.value:.2f})."
    ]
    return sentences + _differences(
        ratings.comparisons,
        lambda c: c.estimate.value >= 0,
        "was rated higher than",
        _points,
        lambda size: f"A difference of {size:g} point{'' if size == 1 else 's'}",
    )


def _differences(
    comparisons: list[Comparison],
    is_first: Callable[[Comparison], bool],
    verb: str,
    shown: Callable[[Comparison, bool], str],
    sized: Callable[[float], str],
) -> list[str]:
    listeners = max((one.listeners for one in comparisons), default=0)
    needed = least_listeners(len(comparisons))
    if comparisons and listeners < needed:
        return [
            f"{plural(listeners, 'listener')} are too few to find any difference: with "
            f"{plural(len(comparisons), 'pair')} of conditions, the test needs at least {needed}."
        ]
    certain: defaultdict[str, list[str]] = defaultdict(list)
    local: defaultdict[str, list[str]] = defaultdict(list)
    for one in comparisons:
        if is_found(one):
            forward = is_first(one)
            better, worse = (one.condition, one.other) if forward else (one.other, one.condition)
            (certain if one.is_certain else local)[better].append(f"{worse} {shown(one, forward)}")
    sentences = [
        f"{better} {verb} {listed(worse, len(worse))}." for better, worse in certain.items()
    ]
    sentences += [
        f"{better} {verb} {listed(worse, len(worse))} after these prompts; whether this holds for "
        "other prompts is open."
        for better, worse in local.items()
    ]
    return sentences + [
        _not_found(one, shown(one, True), sized(one.power.of_interest))
        for one in comparisons
        if not is_found(one)
    ]


def _not_found(one: Comparison, shown: str, sized: str) -> str:
    power = one.power
    sentence = (
        f"No difference between {one.condition} and {one.other} was shown {shown}. {sized} would "
        f"have been found with a probability of {power.reached:.0%}"
    )
    if power.needed == 0:
        return f"{sentence}."
    if power.needed is None:
        return f"{sentence}; more listeners than are practical are needed for {WANTED:.0%}."
    return f"{sentence}; {plural(power.needed, 'more listener')} would raise this to {WANTED:.0%}."


def _share(one: Comparison, forward: bool) -> str:
    value, low, high = one.estimate[:3]
    if not forward:
        value, low, high = 1 - value, 1 - high, 1 - low
    return f"({value:.0%}, {100 * low:.0f} to {100 * high:.0f})"


def _points(one: Comparison, forward: bool) -> str:
    value, low, high = one.estimate[:3]
    if not forward:
        value, low, high = -value, -high, -low
    return f"({signed(value)} points, {signed(low)} to {signed(high)})"


def signed(value: float) -> str:
    """Return a number with its sign and two digits: `+0.25`, `−0.25`."""
    return f"{value:+.2f}".replace("-", "−")


def _of_listeners(report: Report) -> str:
    count, excluded = len(report.screened), len(report.excluded)
    if not excluded:
        return f"All {plural(count, 'listener')} passed the screening."
    were = "was" if excluded == 1 else "were"
    return (
        f"{excluded:,} of {plural(count, 'listener')} {were} excluded in the screening; the "
        "reasons are in the section on listeners."
    )
