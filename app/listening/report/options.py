"""Choices of an analysis, from which the options of `relpe listen-report` are made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


class OptionError(ValueError):
    """A value outside the range of its option."""

    def __init__(self, name: str, problem: str) -> None:
        """`name` is that of the field; the problem is what was found and expected."""
        super().__init__(f"{name} {problem}")
        self.name, self.problem = name, problem


def _option(default: Any, text: str, least: float = 0, most: float = 1, reason: str = "") -> Any:  # noqa: ANN401 - a field of any type
    """Declare a field with its help and range.

    `reason` is that for leaving out a listener, with places for the value and the limit.
    """
    metadata = {"help": text, "least": least, "most": most, "reason": reason}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """Raises OptionError for a value outside its range."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.metadata:
                value = getattr(self, one.name)
                least, most = one.metadata["least"], one.metadata["most"]
                if not least <= value <= most:
                    raise OptionError(one.name, f"is {value:g}, expected {least:,} to {most:,}")


@dataclass(frozen=True, kw_only=True)
class Thresholds(_Checked):
    """Listeners beyond any of these values are excluded.

    What follows `least` or `most` in a name is the measure in `Screened`.
    """

    least_attention: float = _option(
        0.75,
        "lowest share of attention trials answered as expected",
        reason="{:.0%} of the attention trials right, expected at least {:.0%}",
    )
    least_agreement: float = _option(
        0.25,
        "lowest share of repeated pairs with the same choice",
        reason="same choice in {:.0%} of the repeated pairs, expected at least {:.0%}",
    )
    """Judged from four. Chance is a half; lower shares mean that sides were chosen, not clips."""
    most_difference: float = _option(
        1.25,
        "highest mean difference of repeated ratings, in points",
        most=4,
        reason="repeated ratings differ by {:.2f} points, expected at most {:.2f}",
    )
    """Judged from four."""
    most_anchor_wins: float = _option(
        0.5,
        "highest share of comparisons that low anchors win",
        reason="low anchors won {:.0%} of their comparisons, expected at most {:.0%}",
    )
    """Judged from four."""
    least_heard: float = _option(
        0.5,
        "lowest median share of a clip played before the answer",
        reason="played {:.0%} of a clip in the median, expected at least {:.0%}",
    )


@dataclass(frozen=True, kw_only=True)
class ReportOptions(_Checked):
    """Choices of an analysis; make them before you see the answers."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    weigh_by_confidence: bool = _option(
        False, "preferences count as much as their confidence in the strengths of conditions"
    )
    points_of_interest: float = _option(
        0.5, "smallest difference of ratings worth finding, for power", 0.01, 4
    )
    preference_of_interest: float = _option(
        0.65, "smallest probability of a preference worth finding, for power", 0.51, 0.99
    )
    draws: int = _option(1000, "samples of each bootstrap", 100, 100_000)
    seed: int = _option(0, "of the bootstrap", most=2**63 - 1)
    check: bool = True
    """Whether to fit the mixed models."""
