"""Plots of the report, as SVG inside its page.

They are narrow, so that their letters can be read on a phone, and coloured by the page's style, for
light, dark and print. Every number is also in a table beside them.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.listening.report.bootstrap import Interval
    from app.listening.report.ratings import Mean

WIDTH = 360
_LEFT, _RIGHT = 10, 10
_ROW, _TOP, _AXIS = 40, 8, 24
_LETTERS = 34
"""Letters of a label beside its value."""


class Scale(NamedTuple):
    """The axis of a plot."""

    low: float
    high: float
    ticks: tuple[float, ...]
    reference: float | None
    """Where there is no difference."""
    shown: Callable[[float], str]
    """Values as text."""
    named: Callable[[float], str]
    """Ticks as text."""

    def x(self, value: float) -> float:
        """Return the place of a value, limited to the plot."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)


def scale_around(values: Sequence[float], reference: float, shown: Callable[[float], str]) -> Scale:
    """Return a symmetric scale with a reference in the middle, with round ticks."""
    far = max((abs(v - reference) for v in values if math.isfinite(v)), default=1.0) or 1.0
    step = next(s for s in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf) if far / s <= 3)
    count = max(1, math.ceil(far / step)) if math.isfinite(step) else 1
    step = step if math.isfinite(step) else far
    ticks = tuple(reference + step * n for n in range(-count, count + 1))
    return Scale(ticks[0], ticks[-1], ticks, reference, shown, _tick)


def _tick(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−") if value else "0"


def interval_plot(
    name: str, description: str, rows: Sequence[tuple[str, Interval]], scale: Scale
) -> str:
    """Return a dot with its interval for each row.

    `name` is the plot's id in the page and its title.
    """
    height = _TOP + _ROW * len(rows) + _AXIS
    parts = [_grid(scale, height)]
    for place, (label, interval) in enumerate(rows):
        top = _TOP + _ROW * place
        value, low, high = (scale.x(part) for part in _finite(interval))
        y = top + 28
        parts += [
            f'<text class="label" x="{_LEFT}" y="{top + 13}">{escape(shortened(label))}</text>',
            f'<text class="value" x="{WIDTH - _RIGHT}" y="{top + 13}" text-anchor="end">'
            f"{escape(scale.shown(interval.value))}</text>",
            f'<line class="range" x1="{low}" y1="{y}" x2="{high}" y2="{y}"/>',
            *(
                f'<line class="range" x1="{x}" y1="{y - 4}" x2="{x}" y2="{y + 4}"/>'
                for x in (low, high)
            ),
            f'<circle class="dot" cx="{value}" cy="{y}" r="5"/>',
        ]
    return _svg(name, description, height, parts)


def share_plot(name: str, description: str, means: Sequence[Mean]) -> str:
    """Return a bar for each condition, divided by the answers 1 to 5."""
    height = _TOP + _ROW * len(means) + 4
    width = WIDTH - _LEFT - _RIGHT
    parts = []
    for place, one in enumerate(means):
        top, x = _TOP + _ROW * place, float(_LEFT)
        parts.append(
            f'<text class="label" x="{_LEFT}" y="{top + 13}">'
            f"{escape(shortened(one.condition))}</text>"
        )
        for number, count in enumerate(one.counts, 1):
            share = count / max(1, sum(one.counts))
            length = round(share * width, 1)
            if not count:
                continue
            parts.append(
                f'<rect class="answer a{number}" x="{x:.1f}" y="{top + 18}" width="{length}" '
                'height="16"/>'
            )
            if length > 22:
                parts.append(
                    f'<text class="inside i{number}" x="{x + length / 2:.1f}" y="{top + 30}" '
                    f'text-anchor="middle">{number}</text>'
                )
            x += length
    return _svg(name, description, height, parts)


def shortened(label: str) -> str:
    """Return a label that has place beside its value; the tables have the whole names."""
    return label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"


def _finite(interval: Interval) -> tuple[float, float, float]:
    value = interval.value if math.isfinite(interval.value) else 0.0
    low, high = (part if math.isfinite(part) else value for part in (interval.low, interval.high))
    return value, low, high


def _grid(scale: Scale, height: float) -> str:
    bottom = height - _AXIS + 4
    lines = []
    for tick in scale.ticks:
        x = scale.x(tick)
        anchor = {scale.ticks[0]: "start", scale.ticks[-1]: "end"}.get(tick, "middle")
        style = "reference" if scale.reference == tick else "grid"
        lines.append(f'<line class="{style}" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>')
        lines.append(
            f'<text class="tick" x="{x}" y="{bottom + 14}" text-anchor="{anchor}">'
            f"{escape(scale.named(tick))}</text>"
        )
    return "".join(lines)


def _svg(name: str, description: str, height: float, parts: Sequence[str]) -> str:
    key = "".join(c if c.isalnum() else "-" for c in name.lower())
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{escape(name)}</title><desc id="{key}-d">{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )
