"""The results as files: a table for spreadsheets, and everything as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from app.listening.report.findings import ABOUT_RANGES, findings
from app.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.listening.report.bootstrap import Interval
    from app.listening.report.comparisons import Comparison
    from app.listening.report.mixed import Effect
    from app.listening.report.preferences import Strength
    from app.listening.report.ratings import Mean
    from app.listening.report.report import Report


class Line(NamedTuple):
    """A row of the table; its fields are the columns. Empty where a number has no meaning."""

    measure: str
    """What is estimated, such as `mean`, `difference` or `probability`."""
    question: str
    condition: str
    other: str = ""
    """The condition that it is compared with."""
    estimate: float | str = ""
    low: float | str = ""
    high: float | str = ""
    p: float | str = ""
    p_holm: float | str = ""
    effect_size: float | str = ""
    listeners: int | str = ""
    answers: int | str = ""
    power: float | str = ""
    listeners_needed: int | str = ""


def as_table(report: Report) -> str:
    """Return the results as CSV, a row per estimate."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Line._fields)
    for line in _lines(report):
        writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line)
    return text.getvalue()


def as_json(report: Report) -> str:
    """Return all results as a JSON object; numbers that do not exist are null."""
    judged = report.judged
    results = {
        "title": report.title,
        "findings": findings(report),
        "options": asdict(report.options),
        "listeners": len(judged.listeners),
        "conditions": list(judged.conditions),
        "anchors": list(report.anchors),
        "prompts": list(judged.prompts),
        "pairs_of_one_condition": judged.same_condition,
        "screening": [_plain(one) for one in report.screened],
        "preferences": _preferences(report),
        "ratings": [_plain(one) for one in report.ratings],
        "mixed_models": [_plain(one) for one in report.mixed],
    }
    return json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _lines(report: Report) -> Iterator[Line]:
    if preferences := report.preferences:
        for one in preferences.strengths:
            yield _line("strength", "preference", one, one.strength, answers=one.answers)
        for one in preferences.comparisons:
            yield _compared("probability", "preference", one)
    for ratings in report.ratings:
        for one in ratings.means:
            yield _line("mean", ratings.question, one, one.mean, answers=one.answers)
        for one in ratings.comparisons:
            yield _compared("difference", ratings.question, one)
    for model in report.mixed:
        for one in model.effects:
            yield _line("mixed model", model.measure, one, one.estimate, other=one.other)


def _line(
    measure: str,
    question: str,
    one: Strength | Mean | Comparison | Effect,
    interval: Interval,
    **columns: Any,  # noqa: ANN401 - of `Line`
) -> Line:
    limits = dict(zip(("estimate", "low", "high"), interval[:3], strict=True))
    return Line(measure, question, one.condition, **limits, **columns)


def _compared(measure: str, question: str, one: Comparison) -> Line:
    return _line(
        *(measure, question, one, one.estimate),
        other=one.other,
        p=one.p,
        p_holm=one.p_holm,
        effect_size=one.effect_size,
        listeners=one.listeners,
        answers=one.answers,
        power=one.power.reached,
        listeners_needed="" if one.power.needed is None else one.power.needed,
    )


def _preferences(report: Report) -> dict[str, Any] | None:
    if report.preferences is None:
        return None
    preferences = _plain(report.preferences)
    # keys of JSON are strings
    preferences["wins"] = [
        {"condition": one, "other": other, "wins": wins}
        for (one, other), wins in sorted(report.preferences.wins.items())
    ]
    return preferences


def _plain(value: Any) -> Any:  # noqa: ANN401 - any part of a report
    """Return a part of a report as JSON takes it."""
    if is_dataclass(value):
        return {name: _plain(part) for name, part in vars(value).items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return round(value, 9) if math.isfinite(value) else None
    return value


def summary(report: Report) -> str:
    """Return the findings for a terminal."""
    judged = report.judged
    head = (
        f"{report.title}: {plural(len(judged.listeners), 'listener')}, "
        f"{plural(len(judged.conditions), 'condition')}, {plural(len(judged.prompts), 'prompt')}"
    )
    return "\n".join([head, *(f"- {finding}" for finding in findings(report)), ABOUT_RANGES])
