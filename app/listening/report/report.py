"""The report: everything that is computed from the answers of a listening test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import CommandError
from app.listening.report.bootstrap import Bootstrap
from app.listening.report.judgements import Judgements, Test, is_counted, judgements_of
from app.listening.report.mixed import Mixed, mixed_models
from app.listening.report.preferences import Preferences, preferences_of
from app.listening.report.ratings import Ratings, ratings_of
from app.listening.report.screening import Screened, screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.listening.report.options import ReportOptions


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of a listening test."""

    title: str
    options: ReportOptions
    anchors: tuple[str, ...]
    screened: list[Screened]
    judged: Judgements
    preferences: Preferences | None
    ratings: list[Ratings]
    mixed: list[Mixed]

    @property
    def excluded(self) -> list[Screened]:
        """The listeners who are left out."""
        return [one for one in self.screened if one.reasons]


def make_report(
    test: Test, options: ReportOptions, step: Callable[[str], object] = lambda _: None
) -> Report:
    """Screen the listeners and analyse the answers of the others.

    Args:
        test: the answers.
        options: of the analysis.
        step: called with the name of each step when it begins.

    Raises:
        CommandError: there is too little to compare.
    """
    if not any(map(is_counted, test.answers)):
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
    step("mixed models")
    return Report(
        title=test.title,
        options=options,
        anchors=test.anchors,
        screened=screened,
        judged=judged,
        preferences=preferences,
        ratings=ratings,
        mixed=mixed_models(judged) if options.check else [],
    )
