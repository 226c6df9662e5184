"""REMI tokenizer for several instruments: at each position, tracks come one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.quantize import starts_of_runs
from tokenization.remi.remi import Remi, RemiConfig
from tokenization.remi.vocabulary import (
    DRUMS,
    MULTITRACK_FAMILIES,
    NUM_PARTS,
    PROGRAM_ORDER,
)
from tokenization.score import NO_NOTES, Track

_RANKS = [PROGRAM_ORDER.index(program) * NUM_PARTS for program in range(len(PROGRAM_ORDER))]
"""Rank of the first track of each program; program 128 is the drums."""

_EMPTY = [
    Track(NO_NOTES, 0 if program == DRUMS else program, is_drum=program == DRUMS)
    for program in PROGRAM_ORDER
]
"""An empty track of each program, in the order of their tokens."""


@dataclass(frozen=True, kw_only=True)
class MultitrackRemiConfig(RemiConfig):
    """Configuration of a `MultitrackRemi`."""

    kind: Literal["multitrack_remi"] = "multitrack_remi"

    def build(self) -> MultitrackRemi:
        """Return the tokenizer."""
        return MultitrackRemi(self)


class MultitrackRemi(Remi):
    """Music with several tracks; see `Remi`.

    At a position, each track has one group: a Program, a Part unless it is the first track of that
    program, then its notes. Groups are in the order drums, basses, chords, others. A drum note is a
    Drum and a Velocity. All drum tracks are merged, and so are the fourth and later tracks of one
    program. Parts are numbered in the order of the score's tracks, empty tracks included. In
    decoded scores, tracks are in the order of groups; each part before the last one of a program is
    present even without notes.
    """

    def __init__(self, config: MultitrackRemiConfig | None = None) -> None:
        config = MultitrackRemiConfig() if config is None else config
        super().__init__(config, MULTITRACK_FAMILIES)

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Return each track's rank, its place among groups of a position, by program and part."""
        parts: dict[int, int] = {}
        ranks: list[int] = []
        for track in tracks:
            program = DRUMS if track.is_drum else track.program
            part = 0 if track.is_drum else min(parts.get(program, 0), NUM_PARTS - 1)
            parts[program] = part + 1
            ranks.append(_RANKS[program] + part)
        return ranks

    def replace_program(
        self, ids: NDArray[np.integer], program: int, by: int | None
    ) -> NDArray[np.integer]:
        """Replace a program (128: drums) by another one, or remove its tracks (None).

        For example, it removes the drums, or replaces piano by strings. `ids` and the result are
        canonical ids of a whole piece. Drums can be removed but not replaced, and no other program
        can become drums.

        Raises ValueError if `by` is not a program from 0 to 127.
        """
        if by is not None and not 0 <= by < DRUMS:
            raise ValueError(f"program is {by}, expected 0 to 127, or None to remove the tracks")
        score = self.decode(ids)
        tracks: list[Track] = []
        for track in score.tracks:
            if (DRUMS if track.is_drum else track.program) != program:
                tracks.append(track)
            elif by is not None:
                tracks.append(replace(track, program=by))
        return self.encode(replace(score, tracks=tuple(tracks))).ids

    def _named(self, tracks: Sequence[Track], ranks: Sequence[int]) -> tuple[Track, ...]:
        """Return, for each rank, the track with the most notes, without its events."""
        fullest: dict[int, Track] = {}
        for rank, track in zip(ranks, tracks, strict=True):
            if rank not in fullest or len(track) > len(fullest[rank]):
                fullest[rank] = track
        return tuple(fullest[rank].without_events() for rank in sorted(fullest))

    def _tracks(
        self, table: NDArray[np.int64], ranks: NDArray[np.int64], prompt_tracks: Sequence[Track]
    ) -> tuple[Track, ...]:
        names = dict(zip(self.track_ranks(prompt_tracks), prompt_tracks, strict=True))
        firsts = starts_of_runs(ranks).nonzero()[0]
        edges = [*firsts.tolist(), len(ranks)]
        parts = {
            rank: table[first:end]
            for rank, first, end in zip(ranks[firsts].tolist(), edges, edges[1:], strict=False)
        }
        tracks: list[Track] = []
        for rank in sorted({r for last in parts for r in range(last - last % NUM_PARTS, last + 1)}):
            track = names.get(rank, _EMPTY[rank // NUM_PARTS])
            tracks.append(track.with_tables(notes=parts.get(rank, NO_NOTES)))
        return tuple(tracks)
