"""Names and ids of REMI tokens. Released weights depend on the ids, so none may change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_NAMES
from tokenization.grid import BAR_UNIT, MAX_BAR_STEPS
from tokenization.tokenizer import Vocabulary

PAD, BOS, EOS, MASK, BAR = range(5)

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
"""For later ids, see `Families`."""
NUM_VELOCITIES = 128 // VELOCITY_STEP
NUM_PITCHES = 128

DRUMS = 128
"""Program number of the drums; other programs are 0 to 127."""
PROGRAM_ORDER = (DRUMS, *range(32, 40), *range(32), *range(48, 56), *range(40, 48), *range(56, 128))
"""Programs in the order of their tokens at one position: drums, basses, chords, others."""
NUM_PARTS = 4
"""Number of distinguished tracks of one program; the first one has no Part token."""

TEMPOS_PER_OCTAVE = 36
"""Tempos are a geometric grid through 120; neighbours differ by 1.9 %."""
TEMPO_GRID = 15 * 2 ** (np.arange(183) / TEMPOS_PER_OCTAVE)
"""Quarter notes per minute of each Tempo token: 15 to 499."""
TEMPO_GRID.setflags(write=False)
TEMPO_EDGES = np.asarray(
    15 * 2 ** ((np.arange(len(TEMPO_GRID) + 1) - 0.5) / TEMPOS_PER_OCTAVE), np.float64
)
"""Limits (n + 1,) between which each Tempo token is the nearest."""
MAX_DISTANCE = 64
"""Maximum distance in bars of a Return, in both directions."""
MAX_GAP = 64
"""Maximum number of bars of a gap."""
NUM_STYLES = 64

VOCABULARY = Vocabulary(
    (
        *("PAD", "BOS", "EOS", "MASK", "Bar"),
        *(f"TimeSignature_{steps}" for steps in range(BAR_UNIT, MAX_BAR_STEPS + 1, BAR_UNIT)),
        *(f"Position_{steps}" for steps in range(NUM_POSITIONS)),
        *(f"Tempo_{bpm:.1f}" for bpm in TEMPO_GRID.tolist()),
        *(f"Program_{'Drums' if p == DRUMS else p}" for p in PROGRAM_ORDER),
        *(f"Part_{part}" for part in range(1, NUM_PARTS)),
        *(f"Pitch_{pitch}" for pitch in range(NUM_PITCHES)),
        *(f"Drum_{pitch}" for pitch in range(NUM_PITCHES)),
        *(f"Velocity_{velocity}" for velocity in range(NUM_VELOCITIES)),
        *(f"Duration_{steps}" for steps in DURATIONS.tolist()),
        *(f"DrumVelocity_{velocity}" for velocity in range(NUM_VELOCITIES)),
        "Return_New",
        *(f"Return_{distance}" for distance in range(1, MAX_DISTANCE + 1)),
        *(f"Return_{-distance}" for distance in range(1, MAX_DISTANCE + 1)),
        *(f"Chord_{name}" for name in CHORD_NAMES),
        *(f"Bass_{pitch_class}" for pitch_class in range(12)),
        *("Later", "Write", "Last"),
        *(f"Style_{style}" for style in range(NUM_STYLES)),
        *(f"Key_{tonic}_{mode}" for mode in ("major", "minor") for tonic in range(12)),
        "Plays",
        *(f"Gap_{bars}" for bars in range(1, MAX_GAP + 1)),
    )
)
"""The 1,246 tokens of all models."""


def closing_ids(vocabulary: Vocabulary) -> list[int]:
    """Return ids of tokens that close events, such as notes: all that do not begin or continue one.

    PAD does not, so that padding costs little.
    """
    return [i for i, name in enumerate(vocabulary.names) if name.split("_")[0] not in _CONTINUED]


_CONTINUED = {"PAD", "Position", "Program", "Part", "Pitch", "Drum", "Velocity"}
_KINDS = (
    *("Other", "BOS", "EOS", "Bar", "TimeSignature", "Position", "Tempo"),
    *("Program", "Part", "Pitch", "Drum", "Velocity", "Duration"),
    *("DrumVelocity", "Return", "Chord", "Bass", "Later", "Write", "Last"),
    *("Style", "Key", "Plays", "Gap"),
)


class Kind:
    """Kinds of tokens, from the beginning of their names; from Bar on in the order of ids.

    `Families.kinds` counts a DRUM_VELOCITY as VELOCITY. They are arrays of shape () because NumPy
    is twice as fast with these as with Python numbers.
    """

    OTHER, BOS, EOS, BAR, TIME_SIGNATURE, POSITION, TEMPO, *_later = (
        np.array(kind, np.uint8) for kind in range(len(_KINDS))
    )
    PROGRAM, PART, PITCH, DRUM, VELOCITY, DURATION, *_later = _later
    DRUM_VELOCITY, RETURN, CHORD, BASS, LATER, WRITE, LAST, STYLE, KEY, PLAYS, GAP = _later


class Families:
    """Ids of the families of tokens in one vocabulary, and the meaning of each token.

    The attributes from `program` to `gap` are the first ids of the families, in this order. A
    family ends where the next one begins, and may be empty. The rank of a track is its place among
    the tracks at one position; drums have rank 0.
    """

    def __init__(self, vocabulary: Vocabulary, *, only_track: int = -1) -> None:
        names = [name.split("_", 1) for name in (*vocabulary.names, "Other")]
        kinds = np.array([_KINDS.index(n[0]) if n[0] in _KINDS else 0 for n in names], np.uint8)
        values = np.array([_number(n[-1]) for n in names], np.int64)
        self.first_ids = _first_ids(kinds[:-1])
        for kind, step in (
            (Kind.TEMPO, 1),
            (Kind.PROGRAM, NUM_PARTS),
            (Kind.CHORD, 1),
            (Kind.KEY, 1),
        ):
            of_kind = kinds == kind
            values[of_kind] = np.arange(np.count_nonzero(of_kind)) * step
        later = np.arange(Kind.PROGRAM, len(_KINDS), dtype=np.uint8)
        first: list[int] = (np.searchsorted(kinds[BAR:-1], later) + BAR).tolist()
        self.program, self.part, self.pitch, self.drum, self.velocity, self.duration = first[:6]
        self.drum_velocity, self.return_, self.chord, self.bass = first[6:10]
        self.later, self.write, self.last = first[10:13]
        self.style, self.key, self.plays, self.gap = first[13:]
        self.vocabulary = vocabulary
        self.size = len(vocabulary)
        self.only_track = only_track
        """Rank of the only track; -1 if Program tokens distinguish tracks."""
        kinds[kinds == Kind.DRUM_VELOCITY] = Kind.VELOCITY
        self.kinds = kinds
        """`Kind` of each id (size + 1,); OTHER at the end."""
        self.values = values
        """The number that each id stands for (size + 1,).

        It is the number in the name, or 0. For a Program, it is the rank of its first part; for a
        Tempo, Chord or Key, the index in its family; for a Return, 0 is New.
        """
        kinds.setflags(write=False)
        values.setflags(write=False)


def _number(text: str) -> int:
    return int(text) if text.removeprefix("-").isdigit() else 0


def _first_ids(kinds: NDArray[np.uint8]) -> dict[str, int]:
    """Return the first id of each family that is not empty, by its name, ascending.

    PAD, BOS, EOS and MASK are the family `Other`.
    """
    present, first = np.unique(kinds, return_index=True)
    ids: dict[str, int] = {
        _KINDS[kind]: id_
        for kind, id_ in zip(present.tolist(), first.tolist(), strict=True)
        if kind not in (Kind.BOS, Kind.EOS)
    }
    return dict(sorted(ids.items(), key=lambda item: item[1]))


PIANO_FAMILIES = Families(VOCABULARY, only_track=1)
"""All notes belong to one track, with rank 1; there are no drums."""
MULTITRACK_FAMILIES = Families(VOCABULARY)
"""Program tokens distinguish tracks."""
