"""Screening of listeners."""

from dataclasses import replace

import pytest

from app.listening.clips import JudgedClip
from app.listening.report.judgements import Test as ListeningTest
from app.listening.report.options import OptionError, Thresholds
from app.listening.report.screening import screen
from tests.support import blind_studies

CLIPS = {
    f"{condition}{prompt}": JudgedClip(f"{condition}{prompt}", f"p{prompt}", condition, 10.0)
    for condition in ("model", "real", "low")
    for prompt in range(4)
}
RATING = replace(blind_studies.RATING, first="model0")
PAIR = replace(blind_studies.PAIR, first="model0", second="low0")


def screened(*answers, thresholds=None, anchors=("low",)):
    test = ListeningTest(title="", clips=CLIPS, answers=list(answers), anchors=anchors)
    (found,) = screen(test, thresholds or Thresholds())
    return found


def rated(trial, clip, answer="3", **fields):
    return replace(RATING, trial=trial, first=clip, answer=answer, **fields)


def compared(trial, first, second, answer="first", **fields):
    return replace(PAIR, trial=trial, first=first, second=second, answer=answer, **fields)


RIGHT = [replace(PAIR, trial=trial, expected="first") for trial in (1, 2, 3)]
WRONG = replace(PAIR, trial=4, expected="second")
QUESTIONS = ("coherence", "structure", "creativity", "musicality")
CHECK = [replace(RATING, question=question, expected="3") for question in QUESTIONS]
ONCE = [rated(n, f"model{n}") for n in range(4)]
AGAIN = [rated(10 + n, f"model{n}", "5", repeats=n) for n in range(4)]
PAIRS = [compared(n, f"model{n}", f"real{n}") for n in range(4)]
SAME_SIDE = [compared(10 + n, f"real{n}", f"model{n}", repeats=n) for n in range(4)]
SAME_CLIP = [replace(pair, answer="second") for pair in SAME_SIDE]
GOOD_ANCHOR = [
    rated(n, f"{condition}{n}", answer)
    for n in range(4)
    for condition, answer in (("model", "2"), ("low", "2" if n else "4"))
]
OTHER_PROMPTS = [rated(n, f"{name}{n}") for n, name in enumerate(["model", "low", "model", "low"])]
ANCHOR_WON = [compared(n, f"low{n}", f"real{n}") for n in range(4)]

RULES = [
    # answers, measure, value, reason to exclude the listener
    ([RATING, PAIR], "attention", None, ""),
    ([*RIGHT, WRONG], "attention", 0.75, ""),
    ([RIGHT[0], WRONG], "attention", 0.5, "50% of the attention trials right, expected at least"),
    # a trial with several questions counts once
    ([*CHECK, RIGHT[1]], "attention", 1.0, ""),
    ([*CHECK, replace(RIGHT[1], answer="second")], "attention", 0.5, "50% of the attention"),
    ([replace(CHECK[0], answer="2"), *CHECK[1:], RIGHT[1]], "attention", 0.5, "50% of the"),
    ([*ONCE, *AGAIN], "difference", 2.0, "repeated ratings differ by 2.00 points, expected at"),
    ([*ONCE, *AGAIN[:3]], "difference", None, ""),
    # pairs are compared by clip, not by side
    ([*PAIRS, *SAME_SIDE], "agreement", 0.0, "same choice in 0% of the repeated pairs"),
    ([*PAIRS, *SAME_CLIP], "agreement", 1.0, ""),
    ([*PAIRS, *SAME_CLIP[:3]], "agreement", None, ""),
    ([RATING, PAIR], "anchor_wins", None, ""),  # one comparison is too few
    (GOOD_ANCHOR, "anchor_wins", 0.625, "low anchors won 62% of their comparisons, expected at"),
    (OTHER_PROMPTS, "anchor_wins", None, ""),
    (ANCHOR_WON, "anchor_wins", 1.0, "low anchors won 100%"),
    ([RATING, PAIR], "heard", 1.0, ""),
    ([replace(RATING, heard_first=99.0)], "heard", 1.0, ""),
    (
        [replace(RATING, heard_first=2.0), replace(RATING, heard_first=4.0, trial=2)],
        *("heard", 0.3, "played 30% of a clip in the median, expected at least 50%"),
    ),
    # practice is not judged
    ([RATING, replace(RATING, trial=2, kind="training", heard_first=0.0)], "heard", 1.0, ""),
]


def test_the_rules_of_screening():
    for answers, measure, value, reason in RULES:
        found = screened(*answers)
        assert getattr(found, measure) == (value if value is None else pytest.approx(value))
        assert len(found.reasons) == bool(reason)
        assert all(text.startswith(reason) for text in found.reasons)


def test_thresholds_and_anchors_can_be_chosen():
    assert not screened(RIGHT[0], WRONG, thresholds=Thresholds(least_attention=0.5)).reasons
    assert screened(*GOOD_ANCHOR, anchors=()).anchor_wins is None
    for name in Thresholds.__dataclass_fields__:
        for wrong in (-1.0, float("nan"), 4.5):
            with pytest.raises(OptionError, match=r"is .*, expected 0 to") as refused:
                Thresholds(**{name: wrong})
            assert refused.value.name == name
