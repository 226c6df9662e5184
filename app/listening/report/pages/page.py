"""The report as one page of HTML, which loads nothing from elsewhere and has no scripts.

Its parts are in `page.html`, a template of Jinja, and its style is in `page.css`. Its plots are
SVG: narrow, so that their letters can be read on a phone, and coloured by the page's style, for
light, dark and print. Every number in them is also in a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.listening.report.findings import ABOUT_RANGES, findings_by_subject, is_found, signed
from app.listening.report.power import WANTED
from app.text import plural

if TYPE_CHECKING:
    from app.listening.report.bootstrap import Interval
    from app.listening.report.comparisons import Comparison
    from app.listening.report.mixed import Mixed
    from app.listening.report.preferences import Preferences
    from app.listening.report.ratings import Mean, Ratings
    from app.listening.report.report import Report
    from app.listening.report.screening import Screened

_FOLDER = Path(__file__).parent
_WIDTH, _LEFT = 360, 10
"""Width of a plot and of the margins at its sides, in its own units."""
_LETTERS = 34
"""Letters of a label beside its value."""


class Scale(NamedTuple):
    """The axis of a plot, and the form of its numbers."""

    ticks: tuple[float, ...]
    reference: float | None
    """Where there is no difference."""
    text: Callable[[float], str]
    """Values as text."""
    tick: Callable[[float], str]
    """Ticks as text."""

    def x(self, value: float) -> float:
        """Return the place of a value, limited to the plot."""
        low, high = self.ticks[0], self.ticks[-1]
        share = (min(max(value, low), high) - low) / (high - low)
        return round(_LEFT + share * (_WIDTH - 2 * _LEFT), 1)

    def places(self, interval: Interval) -> list[float]:
        """Return the places of an estimate and its limits; of limits that are unknown, its own."""
        value = interval.value if math.isfinite(interval.value) else 0.0
        return [self.x(part if math.isfinite(part) else value) for part in interval[:3]]

    def range(self, interval: Interval) -> str:
        """Return the limits of an interval."""
        if not math.isfinite(interval.low):
            return "unknown"
        return f"{self.text(interval.low)} to {self.text(interval.high)}"

    def lines(self, rows: Sequence[tuple[str, Interval]]) -> list[str]:
        """Return the rows of a plot in words."""
        return [f"{label}: {self.text(i.value)} ({self.range(i)})" for label, i in rows]


class _Row(NamedTuple):
    """A row of a table."""

    name: str
    cells: Sequence[str]
    marked: bool = False
    shares: Sequence[float] = ()
    """How dark each cell is, 0 to 1."""


_SHARES = Scale((0.0, 0.25, 0.5, 0.75, 1.0), 0.5, "{:.0%}".format, "{:.0%}".format)
_POINTS = Scale((1.0, 2.0, 3.0, 4.0, 5.0), None, "{:.2f}".format, "{:g}".format)


def as_page(report: Report) -> str:
    """Return the page as text; the same report gives the same text."""
    judged, preferences = report.judged, report.preferences
    thresholds = report.options.thresholds
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    compared = report.ratings[0].comparisons if report.ratings else []
    strengths = preferences.strengths if preferences else []
    return environment.get_template("page.html").render(
        report=report,
        style=(_FOLDER / "page.css").read_text("utf-8"),
        about=[
            plural(len(judged.listeners), "listener"),
            plural(len(judged.conditions), "condition"),
            plural(len(judged.prompts), "prompt"),
            plural(len(judged.preferences), "preference"),
            plural(sum(r.question != "overall" for r in judged.ratings), "rating"),
        ],
        about_ranges=ABOUT_RANGES,
        findings=findings_by_subject(report),
        shares=_SHARES,
        points=_POINTS,
        differences=scale_around([part for one in compared for part in one.estimate[:3]]),
        strengths=[(one.condition, one.preferred) for one in strengths],
        names=[one.condition for one in strengths],
        wins=_wins(preferences) if preferences else [],
        power=_power(report),
        wanted=f"{WANTED:.0%}",
        limits={name: f"{value:.0%}" for name, value in vars(thresholds).items()},
        excluded=[_Row(one.listener, ["; ".join(one.reasons)]) for one in report.excluded],
        listeners=[_listener(one) for one in report.screened],
        version=version("relpe"),
        width=_WIDTH,
        left=_LEFT,
        pairs=lambda comparisons: [(_pair(one), one.estimate) for one in comparisons],
        means=lambda ratings: [(one.condition, one.mean) for one in ratings.means],
        counted=lambda means: [f"{m.condition}: {', '.join(map(str, m.counts))}" for m in means],
        comparison_rows=_comparison_rows,
        mean_rows=_mean_rows,
        effect_rows=_effect_rows,
        **{function.__name__: function for function in (bars, p, shortened)},
    )


def scale_around(values: Sequence[float]) -> Scale:
    """Return a symmetric scale of differences, with round ticks around 0."""
    far = max((abs(v) for v in values if math.isfinite(v)), default=1.0) or 1.0
    step = next((s for s in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0) if far / s <= 3), far)
    count = max(1, math.ceil(far / step))
    return Scale(tuple(step * n for n in range(-count, count + 1)), 0.0, signed, _tick)


def _tick(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−") if value else "0"


def bars(mean: Mean) -> Iterator[tuple[int, float, float]]:
    """Yield the answers to a condition with their places and lengths in a plot."""
    x = float(_LEFT)
    for number, count in enumerate(mean.counts, 1):
        length = round(count / max(1, sum(mean.counts)) * (_WIDTH - 2 * _LEFT), 1)
        if count:
            yield number, round(x, 1), length
        x += length


def shortened(label: str) -> str:
    """Return a label that has place beside its value; the tables have the whole names."""
    return label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"


def p(value: float) -> str:
    """Return a probability in three digits."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _pair(one: Comparison) -> str:
    return f"{one.condition} – {one.other}"


def _wins(preferences: Preferences) -> list[_Row]:
    names = [one.condition for one in preferences.strengths]
    rows: list[_Row] = []
    for name in names:
        won = [preferences.wins.get((name, other), 0) for other in names]
        met = [
            n + preferences.wins.get((other, name), 0) for n, other in zip(won, names, strict=True)
        ]
        cells = [
            f"{wins:,} of {pairs:,}" if pairs else "–" if other != name else ""
            for wins, pairs, other in zip(won, met, names, strict=True)
        ]
        shares = [wins / max(1, pairs) for wins, pairs in zip(won, met, strict=True)]
        rows.append(_Row(name, cells, shares=shares))
    return rows


def _mean_rows(ratings: Ratings) -> list[_Row]:
    return [
        _Row(m.condition, [f"{m.mean.value:.2f}", _POINTS.range(m.mean), f"{m.answers:,}"])
        for m in ratings.means
    ]


def _comparison_rows(comparisons: Sequence[Comparison], scale: Scale) -> list[_Row]:
    return [
        _Row(
            _pair(one),
            [
                *(scale.text(one.estimate.value), scale.range(one.estimate)),
                *(p(one.p), p(one.p_holm), signed(one.effect_size)),
                *(f"{one.listeners:,}", f"{one.answers:,}"),
            ],
            is_found(one),
        )
        for one in comparisons
    ]


def _effect_rows(model: Mixed) -> list[_Row]:
    return [
        _Row(f"{one.condition} – {one.other}", [signed(value), f"{signed(low)} to {signed(high)}"])
        for one in model.effects
        for value, low, high in [one.estimate[:3]]
    ]


def _power(report: Report) -> list[_Row]:
    rows: list[_Row] = []
    asked = [("preference", report.preferences.comparisons)] if report.preferences else []
    asked += [(one.question, one.comparisons) for one in report.ratings[:1]]
    for question, comparisons in asked:
        for one in comparisons:
            power = one.power
            if question == "preference":
                least = f"{min(1.0, 0.5 + power.least / 2):.0%}" if power.least <= 1 else "none"
                interest = f"{0.5 + power.of_interest / 2:.0%}"
            else:
                least = f"{power.least:.2f} points" if power.least <= 4 else "none"
                interest = f"{power.of_interest:g} points"
            needed = "over 10,000" if power.needed is None else f"{power.needed:,}"
            cells = [question, interest, f"{power.reached:.0%}", needed, least]
            rows.append(_Row(_pair(one), cells))
    return rows


def _listener(one: Screened) -> _Row:
    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.0%}"

    cells = [
        f"{one.answers:,}",
        *(share(one.attention), share(one.agreement)),
        "–" if one.difference is None else f"{one.difference:.2f}",
        *(share(one.anchor_wins), share(one.heard)),
        "yes" if one.reasons else "no",
    ]
    return _Row(one.listener, cells, bool(one.reasons))
