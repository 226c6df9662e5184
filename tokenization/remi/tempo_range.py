"""Tempos outside the range of the vocabulary, halved or doubled together with their beats."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import notated_lines
from tokenization.remi.vocabulary import TEMPO_EDGES
from tokenization.score import MAX_BEATS, Score, Tempo, TimeSignature, Track, once_each

_MOST: Final = 6
"""Maximum number of doublings or halvings. Tempos of less than 0.5 or more than 15,000, which music
does not have, are clipped."""
_EXACT: Final = 32
"""Factor of the resolution with which bars of all denominators begin at whole ticks."""
_LARGEST_NUMERATOR: Final = 255
_LARGEST_DENOMINATOR: Final = 128


def tempos_out_of_range(score: Score) -> list[float]:
    """Return the tempos (bpm) that `in_tempo_range` changes, in order."""
    return [tempo.bpm for tempo in score.tempos if _doublings(tempo.bpm)]


def in_tempo_range(score: Score, ticks_per_beat: int | None = None) -> Score:
    """Return the same music with all tempos in the range of the vocabulary; seconds do not change.

    A tempo outside the range is doubled or halved until it is inside, and so are the lengths in
    quarters of everything that is played in it: a quarter at 400 becomes an eighth at 200, and a
    bar of 4/4 one of 4/8. A bar in which this factor changes gets a time signature of its own. A
    score whose tempos are all in the range is returned as it is.

    Args:
        score: a score.
        ticks_per_beat: the resolution of the result, a multiple of that of the score. Default: one
            at which no time has to be rounded.
    """
    doublings = [_doublings(tempo.bpm) for tempo in score.tempos]
    finer = _EXACT << -min([0, *doublings]) if any(doublings) else 1
    if ticks_per_beat is not None:
        finer = ticks_per_beat // score.ticks_per_beat
    if finer == 1:
        return score
    sections = _Sections.of(score, doublings, finer)

    def moved(table: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.column_stack([sections.moved(finer * table[:, 0]), table[:, 1:]])

    shared = once_each(moved)
    tracks: list[Track] = []
    for track in score.tracks:
        notes = moved(track.notes)
        ends = finer * (track.notes[:, 0] + track.notes[:, 1])
        notes[:, 1] = sections.moved(ends) - notes[:, 0]
        notes.setflags(write=False)
        tables = {"controls": shared(track.controls), "bends": shared(track.bends)}
        tracks.append(track.with_tables(notes=notes, **tables))
    ticks = sections.moved(np.array([finer * tempo.tick for tempo in score.tempos], np.int64))
    bpm = [tempo.bpm * 2.0**by for tempo, by in zip(score.tempos, doublings, strict=True)]
    return Score(
        score.ticks_per_beat * finer,
        tuple(tracks),
        tuple(map(Tempo, ticks.tolist(), bpm)),
        _time_signatures(score, sections, finer),
        int(sections.moved(np.array([finer * score.end_ticks]))[0]),
        score.damage,
    )


def _doublings(bpm: float) -> int:
    """Return how often a tempo must be doubled to be in the vocabulary's range; below 0: halved."""
    doublings = 0
    while doublings < _MOST and bpm * 2.0**doublings < TEMPO_EDGES[0]:
        doublings += 1
    while doublings > -_MOST and bpm * 2.0**doublings >= TEMPO_EDGES[-1]:
        doublings -= 1
    return doublings


class _Sections(NamedTuple):
    """Sections of a score in which beats are doubled equally often; columns (n,) int64.

    Times are in the ticks of the new resolution.
    """

    starts: NDArray[np.int64]
    doublings: NDArray[np.int64]
    """Negative: halvings."""
    moved_starts: NDArray[np.int64]

    @classmethod
    def of(cls, score: Score, doublings: list[int], finer: int) -> _Sections:
        """Return the sections of a score; there are `finer` new ticks for each of its ticks."""
        at_tick = {0: 0}  # of several tempos at one tick the last applies
        for tempo, by in zip(score.tempos, doublings, strict=True):
            at_tick[finer * tempo.tick] = by
        starts, by = (np.array([*values], np.int64) for values in (at_tick, at_tick.values()))
        is_change = np.append(True, by[1:] != by[:-1])
        starts, by = starts[is_change], by[is_change]
        lengths = _doubled(np.diff(starts), by[:-1])
        return cls(starts, by, np.append(0, np.cumsum(lengths)))

    def at(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the section of each time."""
        return np.searchsorted(self.starts, ticks, side="right") - 1

    def moved(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the new time of each time."""
        at = self.at(ticks)
        return self.moved_starts[at] + _doubled(ticks - self.starts[at], self.doublings[at])


def _doubled(lengths: NDArray[np.int64], doublings: NDArray[np.int64]) -> NDArray[np.int64]:
    return lengths << np.maximum(doublings, 0) >> np.maximum(-doublings, 0)


def _time_signatures(score: Score, sections: _Sections, finer: int) -> tuple[TimeSignature, ...]:
    """Time signatures with which the notated bars stay the bars."""
    written = [TimeSignature(0, 4, 4)]
    for tick, numerator, denominator in score.time_signatures:
        if 0 < numerator <= _LARGEST_NUMERATOR and denominator > 0:
            written.append(TimeSignature(finer * tick, *_written(numerator, denominator)))
    quarter = finer * score.ticks_per_beat
    last = max(finer * score.end_ticks, int(sections.starts[-1]), written[-1].tick)
    lines = Score(quarter, time_signatures=tuple(written[1:]))
    lines = notated_lines(lines, min(last, MAX_BEATS * quarter), 2)
    moved = sections.moved(lines)
    begins = sections.at(lines[:-1])
    is_mixed = begins != sections.at(lines[1:] - 1)
    metres = np.searchsorted([metre.tick for metre in written], lines[:-1], side="right") - 1
    bars = np.stack([sections.doublings[begins], metres])
    is_named = is_mixed.copy()
    is_named[:1] = True
    is_named[1:] |= is_mixed[:-1] | (bars[:, 1:] != bars[:, :-1]).any(0)
    named: list[TimeSignature] = []
    for bar in np.flatnonzero(is_named).tolist():
        if is_mixed[bar]:
            # rounded up to eighths: the next bar has a time signature, which ends this one
            metre = -(-2 * int(moved[bar + 1] - moved[bar]) // quarter), 8
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
    """Return a time signature that MIDI files can have, as long if possible, else longer."""
    while numerator > _LARGEST_NUMERATOR or denominator > _LARGEST_DENOMINATOR:
        if denominator == 1:
            return _LARGEST_NUMERATOR, 1
        numerator, denominator = -(-numerator // 2), denominator // 2
    return numerator, denominator
