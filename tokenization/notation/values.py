"""Note values: the places in a bar where notes may begin, and durations as values that are tied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tokenization.grid import STEPS_PER_BEAT

EIGHTH: Final = STEPS_PER_BEAT // 2
TRIPLET: Final = STEPS_PER_BEAT // 3
SIXTEENTH: Final = STEPS_PER_BEAT // 4
SEXTUPLET: Final = STEPS_PER_BEAT // 6
_IN_BEAT: Final = (9, 8, 6, 4, 3, 2)
"""Values within a beat in grid steps, longest first; 8, 4 and 2 are triplets."""


@dataclass(frozen=True)
class Bar:
    """A notated bar, with times in grid steps; its length is that of its time signature."""

    start: int
    end: int
    numerator: int
    denominator: int

    @property
    def beat(self) -> int:
        """Length of a beat: a quarter note, or a dotted quarter note in 6/8, 9/8 and 12/8."""
        is_compound = self.denominator == 8 and self.numerator > 3 and self.numerator % 3 == 0
        return 3 * EIGHTH if is_compound else STEPS_PER_BEAT

    @property
    def cell(self) -> int:
        """Length of the parts of a bar that are divided either in two or four or into triplets."""
        return STEPS_PER_BEAT if self.beat == STEPS_PER_BEAT else EIGHTH

    @property
    def middle(self) -> int:
        """The middle of 4/4 and of 12/8, across which most values are tied; else the end."""
        return (self.start + self.end) // 2 if self.end - self.start == 4 * self.beat else self.end

    def units(self, onsets: Sequence[int]) -> int:
        """Return the steps of the division that fits onsets in one cell, counted from its start.

        The first one of these that moves the fewest onsets: sixteenths, triplets, and sextuplets.
        No onset moves by more than one step.
        """
        is_simple = self.cell == STEPS_PER_BEAT
        choices = (SIXTEENTH, TRIPLET, SEXTUPLET) if is_simple else (SIXTEENTH, SEXTUPLET)
        moves = {unit: [abs(_nearest(onset, unit) - onset) for onset in onsets] for unit in choices}
        allowed = [unit for unit in choices if max(moves[unit], default=0) <= 1]
        return min(allowed, key=lambda unit: sum(moves[unit]))

    def values(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Return begin and end of the values that a time from `start` to `end` is written as."""
        while start < end:
            stop = start + self._value(start, end)
            yield start, stop
            start = stop

    def rests(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Return begin and end of each rest; none is syncopated."""
        while start < end:
            past = (start - self.start) % self.beat
            stop = min(start + self.beat - past, end)
            half = start + 2 * self.beat
            if start in (self.start, self.middle) and self.middle < self.end and half <= end:
                stop = half
            yield from self.values(start, stop)
            start = stop

    def _value(self, start: int, end: int) -> int:
        """Return the longest value that can be read at once from `start` on, up to `end`."""
        place, length = start - self.start, end - start
        beat, past = self.beat, place % self.beat
        if past == 0 and length >= beat:
            whole = [beats for beats in (4, 3, 2) if beats != 3 or beat == STEPS_PER_BEAT]
            for beats in whole:
                value = beats * beat
                crosses = start < self.middle < start + value
                is_usual = place == 0 or (place == beat and value == length == 2 * beat)
                if value <= length and (is_usual or not crosses):
                    return value
            is_dotted = beat == STEPS_PER_BEAT and length == 18
            return 18 if is_dotted and not start < self.middle < end else beat
        if beat == STEPS_PER_BEAT and past == EIGHTH and length >= beat:
            syncopated = start + beat  # eighth, quarter, eighth
            if not start < self.middle < syncopated:
                return beat
        room = beat - past
        if beat != STEPS_PER_BEAT and past % EIGHTH == 0 and min(length, room) >= 12:
            return 12
        cell = self.cell if beat == STEPS_PER_BEAT or past % EIGHTH else beat
        room = cell - place % cell
        return next((v for v in _IN_BEAT if v <= min(length, room)), min(length, room))


def _nearest(onset: int, unit: int) -> int:
    return (2 * onset + unit) // (2 * unit) * unit


def snapped(step: int, start: int, unit: int) -> int:
    """Return the place nearest to a step, of those every `unit` steps from `start`."""
    return start + _nearest(step - start, unit)
