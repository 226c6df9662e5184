"""`relpe.models.pointer.Kernel`, compiled by Numba.

All that is compiled is in this file and has one signature, for the reasons given in
`relpe/decoding/kernels.py`; constants of other files are arguments for the same reason. Sums have
the order of the reference, and are not reordered.
"""

# Numba infers the types of arrays, so annotations would not be checked.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import config, njit

from relpe.models.pointer import LONGEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from relpe.models.pointer import Buffers, Tables

if config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
    raise ImportError("the environment variable NUMBA_DISABLE_JIT turns compilation off")

compiled = njit(nogil=True, error_model="numpy")
kept_on_disk = njit(nogil=True, error_model="numpy", cache=True)


class CompiledKernel:
    """`Kernel` of compiled functions."""

    def read(
        self,
        buffers: Buffers,
        tokens: NDArray[np.int64],
        count: int,
        unit: int,
        ignored: NDArray[np.int64],
        kept: float,
    ) -> None:
        """See `Kernel.read`."""
        _read(buffers, tokens, count, unit, ignored, kept, LONGEST)

    def propose(
        self, buffers: Buffers, tables: Tables, count: int, first_generated: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Kernel.propose`."""
        return _propose(buffers, tables, count, first_generated)


@compiled
def _count_hits(found, hits, tokens, front, token, kept):
    """Updates the track records for an informative token; `front` is that of the token before."""
    classes = found.shape[1]
    for distance in range(classes):
        place = found[2, distance]
        hits[distance] *= kept
        if place and tokens[front - 1 + place] == token:
            hits[distance] += 1.0
    hits[classes] = hits[classes] * kept + 1.0


@compiled
def _lengthen(before, similar, exact, token, first, stop, most):
    """Updates lengths of matches (n,) at the places of `before` (n,).

    Without branches, and with narrow integers, so that the loop is vectorised.
    """
    for i in range(len(before)):
        other, length = before[i], similar[i]
        accepted = (other >= first) & (other < stop)
        similar[i] = length + (length < most) if accepted else length >> 1
        length = exact[i]
        exact[i] = length + (length < most) if other == token else 0


@compiled
def _longest(lengths):
    """The largest of lengths (n,), and its first index; 0, 0 for no lengths."""
    longest = np.int16(0)
    for i in range(len(lengths)):
        length = lengths[i]
        longest = length if length > longest else longest
    index = 0
    if longest:
        while lengths[index] != longest:
            index += 1
    return longest, index


@compiled
def _find(similar, exact, starts, found, count):
    """Writes the source of each distance to `found`."""
    classes, nearest = found.shape[1], 0
    for distance in range(classes):
        end = len(similar)
        if distance < classes - 1:
            start = starts[distance if distance < classes - 2 else len(starts) - 1]
            end = min(end, count - start)
        longest, index = _longest(similar[nearest:end])
        found[0, distance] = longest
        found[1, distance] = exact[nearest + index] if longest else 0
        found[2, distance] = nearest + index + 1 if longest else 0
        nearest = end


@kept_on_disk
def _read(buffers, tokens, count, unit, ignored, kept, most):
    ring, similar, exact, starts, found, hits = buffers
    reach = len(similar)
    for token in tokens:
        first, stop, informative = token, token + 1, True
        for low, high in ignored:
            if low <= token < high:
                first, stop, informative = low, high, False
        front = reach - 1 - count % reach
        if count:
            if informative:
                _count_hits(found, hits, ring, front + 1 if count % reach else 0, token, kept)
            if not count % reach:
                ring[reach:] = ring[:reach]
        ring[front] = token
        if token == unit:
            starts[1:] = starts[:-1].copy()
            starts[0] = count
        seen = min(count, reach)
        before, lengths, exacts = ring[front + 1 : front + 1 + seen], similar[:seen], exact[:seen]
        narrow = np.int32(token), np.int32(first), np.int32(stop)
        _lengthen(before, lengths, exacts, *narrow, np.int16(most))
        _find(lengths, exacts, starts, found, count)
        count += 1


@kept_on_disk
def _propose(buffers, tables, count, first_generated):
    found, hits = buffers.found, buffers.hits
    reach, classes, records = len(buffers.similar), found.shape[1], len(tables.record)
    front = reach - 1 - (count - 1) % reach
    family = 0
    while family + 1 < len(tables.families) and tables.families[family + 1] <= buffers.tokens[front]:
        family += 1
    scale = records / max(hits[classes], 1.0)
    tokens, log_odds, n = np.empty(classes, np.int64), np.empty(classes), 0
    for distance in range(classes):
        similar, exact, place = found[:, distance]
        if not similar:
            continue
        record = int(min(hits[distance] * scale, records - 1))
        value = tables.similar[similar] + tables.exact[exact]
        value += tables.distance[distance]
        value += tables.record[record]
        value += tables.family[family]
        if count - place >= first_generated:
            value += tables.generated
        tokens[n], log_odds[n] = buffers.tokens[front - 1 + place], value
        n += 1
    return tokens[:n], log_odds[:n]
