"""`relpe.models.pointer.match`, compiled by Numba."""

# ruff: noqa: ANN001, ANN202

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True)
def match_arrays(tokens, keys, units, similar, exact, found, front, seen, most, classes):
    """See `match`; `most` and `classes` are `LONGEST` and `NUM_DISTANCES`."""
    token, key, unit = tokens[front], keys[front], units[front]
    for index in range(seen):  # without branches, so that it is vectorised
        place = front + 1 + index
        length = min(similar[index] + 1, most)
        similar[index] = length if keys[place] == key else similar[index] >> 1
        length = min(exact[index] + 1, most)
        exact[index] = length if tokens[place] == token else 0
    found[:] = 0
    index = 0
    while index < seen:  # units are contiguous
        first = units[front + 1 + index]
        distance = min(unit - first, classes - 2 + (unit - first >= 128))
        longest, nearest = found[0, distance], -1
        while index < seen and units[front + 1 + index] == first:
            if similar[index] > longest:
                longest, nearest = similar[index], index
            index += 1
        if nearest >= 0:
            found[0, distance] = longest
            found[1, distance] = exact[nearest]
            found[2, distance] = nearest + 1
