"""Balanced orders of trials: the conditions and prompts of each listener."""

from __future__ import annotations

from functools import cache


@cache
def latin_square(size: int) -> tuple[tuple[int, ...], ...]:
    """Return a balanced Latin square: orders of `size` treatments.

    Each treatment occurs equally often in each column, and equally often directly after each other
    treatment. There are `size` rows, or twice as many if `size` is odd and above 1.

    Source: E. J. Williams, Experimental Designs Balanced for the Estimation of Residual Effects of
    Treatments, 1949.
    """
    zigzag = [place // 2 if place % 2 == 0 else size - (place + 1) // 2 for place in range(size)]
    rows = [tuple((value + shift) % size for value in zigzag) for shift in range(size)]
    if size % 2 and size > 1:
        rows += [row[::-1] for row in rows]
    return tuple(rows)


def order(listener: int, treatments: int, items: int) -> list[tuple[int, int]]:
    """Return all pairs of a treatment and an item, in the order of a listener, from 0.

    A treatment is the number of a condition, or of a pair of conditions; an item, of a prompt.

    Each stretch of `treatments` trials is a row of a balanced Latin square. The item of a trial is
    the one that this listener has not heard for longest, of those left for its treatment. Within
    as many listeners as the product of the rows of both squares, each combination occurs equally
    often at each place, so that any number of first trials is balanced too.
    """
    of_treatments, of_items = latin_square(treatments), latin_square(items)
    turn, row = divmod(listener, len(of_treatments))
    names = of_items[(row + turn) % len(of_items)]
    left = [set(range(items)) for _ in range(treatments)]
    last_heard = [-1] * items
    cells: list[tuple[int, int]] = []
    for stretch in range(items):
        for treatment in of_treatments[(row + stretch) % len(of_treatments)]:
            place = min(left[treatment], key=lambda item: (last_heard[item], item))
            left[treatment].remove(place)
            last_heard[place] = len(cells)
            cells.append((treatment, names[place]))
    return cells
