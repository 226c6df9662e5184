"""Screening of listeners."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.listening.answers import Answer
from app.listening.clips import Clip
from app.listening.report.judgements import Test as ListeningTest
from app.listening.report.screening import Thresholds, screen

CLIPS = {
    f"{condition}{prompt}": Clip(f"{condition}{prompt}", f"p{prompt}", condition, 10.0)
    for condition in ("model", "real", "low")
    for prompt in range(4)
}
RATING = Answer(
    listener="one",
    trial=1,
    kind="rating",
    question="coherence",
    first="model0",
    answer="3",
    heard_first=10.0,
    seconds=20.0,
    answered_at="2026-01-01T00:00:00Z",
)
PAIR = replace(
    RATING,
    kind="preference",
    question="preference",
    second="low0",
    answer="first",
    confidence=3,
    heard_second=10.0,
)


def screened(*answers, thresholds=None, anchors=("low",)):
    test = ListeningTest(title="", clips=CLIPS, answers=list(answers), anchors=anchors)
    (found,) = screen(test, thresholds or Thresholds())
    return found


def test_a_listener_who_does_all_as_asked_is_kept():
    found = screened(RATING, PAIR)
    assert found.reasons == ()
    assert (found.attention, found.agreement, found.difference) == (None, None, None)
    assert found.anchor_wins is None  # one comparison is too few
    assert found.heard == 1.0


def test_attention_trials():
    right = [replace(PAIR, trial=trial, expected="first") for trial in (1, 2, 3)]
    wrong = replace(PAIR, trial=4, expected="second")
    assert screened(*right, wrong).reasons == ()
    found = screened(right[0], wrong)
    assert found.attention == 0.5
    assert found.reasons == ("50% of the attention trials right, expected at least 75%",)
    assert screened(right[0], wrong, thresholds=Thresholds(least_attention=0.5)).reasons == ()


def test_an_attention_trial_with_several_questions_counts_once():
    pair = replace(PAIR, trial=2, expected="first")
    questions = ("coherence", "structure", "creativity", "musicality")
    rated = [replace(RATING, question=question, expected="3") for question in questions]
    assert screened(pair, *rated).attention == 1.0
    assert screened(replace(pair, answer="second"), *rated).attention == 0.5
    assert screened(pair, replace(rated[0], answer="2"), *rated[1:]).attention == 0.5


def test_repeated_ratings():
    trials = [replace(RATING, trial=n, first=f"model{n}") for n in range(4)]
    again = [replace(t, trial=10 + t.trial, repeats=t.trial, answer="5") for t in trials]
    found = screened(*trials, *again)
    assert found.difference == 2.0
    assert found.reasons == ("repeated ratings differ by 2.00 points, expected at most 1.25",)
    assert screened(*trials, *again[:3]).difference is None


def test_repeated_pairs_are_compared_by_clip_not_by_side():
    trials = [replace(PAIR, trial=n, first=f"model{n}", second=f"real{n}") for n in range(4)]
    swapped = [
        replace(t, trial=10 + t.trial, repeats=t.trial, first=t.second, second=t.first)
        for t in trials
    ]
    found = screened(*trials, *swapped)  # the side is the same, the clip is not
    assert found.agreement == 0.0
    assert len(found.reasons) == 1
    agreeing = [replace(t, answer="second") for t in swapped]
    assert screened(*trials, *agreeing).agreement == 1.0


def test_rank_of_the_low_anchor():
    ratings = [
        replace(RATING, trial=n, first=f"{condition}{n}", answer=answer)
        for n in range(4)
        for condition, answer in (("model", "2"), ("low", "2" if n else "4"))
    ]
    found = screened(*ratings)
    assert found.anchor_wins == pytest.approx((3 * 0.5 + 1) / 4)
    assert found.reasons == ("low anchors won 62% of their comparisons, expected at most 50%",)
    assert screened(*ratings, anchors=()).anchor_wins is None
    # prompts are compared separately
    apart = [
        replace(r, first=r.first.replace("low", "low")[:-1] + str(i))
        for i, r in enumerate(ratings[:4])
    ]
    assert screened(*apart).anchor_wins is None
    pairs = [replace(PAIR, trial=n, first=f"low{n}", second=f"real{n}") for n in range(4)]
    assert screened(*pairs).anchor_wins == 1.0


def test_listening_time():
    found = screened(replace(RATING, heard_first=2.0), replace(RATING, heard_first=4.0, trial=2))
    assert found.heard == pytest.approx(0.3)
    assert found.reasons == ("played 30% of a clip in the median, expected at least 50%",)
    assert screened(replace(RATING, heard_first=99.0)).heard == 1.0


def test_practice_is_not_judged():
    careless = replace(RATING, trial=2, kind="training", heard_first=0.0)
    assert screened(RATING, careless).heard == 1.0


@pytest.mark.parametrize("name", list(Thresholds.__dataclass_fields__))
def test_thresholds_have_a_range(name):
    with pytest.raises(ValueError, match=f"{name} is -1, expected 0 to"):
        Thresholds(**{name: -1.0})
    with pytest.raises(ValueError, match=name):
        Thresholds(**{name: float("nan")})
