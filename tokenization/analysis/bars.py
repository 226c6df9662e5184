"""Notes and beats of a score by notated bar, as all analyses of form read them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import STEPS_PER_BEAT, metres, nearest_step, notated_lines
from tokenization.score import MAX_BEATS, Score

DRUMS: Final = -1
"""Track of all drums in `ScoreBars.tracks`."""
_LONGEST_BEATS = 64  # a longer note is an error in the file


class ScoreBars(NamedTuple):
    """The notated bars of a score, and the notes that begin in them; columns (n,)."""

    score: Score
    """The score, with at least 12 ticks per quarter note."""
    lines: NDArray[np.int64]
    """Bar lines (bars + 1,) in ticks of `score`."""
    sizes: NDArray[np.int64]
    """Length of each bar (bars,) in grid steps, at least 1."""
    middles: NDArray[np.int64]
    """Tick of beat `second_beats` of each bar (bars,), or its end if the bar is over before it."""
    second_beats: NDArray[np.int64]
    """The beat ceil(n / 2), from 0, of each bar of n beats (bars,); a beat is the unit of the time
    signature."""
    bars: NDArray[np.int64]
    """Bar of each note, from 0, ascending. A note just before a bar line may belong to the next."""
    places: NDArray[np.int64]
    """Grid steps from the start of the bar to the note."""
    pitches: NDArray[np.int64]
    tracks: NDArray[np.int64]
    """Index of the track in the score; `DRUMS` for all drum tracks."""

    @classmethod
    def of(cls, score: Score) -> ScoreBars:
        """The bars from 0 to the end of the score, as many as a tokenizer encodes."""
        score = score.refined(-(-STEPS_PER_BEAT // score.ticks_per_beat))
        resolution = score.ticks_per_beat
        tables = [
            np.insert(track.notes, 4, DRUMS if track.is_drum else index, 1)
            for index, track in enumerate(score.tracks)
        ]
        notes = np.concatenate([np.zeros((0, 5), np.int64), *tables])
        onsets, durations = notes[:, 0], notes[:, 1]
        step = -(-resolution // STEPS_PER_BEAT)
        ends = onsets + np.clip(durations, step, _LONGEST_BEATS * resolution)
        end = max(int(ends.max(initial=0)), 1)
        if score.end_ticks <= MAX_BEATS * resolution:
            end = max(end, score.end_ticks)
        lines = notated_lines(score, end, 1)
        sizes = np.maximum(nearest_step(np.diff(lines), resolution), 1)
        bars = np.searchsorted(lines, onsets, side="right") - 1
        places = nearest_step(onsets - lines[bars], resolution)
        is_next = places >= sizes[bars]
        bars, places = bars + is_next, np.where(is_next, 0, places)
        num_bars = max(len(lines) - 2, int(bars.max(initial=0)) + 1)
        lines = lines[: num_bars + 1]
        changes = metres(score)
        changes = changes[np.searchsorted(changes[:, 0], lines[:-1], side="right") - 1]
        second_beats = -(-changes[:, 1] // 2)
        middles = lines[:-1] + second_beats * 4 * resolution // changes[:, 2]
        order = np.argsort(bars, kind="stable")
        return cls(
            score,
            lines,
            sizes[:num_bars],
            np.minimum(middles, lines[1:]),
            second_beats,
            bars[order],
            places[order],
            notes[order, 2],
            notes[order, 4],
        )

    @property
    def num_bars(self) -> int:
        """Number of bars, at least one."""
        return len(self.lines) - 1
