"""What is asked of new bars, as the rows over the roll show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.compose.options import MusicOptions
from app.compose.plan.lead_sheet import LeadSheet
from app.player.plan import PlanFrame, plan_frame
from tokenization.analysis.form import Phrase

SHEET = LeadSheet("C major", (Phrase("A", 0, 8),), (0,) * 8, (("C",), ("G", "Am")) * 4)


def frame(form: str = "", chords: str = "", **options: Any) -> PlanFrame:
    return plan_frame(SHEET, 8, replace(MusicOptions(bars=4), **options), (form, chords))


def test_nothing_is_asked_at_first():
    plan = frame()
    assert (plan["first"], plan["bars"], plan["sections"], plan["chords"]) == (9, 4, [], [])
    assert (plan["problem"], plan["asked"], plan["growth"]) == ("", "", None)
    assert plan["letters"] == [("A", 8), ("B", 8)]  # the last one is new
    assert plan["known"] == ["C", "G", "Am"]


def test_sections_have_bars_and_those_beyond_the_length_are_cut():
    plan = frame("B2 A", bars=10)
    assert plan["sections"] == [("B", 2), ("A", 8)]
    assert plan["letters"] == [("A", 8), ("B", 2), ("C", 8)]
    plan = frame("B2 A8 C4")
    assert plan["sections"] == [("B", 2), ("A", 2)]
    assert plan["problem"] == "The form has 14 bars, but the new music only 4."


def test_what_is_wrong_is_said_in_a_sentence():
    for wrong in (frame("8A"), frame("Q"), frame(chords="C | X"), frame(chords="|")):
        assert wrong["problem"].endswith(".")
        assert wrong["problem"][0].isupper()
        assert wrong["sections"] == []


def test_each_bar_has_the_chords_that_are_asked_and_wrong_ones_are_marked():
    plan = frame(chords="Am | % | ? | G7  E7")
    assert plan["chords"] == ["Am", "Am", "", "G7 E7"]
    assert (plan["written"], plan["asked"]) == (4, "chords in 3 of 4 bars")
    plan = frame(chords="C | X7 | % | F  G", bars=6)
    assert plan["chords"] == ["C", "X7", "X7", "F G", "C", "X7"]
    assert (plan["written"], plan["wrong"]) == (4, [1, 2, 5])
    assert "X7" in plan["problem"]
    assert frame(chords="% | C || F")["wrong"] == [0, 2]
    assert frame("B4", "C | ? | F")["wrong"] == []


def test_what_is_asked_is_said_in_short_and_a_way_to_continue_is_named():
    """The way is one if all its options are chosen."""
    differ = "at least 2 of the 8 new bars differ from yours"
    differs = "at least 1 of the 4 new bars differs from yours"
    for asked, text, growth in (
        (("B2",), "form B2 and 2 bars of the model's choice", None),
        (("B3",), "form B3 and 1 bar of the model's choice", None),
        (("B4",), "form B4", None),
        ({"bars": 8, "distance": 0.25}, differ, "fill_4"),
        ({"bars": 4, "distance": 0.25}, differs, None),
        ({"bars": 8, "distance": 1.0}, "all of the 8 new bars differ from yours", None),
        ({"bars": 1, "distance": 1.0}, "the new bar differs from yours", None),
        ({"ending": "cadence"}, "a cadence", "ending"),
        ({"ending": "natural"}, "an ending by the model", None),
    ):
        plan = frame(**asked) if isinstance(asked, dict) else frame(*asked)
        assert (plan["asked"], plan["growth"]) == (text, growth)
    assert frame("B8", bars=8, distance=1.0)["growth"] == "section"


def test_no_chords_are_asked_of_drums():
    drums = LeadSheet("", (Phrase("A", 0, 4),), (0,) * 4, ((),) * 4)
    nothing = LeadSheet("", (), (), ())
    for sheet, is_drums in ((drums, True), (SHEET, False), (nothing, False)):
        plan = plan_frame(sheet, len(sheet.chords), MusicOptions(bars=4), ("", ""))
        assert bool(plan["no_chords"]) is is_drums


def test_a_piece_from_nothing_has_the_sections_that_are_asked_and_nothing_grows():
    plan = plan_frame(LeadSheet("", (), (), ()), 0, MusicOptions(bars=6), ("A4 B2", "Am"))
    assert (plan["first"], plan["bars"]) == (1, 6)
    assert plan["sections"] == [("A", 4), ("B", 2)]
    assert plan["letters"] == [("A", 4), ("B", 2), ("C", 6)]
    assert (plan["known"], plan["growth"], plan["problem"]) == ([], None, "")
