"""The report as one page of HTML, which loads nothing from elsewhere and has no scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from app.listening.report.findings import (
    ABOUT_RANGES,
    findings_by_subject,
    is_found,
    signed,
)
from app.listening.report.pages.plots import Scale, interval_plot, scale_around, share_plot
from app.listening.report.power import WANTED
from app.text import plural

if TYPE_CHECKING:
    from app.listening.report.bootstrap import Interval
    from app.listening.report.comparisons import Comparison
    from app.listening.report.preferences import Preferences
    from app.listening.report.ratings import Ratings
    from app.listening.report.report import Report
    from app.listening.report.screening import Screened

_STYLE = Path(__file__).with_name("page.css")
_SHARES = Scale(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), 0.5, "{:.0%}".format, "{:.0%}".format)
_POINTS = Scale(1.0, 5.0, (1.0, 2.0, 3.0, 4.0, 5.0), None, "{:.2f}".format, "{:g}".format)


class _Cell(NamedTuple):
    """A cell of a table that is not a plain number."""

    text: str
    style: str = ""
    share: float | None = None


def as_page(report: Report) -> str:
    """Return the page as text; the same report gives the same text."""
    judged = report.judged
    about = ", ".join(
        (
            plural(len(judged.listeners), "listener"),
            plural(len(judged.conditions), "condition"),
            plural(len(judged.prompts), "prompt"),
            plural(len(judged.preferences), "preference"),
            plural(sum(r.question != "overall" for r in judged.ratings), "rating"),
        )
    )
    said = [
        f"<h3>{escape(subject)}</h3>\n{_list(sentences)}"
        for subject, sentences in findings_by_subject(report)
    ]
    sections = [
        _section("What was found", _text(ABOUT_RANGES), *said),
        _preferences(report.preferences) if report.preferences else "",
        _ratings(report.ratings) if report.ratings else "",
        _power(report),
        _screening(report),
        _check(report),
        _method(report),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}: results of a listening test</title>\n"
        f"<style>\n{_STYLE.read_text('utf-8')}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(report.title)}</h1><p>Results of a listening test: {about}</p>"
        f"</header>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{''.join(parts)}</section>\n"


def _list(sentences: Iterable[str]) -> str:
    return (
        '<ul class="found">'
        + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        + "</ul>\n"
    )


def _text(text: str) -> str:
    return f"<p>{escape(text)}</p>\n"


def _figure(title: str, about: str, svg: str) -> str:
    return (
        f"<figure><figcaption>{escape(title)}<span>{escape(about)}</span></figcaption>{svg}"
        "</figure>\n"
    )


def _table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str | _Cell]],
    *,
    marked: Iterable[bool] = (),
    style: str = "",
) -> str:
    """Return a table whose first column names its rows.

    Wide ones can be scrolled by keyboard too.
    """
    marks = list(marked)
    body = []
    for number, row in enumerate(rows):
        cells = [f'<th scope="row">{escape(str(row[0]))}</th>']
        for cell in row[1:]:
            one = cell if isinstance(cell, _Cell) else _Cell(cell)
            share = "" if one.share is None else f' style="--share:{one.share:.2f}"'
            kind = f' class="{one.style}"' if one.style else ""
            cells.append(f"<td{kind}{share}>{escape(one.text)}</td>")
        mark = ' class="yes"' if number < len(marks) and marks[number] else ""
        body.append(f"<tr{mark}>{''.join(cells)}</tr>")
    heads = "".join(
        f'<th scope="col"{"" if place else " class=text"}>{escape(text)}</th>'
        for place, text in enumerate(head)
    )
    kind = f' class="{style}"' if style else ""
    return (
        f'<p class="caption">{escape(caption)}</p>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table{kind} aria-label="{escape(caption)}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>\n"
    )


def _preferences(preferences: Preferences) -> str:
    rows = [(one.condition, one.preferred) for one in preferences.strengths]
    names = [one.condition for one in preferences.strengths]
    plots = _figure(
        "How often each is preferred",
        "Probability against a condition of average strength, with 95% intervals",
        interval_plot(
            "Strengths",
            "; ".join(f"{name}: {_percent(interval)}" for name, interval in rows),
            rows,
            _SHARES,
        ),
    ) + _figure(
        "Each pair",
        "Probability that the first is preferred to the second, with 95% intervals",
        interval_plot(
            "Pairs",
            "; ".join(f"{_pair(one)}: {_percent(one.estimate)}" for one in preferences.comparisons),
            [(_pair(one), one.estimate) for one in preferences.comparisons],
            _SHARES,
        ),
    )
    return _section(
        "Preferences",
        _text(
            "Listeners chose one of two clips. Strengths are those of the Bradley-Terry model, "
            "which uses all pairs together."
        ),
        f'<div class="plots">\n{plots}</div>\n',
        _comparisons(
            "Pairs; those significant after Holm's correction are bold",
            "Probability",
            preferences.comparisons,
            lambda interval: (f"{interval.value:.0%}", _range(interval, ".0%")),
        ),
        _table(
            "Wins of the row against the column",
            ["", *names],
            [[one, *(_won(preferences, one, other) for other in names)] for one in names],
            style="wins",
        ),
        _text(
            f"The clip presented first was chosen in {preferences.first:.1%} of the pairs "
            f"(p = {_p(preferences.first_p)} for a half)."
        ),
    )


def _won(preferences: Preferences, one: str, other: str) -> _Cell:
    wins, lost = preferences.wins.get((one, other), 0), preferences.wins.get((other, one), 0)
    if not wins + lost:
        return _Cell("–" if one != other else "")
    return _Cell(f"{wins:,} of {wins + lost:,}", share=wins / (wins + lost))


def _ratings(ratings: Sequence[Ratings]) -> str:
    plots: list[str] = []
    shares: list[str] = []
    tables: list[str] = []
    for one in ratings:
        name = one.question.capitalize()
        rows = [(mean.condition, mean.mean) for mean in one.means]
        text = "; ".join(
            f"{label}: {interval.value:.2f} ({_range(interval, '.2f')})" for label, interval in rows
        )
        about = "Mean of the questions" if one.question == "overall" else "Mean"
        plot = interval_plot(f"Means, {name}", text, rows, _POINTS)
        plots.append(_figure(name, f"{about}, 1 to 5, with 95% intervals", plot))
        if one.question != "overall":
            text = "; ".join(f"{m.condition}: {', '.join(map(str, m.counts))}" for m in one.means)
            shares.append(
                _figure(
                    name,
                    "Shares of the answers, from 1 (left) to 5",
                    share_plot(f"Answers, {name}", text, one.means),
                )
            )
        table = _table(
            f"{name}: means",
            ["Condition", "Mean", "95% interval", "Answers"],
            [
                [m.condition, f"{m.mean.value:.2f}", _range(m.mean, ".2f"), f"{m.answers:,}"]
                for m in one.means
            ],
        ) + _comparisons(
            f"{name}: differences; those significant after Holm's correction are bold",
            "Difference",
            one.comparisons,
            lambda interval: (
                signed(interval.value),
                f"{signed(interval.low)} to {signed(interval.high)}",
            ),
        )
        tables.append(table)
    first, *others = tables
    more = (
        f"<details><summary>Tables of the single questions</summary>\n{''.join(others)}</details>\n"
        if others
        else ""
    )
    differences = ratings[0].comparisons
    limits = [part for one in differences for part in one.estimate[:3]]
    about = f"Points of {ratings[0].question} by which the first is higher, with 95% intervals"
    pairs = _figure(
        "Each pair",
        about,
        interval_plot(
            "Differences",
            "; ".join(f"{_pair(one)}: {signed(one.estimate.value)}" for one in differences),
            [(_pair(one), one.estimate) for one in differences],
            scale_around(limits, 0.0, signed),
        ),
    )
    return _section(
        "Ratings",
        _text("Listeners rated single clips from 1 to 5."),
        f'<div class="plots">\n{plots[0]}{pairs}</div>\n',
        f'<div class="plots">\n{"".join(plots[1:])}{"".join(shares)}</div>\n',
        first,
        more,
    )


def _comparisons(
    caption: str,
    unit: str,
    comparisons: Sequence[Comparison],
    shown: Callable[[Interval], tuple[str, str]],
) -> str:
    return _table(
        caption,
        ["Pair", unit, "95% interval", "p", "p, Holm", "Effect size", "Listeners", "Answers"],
        [
            [
                _pair(one),
                *shown(one.estimate),
                _p(one.p),
                _p(one.p_holm),
                signed(one.effect_size),
                f"{one.listeners:,}",
                f"{one.answers:,}",
            ]
            for one in comparisons
        ],
        marked=[is_found(one) for one in comparisons],
    )


def _power(report: Report) -> str:
    rows = []
    said = [("preference", report.preferences.comparisons)] if report.preferences else []
    said += [(one.question, one.comparisons) for one in report.ratings[:1]]
    for question, comparisons in said:
        for one in comparisons:
            power = one.power
            if question == "preference":
                least = f"{min(1.0, 0.5 + power.least / 2):.0%}" if power.least <= 1 else "none"
                interest = f"{0.5 + power.of_interest / 2:.0%}"
            else:
                least = f"{power.least:.2f} points" if power.least <= 4 else "none"
                interest = f"{power.of_interest:g} points"
            needed = "over 10,000" if power.needed is None else f"{power.needed:,}"
            rows.append([_pair(one), question, interest, f"{power.reached:.0%}", needed, least])
    if not rows:
        return ""
    return _section(
        "Power",
        _text(
            "Power is the probability that the test finds a difference of the size of interest, "
            "the smallest that is worth finding, if there is one. It depends on that size, on the "
            "number of listeners and on how much they differ, not on what was found."
        ),
        _table(
            f"Power reached, and listeners still needed for {WANTED:.0%}",
            [
                *(
                    "Pair",
                    "Question",
                    "Size of interest",
                    "Power reached",
                    "Listeners still needed",
                ),
                f"Smallest size found with {WANTED:.0%}",
            ],
            rows,
        ),
    )


def _screening(report: Report) -> str:
    limits = report.options.thresholds
    if report.excluded:
        excluded = _table(
            "Excluded listeners",
            ["Listener", "Reason"],
            [[one.listener, _Cell("; ".join(one.reasons), "reason")] for one in report.excluded],
            style="reasons",
        )
    else:
        excluded = _text("No listener was excluded.")
    anchors = ", ".join(report.anchors) or "none"
    table = _table(
        "All listeners",
        [
            *("Listener", "Answers", "Attention trials right", "Repeated pairs agree"),
            *("Repeated ratings differ by", "Comparisons won by anchors", "Played", "Excluded"),
        ],
        [_listener(one) for one in report.screened],
        marked=[bool(one.reasons) for one in report.screened],
    )
    return _section(
        "Listeners",
        excluded,
        _text(
            f"A listener is excluded below {limits.least_attention:.0%} of the attention trials "
            f"right, below {limits.least_agreement:.0%} of repeated pairs with the same choice, "
            f"above {limits.most_difference:g} points between repeated ratings, above "
            f"{limits.most_anchor_wins:.0%} of the comparisons won by low anchors ({anchors}), or "
            f"below {limits.least_heard:.0%} of a clip played in the median. A dash means that "
            "there is too little to judge by."
        ),
        f"<details><summary>Measures of all listeners</summary>\n{table}</details>\n",
    )


def _listener(one: Screened) -> list[str]:
    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.0%}"

    return [
        one.listener,
        f"{one.answers:,}",
        share(one.attention),
        share(one.agreement),
        "–" if one.difference is None else f"{one.difference:.2f}",
        share(one.anchor_wins),
        share(one.heard),
        "yes" if one.reasons else "no",
    ]


def _check(report: Report) -> str:
    parts = []
    for model in report.mixed:
        if not model.effects:
            cannot = f"The mixed model of {model.measure}s cannot be fitted"
            parts.append(_text(f"{cannot}: there are too few answers, or none that differ."))
            continue
        unit = "points" if model.measure == "rating" else "share of wins minus share of losses"
        variances = ", ".join(f"{name} {value:.3f}" for name, value in model.variances.items())
        state = "" if model.converged else " The fit did not converge; do not rely on it."
        parts.append(
            _table(
                f"Mixed model of {model.measure}s ({unit})",
                ["Pair", "Difference", "95% interval"],
                [
                    [
                        f"{one.condition} – {one.other}",
                        signed(one.estimate.value),
                        f"{signed(one.estimate.low)} to {signed(one.estimate.high)}",
                    ]
                    for one in model.effects
                ],
            )
            + f'<p class="quiet">{escape(f"Variances: {variances}.{state}")}</p>\n'
        )
    if not parts:
        return ""
    return _section(
        "Check by mixed models",
        _text(
            "The same answers in linear mixed models, with random effects of listeners and "
            "prompts. The differences should agree with those above; the results are those above."
        ),
        f"<details><summary>Tables</summary>\n{''.join(parts)}</details>\n",
    )


def _method(report: Report) -> str:
    options, judged = report.options, report.judged
    weights = " weighted by confidence," if options.weigh_by_confidence else ""
    prompts = (
        "There is one prompt, so that nothing is said about others."
        if len(judged.prompts) == 1
        else "They apply to other prompts of the same kind, too."
    )
    return _section(
        "Method",
        _list(
            [
                "Practice, attention and repeated trials are not analysed. Pairs of clips of one "
                f"condition are left out ({judged.same_condition:,}).",
                f"Strengths: Bradley-Terry,{weights} by maximum likelihood. Means: of all answers "
                "about a condition.",
                f"Intervals: crossed cluster bootstrap over {len(judged.listeners):,} listeners "
                f"and {len(judged.prompts):,} prompts, {options.draws:,} samples, seed "
                f"{options.seed}. {prompts}",
                "p: Wilcoxon's signed rank test of one number per listener, two-sided. It applies "
                "to other listeners after these prompts. Holm's correction is for all pairs of a "
                "question. A difference is said to hold for other prompts only if a t test with "
                "the variance of the bootstrap, corrected in the same way, finds it too.",
                "Effect size: matched-pairs rank-biserial correlation, from −1 to 1.",
                "Power: that of a t test with 0.864 as many listeners, the least efficiency of "
                "the signed rank test; listeners differ as in the study. The level is that of the "
                "first step of Holm's correction, 0.05 divided by the number of pairs.",
                "The analysis should be chosen before the answers are seen: conditions, "
                "thresholds, and sizes of interest.",
                f"Made by relpe {version('relpe')}.",
            ]
        ),
    )


def _pair(one: Comparison) -> str:
    return f"{one.condition} – {one.other}"


def _range(interval: Interval, style: str) -> str:
    if not math.isfinite(interval.low):
        return "unknown"
    return f"{interval.low:{style}} to {interval.high:{style}}"


def _percent(interval: Interval) -> str:
    return f"{interval.value:.0%} ({_range(interval, '.0%')})"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
