"""Counts of what the tokens of a score do not contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from tokenization.grid import STEPS_PER_BEAT, nearest_step
from tokenization.remi.tempo_range import in_tempo_range
from tokenization.remi.vocabulary import TEMPO_EDGES, TEMPO_GRID
from tokenization.score import Score, all_notes

_SUSTAIN_PEDAL: Final = 64
_WHOLE: Final = 0.005
"""Files have whole microseconds per quarter, so that whole tempos are not exact."""


class Losses(NamedTuple):
    """What is lost when a score is encoded, besides the notes counted by a `TokenSequence`."""

    drums: int = 0
    """Number of drum notes that are left out because the tokenizer has no drums."""
    pedals: int = 0
    """Number of times that the sustain pedal is pressed or released."""
    controllers: int = 0
    """Number of changes of other controllers, such as volume and modulation."""
    bends: int = 0
    """Number of pitch bends."""
    tempos_rounded: int = 0
    """Number of tempos that are rounded to the tempo of a token."""
    onset_microseconds: int = 0
    """Sum of the shifts of all notes to the grid."""
    drift_milliseconds: int = 0
    """Shift of the end of the score by rounded tempos."""


def losses(score: Score, ranks: Sequence[int]) -> Losses:
    """Return the losses of a score; `ranks` are those of its tracks by `Remi.track_ranks`."""
    of_channel = {track.channel: track for track in score.tracks}.values()
    numbers = [track.controls[:, 1] for track in of_channel]
    pedals = sum(int(np.count_nonzero(of_track == _SUSTAIN_PEDAL)) for of_track in numbers)
    fitted = in_tempo_range(score)
    bpm = np.array([tempo.bpm for tempo in fitted.tempos])
    nearest = TEMPO_EDGES[1:-1].searchsorted(bpm, side="right")
    as_tokens = TEMPO_GRID[nearest].tolist()
    rounded = [t._replace(bpm=bpm) for t, bpm in zip(fitted.tempos, as_tokens, strict=True)]
    as_rounded = replace(fitted, tempos=tuple(rounded))
    ends = [float(timed.seconds_at(timed.end_ticks)) for timed in (fitted, as_rounded)]
    heard = [t for t, rank in zip(fitted.tracks, ranks, strict=True) if rank >= 0]
    onsets = all_notes(heard)[:, 0]
    ticks = nearest_step(onsets, fitted.ticks_per_beat) * (fitted.ticks_per_beat / STEPS_PER_BEAT)
    seconds_per_tick = fitted.seconds_at(onsets + 1) - fitted.seconds_at(onsets)
    return Losses(
        drums=sum(len(t) for t, rank in zip(score.tracks, ranks, strict=True) if rank < 0),
        pedals=pedals,
        controllers=sum(map(len, numbers)) - pedals,
        bends=sum(len(track.bends) for track in of_channel),
        tempos_rounded=sum(
            abs(one.bpm - other.bpm) > _WHOLE
            for one, other in zip(rounded, fitted.tempos, strict=True)
        ),
        onset_microseconds=round(1e6 * float(np.abs((ticks - onsets) * seconds_per_tick).sum())),
        drift_milliseconds=round(1e3 * abs(ends[1] - ends[0])),
    )
