"""Tempos outside the range of the vocabulary, halved or doubled together with their beats."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.bars import notated_lines
from tokenization.remi.vocabulary import MAX_BPM, MIN_BPM
from tokenization.score import MAX_BEATS, Score, Tempo, TimeSignature, Track, once_each

_MOST_HALVINGS: Final = 6
"""Tempos up to 15,000 can be halved to the range; faster ones, which take no time, are clipped."""
_LARGEST_NUMERATOR: Final = 255
_LARGEST_DENOMINATOR: Final = 128


def tempos_out_of_range(score: Score) -> int:
    """Number of tempos that `in_tempo_range` changes."""
    return sum(_doublings(tempo.bpm) != 0 for tempo in score.tempos)


def in_tempo_range(score: Score, ticks_per_beat: int | None = None) -> Score:
    """The same music with all tempos in the range of the vocabulary; seconds do not change.

    A tempo outside the range is doubled or halved until it is inside, and so are the lengths in
    quarters of everything that is played in it: a quarter at 400 becomes an eighth at 200, and a
    bar of 4/4 one of 4/8. A bar in which this factor changes gets a time signature of its own. A
    score whose tempos are all in the range is returned as it is.

    Args:
        score: a score.
        ticks_per_beat: the resolution of the result, a multiple of that of the score. Default: the
            lowest one at which no time has to be rounded.
    """
    doublings = [_doublings(tempo.bpm) for tempo in score.tempos]
    finer = 1 << -min([0, *doublings])
    if ticks_per_beat is not None:
        finer = ticks_per_beat // score.ticks_per_beat
    if finer == 1 and not any(doublings):
        return score
    sections = _Sections.of(score, doublings, finer)

    def moved(table: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.column_stack([sections.moved(table[:, 0]), table[:, 1:]])

    shared = once_each(moved)
    tracks: list[Track] = []
    for track in score.tracks:
        notes = moved(track.notes)
        notes[:, 1] = sections.moved(track.notes[:, 0] + track.notes[:, 1]) - notes[:, 0]
        notes.setflags(write=False)
        tables = {"controls": shared(track.controls), "bends": shared(track.bends)}
        tracks.append(track.with_tables(notes=notes, **tables))
    ticks = sections.moved(np.array([tempo.tick for tempo in score.tempos], np.int64)).tolist()
    bpm = [tempo.bpm * 2.0**by for tempo, by in zip(score.tempos, doublings, strict=True)]
    return Score(
        score.ticks_per_beat * finer,
        tuple(tracks),
        tuple(map(Tempo, ticks, bpm)),
        _time_signatures(score, sections, finer),
        int(sections.moved(np.array([score.end_ticks]))[0]),
        score.damage,
    )


def _doublings(bpm: float) -> int:
    """How often a tempo must be doubled to be in the range; negative: halved."""
    if MIN_BPM <= int(bpm + 0.5) <= MAX_BPM:
        return 0
    doublings = 0
    while bpm > 0 and int(bpm * 2**doublings + 0.5) < MIN_BPM:
        doublings += 1
    while doublings > -_MOST_HALVINGS and int(bpm * 2.0**doublings + 0.5) > MAX_BPM:
        doublings -= 1
    return doublings


class _Sections(NamedTuple):
    """Sections of a score whose beats are multiplied by one factor; columns (n,) int64."""

    starts: NDArray[np.int64]
    doublings: NDArray[np.int64]
    factors: NDArray[np.int64]
    """New ticks per tick."""
    moved_starts: NDArray[np.int64]

    @classmethod
    def of(cls, score: Score, doublings: list[int], finer: int) -> _Sections:
        """Sections between the changes of the factor; new ticks are `finer` than before."""
        at_tick = {0: 0}  # of several tempos at one tick the last applies
        for tempo, by in zip(score.tempos, doublings, strict=True):
            at_tick[tempo.tick] = by
        starts, by = (np.array([*values], np.int64) for values in (at_tick, at_tick.values()))
        changes = np.append(True, by[1:] != by[:-1])
        starts, by = starts[changes], by[changes]
        factors = (finer * 2.0**by).astype(np.int64)
        moved_starts = np.append(0, np.cumsum(np.diff(starts) * factors[:-1]))
        return cls(starts, by, factors, moved_starts)

    def at(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the section of each time."""
        return np.searchsorted(self.starts, ticks, side="right") - 1

    def moved(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """New ticks of each time."""
        at = self.at(ticks)
        return self.moved_starts[at] + (ticks - self.starts[at]) * self.factors[at]


def _time_signatures(score: Score, sections: _Sections, finer: int) -> tuple[TimeSignature, ...]:
    """Time signatures with which the notated bars stay the bars."""
    written = [TimeSignature(0, 4, 4)]
    written += [metre for metre in score.time_signatures if metre.numerator > 0]
    last = max(score.end_ticks, score.tempos[-1].tick if score.tempos else 0, written[-1].tick)
    lines = notated_lines(score, min(last, MAX_BEATS * score.ticks_per_beat), 2)
    moved = sections.moved(lines)
    begins = sections.at(lines[:-1])
    is_mixed = begins != sections.at(lines[1:] - 1)
    metres = np.searchsorted([metre.tick for metre in written], lines[:-1], side="right") - 1
    bars = np.stack([sections.doublings[begins], metres])
    is_named = is_mixed.copy()
    is_named[:1] = True
    is_named[1:] |= is_mixed[:-1] | (bars[:, 1:] != bars[:, :-1]).any(0)
    eighth = score.ticks_per_beat * finer
    named: list[TimeSignature] = []
    for bar in np.flatnonzero(is_named).tolist():
        if is_mixed[bar]:
            # rounded up to eighths: the next bar has a time signature, which ends this one
            metre = -(-2 * int(moved[bar + 1] - moved[bar]) // eighth), 8
        else:
            _, numerator, denominator = written[int(bars[1, bar])]
            metre = _scaled(numerator, denominator, int(bars[0, bar]))
        if named and metre == named[-1][1:]:
            metre = 2 * metre[0], 2 * metre[1]  # a repeated time signature would not begin a bar
        named.append(TimeSignature(int(moved[bar]), *_written(*metre)))
    return tuple(named)


def _scaled(numerator: int, denominator: int, doublings: int) -> tuple[int, int]:
    """Time signature of bars that are doubled or halved."""
    for _ in range(doublings):
        is_odd = denominator % 2
        numerator, denominator = numerator << is_odd, denominator // (2 - is_odd)
    return numerator, denominator << max(-doublings, 0)


def _written(numerator: int, denominator: int) -> tuple[int, int]:
    """A time signature that MIDI files can have, of the same length if possible, else longer."""
    while numerator > _LARGEST_NUMERATOR or denominator > _LARGEST_DENOMINATOR:
        if denominator == 1:
            return _LARGEST_NUMERATOR, 1
        numerator, denominator = -(-numerator // 2), denominator // 2
    return numerator, denominator
