"""How often the report is right about simulated listeners, whose preferences are known.

The measured rates are in app/README.md: `pytest -m slow -s
tests/app/listening/report/test_error_rates.py` prints them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.listening.clips import Clip
from app.listening.report.findings import is_found
from app.listening.report.judgements import Test as ListeningTest
from app.listening.report.report import Report, ReportOptions, make_report
from app.listening.simulate import SimulatedListeners, simulate

CLIPS = [
    Clip(f"{condition}{prompt}", f"p{prompt}", condition, 16.0)
    for condition in "abc"
    for prompt in range(4)
]
RATES: tuple[str, ...] = (
    "any found",
    "any certain",
    "first found",
    "intervals with equality",
    "predicted",
)
"""Shares of studies: with a difference of any pair, with one that is said to hold for other
prompts, with a difference of the first pair; of intervals that contain equality; and the mean of
the reported power of the first pair."""


def study(listeners: SimulatedListeners, seed: int, options: ReportOptions) -> Report:
    test = ListeningTest(
        title="",
        clips={clip.file: clip for clip in CLIPS},
        answers=simulate(CLIPS, listeners, seed),
        anchors=(),
    )
    return make_report(test, options)


def rates(
    name: str, listeners: SimulatedListeners, studies: int, share: float = 0.65, points: float = 0.5
) -> dict[str, np.ndarray]:
    """Each of `RATES`, for preferences and ratings; prints them for the documents."""
    options = ReportOptions(
        draws=200, check=False, preference_of_interest=share, points_of_interest=points
    )
    rows = []
    for seed in range(studies):
        report = study(listeners, seed, options)
        assert report.preferences
        for comparisons, equal in (
            (report.preferences.comparisons, 0.5),
            (report.ratings[0].comparisons, 0.0),
        ):
            found = [is_found(c) for c in comparisons]
            certain = [is_found(c) and c.is_certain for c in comparisons]
            covered = [c.estimate.low <= equal <= c.estimate.high for c in comparisons]
            power = comparisons[0].power.reached
            rows.append((any(found), any(certain), found[0], np.mean(covered), power))
    shares = np.array(rows, float).reshape(studies, 2, -1).mean(0)
    found = dict(zip(RATES, shares.T, strict=True))
    print(f"\n{name} (preferences, ratings): {found}")  # noqa: T201
    return found


@pytest.mark.slow
def test_equal_conditions_are_rarely_found_different():
    for count in (8, 24):
        listeners = SimulatedListeners(count=count, fit=0.0, clip=0.0, attention=0)
        found = rates(f"equal, {count} listeners", listeners, 400)
        # the standard error of 0.05 in 400 studies is 0.011
        assert max(found["any found"]) < 0.085
        assert max(found["any certain"]) < 0.085
        assert min(found["intervals with equality"]) > 0.93
    # equal over all prompts, but not after the prompts of the study
    listeners = SimulatedListeners(count=16, fit=0.4, clip=0.0, attention=0)
    found = rates("equal over all prompts", listeners, 200)
    assert max(found["any certain"]) < 0.11
    assert min(found["intervals with equality"]) > 0.91


@pytest.mark.slow
def test_real_differences_are_found_nearly_as_often_as_predicted():
    given: dict[str, Any] = {"fit": 0.0, "clip": 0.0, "taste": 0.5, "attention": 0}
    given["qualities"] = {"a": 0.6}
    # what the difference of 0.6 means for answers, from listeners without number
    many = SimulatedListeners(count=300, **given)
    large = study(many, 1, ReportOptions(draws=100, check=False))
    assert large.preferences
    wins = large.preferences.wins
    share = wins["a", "b"] / (wins["a", "b"] + wins["b", "a"])
    points = large.ratings[0].comparisons[0].estimate.value
    listeners = SimulatedListeners(count=16, **given)
    found = rates(f"difference of {share:.2f} and {points:.2f}", listeners, 200, share, points)
    for measured, predicted in zip(found["first found"], found["predicted"], strict=True):
        # the standard error is 0.03; the spread of few listeners is underestimated
        assert predicted - 0.15 < measured < predicted + 0.1
