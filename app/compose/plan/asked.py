"""Form, chords and style that are asked of new music, and how much of the chords came."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.compose.plan.lead_sheet import LeadSheet
from app.text import listed, plural
from tokenization.analysis.chord_symbols import parse_chord
from tokenization.analysis.chords import QUALITIES
from tokenization.analysis.form import Phrase, find_form
from tokenization.analysis.keys import key_at_end, named_key
from tokenization.errors import MidiError, TokenizerError
from tokenization.plan import Chord, Key, Plan, PlannedChord
from tokenization.plan_text import MAX_DISTANCE, parse_chart, parse_form
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BOS
from tokenization.tokenizer import FixedBar

if TYPE_CHECKING:
    from app.compose.options import MusicOptions
    from tokenization.constraints.bar_limit import PlannedBar
    from tokenization.score import Score

ASKED = ("form", "chords", "style", "metre", "band")
"""The options of this file."""
_NEAR_STYLES = {
    **dict.fromkeys(("bossa", "samba", "tango", "merengue", "reggaeton"), "latin"),
    **dict.fromkeys(("salsa", "mambo", "rumba", "son", "cha cha"), "afro-cuban"),
    **dict.fromkeys(("swing", "bebop", "big band"), "jazz"),
    **dict.fromkeys(("rap", "trap", "lo-fi", "lofi", "r&b"), "hip hop"),
    **dict.fromkeys(("edm", "techno", "house", "disco", "electronic"), "dance"),
    **dict.fromkeys(("metal", "punk", "grunge"), "rock"),
    **dict.fromkeys(("symphony", "film", "cinematic"), "orchestra"),
}
"""Names that people use for what the models call otherwise."""
_MINOR = (1, 2, 6, 7, 8)
"""Indices of the qualities with a minor third."""
_DOMINANT_FROM = 4
"""Number of new bars from which a cadence has a bar of the dominant."""


class Met(NamedTuple):
    """How many bars have what is asked of them."""

    what: str
    """Chords, or the form: bars that are to return."""
    asked: int
    missed: tuple[int, ...]
    """The bars that do not have it, from 0."""

    def __str__(self) -> str:
        noun = "returning bar" if self.what == "form" else "bar"
        text = f"{self.what} met in {self.asked - len(self.missed)} of {plural(self.asked, noun)}"
        if not self.missed or len(self.missed) == self.asked:
            return text
        bars = listed([str(bar + 1) for bar in self.missed])
        return f"{text}, not in {'bar' if len(self.missed) == 1 else 'bars'} {bars}"


def lacks_style(style: str, tokenizer: Remi) -> bool:
    """Return whether a style is asked, and a model has none of this name."""
    return bool(style) and style not in styles_of(tokenizer)


def check_style(options: MusicOptions, model: str, tokenizer: Remi) -> None:
    """Raise TokenizerError if the model of this name lacks the style that is asked."""
    style, styles = options.style or "", styles_of(tokenizer)
    if lacks_style(style, tokenizer):
        choose = "choose a model with styles, such as piano or groove, or leave that out"
        if styles:
            choose = f"its styles are: {', '.join(styles)}"
        raise TokenizerError(f"{cannot_write(style, model)}; {choose}")


def cannot_write(style: str, model: str) -> str:
    """Return that a model of this name cannot write in a style."""
    return f"the {model} model cannot write in the style {style[:40]!r}"


def styles_of(tokenizer: Remi) -> tuple[str, ...]:
    """Return the names of the styles of a model."""
    return tokenizer.config.styles


def not_a_style(style: str, styles: Sequence[str]) -> str:
    """Return that a style is none of `styles`, and which are near; empty if it is one, or empty."""
    if not style or style in styles:
        return ""
    name = style.casefold()
    near = {known for word, known in _NEAR_STYLES.items() if word in name and known in styles}
    near.update(get_close_matches(name, styles, 3, 0.6))
    near.update(known for known in styles if known in name)
    which = f"; near: {listed(sorted(near))}" if near else ""
    return f"“{style[:40]}” is not a style{which}."


def with_style(
    ids: NDArray[np.integer], options: MusicOptions, tokenizer: Remi
) -> NDArray[np.integer]:
    """Return the ids of a context, of which the header names the style."""
    if options.style is None:
        return ids
    style = tokenizer.families.style + styles_of(tokenizer).index(options.style)
    return np.insert(ids, int(len(ids) > 0 and ids[0] == BOS), style)


class Heard(NamedTuple):
    """A bar before the new music, as it is analysed."""

    letter: str = ""
    """Of its section; empty: none."""
    chords: tuple[PlannedChord, ...] | None = None
    begins: bool = False
    """Whether a section begins with this bar."""


def heard_before(plan: Plan, bars: int, sections: Sequence[Phrase] = ()) -> list[Heard]:
    """Return the first bars of a piece; `sections` that are known keep their letters."""
    phrases = find_form(plan, sections)
    letters = [phrase.letter for phrase in phrases for _ in range(phrase.num_bars)]
    chords = [bar.chords for bar in plan.bars]
    starts = {phrase.first_bar for phrase in phrases}
    bars_heard = [
        Heard(letter or "", one, bar in starts)
        for bar, (letter, one) in enumerate(zip_longest(letters, chords))
    ]
    return [*bars_heard, *[Heard()] * bars][:bars]


def closing_key(options: MusicOptions, piece: Score | None = None) -> Key | None:
    """Return the key in which the new music after a piece is to close; None: it need not.

    Scales other than major and minor have no tonic chord here.
    """
    if options.ending in ("auto", "bar"):
        return None
    if options.key is not None:
        return named_key(options.key)
    return key_at_end(piece) if piece is not None else None


def asked_bars(
    options: MusicOptions,
    planned: Sequence[PlannedBar] | int,
    before: Sequence[Heard] = (),
    fixed: Sequence[FixedBar] = (),
    key: Key | None = None,
) -> list[FixedBar]:
    """Return what options, or `fixed` before, decide in advance of each bar of the vocabulary.

    A chart with fewer bars repeats. After a form with fewer bars, the model chooses, but a bar does
    not resemble one with other chords than those asked for. Without a chart, a bar that brings back
    one of the bars before has its chords. A bar of the form repeats its source as closely as
    possible, unless other chords are asked for than there, or the music ends in it.

    Args:
        options: the form and chords that are asked for.
        planned: the new bars, or their number if each is a bar of the vocabulary.
        before: the notated bars before.
        fixed: what is already fixed in the new bars, such as given tracks.
        key: that in which the music closes, see `closing_key`.

    Raises:
        MidiError: the form needs another metre, or a letter has no number of bars.
    """
    key = key if _has_cadence(options) else None
    if options.form is None and options.chords is None and key is None:
        return list(fixed)
    places = range(planned) if isinstance(planned, int) else [bar.notated for bar in planned]
    try:
        sources = _sources(options.form, before) if options.form else ()
    except ValueError as error:
        raise MidiError(str(error)) from error
    is_plain = len(set(places)) == len(places)  # each is one bar of the vocabulary
    if sources and not is_plain:
        raise MidiError(
            "the new bars are longer than eight quarter notes, for which no form can be asked; "
            "leave the form out"
        )
    chords = asked_chords(options, planned, key)
    harmonies = [bar.chords for bar in before]
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
            harmonies.append(bar.chords)
            if chords[index] and bar.sources is None and is_plain:
                bar = bar._replace(sources=_alike(harmonies))
        if place < len(sources) and sources[place]:
            has_others = bool(chords and chords[index]) and (
                kinds(harmonies[-1]) != kinds(harmonies[-1 - sources[place]])
            )
            is_end = index >= len(places) - _closing_bars(options, len(places), key)
            bar = bar._replace(exact=not (has_others or is_end))
        bars.append(bar)
    return bars


def _has_cadence(options: MusicOptions) -> bool:
    """Return whether the last bars have the chords of a cadence."""
    return options.ending == "cadence" and options.seconds is None


def _closing_bars(options: MusicOptions, count: int, key: Key | None) -> int:
    """Return how many of `count` new bars are of the ending: the dominant's bar, and the last."""
    if options.ending in ("auto", "bar") or options.seconds is not None:
        return 0
    return 1 + (key is not None and count >= _DOMINANT_FROM)


def _alike(bars: Sequence[tuple[PlannedChord, ...] | None]) -> tuple[int, ...]:
    """Return the sources of the last bar: the earlier ones with its chords, and none."""
    asked = kinds(bars[-1])
    near = bars[-1 - MAX_DISTANCE : -1][::-1]
    return 0, *(back for back, one in enumerate(near, 1) if one and kinds(one) == asked)


def asked_chords(
    options: MusicOptions, planned: Sequence[PlannedBar] | int, key: Key | None = None
) -> list[tuple[PlannedChord, ...] | None]:
    """Return the chords that are asked for each new bar of the vocabulary; empty if none are.

    A chart with fewer bars repeats. A bar that is left to the model has no chords, and one that
    continues a notated bar has None. With a cadence in a `key`, the last bar has its tonic and, of
    four bars or more, the one before has its dominant seventh, unless the chart says otherwise, or
    the music is of some seconds, so that no bar is known to be the last.
    """
    key = key if _has_cadence(options) else None
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


def chords_met(options: MusicOptions, sheet: LeadSheet, first: int, count: int) -> Met | None:
    """Return in how many of `count` bars from `first` on, from 0, the asked chords are heard.

    A chord is met by its root with the same third; added notes and the bass do not count. None if
    no chords were asked for.
    """
    if options.chords is None:
        return None
    chart, played = parse_chart(options.chords), sheet.chords
    num_asked, missed = 0, []
    for bar in range(first, first + count):
        heard = played[bar] if bar < len(played) else ()
        asked = kinds(chart[(bar - first) % len(chart)])
        num_asked += bool(asked)
        if asked and asked != [_kind(parse_chord(one)) for one in heard]:
            missed.append(bar)
    return Met("chords", num_asked, tuple(missed)) if num_asked else None


def form_met(
    options: MusicOptions, sheet: LeadSheet, before: Sequence[Heard], count: int
) -> Met | None:
    """Return how many of `count` bars after those `before` that were to return do so.

    A bar returns if it repeats the bar that it was to repeat, or the same earlier bar as that one.
    None if no bar was to return.
    """
    if options.form is None:
        return None
    first = len(before)
    sources = _sources(options.form, before)[:count]
    asked = [(first + bar, first + bar - back) for bar, back in enumerate(sources) if back]
    missed = [bar for bar, source in asked if _origin(sheet, bar) != _origin(sheet, source)]
    return Met("form", len(asked), tuple(missed)) if asked else None


def form_bars(form: str, before: Sequence[Heard]) -> int:
    """Return the number of bars of a form. Raises ValueError."""
    return len(_sources(form, before))


def form_cut(
    options: MusicOptions, before: Sequence[Heard], count: int, first_heard: int = 1
) -> str:
    """Return a warning about what the form asks in vain, or nothing.

    That is more bars than the `count` written ones, or the return of a bar that the model does not
    read: one before `first_heard`, counted from 1.
    """
    if options.form is None:
        return ""
    sources = _sources(options.form, before)
    if len(sources) > count:
        return f"the form has {plural(len(sources), 'bar')}, but the new music only {count}"
    returns = [at - back for at, back in enumerate(sources, len(before) + 1) if back]
    oldest = min(returns, default=first_heard)
    if oldest >= first_heard:
        return ""
    return f"the form brings back bar {oldest}, but the model reads from bar {first_heard} on"


def _sources(form: str, before: Sequence[Heard]) -> tuple[int, ...]:
    """Return the source of each bar of a form. Raises ValueError."""
    starts = {bar for bar, heard in enumerate(before) if heard.begins}
    return parse_form(form, [heard.letter for heard in before], starts)


def _origin(sheet: LeadSheet, bar: int) -> int:
    """Return the first bar that a bar repeats, directly or by others between them."""
    while bar < len(sheet.returns) and sheet.returns[bar]:
        bar = sheet.returns[bar] - 1
    return bar


def kinds(chords: Sequence[PlannedChord] | None) -> list[tuple[int, bool] | None]:
    """Return the kinds of chords of a plan, whose other qualities do not matter."""
    return [_kind(planned.chord) for planned in chords or ()]


def _kind(chord: Chord | None) -> tuple[int, bool] | None:
    """Return the root of a chord, and whether its third is minor; None for no chord."""
    return None if chord is None else (chord.root, chord.quality in _MINOR)
