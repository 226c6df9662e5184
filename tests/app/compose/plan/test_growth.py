from dataclasses import replace

from app.compose.options import MusicOptions
from app.compose.plan.growth import presets
from app.compose.plan.lead_sheet import LeadSheet
from tokenization.analysis.form import Phrase

LOOP = LeadSheet("C major", (Phrase("A", 0, 8),), (0,) * 8, (("C",),) * 8)
SONG = LeadSheet("C major", (Phrase("A", 0, 16), Phrase("B", 16, 12)), (0,) * 28, (("C",),) * 28)


def test_every_way_has_options_that_can_be_used():
    pieces = [(LOOP, 8), (SONG, 28), (SONG, 1), (replace(LOOP, phrases=()), 40)]
    for sheet, bars in pieces:
        for preset in presets(sheet, bars).values():
            MusicOptions(**preset._asdict())
    # a loop is followed by as many bars, and a song by a section
    assert [preset.bars for preset in presets(LOOP, 8).values()] == [8, 8, 8, 8, 4]
    assert [preset.bars for preset in presets(LOOP, 2).values()] == [2, 4, 8, 2, 2]
    assert presets(SONG, 28)["section"][:3] == (12, 1.0, "C12")
