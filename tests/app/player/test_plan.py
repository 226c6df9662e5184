"""What is asked of new bars, as the rows over the roll show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.compose.options import MusicOptions
from app.compose.plan.lead_sheet import LeadSheet
from app.player.plan import PlanFrame, plan_frame
from tokenization.analysis.form import Phrase

SHEET = LeadSheet("C major", (Phrase("A", 0, 8),), (0,) * 8, (("C",), ("G", "Am")) * 4)


def frame(form: str = "", chords: str = "", no_form: str = "", **options: Any) -> PlanFrame:
    return plan_frame(SHEET, 8, replace(MusicOptions(bars=4), **options), (form, chords), no_form)


def test_nothing_is_asked_at_first():
    plan = frame()
    assert (plan["first"], plan["bars"], plan["sections"], plan["chords"]) == (9, 4, [], [])
    assert (plan["problem"], plan["asked"], plan["growth"]) == ("", "", None)
    assert plan["letters"] == [("A", 8), ("B", 8)]  # the last one is new
    assert plan["known"] == ["C", "G", "Am"]


def test_each_bar_has_the_chords_that_are_asked():
    plan = frame(chords="Am | % | ? | G7  E7")
    assert plan["chords"] == ["Am", "Am", "", "G7 E7"]
    assert (plan["written"], plan["asked"]) == (4, "chords in 3 of 4 bars")
    plan = frame(chords="Am | F")
    assert (plan["chords"], plan["written"]) == (["Am", "F"] * 2, 2)


def test_sections_have_bars_and_those_beyond_the_length_are_cut():
    plan = frame("B2 A", bars=10)
    assert plan["sections"] == [("B", 2), ("A", 8)]
    assert plan["letters"] == [("A", 8), ("B", 2), ("C", 8)]
    plan = frame("B2 A8 C4")
    assert plan["sections"] == [("B", 2), ("A", 2)]
    assert plan["problem"] == "The form has 14 bars, but the new music only 4."


def test_what_is_wrong_is_said_in_a_sentence():
    for wrong in (frame("8A"), frame("Q"), frame(chords="C | H"), frame(chords="|")):
        assert wrong["problem"].endswith(".")
        assert wrong["sections"] == []


def test_a_wrong_chord_is_marked_and_the_others_are_shown():
    plan = frame(chords="C | H7 | % | F  G", bars=6)
    assert plan["chords"] == ["C", "H7", "H7", "F G", "C", "H7"]
    assert plan["wrong"] == [1, 2, 5]
    assert "H7" in plan["problem"]
    assert frame(chords="% | C || F")["wrong"] == [0, 2]
    assert frame("B4", "C | ? | F")["wrong"] == []


def test_the_bars_after_a_form_are_said_to_be_of_the_model():
    assert frame("B2")["asked"] == "form B2 and 2 bars of the model's choice"
    assert frame("B3")["asked"] == "form B3 and 1 bar of the model's choice"
    assert frame("B4")["asked"] == "form B4"


def test_the_way_to_continue_is_named_if_all_its_options_are_chosen():
    assert frame(bars=8, distance=0.25)["growth"] == "fill_4"
    assert frame(bars=8, distance=0.25)["asked"] == "at least 2 of the 8 new bars differ from yours"
    one = "at least 1 of the 4 new bars differs from yours"
    assert frame(bars=4, distance=0.25)["asked"] == one
    assert frame("B8", bars=8, distance=1.0)["growth"] == "section"
    assert frame(bars=8, distance=1.0, no_form="none")["growth"] == "section"
    assert frame(ending="cadence")["growth"] == "ending"
    assert frame(ending="natural")["growth"] is None


def test_no_chords_are_asked_of_drums():
    drums = LeadSheet("", (Phrase("A", 0, 4),), (0,) * 4, ((),) * 4)
    nothing = LeadSheet("", (), (), ())
    for sheet, is_drums in ((drums, True), (SHEET, False), (nothing, False)):
        plan = plan_frame(sheet, len(sheet.chords), MusicOptions(bars=4), ("", ""), "")
        assert bool(plan["no_chords"]) is is_drums


def test_a_piece_from_nothing_has_the_sections_that_are_asked_and_nothing_grows():
    plan = plan_frame(LeadSheet("", (), (), ()), 0, MusicOptions(bars=6), ("A4 B2", "Am"), "")
    assert (plan["first"], plan["bars"]) == (1, 6)
    assert plan["sections"] == [("A", 4), ("B", 2)]
    assert plan["letters"] == [("A", 4), ("B", 2), ("C", 6)]
    assert (plan["known"], plan["growth"], plan["problem"]) == ([], None, "")
