"""Where tokens stand in a row of ids, and where bars and positions stand in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenization.quantize import starts_of_runs
from tokenization.vocabulary import (
    BAR,
    BAR_UNIT,
    BOS,
    EOS,
    NUM_POSITIONS,
    NUM_TIME_SIGNATURES,
    PAD,
    PITCH,
    POSITION,
    STEPS_PER_BEAT,
    TIME_SIGNATURE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DEFAULT_BAR = 4 * STEPS_PER_BEAT
_ID_BITS = 9
_ID_MASK = (1 << _ID_BITS) - 1


def pack_events(
    steps: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64] | int = 0,
    third: NDArray[np.int64] | int = 0,
) -> NDArray[np.int64]:
    """Notes and tempos as one integer each: the step, then up to three ids, 0 where there is none.

    They sort as they stand: by time; at one time a tempo, whose id is smaller, before the pitches.
    """
    return (((((steps << _ID_BITS) + first) << _ID_BITS) + second) << _ID_BITS) + third


def write_ids(events: NDArray[np.int64], lines: NDArray[np.int64]) -> NDArray[np.int32]:
    """Canonical ids of packed notes and tempos, the first at step 0, within the bars of `lines`."""
    steps = events >> 3 * _ID_BITS
    packed = (events & ((1 << 3 * _ID_BITS) - 1)).astype(np.int32)
    first_ids = packed >> 2 * _ID_BITS

    # Place of the first id of each event among the tokens of events: after the ids of the event
    # before, and a Position where the time is new. One more stands for the end.
    new_position = starts_of_runs(steps)
    ahead = np.empty(len(events) + 1, np.int64)
    ahead[0] = 0
    ahead[1:] = np.where(first_ids < PITCH, 1, 3)
    ahead[:-1] += new_position
    ahead[-1] += 1
    places = np.cumsum(ahead)
    new_positions = np.flatnonzero(new_position)

    # A bar opens with one or two tokens; `opened` counts them up to each bar, and BOS.
    lengths = lines[1:] - lines[:-1]
    new_length = starts_of_runs(lengths)
    new_lengths = np.flatnonzero(new_length)
    opens = new_length + 1
    opened = np.cumsum(opens) + 1
    first_events = np.searchsorted(steps, lines)
    events_per_bar = first_events[1:] - first_events[:-1]
    bar_places = places[first_events[:-1]] - 1 + opened - opens
    num_ids = int(places[-1] - 1 + opened[-1]) + 1
    places = places[:-1] + np.repeat(opened, events_per_bar)

    # In this order a velocity and duration written for a tempo is overwritten, or past the end.
    ids = np.empty(num_ids + 2, np.int32)
    ids[2:][places] = packed & _ID_MASK
    ids[1:][places] = (packed >> _ID_BITS) & _ID_MASK
    ids[places] = first_ids
    positions = steps - np.repeat(lines[:-1] - POSITION, events_per_bar)
    ids[places[new_positions] - 1] = positions[new_positions]
    ids[bar_places[new_lengths] + 1] = lengths[new_lengths] // BAR_UNIT + (TIME_SIGNATURE - 1)
    ids[bar_places] = BAR
    ids[0], ids[num_ids - 1] = BOS, EOS
    return ids[:num_ids]


class Bars(NamedTuple):
    """Where the bars and positions of any ids stand, in steps."""

    lines: NDArray[np.int64]
    """(bars + 1,): start of each bar, end of the last."""
    marks: NDArray[np.intp]
    """(k,): indices of the tokens that set the time, Bar and Position."""
    times: NDArray[np.int64]
    """(k + 1,): the time before any of them, then after each."""

    def times_at(self, indices: NDArray[np.intp]) -> NDArray[np.int64]:
        """Time that the tokens before each of the sorted `indices` have reached."""
        return self.times[np.searchsorted(self.marks, indices)]


def read_bars(ids: NDArray[np.int64]) -> Bars:
    """Bars of any ids: A TimeSignature counts right after Bar, positions may pass its end."""
    bars = np.flatnonzero(ids == BAR)
    units = np.append(ids, PAD)[bars + 1] - TIME_SIGNATURE
    changes = (units >= 0) & (units < NUM_TIME_SIGNATURES)
    lengths = np.append(_DEFAULT_BAR, (units + 1) * BAR_UNIT)
    in_force = np.maximum.accumulate(np.where(changes, np.arange(1, len(bars) + 1), 0))
    lines = np.append(0, np.cumsum(lengths[in_force]))
    positions = ids - POSITION
    marks = np.flatnonzero((ids == BAR) | ((positions >= 0) & (positions < NUM_POSITIONS)))
    is_bar = ids[marks] == BAR
    starts = lines[np.maximum(np.cumsum(is_bar) - 1, 0)]
    times = np.append(0, starts + np.where(is_bar, 0, positions[marks]))
    return Bars(lines, marks, times)


def token_beats(ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
    """Quarter notes from the start that the tokens before each token have reached, (l,).

    Known before the token itself is: Bar still stands at the last position of the bar before it.
    """
    array = np.asarray(ids, dtype=np.int64)
    return read_bars(array).times_at(np.arange(len(array))) / STEPS_PER_BEAT
