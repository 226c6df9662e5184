"""How often the report is right about simulated listeners, whose preferences are known.

The measured rates are in app/README.md: `pytest -m slow -s
tests/app/listening/report/test_error_rates.py` prints them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from app.listening.clips import Clip
from app.listening.report.findings import is_found
from app.listening.report.judgements import Test as ListeningTest
from app.listening.report.report import Report, ReportOptions, make_report
from app.listening.simulate import SimulatedListeners, simulate

CONDITIONS = ("a", "b", "c")
PROMPTS = 4
STUDIES = 400


class Rates(NamedTuple):
    """Shares of studies, for preferences and ratings."""

    any_found: tuple[float, float]
    """With a difference of any pair."""
    any_certain: tuple[float, float]
    """With a difference of any pair that is said to hold for other prompts."""
    first_found: tuple[float, float]
    """With a difference of the first pair."""
    covered: tuple[float, float]
    """Of intervals of all pairs that contain equality."""
    predicted: tuple[float, float]
    """Mean of the reported power of the first pair."""


def study(listeners: SimulatedListeners, seed: int, options: ReportOptions) -> Report:
    clips = [
        Clip(f"{condition}{prompt}", f"p{prompt}", condition, 16.0)
        for condition in CONDITIONS
        for prompt in range(PROMPTS)
    ]
    answers = simulate(clips, listeners, seed)
    test = ListeningTest(
        title="", clips={clip.file: clip for clip in clips}, answers=answers, anchors=()
    )
    return make_report(test, options)


def rates(
    listeners: SimulatedListeners,
    *,
    studies: int = STUDIES,
    interest: tuple[float, float] = (0.65, 0.5),
) -> Rates:
    options = ReportOptions(
        draws=200,
        check=False,
        preference_of_interest=interest[0],
        points_of_interest=interest[1],
    )
    rows = []
    for seed in range(studies):
        report = study(listeners, seed, options)
        assert report.preferences
        for comparisons, equal in (
            (report.preferences.comparisons, 0.5),
            (report.ratings[0].comparisons, 0.0),
        ):
            rows.append(
                (
                    any(is_found(c) for c in comparisons),
                    any(is_found(c) and c.is_certain for c in comparisons),
                    is_found(comparisons[0]),
                    np.mean([c.estimate.low <= equal <= c.estimate.high for c in comparisons]),
                    comparisons[0].power.reached,
                )
            )
    shares = np.array(rows, float).reshape(studies, 2, -1).mean(0)
    return Rates(*(tuple(column) for column in shares.T))


def shown(name: str, found: Rates) -> None:
    print(f"\n{name} (preferences, ratings)")  # noqa: T201 - for the documents
    for field, (preferences, ratings) in zip(Rates._fields, found, strict=True):
        print(f"  {field:12} {preferences:.3f} {ratings:.3f}")  # noqa: T201


@pytest.mark.slow
def test_equal_conditions_are_rarely_found_different():
    for count in (8, 24):
        listeners = SimulatedListeners(count=count, fit=0.0, clip=0.0, attention=0)
        found = rates(listeners)
        shown(f"equal, {count} listeners", found)
        # the standard error of 0.05 in 400 studies is 0.011
        assert max(found.any_found) < 0.085
        assert max(found.any_certain) < 0.085
        assert min(found.covered) > 0.93


@pytest.mark.slow
def test_differences_of_single_prompts_are_not_said_to_hold_for_others():
    """Conditions are equal over all prompts, but not after the prompts of the study."""
    listeners = SimulatedListeners(count=16, fit=0.4, clip=0.0, attention=0)
    found = rates(listeners, studies=200)
    shown("equal over all prompts", found)
    assert max(found.any_certain) < 0.11
    assert min(found.covered) > 0.91


@pytest.mark.slow
def test_real_differences_are_found_nearly_as_often_as_predicted():
    qualities = {"a": 0.6}
    listeners = SimulatedListeners(
        qualities=qualities, count=16, fit=0.0, clip=0.0, taste=0.5, attention=0
    )
    # what the difference of 0.6 means for answers, from listeners without number
    many = SimulatedListeners(
        qualities=qualities, count=300, fit=0.0, clip=0.0, taste=0.5, attention=0
    )
    large = study(many, 1, ReportOptions(draws=100, check=False))
    assert large.preferences
    wins = large.preferences.wins
    share = wins["a", "b"] / (wins["a", "b"] + wins["b", "a"])
    points = large.ratings[0].comparisons[0].estimate.value
    found = rates(listeners, studies=200, interest=(share, points))
    shown(f"difference of {share:.2f} and {points:.2f}", found)
    for measured, predicted in zip(found.first_found, found.predicted, strict=True):
        # the standard error is 0.03; the spread of few listeners is underestimated
        assert predicted - 0.15 < measured < predicted + 0.1
