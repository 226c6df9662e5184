"""Accidents of a continuation: what a listener hears as a mistake, whatever the style.

Each compares new music with its prompt, since what is a mistake in one piece may be the idea of
another. Definitions are as narrow as real music demands, which hardly ever has an accident where it
continues its own beginning (measured by benchmarks.tokenization.bench_accidents).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.bars import DRUMS, ScoreBars
from tokenization.analysis.chords import pitched_notes, sounding
from tokenization.analysis.keys import SCALES
from tokenization.analysis.returns import contents, distance_to_equal
from tokenization.score import Score

KINDS: Final = ("all_copy", "hole", "range", "key", "thinning")
"""Fields of `Accidents` that say whether there is one."""
FEWEST_PROMPT_BARS: Final = 8
"""Bars that a prompt must have to be the standard for new music; for empty bars, any number will
do."""
_PHRASE = 4
"""Bars of the shortest passage in which a lost melody or key is heard as such."""
_MOST_COPIES, _MOST_OF_PATTERNS = 0.75, 0.9
"""Share of copies above which new music is nothing else; it is larger after patterns."""
_PATTERNS: Final = 0.75
"""Share of bars with the rhythm of an earlier one, from which a prompt is made of patterns."""
_LOOP: Final = 0.3
"""Share of copies in a prompt from which it is a loop."""
_SECTION, _SINCE = 8, 16
"""Bars in a row that are a section, and fewest bars after which it returns."""
_HELD: Final = 0.5
"""Part of a bar for which a note has to be held so that the bar is not empty."""
_FEW, _SPARSE = 2, 0.25
"""Notes of a bar that is nearly empty, also by those of every bar that it is compared with."""
_LOW: Final = 25
"""Percentile of the prompt's pitches below which there is no melody."""
_FAR: Final = 12
"""Semitones that a note may be away from all others of its track."""
_FEWEST_NOTES: Final = 8
"""Notes of a track in the prompt that show its range."""
_PURE: Final = 0.99
"""Share of what sounds in a prompt that its scale has if it is the standard of a key."""
_IN_KEY: Final = 0.85
"""Share of what sounds in some bars that a scale has if they are in a key."""
_THIN, _DENSE = 0.4, 2.5
"""Notes per bar of the end, by those of the prompt."""
_BEYOND: Final = 1.5
"""Factor by which the end is thinner or denser than every phrase before."""
_TWINS: Final = 0.6
"""Share of equal bars above which two variations are the same piece."""
_SCALES: Final = np.array(
    [
        np.isin(np.arange(12), (np.array(SCALES[scale]) + tonic) % 12)
        for scale in ("major", "harmonic minor", "melodic minor")
        for tonic in range(12)
    ]
)
"""Pitch classes of all scales (36, 12); modes have those of their major scale."""


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
    """Where they are: one place for each kind that was found, in the order of the fields."""

    @property
    def any(self) -> bool:
        """Whether there is an accident."""
        return len(self.places) > 0

    @property
    def kinds(self) -> list[str]:
        """Those of `KINDS` that were found, in the order of `places`."""
        return [kind for kind, is_found in zip(KINDS, self, strict=False) if is_found]

    def line(self, bars_before: int = 0) -> str:
        """Return the accidents in one line, such as `a bar without a note (bar 12)`.

        The line is empty without any. Bars are counted from 1, in a piece with `bars_before` bars
        before those of the score.
        """
        parts: list[str] = []
        for what, first, stop in self.places:
            first, last = first + bars_before + 1, stop + bars_before
            bars = f"bar {first:,}" if first == last else f"bars {first:,} to {last:,}"
            parts.append(f"{what} ({bars})")
        return "; ".join(parts)


def accidents(
    score: Score, first_bar: int, stop_bar: int, returns: Collection[int] = ()
) -> Accidents:
    """Return the accidents of the bars from `first_bar` up to but not including `stop_bar`.

    `score` is prompt and new music. Bars are those of `ScoreBars`, from 0; those before `first_bar`
    are the prompt. After fewer than `FEWEST_PROMPT_BARS`, and in fewer than four new bars, only
    empty bars are found. `returns` are new bars that were asked to return: they are no copies.
    """
    bars = ScoreBars.of(score)
    chroma = _chroma(bars, stop_bar)
    places: list[Place | None] = [None, _empty_bars(bars, chroma, first_bar), None, None, None]
    if first_bar >= FEWEST_PROMPT_BARS and stop_bar - first_bar >= _PHRASE:
        places[0] = _all_copy(bars, first_bar, stop_bar, returns)
        places[1] = places[1] or _nearly_empty_bar(bars, chroma, first_bar)
        places[1] = places[1] or _lost_melody(bars, first_bar, stop_bar)
        places[2] = _range(bars, first_bar, stop_bar)
        places[3] = _key(chroma, first_bar)
        places[4] = _thinning(bars, first_bar, stop_bar)
    is_found = [place is not None for place in places]
    return Accidents._make([*is_found, tuple(filter(None, places))])


def twins(
    scores: Sequence[Score], first_bar: int, stop_bar: int, returns: Collection[int] = ()
) -> list[tuple[int, int]]:
    """Find variations that are the same piece: over 60 % of their new bars are equal.

    Who asks for several variations wants to choose. Bars are compared at the same place; empty bars
    are equal to none, and fewer than four new bars show nothing. Bars that were asked to return,
    `returns`, are left out. Pairs are of indices, the smaller one first.
    """
    free = [bar for bar in range(first_bar, stop_bar) if bar not in returns]
    if len(free) < _PHRASE:
        return []
    heard = [contents(ScoreBars.of(score), stop_bar) for score in scores]
    new = [[bars[bar] for bar in free] for bars in heard]
    return [
        (one, other)
        for one, other in combinations(range(len(scores)), 2)
        if sum(a == b != b"" for a, b in zip(new[one], new[other], strict=True))
        > _TWINS * len(free)
    ]


def _all_copy(bars: ScoreBars, first: int, stop: int, returns: Collection[int]) -> Place | None:
    """Find music that only copies: over 75 % of the new bars are equal to earlier ones.

    Music comes back, but varied, or with something new in between. A loop may loop: it is one if
    30 % of the bars of the prompt after the first are equal to earlier ones. Where three of four
    repeat an earlier rhythm, in the mean of its tracks, the prompt is made of patterns, and bars
    over the same chord are the same: over 90 % have to be copies then. Fewer than eight bars may be
    one phrase that returns. Eight bars in a row that were heard in the same order 16 bars ago or
    earlier, and most of them not since, are a section that returns, as a chorus does.
    """
    heard = contents(bars, stop)
    is_copy = distance_to_equal(heard) > 0
    is_copy[[bar for bar in returns if bar < stop]] = False
    share = is_copy[first:].mean()
    if share > _MOST_COPIES:
        share = (is_copy & ~_is_in_section(heard))[first:].mean()
    if stop - first < 2 * _PHRASE or share <= _MOST_COPIES or is_copy[1:first].mean() >= _LOOP:
        return None
    if share <= _MOST_OF_PATTERNS and _repeated_rhythms(bars, first) >= _PATTERNS:
        return None
    return Place("nearly every bar is a copy of an earlier one", first, stop)


def _is_in_section(heard: Sequence[bytes]) -> NDArray[np.bool_]:
    """Return whether each bar is in a section that returns, by the contents of all bars."""
    is_in_section, since = np.zeros(len(heard), np.bool_), distance_to_equal(heard)
    _, numbers = np.unique(np.array(heard, object), return_inverse=True)
    for distance in range(_SINCE, len(heard)):
        for run in _runs(numbers[distance:] == numbers[:-distance]) + distance:
            section = slice(*run.tolist())
            is_in_section[section] |= (
                np.diff(run) >= _SECTION and np.median(since[section]) >= _SINCE
            )
    return is_in_section


def _repeated_rhythms(bars: ScoreBars, stop: int) -> float:
    """Return the share of bars before `stop`, but the first, with the rhythm of an earlier one.

    It is the mean of the tracks. Bars in which a track rests repeat none.
    """
    heard = bars.only(bars.bars < stop)
    heard = heard._replace(pitches=np.zeros_like(heard.pitches))
    parts = (heard.only(heard.tracks == track) for track in np.unique(heard.tracks))
    shares = [(distance_to_equal(contents(part, stop))[1:] > 0).mean() for part in parts]
    return float(np.mean(shares)) if shares else 0.0


def _empty_bars(bars: ScoreBars, chroma: NDArray[np.float64], first: int) -> Place | None:
    """Return a hole: bars in which no note begins, more of them in a row than in the prompt.

    Rests are music where the prompt has them, and so is a chord that is held for half of the bar.
    """
    counts = np.bincount(bars.bars, minlength=len(chroma))[: len(chroma)]
    is_empty = (counts == 0) & (chroma.max(1) < _HELD)
    is_empty[: int(bars.bars.min(initial=first))] = False  # rests before the first note
    at, length = _longest_run(is_empty[first:])
    if length <= _longest_run(is_empty[:first])[1]:
        return None
    what = "a bar without a note" if length == 1 else "bars without a note"
    return Place(what, first + at, first + at + length)


def _nearly_empty_bar(bars: ScoreBars, chroma: NDArray[np.float64], first: int) -> Place | None:
    """Return a hole: a bar of a note or two, neither of them held, in the middle of dense music.

    Every bar of the prompt, and both bars beside it, have at least four times as many notes. Real
    phrases end with a pause too, but there a chord is held, or the music was never as dense.
    """
    counts = np.bincount(bars.bars, minlength=len(chroma))[: len(chroma)]
    around = np.minimum(
        np.minimum(counts[first - 1 : -2], counts[first + 1 :]), counts[:first].min()
    )
    is_hole = (counts[first:-1] <= np.minimum(_FEW, _SPARSE * around)) & (around > 0)
    is_hole &= chroma[first:-1].max(1) < _HELD
    if not is_hole.any():
        return None
    at = first + int(is_hole.argmax())
    return Place("a nearly empty bar", at, at + 1)


def _lost_melody(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """Return a lost melody: four bars in a row have nothing above the lowest quarter of the prompt.

    Every bar of the prompt has something there. A melody may rest, or stay below the median of the
    prompt for a phrase; but the bass alone sounds as if players had forgotten their parts.
    """
    pitched = bars.only(bars.tracks != DRUMS)
    heard = pitched.pitches[pitched.bars < first]
    if not len(heard):
        return None
    high = pitched.bars[pitched.pitches > np.percentile(heard, _LOW)]
    is_low = np.bincount(high, minlength=stop)[:stop] == 0
    at, length = _longest_run(is_low[first:])
    if length < _PHRASE or is_low[:first].any():
        return None
    return Place("nothing but low notes", first + at, first + at + length)


def _range(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """Return a note out of range: beyond the prompt, over an octave from all others of its track.

    Eight bars do not show the whole range of a part: real ones often go over an octave beyond it,
    but by way of notes in between. A note far from all others is not part of a line.
    """
    for track in np.unique(bars.tracks[bars.tracks != DRUMS]).tolist():
        part = bars.only((bars.tracks == track) & (bars.bars < stop))
        heard = part.pitches[part.bars < first]
        if len(heard) < _FEWEST_NOTES:
            continue
        lowest, highest = int(heard.min()), int(heard.max())
        pitches = np.unique(part.pitches)
        leaps = np.flatnonzero(np.diff(pitches) > _FAR)
        far = [part.pitches >= pitches[leap + 1] for leap in leaps if pitches[leap] >= highest]
        far += [part.pitches <= pitches[leap] for leap in leaps if pitches[leap + 1] <= lowest]
        if far:
            at = int(part.bars[np.any(far, 0)].min())
            return Place("a note far from all others of its track", at, at + 1)
    return None


def _key(chroma: NDArray[np.float64], first: int) -> Place | None:
    """Return a lost key: over 15 % of four bars is outside of any scale, and of each half of them.

    The prompt is in a key: it has next to nothing outside of its scale. Four bars outside of that
    scale are no accident, since real music modulates in most styles: what is in another scale is a
    modulation, even a sudden one, whose halves fit a scale each.
    """
    if not chroma[:first].any() or _fit(chroma[:first].sum(0)) < _PURE:
        return None
    in_key = [
        _fit(np.lib.stride_tricks.sliding_window_view(chroma[first:], size, 0).sum(2)) >= _IN_KEY
        for size in (_PHRASE, _PHRASE // 2)
    ]
    is_lost = ~(in_key[0] | in_key[1][: -_PHRASE // 2] | in_key[1][_PHRASE // 2 :])
    if not is_lost.any():
        return None
    at = first + int(is_lost.argmax())
    return Place("in no key", at, at + _PHRASE)


def _fit(chroma: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of what sounds (..., 12) in the scale that has most of it; 1 for silence."""
    inside, total = (chroma @ _SCALES.T).max(-1), chroma.sum(-1)
    return np.divide(inside, total, out=np.ones_like(total), where=total > 0)


def _thinning(bars: ScoreBars, first: int, stop: int) -> Place | None:
    """Find thinning: the last quarter has under 0.4 or over 2.5 times the notes of the prompt.

    At least four bars are counted. Real music often begins with less than it has later, and has
    quiet sections; it is an accident if the end also goes far beyond every phrase before. (The last
    bars of a real piece may thin out as much.)
    """
    size = max((stop - first) // 4, _PHRASE)
    counts = np.bincount(bars.bars, minlength=stop)[:stop]
    before = np.convolve(counts[: stop - size], np.full(_PHRASE, 1 / _PHRASE), "valid")
    heard, end = counts[:first].mean(), counts[stop - size :].mean()
    if end < min(_THIN * heard, before.min() / _BEYOND):
        return Place("far fewer notes than in the prompt", stop - size, stop)
    if heard and end > max(_DENSE * heard, before.max() * _BEYOND):
        return Place("far more notes than in the prompt", stop - size, stop)
    return None


def _chroma(bars: ScoreBars, stop: int) -> NDArray[np.float64]:
    """Return how long each pitch class sounds in each bar up to `stop`, in bars (stop, 12)."""
    lines = bars.lines[: stop + 1]
    ticks, _ = sounding(pitched_notes(bars.score), lines)
    chroma = np.zeros((stop, 12))
    chroma[: len(ticks)] = ticks / np.diff(lines)[:, None]
    return chroma


def _runs(values: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return begin and end of each run of True (runs, 2)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], values, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2)


def _longest_run(values: NDArray[np.bool_]) -> tuple[int, int]:
    """Return index and length of the longest run of True, the first of equal ones; 0, 0 without."""
    runs = _runs(values)
    if not len(runs):
        return 0, 0
    lengths = runs[:, 1] - runs[:, 0]
    longest = int(lengths.argmax())
    return int(runs[longest, 0]), int(lengths[longest])
