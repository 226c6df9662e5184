"""Accidents of a continuation: what a listener hears as a mistake, whatever the style.

Each compares new music with its prompt, since what is a mistake in one piece may be the idea of
another. Real continuations hardly have any (benchmarks.tokenization.bench_accidents).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.bars import DRUMS, ScoreBars
from tokenization.analysis.chords import pitched_notes, sounding
from tokenization.analysis.keys import SCALES
from tokenization.analysis.returns import contents, distance_to_equal
from tokenization.score import Score

FEWEST_PROMPT_BARS: Final = 8
"""Bars that a prompt must have to be the standard of anything but holes."""
KINDS: Final = ("all_copy", "hole", "range", "key", "thinning")
"""Fields of `Accidents` that say whether there is one."""
_MOST_COPIES, _LOOP = 0.75, 0.3
_FEWEST_JUDGED = 8
_HELD = 0.5
_RUN = 4
_BEYOND = 12
_OUTSIDE = 0.15
_DENSITIES = (0.4, 2.5)
_TWINS = 0.6


class Place(NamedTuple):
    """An accident, and where it is."""

    what: str
    """In plain words, such as `a bar without a note`."""
    first_bar: int
    """From 0."""
    stop_bar: int
    """The bar after the last one."""


class Accidents(NamedTuple):
    """Which accidents new music has."""

    all_copy: bool
    hole: bool
    range: bool
    key: bool
    thinning: bool
    places: tuple[Place, ...] = ()
    """Where they are, at most one place for each kind, in the order of the fields."""

    @property
    def any(self) -> bool:
        """Whether there is an accident."""
        return len(self.places) > 0

    def line(self, bars_before: int = 0) -> str:
        """The accidents in one line, such as `a bar without a note (bar 12)`; empty without any.

        Bars are numbered from 1 in a piece that has `bars_before` bars before those of the score.
        """
        parts: list[str] = []
        for what, first, stop in self.places:
            first, last = first + bars_before + 1, stop + bars_before
            bars = f"bar {first:,}" if first == last else f"bars {first:,} to {last:,}"
            parts.append(f"{what} ({bars})")
        return "; ".join(parts)


def accidents(score: Score, first_bar: int, stop_bar: int) -> Accidents:
    """The accidents of the bars from `first_bar` up to but not including `stop_bar`.

    Bars are those of `ScoreBars`, from 0. The bars before `first_bar` are the prompt; where there
    are fewer than `FEWEST_PROMPT_BARS`, only holes are found.
    """
    bars = ScoreBars.of(score)
    places: list[Place | None] = [None, _hole(bars, first_bar, stop_bar), None, None, None]
    if first_bar >= FEWEST_PROMPT_BARS:
        places[0] = _all_copy(bars, first_bar, stop_bar)
        places[1] = places[1] or _lost_melody(bars, first_bar, stop_bar)
        places[2] = _range(bars, first_bar, stop_bar)
        places[3] = _key(bars, first_bar, stop_bar)
        places[4] = _thinning(bars, first_bar, stop_bar)
    is_found = [place is not None for place in places]
    return Accidents._make([*is_found, tuple(filter(None, places))])


def twins(scores: Sequence[Score], first_bar: int, stop_bar: int) -> list[tuple[int, int]]:
    """Pairs of variations that are the same piece: over 60 % of their new bars are equal.

    Bars are compared at the same place; two empty ones are not equal. The indices of each pair are
    ascending.
    """
    new = [contents(ScoreBars.of(score), stop_bar)[first_bar:] for score in scores]
    return [
        (one, other)
        for one, other in combinations(range(len(scores)), 2)
        if sum(a == b != b"" for a, b in zip(new[one], new[other], strict=True))
        > _TWINS * (stop_bar - first_bar)
    ]


def _all_copy(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """Music that only copies: over 75 % of the new bars are equal to earlier ones.

    A loop may loop: where 30 % of the bars of the prompt after its first are equal to earlier ones,
    copies are the style. Elsewhere music comes back varied, and returns of whole sections are
    answered by something new. Fewer than eight new bars may be one returning phrase.
    """
    if stop - first < _FEWEST_JUDGED:
        return None
    is_copy = distance_to_equal(contents(bars, stop)) > 0
    if is_copy[1:first].mean() >= _LOOP or is_copy[first:].mean() <= _MOST_COPIES:
        return None
    return Place("nearly every bar is a copy of an earlier one", first, stop)


def _hole(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """A hole: bars in which no note begins, more of them in a row than in the prompt.

    Rests are music where the prompt has them, and so is a bar for most of which a chord is held.
    """
    counts = np.bincount(bars.bars, minlength=stop)[:stop]
    is_empty = (counts == 0) & (_chroma(bars, stop).max(1) < _HELD)
    is_empty[: int(bars.bars.min(initial=first))] = False  # rests before the first note
    longest = _first_longest(is_empty[:first])[1]
    at, length = _first_longest(is_empty[first:])
    if length <= longest:
        return None
    return Place("a bar without a note", first + at, first + at + length)


def _lost_melody(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """A lost melody: four bars in a row with nothing above the median pitch of the prompt.

    The prompt has something there in any four bars. A melody may rest, but an accompaniment that
    goes on alone has forgotten it.
    """
    pitched = bars.tracks != DRUMS
    in_bar, pitches = bars.bars[pitched], bars.pitches[pitched]
    if not (in_bar < first).any():
        return None
    above = in_bar[pitches > np.median(pitches[in_bar < first])]
    is_low = np.bincount(above, minlength=stop)[:stop] == 0
    at, length = _first_longest(is_low[first:])
    if length < _RUN or _first_longest(is_low[:first])[1] >= _RUN:
        return None
    return Place("nothing high, where the prompt has its melody", first + at, first + at + length)


def _range(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """A note out of range: over an octave beyond what its track plays in the prompt.

    A player of a band has a place among the others, and instruments and voices have a range. A
    single pitched track, such as a piano, is free to move.
    """
    playing = [track for track in np.unique(bars.tracks).tolist() if track != DRUMS]
    if len(playing) < 2:
        return None
    for track in playing:
        in_bar, pitches = (column[bars.tracks == track] for column in (bars.bars, bars.pitches))
        heard = pitches[in_bar < first]
        if not len(heard):
            continue
        new = (in_bar >= first) & (in_bar < stop)
        for word, is_far in (
            ("above", pitches > heard.max() + _BEYOND),
            ("below", pitches < heard.min() - _BEYOND),
        ):
            if (far := in_bar[is_far & new]).size:
                at = int(far[0])
                return Place(f"a note far {word} what its track plays in the prompt", at, at + 1)
    return None


def _key(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """A lost key: over 15 % of what sounds is outside the prompt's scale, in four bars running."""
    chroma = _chroma(bars, stop)
    scales = np.array([np.roll(np.isin(np.arange(12), SCALES["major"]), up) for up in range(12)])
    inside = scales[(scales @ chroma[:first].sum(0)).argmax()]
    sums = chroma.sum(1)
    outside = np.divide(chroma[:, ~inside].sum(1), sums, out=np.zeros(stop), where=sums > 0)
    at, length = _first_longest(outside[first:] > _OUTSIDE)
    if length < _RUN:
        return None
    return Place("another key than that of the prompt", first + at, first + at + length)


def _thinning(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """Thinning: the last quarter has under 0.4 or over 2.5 times the notes of the prompt."""
    size = max((stop - first) // 4, _RUN)
    if stop - first < size:
        return None
    counts = np.bincount(bars.bars, minlength=stop)[:stop]
    heard = counts[:first].mean()
    ratio = counts[stop - size :].mean() / heard if heard else 1.0
    if _DENSITIES[0] <= ratio <= _DENSITIES[1]:
        return None
    word = "fewer" if ratio < 1 else "more"
    return Place(f"far {word} notes than in the prompt", stop - size, stop)


def _chroma(bars: ScoreBars, stop: int) -> NDArray[np.float64]:
    """Bars for which each pitch class sounds in each of the first `stop` bars (stop, 12)."""
    lines = bars.lines[: stop + 1]
    ticks, _ = sounding(pitched_notes(bars.score), lines)
    found = np.zeros((stop, 12))
    found[: len(ticks)] = ticks / np.diff(lines)[:, None]
    return found


def _first_longest(values: NDArray[np.bool_]) -> tuple[int, int]:
    """Index and length of the longest run of True, the first of equal ones."""
    gaps = np.flatnonzero(np.concatenate([[True], ~values, [True]]))
    lengths = np.diff(gaps) - 1
    longest = int(lengths.argmax())
    return int(gaps[longest]), int(lengths[longest])
