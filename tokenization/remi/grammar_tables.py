"""What a grammar looks up: masks that depend on the last token alone, tracks that may play."""

from __future__ import annotations

from enum import IntEnum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    MULTITRACK_FAMILIES,
    NUM_PARTS,
    PAD,
    PIANO_FAMILIES,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    Families,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


class After(IntEnum):
    """Kind of the token that came last; NOTE ends a note."""

    NOTHING = auto()
    BOS = auto()
    BAR = auto()
    TIME_SIGNATURE = auto()
    POSITION = auto()
    TEMPO = auto()
    PROGRAM = auto()
    PART = auto()
    PITCH = auto()
    DRUM = auto()
    VELOCITY = auto()
    NOTE = auto()
    EOS = auto()


class FixedMasks(NamedTuple):
    """Masks (v,) that depend on the last token alone, read-only."""

    always: dict[After, NDArray[np.bool_]]
    first_bar: dict[After, NDArray[np.bool_]]
    """As long as there was no Tempo."""

    @classmethod
    def of(cls, families: Families) -> FixedMasks:
        """Those of one vocabulary."""

        def mask(*ranges: tuple[int, int]) -> NDArray[np.bool_]:
            allowed = np.zeros(families.size, bool)
            for first, stop in ranges:
                allowed[first:stop] = True
            allowed.setflags(write=False)
            return allowed

        velocity = mask((families.velocity, families.duration))
        position = mask((POSITION, POSITION + 1))
        return cls(
            {
                After.NOTHING: mask((BOS, BOS + 1), (BAR, BAR + 1)),
                After.BOS: mask((BAR, BAR + 1)),
                After.PITCH: velocity,
                After.DRUM: velocity,
                After.VELOCITY: mask((families.duration, families.size)),
                After.EOS: mask((PAD, PAD + 1)),
            },
            {
                After.BAR: mask((TIME_SIGNATURE, POSITION)),
                After.TIME_SIGNATURE: position,
                After.POSITION: mask((TEMPO, families.program)),
                # what a prompt of bars without a tempo is resumed with
                After.NOTE: position,
            },
        )


FIXED_MASKS = {
    families: FixedMasks.of(families) for families in (PIANO_FAMILIES, MULTITRACK_FAMILIES)
}


class Players(NamedTuple):
    """The tracks that may play."""

    tracks: NDArray[np.bool_]
    """Which of all ranks, read-only."""
    ranks: list[int]
    full: int
    """As long as fewer notes sound, one of the tracks can strike another."""


@lru_cache(maxsize=64)
def players(families: Families, ranks: frozenset[int] | None) -> Players:
    """Those of the ranks, all where None."""
    num_programs = families.part - families.program
    tracks = np.zeros(max(num_programs * NUM_PARTS, families.only_track + 1), bool)
    if families.only_track >= 0:
        tracks[families.only_track] = True
    elif ranks is None:
        tracks[:] = True
        tracks[1:NUM_PARTS] = False  # the drums are one track
    else:
        tracks[list(ranks)] = True
    tracks.setflags(write=False)
    playing: list[int] = np.flatnonzero(tracks).tolist()
    # drums do not sound on: one can always be struck
    full = 1 << 60 if tracks[0] else families.num_pitches * len(playing)
    return Players(tracks, playing, full)
