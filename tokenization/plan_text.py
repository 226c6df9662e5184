"""Plans as people write them: a form such as `A8 B8 A8`, and a chart such as `C | G/B | Am F`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from tokenization.analysis.chord_symbols import parse_chord
from tokenization.analysis.keys import NOTES, SIGNS
from tokenization.plan import Key, PlannedChord
from tokenization.tokenizer import FixedBar

MOST_BARS = 1024
"""Maximum number of bars of a form or chart."""
MAX_DISTANCE = 64
"""A section that lies further back in bars is New."""

_SECTION = re.compile(r"([A-Z])(\d{0,6})")
_KEY = re.compile(r"([A-G])([#♯b♭]?)\s*(m|min|minor|maj|major|)", re.IGNORECASE)


def parse_form(
    text: str, heard: Sequence[str] = (), starts: Collection[int] = ()
) -> tuple[int, ...]:
    """Return the source of each new bar, from sections such as `A8 B8 A8`; see `BarPlan.source`.

    A section is a letter and its number of bars, which can be left out if the letter has occurred.
    A letter that has occurred brings back its last bars, from their first one on, and once more if
    the new section is longer. `heard` has the letter of each bar before; an empty text is none.
    Equal letters in a row are one section, but for the bars `starts`, with which another begins.

    Raises:
        ValueError: the text is not a form.
    """
    places: dict[str, tuple[int, int]] = {}  # start and length of the last section of a letter
    for bar, letter in enumerate(heard):
        start, length = places.get(letter, (0, 0))
        follows = start + length == bar and length > 0 and bar not in starts
        places[letter] = (start, length + 1) if follows else (bar, 1)
    places.pop("", None)
    sources: list[int] = []
    lengths = {letter: length for letter, (_, length) in places.items()}
    for letter, count in parse_sections(text, lengths):
        start, length = places.get(letter, (0, 0))
        first = len(heard) + len(sources)
        for bar in range(count):
            distance = first + bar - (start + bar % length) if length else 0
            sources.append(distance if distance <= MAX_DISTANCE else 0)
        places[letter] = (first, count)
    return tuple(sources)


def parse_sections(text: str, lengths: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the letter and number of bars of each section of a form; see `parse_form`.

    `lengths` are those of the last section of each letter that has occurred.
    """
    num_bars = dict(lengths)
    sections: list[tuple[str, int]] = []
    left = MOST_BARS
    for section in text.split():
        match = _SECTION.fullmatch(section)
        if match is None:
            raise ValueError(
                f"the section {section[:20]!r} of the form is not understood, expected a letter "
                "from A to Z and a number of bars, as in A8 B8 A8"
            )
        letter = match[1]
        count = int(match[2]) if match[2] else num_bars.get(letter, 0)
        if not 0 < count <= left:
            raise ValueError(
                f"the section {section[:20]!r} of the form has {count} bars, expected 1 to "
                f"{left}; write a number of bars after a new letter, as in A8"
            )
        num_bars[letter], left = count, left - count
        sections.append((letter, count))
    if not sections:
        raise ValueError("the form is empty, expected sections such as A8 B8 A8")
    return sections


def parse_chart(text: str, beats: int = 4) -> tuple[tuple[PlannedChord, ...], ...]:
    """Return the chords of each new bar, from a chart such as `C | G/B | Am F`.

    Bars are separated by `|` and have one chord, or two of equal length. A chord is a root from A
    to G, optionally with # or b, a quality (see `chord_symbols.py`), and a bass after a slash. `N`
    is no chord, `%` repeats the bar before, and `?` leaves the bar to the model: it has no chords.
    `beats` is the number of beats of a bar.

    Raises:
        ValueError: the text is not a chart.
    """
    bars: list[tuple[PlannedChord, ...]] = []
    for number, bar in enumerate(chart_bars(text), 1):
        symbols = bar.split()
        if symbols == ["%"] and bars:
            bars.append(bars[-1])
            continue
        if symbols == ["?"]:
            bars.append(())
            continue
        if not 1 <= len(symbols) <= 2:
            raise ValueError(
                f"bar {number} of the chart has {len(symbols)} chords, expected one or two; "
                "separate bars by |, and write % for the bar before"
            )
        chords = [parse_chord(symbol) for symbol in symbols]
        places = (0, -(-beats // 2))
        bars.append(tuple(map(PlannedChord, places, chords)))
        if len(bars) > MOST_BARS:
            raise ValueError(f"the chart has over {MOST_BARS} bars, expected at most that many")
    return tuple(bars)


def chart_bars(text: str) -> list[str]:
    """Return the text of each bar of a chart. Raises ValueError if it is empty."""
    if not text.strip():
        raise ValueError("the chart is empty, expected chords such as C | G/B | Am F")
    return [" ".join(bar.split()) for bar in text.strip().strip("|").split("|")]


def parse_key(text: str) -> Key:
    """Return a key such as `C`, `F#m` or `Bb minor`. Raises ValueError."""
    match = _KEY.fullmatch(text.strip()) if len(text) <= 20 else None
    if match is None:
        raise ValueError(
            f"the key {text[:20]!r} is not understood, expected a note from A to G, optionally "
            "with # or b, and m if it is minor, such as C, F#m or Bb"
        )
    mode = match[3]
    tonic = (NOTES[match[1].upper()] + SIGNS[match[2].lower()]) % 12
    return Key(tonic, mode == "m" or mode.lower() in ("min", "minor"))


def fixed_bars(
    first_bar: int,
    sources: Sequence[int] = (),
    chords: Sequence[tuple[PlannedChord, ...]] = (),
    given: Sequence[tuple[int, ...]] = (),
) -> dict[int, FixedBar]:
    """Return what is fixed in the bars from `first_bar` on, as counted by the grammar.

    The lists may differ in length; the model chooses what is not in them.
    """
    rows = zip_longest([(source,) for source in sources], chords, given)
    return {first_bar + index: FixedBar(*row) for index, row in enumerate(rows)}
