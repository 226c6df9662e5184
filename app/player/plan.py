"""What is asked of new bars, for the rows over the piano roll: see `plan_frame`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from app.compose.options import MusicOptions
from app.compose.plan.growth import Growth, new_letter, presets
from app.text import plural
from tokenization.plan_text import chart_bars, parse_chart, parse_sections

if TYPE_CHECKING:
    from app.compose.plan.lead_sheet import LeadSheet

_MOST_CHORDS = 12
"""Number of different chords of a piece that are offered."""


class PlanFrame(TypedDict):
    """Form and chords that are asked of the new bars, and what can be asked."""

    first: int
    """The first new bar, counted from 1."""
    bars: int
    """Number of new bars."""
    sections: list[tuple[str, int]]
    """Letter and number of bars of each section; the model chooses the bars after them."""
    chords: list[str]
    """The chords of each new bar, as they were typed; empty: the model chooses."""
    wrong: list[int]
    """New bars, from 0, whose chords are not understood."""
    written: int
    """Number of bars of the chart as it is written; further ones repeat it."""
    letters: list[tuple[str, int]]
    """Sections that can come back, with their bars: of the piece, then asked ones; the last one is
    new."""
    known: list[str]
    """Chords of the piece, in order of their first bars."""
    no_chords: str
    """Why no chords can be asked for."""
    problem: str
    """What is wrong with the form or the chords, as a sentence."""
    asked: str
    """What is asked, in short; empty: the model chooses everything."""
    growth: Growth | None
    """The way to continue a loop that the options are those of; None for a piece from nothing."""


def plan_frame(
    sheet: LeadSheet, first: int, options: MusicOptions, texts: tuple[str, str]
) -> PlanFrame:
    """Return the frame of what is asked.

    Args:
        sheet: the lead sheet of the piece.
        first: number of bars before the new ones.
        options: the length, distance and ending of the new music.
        texts: form and chords as they were typed, which may be wrong.
    """
    before = [phrase for phrase in sheet.phrases if phrase.first_bar < first]
    lengths = {phrase.letter: phrase.num_bars for phrase in before}
    form, chart = texts
    problem = ""
    sections: list[tuple[str, int]] = []
    chords: list[str] = []
    wrong: list[int] = []
    written = 0
    try:
        if form.strip():
            sections = parse_sections(form, lengths)
    except ValueError as error:
        problem = _sentence(error)
    try:
        if chart.strip():
            cells = _cells(chart)
            written = len(cells)
            chords = [cells[bar % written] for bar in range(options.bars)]
            unread = _unread(chart)
            wrong = [bar for bar in range(options.bars) if bar % written in unread]
            parse_chart(chart)
    except ValueError as error:
        problem = problem or _sentence(error)
    total = sum(count for _, count in sections)
    if total > options.bars and not problem:
        problem = f"The form has {total} bars, but the new music only {options.bars}."
    letters = lengths | dict(sections)
    new = new_letter([*letters])
    size = before[-1].num_bars if before else min(options.bars, 8)
    ways = presets(sheet, first) if first else {}
    now = (options.bars, options.distance, form.strip() or None, options.ending)
    return PlanFrame(
        first=first + 1,
        bars=options.bars,
        sections=_within(sections, options.bars),
        chords=chords,
        wrong=wrong,
        written=written,
        letters=[*letters.items(), (new, size)],
        known=list(dict.fromkeys(one for bar in sheet.chords for one in bar))[:_MOST_CHORDS],
        no_chords=no_chords(sheet),
        problem=problem,
        asked=_asked(sections, chords, options),
        growth=next((name for name, preset in ways.items() if tuple(preset[:4]) == now), None),
    )


def no_chords(sheet: LeadSheet) -> str:
    """Return why no chords can be asked for beside a piece; empty if they can."""
    is_drums = len(sheet.chords) > 0 and not any(sheet.chords)
    return "Only drums play, which have no chords." if is_drums else ""


def _cells(chart: str) -> list[str]:
    """Return the chords of each bar of a chart, with those of the bar before instead of %."""
    cells: list[str] = []
    for bar in chart_bars(chart):
        cells.append(cells[-1] if bar == "%" and cells else "" if bar == "?" else bar)
    return cells


def _unread(chart: str) -> set[int]:
    """Return the bars of a chart, from 0, that are not understood."""
    unread: set[int] = set()
    for number, bar in enumerate(chart_bars(chart)):
        if bar == "%" and number:
            unread |= {number} if number - 1 in unread else set()
            continue
        try:
            parse_chart(bar)
        except ValueError:
            unread.add(number)
    return unread


def _sentence(error: ValueError) -> str:
    return f"{str(error)[:1].upper()}{str(error)[1:]}."


def _within(sections: list[tuple[str, int]], bars: int) -> list[tuple[str, int]]:
    kept: list[tuple[str, int]] = []
    for letter, count in sections:
        if bars > 0:
            kept.append((letter, min(count, bars)))
        bars -= count
    return kept


def _asked(sections: list[tuple[str, int]], chords: list[str], options: MusicOptions) -> str:
    parts: list[str] = []
    if sections:
        form = "form " + " ".join(f"{letter}{count}" for letter, count in sections)
        left = options.bars - sum(count for _, count in sections)
        parts.append(form + (f" and {plural(left, 'bar')} of the model's choice" * (left > 0)))
    if num := sum(bool(bar) for bar in chords):
        parts.append(f"chords in {num} of {options.bars} bars")
    if options.distance:
        differs = int(options.bars * options.distance + 1e-9)
        which = "all" if differs == options.bars else f"at least {differs}"
        verb = "differs" if differs == 1 else "differ"
        whole = "the new bar" if options.bars == 1 else f"{which} of the {options.bars} new bars"
        parts.append(f"{whole} {verb} from yours")
    if options.ending in ("cadence", "natural"):
        parts.append("an ending by the model" if options.ending == "natural" else "a cadence")
    return ", ".join(parts)
