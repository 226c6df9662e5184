"""Sections that keep their letters when a piece with new bars is analysed again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokenization.analysis.form import Phrase
from tokenization.plan_text import parse_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECTION = re.compile(r"([A-Z]{1,4})([1-9]\d{0,5})")


def with_asked(
    given: Sequence[Phrase], first: int, count: int, form: str | None
) -> tuple[Phrase, ...]:
    """Return the sections that are known before the `count` new bars from `first` on are heard.

    These are the given ones, and in the new bars those that are asked for, as far as they go.
    """
    if not form:
        return tuple(given)
    before = until(given, first)
    lengths = {letter: length for letter, _, length in before}
    asked, place, end = [], first, first + count
    for letter, length in parse_sections(form, lengths):
        asked.append(Phrase(letter, place, length))
        place = min(place + length, end)
    after = max((phrase.first_bar + phrase.num_bars for phrase in given), default=0)
    return (*before, *_cut(asked, first, end), *_cut(given, place, after))


def with_tail(phrases: Sequence[Phrase], bars: int) -> tuple[Phrase, ...]:
    """Return the phrases of a piece, the last one with the further bars in which it rings."""
    if not phrases:
        return ()
    *others, last = phrases
    return (*others, last._replace(num_bars=max(last.num_bars, bars - last.first_bar)))


def until(phrases: Sequence[Phrase], stop: int) -> list[Phrase]:
    """Return the phrases before the bar `stop`, of which the last may be cut."""
    return _cut(phrases, 0, stop)


def _cut(phrases: Sequence[Phrase], first: int, stop: int) -> list[Phrase]:
    """Return the parts of phrases that lie in the bars from `first` to before `stop`."""
    ends = ((letter, max(at, first), min(at + count, stop)) for letter, at, count in phrases)
    return [Phrase(letter, begin, end - begin) for letter, begin, end in ends if begin < end]


def sections_text(phrases: Sequence[Phrase]) -> str:
    """Return the letter and number of bars of each phrase: `A8 A8 B8 A8`."""
    return " ".join(f"{phrase.letter}{phrase.num_bars}" for phrase in phrases)


def read_sections(text: str) -> tuple[Phrase, ...]:
    """Return the phrases of `sections_text`, which begin with the first bar. Raises ValueError."""
    phrases: list[Phrase] = []
    place = 0
    for section in text.split():
        if (match := _SECTION.fullmatch(section)) is None:
            raise ValueError(
                f"the section {section[:20]!r} is not understood, expected a letter and a number "
                "of bars, such as A8"
            )
        phrases.append(Phrase(match[1], place, int(match[2])))
        place += phrases[-1].num_bars
    return tuple(phrases)
