"""Names and ids of tokens. Released weights depend on every id here: nothing may move."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Vocabulary:
    """Names of tokens, by id."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError("two tokens of the vocabulary have the same name")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Id of each name."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the names in order, one per line: equal where the ids mean the same."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()


STEPS_PER_BEAT = 12
"""Grid steps of one quarter note."""

PAD, BOS, EOS, MASK, BAR = range(5)

BAR_UNIT = 6
"""Bar lengths are multiples of this many grid steps: an eighth note."""
MAX_BAR_STEPS = 96
MIN_BPM, MAX_BPM = 30, 240
MIN_PITCH, MAX_PITCH = 21, 108
VELOCITY_STEP = 4
"""MIDI velocities of one bin; a bin is decoded as its middle."""
DURATIONS = np.array(
    [*range(1, 49), *(int(48 * 2 ** (k / 4) + 0.5) for k in range(1, 17))], dtype=np.int64
)
"""Steps of each Duration token: every length to four quarters, then four to each doubling."""
DURATIONS.setflags(write=False)
MAX_DURATION = int(DURATIONS[-1])

TIME_SIGNATURE = 5
NUM_TIME_SIGNATURES = MAX_BAR_STEPS // BAR_UNIT
POSITION = TIME_SIGNATURE + NUM_TIME_SIGNATURES
NUM_POSITIONS = MAX_BAR_STEPS
TEMPO = POSITION + NUM_POSITIONS
NUM_TEMPOS = MAX_BPM - MIN_BPM + 1
PITCH = TEMPO + NUM_TEMPOS
NUM_PITCHES = MAX_PITCH - MIN_PITCH + 1
VELOCITY = PITCH + NUM_PITCHES
NUM_VELOCITIES = 128 // VELOCITY_STEP
DURATION = VELOCITY + NUM_VELOCITIES
NUM_DURATIONS = len(DURATIONS)

PIANO_VOCABULARY = Vocabulary(
    (
        *("PAD", "BOS", "EOS", "MASK", "Bar"),
        *(f"TimeSignature_{steps}" for steps in range(BAR_UNIT, MAX_BAR_STEPS + 1, BAR_UNIT)),
        *(f"Position_{steps}" for steps in range(NUM_POSITIONS)),
        *(f"Tempo_{bpm}" for bpm in range(MIN_BPM, MAX_BPM + 1)),
        *(f"Pitch_{pitch}" for pitch in range(MIN_PITCH, MAX_PITCH + 1)),
        *(f"Velocity_{velocity}" for velocity in range(NUM_VELOCITIES)),
        *(f"Duration_{steps}" for steps in DURATIONS.tolist()),
    )
)
"""The 512 tokens of `PianoRemi`."""

# The multi-track vocabulary: ids up to the tempos are those of the piano; then come
PROGRAM = PITCH
DRUMS = 128
"""Stands for the drums where others have their program, 0 to 127."""
PROGRAM_ORDER = (DRUMS, *range(32, 40), *range(32), *range(48, 56), *range(40, 48), *range(56, 128))
"""Programs in the order of their tokens, and so at one position: drums, basses, chords, others."""
PART = PROGRAM + len(PROGRAM_ORDER)
NUM_PARTS = 4
"""Tracks of one program that are told apart; the first of them has no Part token."""
TRACK_PITCH = PART + NUM_PARTS - 1
DRUM_PITCH = TRACK_PITCH + 128
TRACK_VELOCITY = DRUM_PITCH + 128
TRACK_DURATION = TRACK_VELOCITY + NUM_VELOCITIES

MULTITRACK_VOCABULARY = Vocabulary(
    (
        *PIANO_VOCABULARY.names[:PROGRAM],
        *(f"Program_{'Drums' if p == DRUMS else p}" for p in PROGRAM_ORDER),
        *(f"Part_{part}" for part in range(1, NUM_PARTS)),
        *(f"Pitch_{pitch}" for pitch in range(128)),
        *(f"Drum_{pitch}" for pitch in range(128)),
        *(f"Velocity_{velocity}" for velocity in range(NUM_VELOCITIES)),
        *(f"Duration_{steps}" for steps in DURATIONS.tolist()),
    )
)
"""The 812 tokens of `MultitrackRemi`."""
