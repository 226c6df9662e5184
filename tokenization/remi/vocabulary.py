"""Names and ids of REMI tokens. Released weights depend on the ids, so none may change."""

from __future__ import annotations

import numpy as np

from tokenization.grid import STEPS_PER_BEAT
from tokenization.tokenizer import Vocabulary

PAD, BOS, EOS, MASK, BAR = range(5)

BAR_UNIT = STEPS_PER_BEAT // 2
"""Bar lengths are multiples of this many grid steps, which is an eighth note."""
MAX_BAR_STEPS = 96
MIN_BPM, MAX_BPM = 30, 240
MIN_PITCH, MAX_PITCH = 21, 108
VELOCITY_STEP = 4
"""Number of MIDI velocities in a bin; a bin is decoded to its middle."""
DURATIONS = np.array(
    [*range(1, 49), *(int(48 * 2 ** (k / 4) + 0.5) for k in range(1, 17))], dtype=np.int64
)
"""Steps of each Duration token: all lengths up to four quarters, then four per octave."""
DURATIONS.setflags(write=False)
MAX_DURATION = int(DURATIONS[-1])

TIME_SIGNATURE = 5
NUM_TIME_SIGNATURES = MAX_BAR_STEPS // BAR_UNIT
POSITION = TIME_SIGNATURE + NUM_TIME_SIGNATURES
NUM_POSITIONS = MAX_BAR_STEPS
TEMPO = POSITION + NUM_POSITIONS
NUM_TEMPOS = MAX_BPM - MIN_BPM + 1
"""Ids up to the tempos are the same in all vocabularies. For the others, see `Families`."""
NUM_VELOCITIES = 128 // VELOCITY_STEP

_NOTE_VALUES = (
    *(f"Velocity_{velocity}" for velocity in range(NUM_VELOCITIES)),
    *(f"Duration_{steps}" for steps in DURATIONS.tolist()),
)

PIANO_VOCABULARY = Vocabulary(
    (
        *("PAD", "BOS", "EOS", "MASK", "Bar"),
        *(f"TimeSignature_{steps}" for steps in range(BAR_UNIT, MAX_BAR_STEPS + 1, BAR_UNIT)),
        *(f"Position_{steps}" for steps in range(NUM_POSITIONS)),
        *(f"Tempo_{bpm}" for bpm in range(MIN_BPM, MAX_BPM + 1)),
        *(f"Pitch_{pitch}" for pitch in range(MIN_PITCH, MAX_PITCH + 1)),
        *_NOTE_VALUES,
    )
)
"""The 512 tokens of `PianoRemi`."""

DRUMS = 128
"""Program number of the drums; other programs are 0 to 127."""
PROGRAM_ORDER = (DRUMS, *range(32, 40), *range(32), *range(48, 56), *range(40, 48), *range(56, 128))
"""Programs in the order of their tokens at one position: drums, basses, chords, others."""
NUM_PARTS = 4
"""Number of distinguished tracks of one program; the first one has no Part token."""

MULTITRACK_VOCABULARY = Vocabulary(
    (
        *PIANO_VOCABULARY.names[: TEMPO + NUM_TEMPOS],
        *(f"Program_{'Drums' if p == DRUMS else p}" for p in PROGRAM_ORDER),
        *(f"Part_{part}" for part in range(1, NUM_PARTS)),
        *(f"Pitch_{pitch}" for pitch in range(128)),
        *(f"Drum_{pitch}" for pitch in range(128)),
        *_NOTE_VALUES,
    )
)
"""The 812 tokens of `MultitrackRemi`."""


_KINDS = (
    *("Other", "EOS", "Bar", "TimeSignature", "Position", "Tempo"),
    *("Program", "Part", "Pitch", "Drum", "Velocity", "Duration"),
)


class Kind:
    """Kinds of tokens, from the beginning of their names; from Bar on in the order of ids.

    They are arrays of shape () because NumPy is twice as fast with these as with Python numbers.
    """

    OTHER, EOS, BAR, TIME_SIGNATURE, POSITION, TEMPO, *_later = (
        np.array(kind, np.uint8) for kind in range(len(_KINDS))
    )
    PROGRAM, PART, PITCH, DRUM, VELOCITY, DURATION = _later


class Families:
    """Ids of the families of tokens in one vocabulary, and the meaning of each token.

    `program`, `part`, `pitch`, `drum`, `velocity` and `duration` are the first ids of the families,
    in this order. A family ends where the next one begins, and may be empty. The rank of a track is
    its place among the tracks at one position; drums have rank 0.
    """

    def __init__(self, vocabulary: Vocabulary, *, only_track: int = -1) -> None:
        names = [name.split("_") for name in (*vocabulary.names, "Other")]
        kinds = np.array([_KINDS.index(n[0]) if n[0] in _KINDS else 0 for n in names], np.uint8)
        values = np.array([int(n[-1]) if n[-1].isdigit() else 0 for n in names], np.int64)
        is_program = kinds == Kind.PROGRAM
        values[is_program] = np.arange(np.count_nonzero(is_program)) * NUM_PARTS
        later = np.arange(Kind.PROGRAM, len(_KINDS), dtype=np.uint8)
        first: list[int] = (np.searchsorted(kinds[BAR:-1], later) + BAR).tolist()
        self.program, self.part, self.pitch, self.drum, self.velocity, self.duration = first
        self.vocabulary = vocabulary
        self.size = len(vocabulary)
        self.num_pitches = self.drum - self.pitch
        """Number of pitches of a melodic track."""
        self.lowest_pitch = int(values[self.pitch])
        """MIDI pitch of the first Pitch token."""
        self.only_track = only_track
        """Rank of the only track; -1 if Program tokens distinguish tracks."""
        self.kinds = kinds
        """`Kind` of each id (size + 1,); OTHER at the end."""
        self.values = values
        """Number in the name of each id (size + 1,), or 0; of a Program, its first rank."""
        kinds.setflags(write=False)
        values.setflags(write=False)

    @property
    def first_ids(self) -> dict[str, int]:
        """First id of each family that is not empty, by its name, ascending.

        PAD, BOS, EOS and MASK are the family `Other`.
        """
        kinds, first = np.unique(self.kinds[:-1], return_index=True)
        return {
            _KINDS[kind]: id_
            for kind, id_ in zip(kinds.tolist(), first.tolist(), strict=True)
            if kind != Kind.EOS
        }


PIANO_FAMILIES = Families(PIANO_VOCABULARY, only_track=1)
"""All notes belong to one track, with rank 1; there are no drums."""
MULTITRACK_FAMILIES = Families(MULTITRACK_VOCABULARY)
