"""Changes to examples of several instruments, so that a model has to listen to its prompt.

A corpus of few styles can be learned by heart: who plays then tells how. With instruments that
change places, and drums of another piece, only the music before tells how it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokenization.score import Score, Tempo, Track
from tokenization.vocabulary import BOS, EOS
from training.errors import check_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokenization.tokenizer import Tokenizer

FAMILY = 8
"""Programs of General MIDI that are kinds of one instrument."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How often what is changed in an example; the first four are probabilities."""

    program: float = 0.0
    """That an instrument becomes another kind of it; of these, one in four any other but drums."""
    drums: float = 0.0
    """That the drums are those of another example in the same metre."""
    dropped: float = 0.0
    """That an instrument, or the drums, is left out; one always stays."""
    velocity: float = 0.0
    """That an instrument, or the drums, is louder or softer, by up to 24 of 127."""
    tempo: float = 1.0
    """Greatest factor by which all is faster or slower."""

    def __post_init__(self) -> None:
        for name in ("program", "drums", "dropped", "velocity"):
            check_range(name, getattr(self, name), 0, 1)
        check_range("tempo", self.tempo, 1, 4)

    def __call__(
        self,
        ids: NDArray[np.integer],
        tokenizer: Tokenizer,
        other: Callable[[], NDArray[np.integer]],
        draw: np.random.Generator,
    ) -> NDArray[np.integer]:
        """An example, changed; `other` gives another one, of whatever piece.

        Canonical ids in and out; BOS and EOS stay where they are, and nowhere else.
        """
        if self == NOTHING:
            return ids
        score = tokenizer.decode(ids)
        tracks = [*score.tracks]
        if draw.random() < self.drums:
            drums = _drums_of(tokenizer.decode(other()), score)
            if drums:
                tracks = [track for track in tracks if not track.is_drum] + drums
        tracks = [self._changed(track, draw) for track in tracks]
        kept = [track for track in tracks if draw.random() >= self.dropped]
        if not kept and tracks:
            kept = [tracks[int(draw.integers(len(tracks)))]]
        factor = self.tempo ** draw.uniform(-1, 1)
        tempos = tuple(Tempo(tick, bpm * factor) for tick, bpm in score.tempos)
        made = tokenizer.encode(replace(score, tracks=tuple(kept), tempos=tempos)).ids
        begins, ends = ids[:1].tolist() == [BOS], ids[-1:].tolist() == [EOS]
        return made[0 if begins else 1 : None if ends else -1]

    def _changed(self, track: Track, draw: np.random.Generator) -> Track:
        """The track with another program and another loudness, as chance has it."""
        other_program, other_loudness = draw.random(2) < (self.program, self.velocity)
        first = track.program - track.program % FAMILY
        program = int(draw.integers(first, first + FAMILY))
        if draw.random() < 0.25:
            program = int(draw.integers(112))  # up to the percussive ones
        if other_program and not track.is_drum:
            track = replace(track, program=program)
        louder = int(draw.integers(-24, 25))
        if other_loudness:
            notes = track.notes.copy()
            notes[:, 3] = np.clip(notes[:, 3] + louder, 1, 127)
            track = replace(track, notes=notes)
        return track


NOTHING = Augmentation()


def _drums_of(other: Score, score: Score) -> list[Track]:
    """Drums of another example, up to the end of this one; none where the metres differ."""
    if [s[1:] for s in other.time_signatures] != [s[1:] for s in score.time_signatures]:
        return []
    drums = [track for track in other.tracks if track.is_drum]
    return [replace(t, notes=t.notes[t.notes[:, 0] < score.end_ticks]) for t in drums]
