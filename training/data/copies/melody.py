"""The melody of a piece as a set of runs of intervals, to find pieces with the same melody."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tokenization.grid import nearest_step
from tokenization.score import Score, all_notes

RUN: Final = 14
"""Number of intervals of a run."""
_FEWEST_INTERVALS: Final = 4
"""Runs with fewer different intervals, such as scales and repeated notes, are not counted."""
_LONGEST_PERIOD: Final = 7
"""Runs that repeat a figure of at most this many intervals are not counted."""
_FACTORS = np.random.default_rng(0).integers(1, 2**63, RUN).astype(np.uint64) | np.uint64(1)


def melody_runs(score: Score) -> NDArray[np.uint64]:
    """Return the hashes of the distinct runs of intervals in the top line, ascending (n,).

    The top line is the highest note at each onset, without drums. The runs do not change when the
    piece is transposed, or played at another tempo or in other rhythms.
    """
    line = _top_line(score)
    if len(line) <= RUN:
        return np.zeros(0, np.uint64)
    runs = sliding_window_view(np.diff(line), RUN)
    ordered = np.sort(runs, axis=1)
    distinct = 1 + np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1)
    tells = distinct >= _FEWEST_INTERVALS
    for period in range(1, _LONGEST_PERIOD + 1):
        tells &= (runs[:, period:] != runs[:, :-period]).any(axis=1)
    # modulo 2**64; the shift makes all bits of the hash depend on all intervals
    hashes = (runs[tells].astype(np.uint64) * _FACTORS).sum(axis=1, dtype=np.uint64)
    hashes ^= hashes >> np.uint64(29)
    return np.unique(hashes * _FACTORS[0])


def _top_line(score: Score) -> NDArray[np.int64]:
    """Return the highest pitch at each grid step at which a note begins."""
    notes = all_notes(track for track in score.tracks if not track.is_drum)
    steps = nearest_step(notes[:, 0], score.ticks_per_beat)
    order = np.lexsort((notes[:, 2], steps))
    steps, pitches = steps[order], notes[order, 2]
    return pitches[np.append(steps[1:] != steps[:-1], True)[: len(steps)]]
