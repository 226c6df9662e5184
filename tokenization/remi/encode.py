"""Conversion of quantised notes, bars and tempos to token ids."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.documents.heads import BarHeads
from tokenization.remi.packing import Packing
from tokenization.remi.quantize import SeparateNotes, TempoMap, starts_of_runs
from tokenization.remi.vocabulary import NUM_PARTS, NUM_PITCHES, POSITION, TEMPO, Families

_EVENT = Packing(21, 10, 10, 10, 10)
"""Step in the order of the document, type of the event, and up to three ids, 0 if unused."""
# Types in the order of tokens at one step: rows of a head, tempo, notes by rank of their track.


class Body(NamedTuple):
    """Quantised music in the order of its document."""

    heads: BarHeads
    tempos: TempoMap
    """The tempos that are not part of a head."""
    notes: SeparateNotes
    durations: NDArray[np.int64]
    """Indices into DURATIONS."""


def write_ids(body: Body, families: Families) -> NDArray[np.int32]:
    """Return the canonical ids of the heads and what follows each."""
    # One row per event: the Position if it is new, Program and Part if the track is new, then the
    # ids of the event. Heads take whole rows.
    has_programs = families.only_track < 0
    width = 6 if has_programs else 4
    heads = body.heads.rows(width)
    per_head = len(heads) // len(body.heads.starts)
    tempos = body.tempos
    events = np.concatenate(
        [
            _head_events(body.heads.starts, per_head),
            _EVENT.place(tempos.steps, 0)
            + (_EVENT.place(tempos.tempos, 2) + _EVENT.row(0, per_head, TEMPO, 0, 0)),
            _note_events(body.notes, body.durations, families, per_head),
        ]
    )
    events.sort()

    rows = np.zeros((len(events), width), np.int32)
    steps, whats, *ids = _EVENT.unpack(events)
    for column, of_event in zip((-3, -2, -1), ids, strict=True):
        rows[:, column] = of_event

    of_heads = (whats < per_head).nonzero()[0]
    firsts = of_heads[::per_head]
    is_new = starts_of_runs(steps)
    is_new[of_heads[per_head - 1 : -1 : per_head] + 1] = True
    is_new[of_heads] = False
    zeros = (body.heads.starts - POSITION).repeat(np.append(firsts[1:], len(events)) - firsts)
    rows[:, 0] = (steps - zeros) * is_new
    if has_programs:
        is_new = starts_of_runs(_EVENT.above(events, 2))
        programs, parts = _run_heads(families, per_head)
        np.multiply(programs[whats], is_new, out=rows[:, 1])
        np.multiply(parts[whats], is_new, out=rows[:, 2])
    rows[of_heads] = heads
    flat = rows.ravel()
    return flat.compress(flat > 0)


def _head_events(starts: NDArray[np.int64], per_head: int) -> NDArray[np.int64]:
    events = _EVENT.place(starts, 0)
    if per_head == 1:
        return events
    return np.concatenate([events + _EVENT.row(0, row, 0, 0, 0) for row in range(per_head)])


@cache
def _run_heads(families: Families, per_head: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return ids of the Program and Part before a track's notes, by type of event; 0: no token."""
    ranks = np.arange((families.part - families.program) * NUM_PARTS, dtype=np.int32)
    programs = families.program + ranks // NUM_PARTS
    parts = ranks % NUM_PARTS
    parts[parts > 0] += families.part - 1
    others = np.zeros(per_head + 1, np.int32)
    return np.concatenate([others, programs]), np.concatenate([others, parts])


def _note_events(
    notes: SeparateNotes, durations: NDArray[np.int64], families: Families, per_head: int
) -> NDArray[np.int64]:
    ranks, pitches = notes.keys >> 7, notes.keys & 127
    events = _EVENT.pack(notes.onsets, ranks, pitches, notes.velocities, durations)
    all_notes, drums = _first_ids(families, per_head)
    events += all_notes
    events[: int(notes.keys.searchsorted(128))] += drums  # they are sorted by key
    return events


@cache
def _first_ids(families: Families, per_head: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets that convert pitches, velocities, durations to ids, and Pitch to Drum ids."""
    notes = _EVENT.row(0, per_head + 1, families.pitch, families.velocity, families.duration)
    louder = families.drum_velocity - families.velocity
    return notes, _EVENT.row(0, 0, NUM_PITCHES, louder, -families.duration)
