"""A whole report: its numbers, and the sentences that say the same."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from app.errors import CommandError
from app.listening.report.comparisons import wilcoxon
from app.listening.report.findings import findings, is_found, least_listeners
from app.listening.report.power import LEVEL
from app.listening.report.report import ReportOptions, make_report
from app.listening.report.results import as_json, as_table, summary
from app.listening.report.screening import Thresholds
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


QUICK = ReportOptions(draws=100, check=False)


def parts(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text of a JSON value, with its place."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, (dict, list)) and part:
            yield from parts(part, f"{place}/{name}")
        else:
            yield f"{place}/{name}", part


def test_the_numbers_of_a_report(report):
    """Those that the last commit with its own mixed models and power computed."""
    golden = json.loads((ROOT / "tests/golden/listening_report.json").read_text("utf-8"))
    results = json.loads(as_json(report))
    for (place, value), (same_place, wanted) in zip(
        parts({name: results[name] for name in golden}), parts(golden), strict=True
    ):
        assert place == same_place
        is_number = isinstance(wanted, float)
        wanted = pytest.approx(wanted, rel=1e-3, abs=1e-4) if is_number else wanted
        assert value == wanted, place
    assert results["findings"] == findings(report)
    assert all(finding in summary(report) for finding in findings(report))


def test_the_table_has_the_numbers_of_the_results(report):
    rows = list(csv.DictReader(StringIO(as_table(report))))
    results = json.loads(as_json(report))
    numbers = {value for _, value in parts(results) if isinstance(value, float)}
    for row in rows:
        assert min(abs(value - float(row["estimate"])) for value in numbers) < 1e-5
    counts = {"strength": 3, "probability": 3, "mean": 15, "difference": 15, "mixed model": 6}
    for measure, count in counts.items():
        assert sum(row["measure"] == measure for row in rows) == count
    (row,) = (
        row
        for row in rows
        if (row["measure"], row["question"], row["condition"]) == ("mean", "overall", "real")
    )
    mean = next(m for m in results["ratings"][0]["means"] if m["condition"] == "real")["mean"]
    for name, part in (("estimate", "value"), ("low", "low"), ("high", "high")):
        assert float(row[name]) == pytest.approx(mean[part], rel=1e-5)
    compared = next(row for row in rows if row["measure"] == "difference")
    (first, *_) = results["ratings"][0]["comparisons"]
    for name in ("p", "p_holm", "effect_size", "listeners", "answers"):
        assert float(compared[name]) == pytest.approx(first[name], rel=1e-5)


def test_the_sentences_say_what_the_table_says(report):
    assert report.preferences is not None
    said = findings(report)
    for comparisons, verb, equal in (
        (report.preferences.comparisons, "was preferred to", 0.5),
        (report.ratings[0].comparisons, "was rated higher than", 0.0),
    ):
        for one in comparisons:
            names = (one.condition, one.other)
            value = one.estimate.value
            if is_found(one):
                better, worse = names if value >= equal else names[::-1]
                (sentence,) = (s for s in said if s.startswith(f"{better} {verb} ") and worse in s)
                assert ("after these prompts" in sentence) != one.is_certain
                text = sentence[sentence.index(f"{worse} (") :]
                value = value if better == one.condition else 2 * equal - value
            else:
                beginning = f"No difference between {names[0]} and {names[1]} was shown ("
                (text,) = (s for s in said if s.startswith(beginning) and verb_fits(s, equal))
                assert f"a probability of {one.power.reached:.0%}" in text
                assert one.power.needed is None or f"{one.power.needed} more listener" in text
            shown = re.search(r"\(([+−\d.]+)", text)
            assert shown is not None
            number = float(shown[1].replace("−", "-")) / (100 if equal else 1)
            assert number == pytest.approx(value, abs=0.006)
    best, *_, least = report.preferences.strengths
    assert f"{best.condition} was preferred most, with {best.wins:.0f} of its" in said[1]
    assert f"{least.condition} least, with {least.wins:.0f} of" in said[1]
    assert said[0].startswith("1 of the 12 listeners are simulated")
    assert said[-1].startswith("1 of 12 listeners was excluded")
    assert [one.listener for one in report.excluded] == ["simulated-012"]


def verb_fits(sentence: str, equal: float) -> bool:
    """Whether a sentence about no difference is about preferences or ratings."""
    return ("points" in sentence) == (equal == 0.0)


def test_few_listeners_find_no_difference(answered):
    for tests in (1, 3, 10, 45):
        least = least_listeners(tests)
        for listeners, can_find in ((least - 1, False), (least, True)):
            p = wilcoxon(np.arange(listeners) + 1.0)
            assert (p * tests < LEVEL) == can_find
    few = [a for a in answered.answers if a.listener in ("person-001", "person-002", "person-003")]
    said = " ".join(findings(make_report(replace(answered, answers=few), QUICK)))
    assert said.count("3 listeners are too few to find any difference") == 2
    assert "the test needs at least 7" in said
    assert "No difference between" not in said


def test_answers_of_one_kind(answered):
    for kind in ("rating", "preference"):
        answers = [answer for answer in answered.answers if answer.kind == kind]
        report = make_report(replace(answered, answers=answers), QUICK)
        assert (report.preferences is None) == (kind == "rating")
        assert bool(report.ratings) == (kind == "rating")


def test_what_cannot_be_compared_is_refused(answered):
    alone = [answer for answer in answered.answers if answer.listener == "person-001"]
    real = [a for a in answered.answers if answered.clips[a.first].condition == "real"]
    ratings = [answer for answer in real if answer.kind == "rating"]
    for answers, problem in (
        ([], "found no answers"),
        (alone, r"answers of one listener \(person-001\), expected at least two"),
        (ratings, r"answers about one condition \(real\), expected at least two"),
    ):
        with pytest.raises(CommandError, match=problem):
            make_report(replace(answered, answers=answers), QUICK)
    strict = replace(QUICK, thresholds=Thresholds(least_heard=1.0))
    with pytest.raises(CommandError, match="12 of 12 listeners are excluded"):
        make_report(answered, strict)


def test_options_have_a_range():
    for field, value in (
        ("points_of_interest", 0),
        ("points_of_interest", 4.5),
        ("preference_of_interest", 0.5),
        ("preference_of_interest", 1),
        ("draws", 99),
        ("seed", -1),
    ):
        with pytest.raises(ValueError, match=f"{field.replace('_', ' ')} is {value}, expected"):
            ReportOptions(**{field: value})
