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
    finer = _EXACT << -min([0, *doublings]) if any(doublings) else 1  # new ticks per tick
    if ticks_per_beat is not None:
        finer = ticks_per_beat // score.ticks_per_beat
    if finer == 1:
        return score
    sections = _Sections.of(score, doublings, finer)

    def move_rows(table: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.column_stack([sections.move(finer * table[:, 0]), table[:, 1:]])

    shared = once_each(move_rows)
    tracks: list[Track] = []
    for track in score.tracks:
        notes = move_rows(track.notes)
        ends = finer * (track.notes[:, 0] + track.notes[:, 1])
        notes[:, 1] = sections.move(ends) - notes[:, 0]
        notes.setflags(write=False)
        tables = {"controls": shared(track.controls), "bends": shared(track.bends)}
        tracks.append(track.with_tables(notes=notes, **tables))
    ticks = sections.move(np.array([finer * tempo.tick for tempo in score.tempos], np.int64))
    bpm = [tempo.bpm * 2.0**times for tempo, times in zip(score.tempos, doublings, strict=True)]
    return Score(
        score.ticks_per_beat * finer,
        tuple(tracks),
        tuple(map(Tempo, ticks.tolist(), bpm)),
        _time_signatures(score, sections, finer),
        int(sections.move(np.array([finer * score.end_ticks]))[0]),
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
        for tempo, times in zip(score.tempos, doublings, strict=True):
            at_tick[finer * tempo.tick] = times
        starts = np.array([*at_tick], np.int64)
        times = np.array([*at_tick.values()], np.int64)
        is_change = np.append(True, times[1:] != times[:-1])
        starts, times = starts[is_change], times[is_change]
        lengths = _double(np.diff(starts), times[:-1])
        return cls(starts, times, np.append(0, np.cumsum(lengths)))

    def at(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the section of each time."""
        return np.searchsorted(self.starts, ticks, side="right") - 1

    def move(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the new time of each time."""
        at = self.at(ticks)
        return self.moved_starts[at] + _double(ticks - self.starts[at], self.doublings[at])


def _double(lengths: NDArray[np.int64], doublings: NDArray[np.int64]) -> NDArray[np.int64]:
    return lengths << np.maximum(doublings, 0) >> np.maximum(-doublings, 0)


def _time_signatures(score: Score, sections: _Sections, finer: int) -> tuple[TimeSignature, ...]:
    """Return time signatures with which the notated bars stay the bars."""
    old = [TimeSignature(0, 4, 4)]
    for tick, numerator, denominator in score.time_signatures:
        if 0 < numerator <= _LARGEST_NUMERATOR and denominator > 0:
            old.append(TimeSignature(finer * tick, *_fit_to_midi(numerator, denominator)))
    quarter = finer * score.ticks_per_beat
    last = max(finer * score.end_ticks, int(sections.starts[-1]), old[-1].tick)
    finer_score = Score(quarter, time_signatures=tuple(old[1:]))
    lines = notated_lines(finer_score, min(last, MAX_BEATS * quarter), 2)
    new_lines = sections.move(lines)
    sections_of_bars = sections.at(lines[:-1])
    is_mixed = sections_of_bars != sections.at(lines[1:] - 1)
    doublings = sections.doublings[sections_of_bars]
    metres = np.searchsorted([metre.tick for metre in old], lines[:-1], side="right") - 1
    # bars that need a time signature
    is_named = is_mixed.copy()
    is_named[:1] = True
    is_named[1:] |= is_mixed[:-1] | (np.diff(doublings) != 0) | (np.diff(metres) != 0)
    new: list[TimeSignature] = []
    for bar in np.flatnonzero(is_named).tolist():
        if is_mixed[bar]:
            # rounded up to eighths: the next bar has a time signature, which ends this one
            metre = -(-2 * int(new_lines[bar + 1] - new_lines[bar]) // quarter), 8
        else:
            _, numerator, denominator = old[int(metres[bar])]
            metre = _scale(numerator, denominator, int(doublings[bar]))
        if new and metre == new[-1][1:]:
            metre = 2 * metre[0], 2 * metre[1]  # a repeated time signature would not begin a bar
        new.append(TimeSignature(int(new_lines[bar]), *_fit_to_midi(*metre)))
    return tuple(new)


def _scale(numerator: int, denominator: int, doublings: int) -> tuple[int, int]:
    """Return the time signature of bars that are doubled or halved."""
    for _ in range(doublings):
        is_odd = denominator % 2
        numerator, denominator = numerator << is_odd, denominator // (2 - is_odd)
    return numerator, denominator << max(-doublings, 0)


def _fit_to_midi(numerator: int, denominator: int) -> tuple[int, int]:
    """Return a time signature that MIDI files can have, as long if possible, else longer."""
    while numerator > _LARGEST_NUMERATOR or denominator > _LARGEST_DENOMINATOR:
        if denominator == 1:
            return _LARGEST_NUMERATOR, 1
        numerator, denominator = -(-numerator // 2), denominator // 2
    return numerator, denominator
