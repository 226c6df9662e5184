"""The order of bars in a document: those after a gap first, written tracks after given ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.document import Selection
from tokenization.errors import TokenizerError
from tokenization.remi.vocabulary import MAX_GAP


class Order(NamedTuple):
    """The parts of a document in the order of their tokens.

    A part is a bar, or one of the two halves of a bar that is to be written: what is given, then
    what is written. Times of the document are steps from its start, in which every part takes the
    length of its bar.
    """

    lines: NDArray[np.int64]
    """Bar lines (bars + 1,) of the music."""
    bars: NDArray[np.int64]
    """Bar of each part (parts,)."""
    is_written: NDArray[np.bool_]
    """Which parts (parts,) are the written half of a bar."""
    starts: NDArray[np.int64]
    """Start of each part, and end of the last one (parts + 1,), in times of the document."""
    first: int
    """The first bar that is to be written; the number of bars if there is none."""
    stop: int
    """The first bar after the gap; the number of bars if none follows."""

    @classmethod
    def of(cls, lines: NDArray[np.int64], selection: Selection | None) -> Order:
        """Return the order of a document.

        Raises TokenizerError if it does not have the selected bars.
        """
        count = len(lines) - 1
        bars = np.arange(count)
        if selection is None:
            return cls(lines, bars, np.zeros(count, bool), lines, count, count)
        first, stop = selection.first, count if selection.stop is None else selection.stop
        most = count if selection.stop is None else first + MAX_GAP
        if not 0 <= first < stop <= min(count, most):
            raise TokenizerError(
                f"the bars to be written are {first} to {stop}, expected at least one and at most "
                f"{MAX_GAP} bars of the {count} bars of the piece"
            )
        halves = np.repeat(bars[first:stop], 2)
        is_written = np.zeros(count + stop - first, bool)
        is_written[count - stop + first + 1 :: 2] = True
        bars = np.concatenate([bars[stop:], bars[:first], halves])
        starts = np.append(0, np.cumsum(np.diff(lines)[bars]))
        return cls(lines, bars, is_written, starts, first, stop)

    @property
    def num_later(self) -> int:
        """Number of bars after the gap."""
        return len(self.lines) - 1 - self.stop

    @property
    def is_plain(self) -> bool:
        """Whether times of the document are those of the music."""
        return self.starts is self.lines

    def times(
        self, steps: NDArray[np.int64], is_given: NDArray[np.bool_] | np.bool_
    ) -> NDArray[np.int64]:
        """Return the times of the document at which something begins, from those of the music."""
        if self.is_plain:
            return steps
        bars = self.lines.searchsorted(steps, side="right") - 1
        is_half = (bars >= self.first) & (bars < self.stop)
        later = bars >= self.stop
        parts = bars + self.num_later + np.where(is_half, bars - self.first, 0)
        parts[is_half] += (~is_given & is_half)[is_half]
        parts[later] = bars[later] - self.stop
        return self.starts[parts] + steps - self.lines[bars]
