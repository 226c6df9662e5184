"""Conversion of quantised notes, bars and tempos to token ids."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.packing import Packing
from tokenization.remi.quantize import SeparateNotes, Timeline, starts_of_runs
from tokenization.remi.vocabulary import (
    BAR,
    BAR_UNIT,
    BOS,
    EOS,
    MIN_BPM,
    NUM_PARTS,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    Families,
)

_EVENT = Packing(21, 10, 10, 10, 10)
"""Step, type of the event, and up to three ids, 0 if unused."""
# Types in the order of tokens at one step: bar line, tempo, then notes by the rank of their track.
_IS_BAR, _IS_TEMPO, _IS_NOTE = range(3)
_BAR, _END = _EVENT.row(0, _IS_BAR, BAR, 0, 0), _EVENT.row(0, _IS_BAR, EOS, 0, 0)
_FIRST_TEMPO = _EVENT.row(0, _IS_TEMPO, TEMPO - MIN_BPM, 0, 0)


def write_ids(
    notes: SeparateNotes, durations: NDArray[np.int64], timeline: Timeline, families: Families
) -> NDArray[np.int32]:
    """Canonical ids of notes up to a timeline's end; `durations` are indices into DURATIONS."""
    tempos = timeline.tempos
    events = np.concatenate(
        [
            _bar_events(timeline.lines),
            _EVENT.place(tempos.steps, 0) + (_EVENT.place(tempos.bpm, 2) + _FIRST_TEMPO),
            _note_events(notes, durations, families),
        ]
    )
    events.sort()

    # One row per event: the Position if it is new, Program and Part if the track is new, then the
    # ids of the event. BOS takes the column of a Position, and EOS that of a Bar.
    has_programs = families.only_track < 0
    rows = np.zeros((len(events), 6 if has_programs else 4), np.int32)
    steps, whats, *ids = _EVENT.unpack(events)
    for column, of_event in zip((-3, -2, -1), ids, strict=True):
        rows[:, column] = of_event

    bars = (whats == _IS_BAR).nonzero()[0]
    is_new = starts_of_runs(steps)
    is_new[bars[:-1] + 1] = True
    is_new[bars] = False
    events_per_bar = np.append(bars[1:], len(events)) - bars
    zeros = (timeline.lines - POSITION).repeat(events_per_bar)
    rows[:, 0] = (steps - zeros) * is_new
    rows[0, 0] = BOS
    if has_programs:
        is_new = starts_of_runs(_EVENT.above(events, 2))
        programs, parts = _run_heads(families)
        np.multiply(programs[whats], is_new, out=rows[:, 1])
        np.multiply(parts[whats], is_new, out=rows[:, 2])
    flat = rows.ravel()
    return flat.compress(flat > 0)


@cache
def _run_heads(families: Families) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Ids of the Program and Part before the notes of a track, by type of event; 0: no token."""
    ranks = np.arange((families.part - families.program) * NUM_PARTS, dtype=np.int32)
    programs = families.program + ranks // NUM_PARTS
    parts = ranks % NUM_PARTS
    parts[parts > 0] += families.part - 1
    others = np.zeros(_IS_NOTE, np.int32)
    return np.concatenate([others, programs]), np.concatenate([others, parts])


def _bar_events(lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """Events of the bars, with TimeSignatures where the length changes, and the final event."""
    lengths = lines[1:] - lines[:-1]
    signatures = (lengths // BAR_UNIT + (TIME_SIGNATURE - 1)) * starts_of_runs(lengths)
    events = _EVENT.place(lines, 0)
    events[:-1] += _EVENT.place(signatures, 3) + _BAR
    events[-1] += _END
    return events


def _note_events(
    notes: SeparateNotes, durations: NDArray[np.int64], families: Families
) -> NDArray[np.int64]:
    ranks, pitches = notes.keys >> 7, notes.keys & 127
    events = _EVENT.pack(notes.onsets, ranks, pitches, notes.velocities, durations)
    all_notes, drums = _first_ids(families)
    events += all_notes
    events[: int(notes.keys.searchsorted(128))] += drums  # they are sorted by key
    return events


@cache
def _first_ids(families: Families) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets that convert pitches, velocities and durations to ids, and Pitch ids to Drum ids."""
    first_pitch = families.pitch - families.lowest_pitch
    notes = _EVENT.row(0, _IS_NOTE, first_pitch, families.velocity, families.duration)
    return notes, _EVENT.row(0, 0, families.num_pitches, 0, -families.duration)
