"""The report: everything that is computed from the answers of a listening test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.errors import CommandError
from app.listening.report.best import Best, best_of
from app.listening.report.bootstrap import Bootstrap
from app.listening.report.judgements import Judgements, Test, counted, judgements_of
from app.listening.report.mixed import Mixed, mixed_models
from app.listening.report.preferences import Preferences, preferences_of
from app.listening.report.ratings import Ratings, ratings_of
from app.listening.report.screening import Screened, Thresholds, screen
from app.listening.simulate import is_simulated

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Choices of an analysis; make them before you see the answers."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    weigh_by_confidence: bool = False
    """Whether a preference counts as much as its confidence in the strengths."""
    points_of_interest: float = 0.5
    """The smallest difference of ratings worth finding, in points."""
    preference_of_interest: float = 0.65
    """The smallest probability of a preference worth finding."""
    draws: int = 1000
    """Samples of each bootstrap."""
    seed: int = 0
    """Of the bootstrap."""
    check: bool = True
    """Whether to fit the mixed models."""

    def __post_init__(self) -> None:
        if not 0 < self.points_of_interest <= 4:
            raise ValueError(f"points of interest is {self.points_of_interest:g}, expected 0 to 4")
        if not 0.5 < self.preference_of_interest < 1:
            raise ValueError(
                f"preference of interest is {self.preference_of_interest:g}, expected above 0.5 "
                "and below 1"
            )
        if not 100 <= self.draws <= 100_000:
            raise ValueError(f"draws is {self.draws}, expected 100 to 100,000")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of a listening test."""

    title: str
    simulated: int
    """How many of the listeners are simulated."""
    options: ReportOptions
    anchors: tuple[str, ...]
    screened: list[Screened]
    judged: Judgements
    preferences: Preferences | None
    ratings: list[Ratings]
    best: list[Best]
    mixed: list[Mixed]

    @property
    def excluded(self) -> list[Screened]:
        """The listeners who are left out."""
        return [one for one in self.screened if one.reasons]


def make_report(
    test: Test, options: ReportOptions, step: Callable[[str], object] = lambda _: None
) -> Report:
    """Screens the listeners and analyses the answers of the others.

    Args:
        test: the answers.
        options: of the analysis.
        step: called with the name of each step when it begins.

    Raises:
        CommandError: there is too little to compare.
    """
    if not counted(test.answers):
        raise CommandError("found no answers, expected those of a listening test")
    step("screening")
    screened = screen(test, options.thresholds)
    kept = [one.listener for one in screened if not one.reasons]
    if len(kept) < 2 <= len(screened):
        reasons = "; ".join(f"{one.listener}: {one.reasons[0]}" for one in screened if one.reasons)
        raise CommandError(
            f"{len(screened) - len(kept)} of {len(screened)} listeners are excluded ({reasons}), "
            "expected at least two to be left; look at their answers, and change the thresholds "
            "only for a reason"
        )
    judged = judgements_of(test, kept)
    bootstrap = Bootstrap(
        len(judged.listeners), len(judged.prompts), draws=options.draws, seed=options.seed
    )
    step("preferences")
    preferences = preferences_of(
        judged,
        bootstrap,
        of_interest=options.preference_of_interest,
        weighted=options.weigh_by_confidence,
    )
    step("ratings")
    ratings = ratings_of(judged, bootstrap, of_interest=options.points_of_interest)
    best = best_of(judged, bootstrap)
    step("mixed models")
    return Report(
        title=test.title,
        simulated=sum(is_simulated(one.listener) for one in screened),
        options=options,
        anchors=test.anchors,
        screened=screened,
        judged=judged,
        preferences=preferences,
        ratings=ratings,
        best=best,
        mixed=mixed_models(judged) if options.check else [],
    )
