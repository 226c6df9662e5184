from __future__ import annotations

from app.compose.plan.lead_sheet import ChartRow, LeadSheet
from tokenization.plan import BarPlan, Chord, Key, Plan, PlannedChord
from tokenization.score import Score, TimeSignature, Track

C, F, G_B = Chord(0, 0), Chord(5, 0), Chord(7, 0, 11)


def bar(*chords: Chord | None, source: int = 0) -> BarPlan:
    return BarPlan(source, tuple(map(PlannedChord, (0, 2), chords)))


def test_a_chart_has_rows_of_four_bars_and_signs_for_repeated_bars():
    bars = [bar(C), bar(C), bar(G_B), bar(C, F), bar(C, F), bar(None)]
    sheet = LeadSheet.of_plan(Plan(tuple(bars), Key(0, minor=False)))
    assert sheet.key == "C major"
    assert sheet.chords == (("C",), ("C",), ("G/B",), ("C", "F"), ("C", "F"), ("N.C.",))
    assert list(sheet.rows()) == [
        ChartRow("A", 1, ("C", "%", "G/B", "C F")),
        ChartRow("", 5, ("C F", "N.C.")),
    ]


def test_each_phrase_begins_a_row():
    verse = [bar(Chord(root, 0)) for root in (0, 5, 7, 0, 0, 5, 7, 7)]
    again = [bar_plan.__class__(8, bar_plan.chords) for bar_plan in verse]
    sheet = LeadSheet.of_plan(Plan((*verse, *again)))
    assert sheet.form == "A8 A8"
    assert sheet.returns == (0,) * 8 + tuple(range(1, 9))
    assert [(row.letter, row.first_bar) for row in sheet.rows()] == [
        *(("A", 1), ("", 5)),
        *(("A", 9), ("", 13)),
    ]


def test_bars_between_eighths_and_those_of_drums_return():
    tune = [(700 * bar + 300 * note, 100, 60 + note, 80) for bar in range(4) for note in range(2)]
    score = Score(400, (Track.of(tune),), (), (TimeSignature(0, 7, 16),), 2800)
    assert LeadSheet.of(score).returns == (0, 1, 2, 3)
    # drums have a form and no chart
    beat = [(48 * bar, 6, 36, 64) for bar in range(4)]
    sheet = LeadSheet.of(Score(12, (Track.of(beat, is_drum=True),)))
    assert (sheet.key, sheet.form, list(sheet.rows())) == ("", "A4", [])
    assert sheet.returns == (0, 1, 2, 3)
    assert LeadSheet.of(Score(12, (Track.of(beat),))).key == ""  # one pitch fits many


def test_the_tail_of_the_last_note_belongs_to_its_bar():
    def bars(length: int, pedal: int = 0, rest: int = 0) -> int:
        tune = [(480 * beat, 400, 60 + beat % 4, 80) for beat in range(15)]
        controls = [(0, 64, 127), (7200 + pedal, 64, 0)] if pedal else []
        track = Track([*tune, (7200, length, 67, 80)], controls=controls)  # pyright: ignore
        return len(LeadSheet.of(Score(480, (track,), end_ticks=rest)).chords)

    assert [bars(length) for length in (480, 500, 900, 1500)] == [4] * 4
    assert bars(480 + 1900) == bars(480 + 1440) == 5  # held to the end of another bar
    assert bars(480, pedal=3000) == 4
    assert bars(480, rest=5 * 1920) == 5
