"""Structures that positions live in: lines, grids, cycles, trees, and sums of these.

A position is a path from the origin of its structure; paths compose and have inverses, so that
they form a group (Kogkalidis, Bernardy & Garg, 2024). A structure determines its head features, its
positional axes, and the distance between two positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class SequenceStructure:
    """A line, one axis: integer or real positions, such as token indices or beats."""

    kind: Literal["sequence"] = "sequence"


@dataclass(frozen=True, kw_only=True)
class CycleStructure:
    """A line that returns to its start, one axis: pitch classes, places in a bar."""

    kind: Literal["cycle"] = "cycle"
    period: int = 12
    """Positions after which all repeats, exactly; at least 1."""
    harmonics: tuple[int, ...] | None = None
    """Turns of each pair of features within a period, repeated as needed; None: 1, 2, … up to half
    the period, and again."""


@dataclass(frozen=True, kw_only=True)
class GridStructure:
    """A grid of any number of axes, such as row and column; each axis has features of its own."""

    kind: Literal["grid"] = "grid"
    num_axes: int = 2
    """Axes of a position."""
    features: tuple[int, ...] | None = None
    """Features of each axis, even; None: as equal as pairs allow."""


@dataclass(frozen=True, kw_only=True)
class TreeStructure:
    """Nodes of a tree, given by heap ids or by words, the branches taken from the root.

    Heap ids number all nodes breadth-first from 1; ids up to 0 have the empty word, as the root.
    """

    kind: Literal["tree"] = "tree"
    branching: int = 2
    """Children that a node may have (k)."""
    word_axes: int = 0
    """0: one axis, the heap id. Otherwise words on this many axes: branches from 0, ended by -1.
    """
    start: bool = False
    """A start symbol, heap id 0 or branch k, has a map of its own instead of the root's."""

    @property
    def letters(self) -> int:
        """Different branches, the start symbol included."""
        return self.branching + self.start


@dataclass(frozen=True, kw_only=True)
class DirectSum:
    """Several structures side by side: each has its own features of the head, and its own axes."""

    kind: Literal["direct_sum"] = "direct_sum"
    parts: tuple[Structure, ...] = (SequenceStructure(), CycleStructure())
    """Structures, in the order of features and of axes; may be sums themselves."""
    features: tuple[int, ...] | None = None
    """Features of each part; None: as equal as pairs allow."""


Structure = SequenceStructure | GridStructure | CycleStructure | TreeStructure | DirectSum


class Leaf(NamedTuple):
    """A part that is not a sum: its features and positional axes are consecutive."""

    structure: SequenceStructure | CycleStructure | TreeStructure
    first_axis: int
    features: int


def num_axes(structure: Structure) -> int:
    """Positional axes (p) of a structure."""
    if isinstance(structure, GridStructure):
        return structure.num_axes
    if isinstance(structure, TreeStructure):
        return structure.word_axes or 1
    if isinstance(structure, DirectSum):
        return sum(map(num_axes, structure.parts))
    return 1


def leaves(structure: Structure, features: int, first_axis: int = 0) -> list[Leaf]:
    """The structure as a direct sum of lines, cycles and trees, `features` shared among them.

    Raises:
        ValueError: features that cannot be shared as configured, or an empty structure.
    """
    if isinstance(structure, GridStructure | DirectSum):
        if isinstance(structure, GridStructure):
            parts: tuple[Structure, ...] = (SequenceStructure(),) * structure.num_axes
        else:
            parts = structure.parts
        found = []
        for part, share in zip(parts, _shares(structure, len(parts), features), strict=True):
            found += leaves(part, share, first_axis)
            first_axis += num_axes(part)
        return found
    if isinstance(structure, CycleStructure) and structure.period < 1:
        raise ValueError(f"a cycle of period {structure.period}; expected at least 1")
    if isinstance(structure, TreeStructure):
        _check_tree(structure, features)
    elif features < 2 or features % 2:
        raise ValueError(
            f"{features} features for a {structure.kind}; its maps turn pairs: give it an even "
            "number, at least 2"
        )
    return [Leaf(structure, first_axis, features)]


def _shares(structure: GridStructure | DirectSum, count: int, features: int) -> tuple[int, ...]:
    if count < 1:
        raise ValueError(f"a {structure.kind} without parts; expected at least one")
    if structure.features is None:
        pairs, more = divmod(features // 2, count)
        even = [2 * (pairs + (index < more)) for index in range(count)]
        return (*even[:-1], even[-1] + features % 2)
    if len(structure.features) != count or sum(structure.features) != features:
        raise ValueError(
            f"features {structure.features} of a {structure.kind}; expected {count} numbers whose "
            f"sum is {features}"
        )
    return structure.features


def _check_tree(structure: TreeStructure, features: int) -> None:
    if structure.branching < 1 or structure.word_axes < 0:
        raise ValueError(f"{structure}: expected at least one branch, and word_axes of 0 or more")
    if features < (2 if structure.letters == 1 else 3):
        raise ValueError(
            f"{features} features for a tree of {structure.letters} letters; rotations of so few "
            "commute, and the order of branches would be lost: give it at least 3"
        )


def tree_words(structure: TreeStructure, positions: Tensor) -> Tensor:
    """Words (..., t) int64 of `positions` (..., p) on the axes of this tree, padded with -1.

    Raises:
        ValueError: positions that are not integers, or not words.
    """
    whole = positions.long()
    if positions.is_floating_point() and not bool((whole == positions).all()):
        raise ValueError("positions in a tree are not whole numbers; expected heap ids or branches")
    if not structure.word_axes:
        words = words_of_heap(whole[..., 0], structure.branching)
        if structure.start:
            words = functional.pad(words, (0, max(0, 1 - words.shape[-1])), value=-1)
            words[..., 0].masked_fill_(whole[..., 0] == 0, structure.branching)
        return words
    ended = whole[..., :-1] < 0
    if bool((ended & (whole[..., 1:] >= 0)).any()) or bool((whole >= structure.letters).any()):
        raise ValueError(
            f"words of a tree with branches 0 to {structure.letters - 1}, and -1 behind the end: "
            f"found {int(whole.max())} or a branch behind an end"
        )
    return whole.clamp(min=-1)


def distances(
    structure: Structure, queries: Shaped[Tensor, "*b l p"], keys: Shaped[Tensor, "*b s p"]
) -> Shaped[Tensor, "*b l s"]:
    """Distance of each query from each key: exact, int64 if the positions are.

    On a line the difference, on a grid the Euclidean distance rounded down, on a cycle the shorter
    arc, in a tree the edges between the nodes, in a direct sum the sum over its parts.
    """
    if isinstance(structure, DirectSum):
        total, axis = torch.zeros((), dtype=torch.int64, device=queries.device), 0
        for part in structure.parts:
            span = slice(axis, axis + num_axes(part))
            total = total + distances(part, queries[..., span], keys[..., span])
            axis = span.stop
        return total
    axes = num_axes(structure)
    queries, keys = queries[..., :axes], keys[..., :axes]
    if isinstance(structure, TreeStructure):
        return steps(tree_words(structure, queries), tree_words(structure, keys))
    lags = (queries[..., :, None, :] - keys[..., None, :, :]).abs()
    if isinstance(structure, GridStructure):
        euclidean = lags.double().square().sum(-1).sqrt().floor()
        return euclidean.to(lags.dtype)
    lags = lags[..., 0]
    if isinstance(structure, CycleStructure):
        lags = lags % structure.period
        return torch.minimum(lags, structure.period - lags)
    return lags


def words_of_heap(ids: Int[Tensor, "*n"], branching: int) -> Int[Tensor, "*n t"]:
    """Words of heap ids: the branches from the root to a node, padded with -1.

    The root is 1; counted from 0, the children of node n are n * k + 1 to n * k + k. Ids up to 0
    have no branches. The words are as long as that of the deepest node.
    """
    nodes = (ids - 1).clamp(min=0)
    branches = []  # from the leaf up
    while bool((nodes > 0).any()):
        inside = nodes > 0
        branches.append(torch.where(inside, (nodes - 1) % branching, -1))
        nodes = torch.where(inside, (nodes - 1) // branching, 0)
    if not branches:
        return ids.new_empty((*ids.shape, 0))
    backwards = torch.stack(branches, -1)
    depths = (backwards >= 0).sum(-1, keepdim=True)
    places = depths - 1 - torch.arange(len(branches), device=ids.device)
    words = backwards.gather(-1, places.clamp(min=0))
    return torch.where(places >= 0, words, -1)


def steps(queries: Int[Tensor, "*b l t"], keys: Int[Tensor, "*b s u"]) -> Int[Tensor, "*b l s"]:
    """Edges between nodes: both depths, minus twice the length of their common prefix."""
    letters = max(queries.shape[-1], keys.shape[-1])
    queries, keys = (
        functional.pad(words, (0, letters - words.shape[-1]), value=-1) for words in (queries, keys)
    )
    depths = [(words >= 0).sum(-1) for words in (queries, keys)]
    total = depths[0][..., :, None] + depths[1][..., None, :]
    same = torch.ones_like(total, dtype=torch.bool)
    for letter in range(letters):  # without a tensor of queries, keys and letters
        a, b = queries[..., :, None, letter], keys[..., None, :, letter]
        same = same & (a == b) & (a >= 0)
        total = total - 2 * same
    return total
