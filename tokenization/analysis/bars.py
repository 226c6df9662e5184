"""Notes and beats of a score by bar, as all analyses of form read them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import STEPS_PER_BEAT, bar_lines, nearest_step, quantize_time_signatures
from tokenization.score import MAX_BEATS, Score, nearest_ratio

DRUMS: Final = -1
"""Track of all drums in `ScoreBars.tracks`."""


class ScoreBars(NamedTuple):
    """The bars of a score, and the notes that begin in them; columns (n,)."""

    score: Score
    """The score, with at least 12 ticks per quarter note."""
    lines: NDArray[np.int64]
    """Bar lines (bars + 1,) in ticks of `score`."""
    sizes: NDArray[np.int64]
    """Length of each bar (bars,) in grid steps."""
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
        """Return the bars from 0 to the end of the score: `bar_lines`, as a tokenizer encodes."""
        score = score.refined(-(-STEPS_PER_BEAT // score.ticks_per_beat))
        resolution = score.ticks_per_beat
        tables = [
            np.insert(track.notes, 4, DRUMS if track.is_drum else index, 1)
            for index, track in enumerate(score.tracks)
        ]
        notes = np.concatenate([np.zeros((0, 5), np.int64), *tables])
        onsets = nearest_step(notes[:, 0], resolution)
        end = int(onsets.max(initial=0)) + 1
        if score.end_ticks <= MAX_BEATS * resolution:
            end = max(end, nearest_step(score.end_ticks, resolution))
        signatures = quantize_time_signatures(score)
        steps = bar_lines(signatures, end)
        bars = np.searchsorted(steps, onsets, side="right") - 1
        metres = np.array(signatures)
        metres = metres[np.searchsorted(metres[:, 0], steps[:-1], side="right") - 1]
        second_beats = -(-metres[:, 1] // 2)
        middles = steps[:-1] + second_beats * 4 * STEPS_PER_BEAT // metres[:, 2]
        order = np.argsort(bars, kind="stable")
        return cls(
            score,
            nearest_ratio(steps * resolution, STEPS_PER_BEAT),
            np.diff(steps),
            nearest_ratio(np.minimum(middles, steps[1:]) * resolution, STEPS_PER_BEAT),
            second_beats,
            bars[order],
            (onsets - steps[bars])[order],
            notes[order, 2],
            notes[order, 4],
        )

    @property
    def num_bars(self) -> int:
        """Number of bars, at least one."""
        return len(self.lines) - 1

    def only(self, mask: NDArray[np.bool_]) -> ScoreBars:
        """Return the same bars with some of the notes, (n,) bool."""
        return self._replace(
            bars=self.bars[mask],
            places=self.places[mask],
            pitches=self.pitches[mask],
            tracks=self.tracks[mask],
        )
