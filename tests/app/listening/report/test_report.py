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
from scipy import stats
from statsmodels.stats.multitest import multipletests

from app.errors import CommandError
from app.listening.report.comparisons import holm, rank_biserial, wilcoxon
from app.listening.report.findings import findings, is_found
from app.listening.report.judgements import read_test
from app.listening.report.options import OptionError, ReportOptions
from app.listening.report.pages.page import as_page
from app.listening.report.power import LEVEL, WANTED, least_listeners, power_of
from app.listening.report.preferences import bradley_terry
from app.listening.report.report import make_report
from app.listening.report.results import as_json, as_table, summary
from tests.support.blind_studies import answer_all, write_study
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
    golden = json.loads((ROOT / "tests/golden/listening_report.json").read_text("utf-8"))
    results = json.loads(as_json(report))
    found = dict(parts({name: results[name] for name in golden}))
    assert found.keys() - dict(parts(golden)).keys() == {p for p in found if "/power/" in p}
    for place, value in parts(golden):
        is_number = isinstance(value, float)
        assert found[place] == (pytest.approx(value, rel=1e-3, abs=1e-4) if is_number else value)
    assert results["findings"] == findings(report)
    assert all(finding in summary(report) for finding in findings(report))


# C. Darwin's differences of cross- and self-fertilised maize, in eighths of an inch: R. A. Fisher,
# The Design of Experiments (1935), table 3. The sum of negative ranks is 24.
DARWIN = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], float)
# A. Agresti, Categorical Data Analysis (2nd edition, 2002), table 10.10: baseball in the American
# League, 1987; wins of the row against the column, in the order Milwaukee, Detroit, Toronto, New
# York, Boston, Cleveland, Baltimore. Estimates relative to Baltimore: section 10.6.2.
BASEBALL = np.array(
    [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ],
    float,
)
AGAINST_BALTIMORE = [1.581, 1.436, 1.294, 1.248, 1.108, 0.684, 0.0]


def test_published_numbers():
    assert wilcoxon(DARWIN) == pytest.approx(0.04126, abs=1e-5)
    assert rank_biserial(DARWIN) == -rank_biserial(-DARWIN) == pytest.approx((96 - 24) / 120)
    many = np.random.default_rng(1).integers(-3, 5, 80).astype(float)  # with ties
    expected = stats.wilcoxon(many[many != 0], method="approx", correction=True)[1]
    assert wilcoxon(many) == pytest.approx(expected)
    p_values = np.random.default_rng(1).random(20) ** 2
    assert holm(p_values.tolist()) == pytest.approx(multipletests(p_values, method="holm")[1])
    # a t test needs 33.4 listeners to find half a deviation (J. Cohen, 1988, gives 34)
    equal = np.arange(20.0) / np.std(np.arange(20.0), ddof=1)
    power = power_of(equal, 0.5, 1)
    assert power.needed == np.ceil(33.37 / 0.864) - 20
    assert power_of(equal, power.least, 1).reached == pytest.approx(WANTED, abs=1e-3)
    assert power.of_interest < power.least
    # shares spread less near 1 than at the size of interest, as counts do
    near = np.array([1.0, 0.5, 1.0, 1.0, 0.0])
    spread = np.sqrt(np.var([*near, 0.0], ddof=1) * (1 - 0.3**2) / (1 - (3.5 / 6) ** 2))
    shares = power_of(near, 0.3, 1, are_shares=True)
    assert shares.needed == power_of(near * spread / np.std(near, ddof=1), 0.3, 1).needed
    assert power_of(np.ones(11), 0.3, 1, are_shares=True).reached < WANTED
    strengths = bradley_terry(BASEBALL)
    assert strengths - strengths[-1] == pytest.approx(AGAINST_BALTIMORE, abs=2e-3)
    always = bradley_terry(np.array([[0.0, 20.0, 20.0], [0.0, 0.0, 10.0], [0.0, 10.0, 0.0]]))
    assert np.isfinite(always).all()
    assert always[0] - always[1] > 5


def test_the_table_has_the_numbers_of_the_results(report):
    rows = list(csv.DictReader(StringIO(as_table(report))))
    results = json.loads(as_json(report))
    numbers = {value for _, value in parts(results) if isinstance(value, float)}
    for row in rows:
        assert min(abs(value - float(row["estimate"])) for value in numbers) < 1e-5
    counts = {"strength": 3, "probability": 3, "mean": 15, "difference": 15, "mixed model": 6}
    for measure, count in counts.items():
        assert sum(row["measure"] == measure for row in rows) == count
    overall = results["ratings"][0]
    columns = ("p", "p_holm", "effect_size", "listeners", "answers")
    for measure, told, names in (
        ("mean", overall["means"][0], ("answers",)),
        ("difference", overall["comparisons"][0], columns),
    ):
        row = next(row for row in rows if row["measure"] == measure)
        interval = told.get("mean") or told["estimate"]
        told |= {"estimate": interval["value"], "low": interval["low"], "high": interval["high"]}
        for name in ("estimate", "low", "high", *names):
            assert float(row[name]) == pytest.approx(told[name], rel=1e-5)


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
    assert f"{best.condition} was preferred most, with {best.wins:.0f} of its" in said[0]
    assert f"{least.condition} least, with {least.wins:.0f} of" in said[0]
    assert said[-1].startswith("1 of 12 listeners was excluded")
    assert [one.listener for one in report.excluded] == ["listener-12"]


def verb_fits(sentence: str, equal: float) -> bool:
    """Whether a sentence about no difference is about preferences or ratings."""
    return ("points" in sentence) == (equal == 0.0)


def test_few_listeners_find_no_difference(answered):
    for tests in (1, 3, 10, 45):
        least = least_listeners(tests)
        for listeners, can_find in ((least - 1, False), (least, True)):
            p = wilcoxon(np.arange(listeners).astype(np.float64) + 1)
            assert (p * tests < LEVEL) == can_find
    few = [a for a in answered.answers if a.listener <= "listener-02"]
    said = " ".join(findings(make_report(replace(answered, answers=few), ReportOptions(draws=100))))
    assert said.count("2 listeners are too few to find any difference") == 2
    assert "the test needs at least 7" in said
    assert "No difference between" not in said


def test_a_known_difference_is_found(tmp_path):
    """Sixteen listeners who like one of three conditions better, after six prompts."""
    write_study(tmp_path, ("piano", "groove", "real"), prompts=6)
    answer_all(tmp_path, {"real": 1.0}, listeners=17)
    report = make_report(read_test(tmp_path), ReportOptions(draws=200))
    assert report.preferences
    for comparisons, equal, wanted in (
        (report.preferences.comparisons, 0.5, 1 / (1 + np.exp(1))),
        (report.ratings[0].comparisons, 0.0, -1.0),
    ):
        same, *better = comparisons
        assert not is_found(same)
        assert same.estimate.low < equal < same.estimate.high
        for one in better:
            assert one.other == "real"
            assert is_found(one)
            assert one.is_certain
            assert one.estimate.low < wanted < one.estimate.high
    for model, wanted in zip(report.mixed, (-1.0, 2 / (1 + np.exp(1)) - 1), strict=True):
        for effect in model.effects[1:]:
            assert effect.estimate.low < wanted < effect.estimate.high


def test_two_listeners_whose_answers_do_not_differ_are_reported(answered):
    two = [a for a in answered.answers if a.listener <= "listener-02"]
    equal = [replace(a, answer="first" if a.kind == "preference" else "3") for a in two]
    report = make_report(replace(answered, answers=equal), replace(QUICK, check=True))
    assert not [model.effects for model in report.mixed if model.effects]
    assert as_page(report).count("too few answers, or none that differ") == 2
    assert [c.p for c in report.ratings[0].comparisons] == [1.0] * 3


def test_answers_of_one_kind(answered):
    for kind in ("rating", "preference"):
        answers = [answer for answer in answered.answers if answer.kind == kind]
        report = make_report(replace(answered, answers=answers), QUICK)
        assert (report.preferences is None) == (kind == "rating")
        assert bool(report.ratings) == (kind == "rating")


def test_what_cannot_be_compared_is_refused(answered):
    wrong: list[tuple[str, Any]] = [
        *(("points_of_interest", 0), ("points_of_interest", 4.5), ("draws", 99), ("seed", -1)),
        *(("preference_of_interest", 0.5), ("preference_of_interest", 1)),
    ]
    for field, value in wrong:
        with pytest.raises(OptionError, match=f"is {value}, expected") as refused:
            ReportOptions(**{field: value})
        assert refused.value.name == field
    alone = [answer for answer in answered.answers if answer.listener == "listener-01"]
    real = [a for a in answered.answers if answered.clips[a.first].condition == "real"]
    ratings = [answer for answer in real if answer.kind == "rating"]
    for answers, problem in (
        ([], "found no answers"),
        (alone, r"answers of one listener \(listener-01\), expected at least two"),
        (ratings, r"answers about one condition \(real\), expected at least two"),
    ):
        with pytest.raises(CommandError, match=problem):
            make_report(replace(answered, answers=answers), QUICK)
