"""Usual ways to continue a loop: presets of the options, which decide what is written."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Literal, NamedTuple

from app.compose.options import Ending, MusicOptions, limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.compose.plan.lead_sheet import LeadSheet

Growth = Literal["vary", "fill_4", "fill_8", "section", "ending"]
_ENDING_BARS = 4
_USUAL_BARS = 8
_MOST_LOOP_BARS = 16


class Preset(NamedTuple):
    """The options of a way to continue; fields are those of `MusicOptions`."""

    bars: int
    distance: float
    form: str | None = None
    ending: Ending = MusicOptions.ending


def presets(sheet: LeadSheet, num_bars: int) -> dict[Growth, Preset]:
    """Return the ways to continue the first bars of a piece.

    A loop of up to 16 bars is followed by as many bars, a longer piece by as many as its last
    section has.

    Args:
        sheet: the lead sheet of the piece.
        num_bars: number of bars before the new music.
    """
    length = loop_bars(sheet, num_bars)
    new = new_letter([phrase.letter for phrase in sheet.phrases])
    return {
        "vary": Preset(length, 0.5),
        "fill_4": Preset(max(length, 4), 0.25),
        "fill_8": Preset(max(length, 8), 0.125),
        "section": Preset(length, 1.0, form=f"{new}{length}"),
        "ending": Preset(min(length, _ENDING_BARS), 0.0, ending="cadence"),
    }


def loop_bars(sheet: LeadSheet, num_bars: int) -> int:
    """Return the number of bars by which a piece grows."""
    if num_bars <= _MOST_LOOP_BARS:
        return max(num_bars, 1)
    last = [phrase for phrase in sheet.phrases if phrase.first_bar < num_bars]
    length = last[-1].num_bars if last else _USUAL_BARS
    return min(length, int(limits("bars").page[1] or length))


def new_letter(letters: Sequence[str]) -> str:
    """Return the first letter that no section has."""
    return next((one for one in ascii_uppercase if one not in letters), ascii_uppercase[-1])
