"""Form, chords and style that are asked of new music, and how much of the chords came."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.compose.plan.lead_sheet import LeadSheet
from tokenization.analysis.chord_symbols import parse_chord
from tokenization.analysis.chords import QUALITIES
from tokenization.analysis.form import find_form
from tokenization.analysis.keys import named_key
from tokenization.errors import MidiError, TokenizerError
from tokenization.plan import Chord, Key, Plan, PlannedChord
from tokenization.plan_text import MAX_DISTANCE, parse_chart, parse_form
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BOS
from tokenization.tokenizer import FixedBar, Tokenizer

if TYPE_CHECKING:
    from app.compose.options import MusicOptions
    from tokenization.constraints.bar_limit import PlannedBar
    from tokenization.score import Score

ASKED = ("form", "chords", "style")
"""The options of this file."""
_MINOR = (1, 2, 6, 7, 8)
"""Indices of the qualities with a minor third."""
_DOMINANT_FROM = 4
"""Number of new bars from which a cadence has a bar of the dominant."""


class Met(NamedTuple):
    """How many bars with an asked chord have it."""

    bars: int
    asked: int

    def __str__(self) -> str:
        return f"chords met in {self.bars} of {self.asked} bars"


def check_asked(options: MusicOptions, tokenizer: Tokenizer) -> None:
    """Raises TokenizerError if the model cannot be asked for a form, this style or this ending.

    Any model can be asked for chords: `tokenization/constraints/harmony.py` leads it.
    """
    used = [name for name in ("form", "style") if getattr(options, name) is not None]
    has_plans = isinstance(tokenizer, Remi) and tokenizer.families.has_plans
    if options.ending == "natural" and not has_plans:
        raise TokenizerError(
            "the model has a vocabulary of version 1, which does not mark the last bar of a piece; "
            "choose the ending bar or cadence, or a model of version 2"
        )
    if used and not has_plans:
        raise TokenizerError(
            f"the model has a vocabulary of version 1, which has no {' and no '.join(used)}; leave "
            "them out, or choose a model of version 2"
        )
    if options.style is not None and options.style not in styles_of(tokenizer):
        known = ", ".join(styles_of(tokenizer)) or "none"
        raise TokenizerError(
            f"the model does not know the style {options.style[:40]!r}; its styles are: {known}"
        )


def styles_of(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Names of the styles of a model."""
    return tuple(getattr(tokenizer.config, "styles", ()))


def with_style(
    ids: NDArray[np.integer], options: MusicOptions, tokenizer: Tokenizer
) -> NDArray[np.integer]:
    """The ids of a context, of which the header names the style."""
    if options.style is None or not isinstance(tokenizer, Remi):
        return ids
    style = tokenizer.families.style + styles_of(tokenizer).index(options.style)
    return np.insert(ids, int(len(ids) > 0 and ids[0] == BOS), style)


class Heard(NamedTuple):
    """A bar before the new music, as it is analysed."""

    letter: str = ""
    """Of its section; empty: none."""
    chords: tuple[PlannedChord, ...] | None = None


def heard_before(plan: Plan, bars: int) -> list[Heard]:
    """The first bars of a piece."""
    letters = [phrase.letter for phrase in find_form(plan) for _ in range(phrase.num_bars)]
    chords = [bar.chords for bar in plan.bars]
    found = [Heard(letter or "", one) for letter, one in zip_longest(letters, chords)]
    return [*found, *[Heard()] * bars][:bars]


def closing_key(options: MusicOptions, plan: Plan | None = None) -> Key | None:
    """The key in which the new music after a piece is to close; None: it need not.

    Scales other than major and minor have no cadence here, and music of some seconds has no bar
    that is known to be the last.
    """
    if options.ending != "cadence" or options.seconds is not None:
        return None
    if options.key is not None:
        return named_key(options.key)
    return plan.key if plan is not None else None


def asked_bars(
    options: MusicOptions,
    planned: Sequence[PlannedBar] | int,
    before: Sequence[Heard] = (),
    fixed: Sequence[FixedBar] = (),
    key: Key | None = None,
) -> list[FixedBar]:
    """What is decided in advance of each new bar of the vocabulary, by options or `fixed` before.

    A chart with fewer bars repeats. After a form with fewer bars, the model chooses, but a bar does
    not resemble one with other chords than those asked for. Without a chart, a bar that brings back
    one of the bars before has its chords.

    Args:
        options: the form and chords that are asked for.
        planned: the new bars, or their number if each is a bar of the vocabulary.
        before: the notated bars before.
        fixed: what is already fixed in the new bars, such as given tracks.
        key: that in which the music closes, see `closing_key`.

    Raises:
        MidiError: the form needs another metre, or a letter has no number of bars.
    """
    if options.form is None and options.chords is None and key is None:
        return list(fixed)
    places = range(planned) if isinstance(planned, int) else [bar.notated for bar in planned]
    try:
        letters = [bar.letter for bar in before]
        sources = parse_form(options.form, letters) if options.form else ()
    except ValueError as error:
        raise MidiError(str(error)) from error
    is_plain = len(set(places)) == len(places)  # each is one bar of the vocabulary
    if sources and not is_plain:
        raise MidiError(
            "the new bars are longer than eight quarter notes, for which no form can be asked; "
            "leave the form out"
        )
    chords = asked_chords(options, planned, key)
    known = [bar.chords for bar in before]
    bars: list[FixedBar] = []
    for index, place in enumerate(places):
        bar = fixed[index] if index < len(fixed) else FixedBar()
        if place < len(sources):
            bar = bar._replace(sources=(sources[place],))
            back = len(before) + place - sources[place]
            if sources[place] and back < len(before) and bar.chords is None:
                bar = bar._replace(chords=before[back].chords or None)
        if chords:
            bar = bar._replace(chords=chords[index] or bar.chords)
            known.append(bar.chords)
            if chords[index] and bar.sources is None and is_plain:
                bar = bar._replace(sources=_alike(known))
        bars.append(bar)
    return bars


def _alike(bars: Sequence[tuple[PlannedChord, ...] | None]) -> tuple[int, ...]:
    """The sources of the last bar: the earlier ones with its chords, and none."""
    asked = _kinds(bars[-1])
    near = bars[-1 - MAX_DISTANCE : -1][::-1]
    return 0, *(back for back, one in enumerate(near, 1) if one and _kinds(one) == asked)


def asked_chords(
    options: MusicOptions, planned: Sequence[PlannedBar] | int, key: Key | None = None
) -> list[tuple[PlannedChord, ...] | None]:
    """The chords that are asked for each new bar of the vocabulary; empty if none are.

    A chart with fewer bars repeats. A bar that is left to the model has no chords, and one that
    continues a notated bar has None. With a `key`, the last bar has its tonic and, of four bars or
    more, the one before has its dominant seventh, unless the chart says otherwise.
    """
    if options.chords is None and key is None:
        return []
    chart = ((),) if options.chords is None else parse_chart(options.chords)
    places = list(range(planned)) if isinstance(planned, int) else [b.notated for b in planned]
    count = places[-1] + 1
    bars = [chart[place % len(chart)] for place in range(count)]
    if key is not None:
        dominant = Chord((key.tonic + 7) % 12, QUALITIES.index("7"))
        tonic = Chord(key.tonic, QUALITIES.index("m" if key.minor else "M"))
        closing = [dominant, tonic] if count >= _DOMINANT_FROM else [tonic]
        for place, chord in enumerate(closing, count - len(closing)):
            bars[place] = bars[place] or (PlannedChord(0, chord),)
    return [
        None if index and places[index - 1] == place else bars[place]
        for index, place in enumerate(places)
    ]


def chords_met(options: MusicOptions, score: Score, first: int, count: int) -> Met | None:
    """In how many of `count` bars from `first` on, from 0, the asked chords are heard.

    A chord is met by its root with the same third; added notes and the bass do not count. None if
    no chords were asked for.
    """
    if options.chords is None:
        return None
    chart, found = parse_chart(options.chords), LeadSheet.of(score).chords
    met = num_asked = 0
    for index in range(count):
        heard = found[first + index] if first + index < len(found) else ()
        asked = _kinds(chart[index % len(chart)])
        num_asked += bool(asked)
        if asked:  # otherwise left to the model
            met += asked == [_kind(parse_chord(one)) for one in heard]
    return Met(met, num_asked)


def _kinds(chords: Sequence[PlannedChord] | None) -> list[tuple[int, bool] | None]:
    return [_kind(planned.chord) for planned in chords or ()]


def _kind(chord: Chord | None) -> tuple[int, bool] | None:
    """The root of a chord, and whether its third is minor; None for no chord."""
    return None if chord is None else (chord.root, chord.quality in _MINOR)
