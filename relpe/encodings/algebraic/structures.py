"""Structures of positions: lines, grids, cycles, trees, and sums of these.

A position is a path from the origin of its structure. Paths compose and have inverses, so they form
a group (Kogkalidis, Bernardy & Garg, 2024). A structure determines the features of the head that it
uses, its positional axes, and the distance between two positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional

from relpe.checks import Checked


@dataclass(frozen=True, kw_only=True)
class SequenceStructure(Checked):
    """A line, one axis: integer or real positions, such as token indices or beats."""

    kind: Literal["sequence"] = "sequence"


@dataclass(frozen=True, kw_only=True)
class CycleStructure(Checked):
    """A line that returns to its start, one axis: such as pitch classes, or positions in a bar."""

    kind: Literal["cycle"] = "cycle"
    period: int = 12
    """Number of positions after which the maps repeat exactly; at least 1."""
    harmonics: tuple[int, ...] | None = None
    """Number of turns of each pair of features within a period; the list is repeated as needed.
    None: 1, 2, … up to half the period."""


@dataclass(frozen=True, kw_only=True)
class GridStructure(Checked):
    """A grid with any number of axes, such as row and column; each axis has its own features."""

    kind: Literal["grid"] = "grid"
    num_axes: int = 2
    """Number of axes of a position."""
    features: tuple[int, ...] | None = None
    """Number of features of each axis, all even; None: divided as equally as pairs allow."""


@dataclass(frozen=True, kw_only=True)
class TreeStructure(Checked):
    """Nodes of a tree, given by heap ids or by words.

    Heap ids number all nodes breadth-first from 1. A word is the sequence of branches from the root
    to a node. Ids up to 0 have the empty word, like the root.
    """

    kind: Literal["tree"] = "tree"
    branching: int = 2
    """Maximum number of children of a node (k)."""
    word_axes: int = 0
    """0: positions are heap ids, on one axis. Otherwise positions are words on this many axes, with
    branches counted from 0 and padding of -1."""
    start: bool = False
    """Give the start symbol, heap id 0 or branch k, its own map instead of that of the root."""

    @property
    def letters(self) -> int:
        """Number of different branches, the start symbol included."""
        return self.branching + self.start


@dataclass(frozen=True, kw_only=True)
class DirectSum(Checked):
    """Several structures side by side, each with its own features of the head and its own axes."""

    kind: Literal["direct_sum"] = "direct_sum"
    parts: tuple[Structure, ...] = (SequenceStructure(), CycleStructure())
    """The structures, in the order of their features and axes; they may be sums themselves."""
    features: tuple[int, ...] | None = None
    """Number of features of each part; None: divided as equally as pairs allow."""


Structure = SequenceStructure | GridStructure | CycleStructure | TreeStructure | DirectSum


class Leaf(NamedTuple):
    """A part that is not a sum; its features and positional axes are consecutive."""

    structure: SequenceStructure | CycleStructure | TreeStructure
    first_axis: int
    features: int


def num_axes(structure: Structure) -> int:
    """Return the number of positional axes (p) of a structure."""
    if isinstance(structure, GridStructure):
        return structure.num_axes
    if isinstance(structure, TreeStructure):
        return structure.word_axes or 1
    if isinstance(structure, DirectSum):
        return sum(map(num_axes, structure.parts))
    return 1


def leaves(structure: Structure, features: int, first_axis: int = 0) -> list[Leaf]:
    """Divide a structure and its `features` into a direct sum of lines, cycles and trees.

    Raises:
        ValueError: the features cannot be divided as configured, or the structure is empty.
    """
    if isinstance(structure, GridStructure | DirectSum):
        if isinstance(structure, GridStructure):
            parts: tuple[Structure, ...] = (SequenceStructure(),) * structure.num_axes
        else:
            parts = structure.parts
        all_leaves = []
        for part, share in zip(parts, _shares(structure, len(parts), features), strict=True):
            all_leaves += leaves(part, share, first_axis)
            first_axis += num_axes(part)
        return all_leaves
    if isinstance(structure, CycleStructure) and structure.period < 1:
        raise ValueError(f"the period of a cycle is {structure.period}, expected at least 1")
    if isinstance(structure, TreeStructure):
        _check_tree(structure, features)
    elif features < 2 or features % 2:
        raise ValueError(
            f"a {structure.kind} has {features} features, expected an even number of at least 2"
        )
    return [Leaf(structure, first_axis, features)]


def _shares(structure: GridStructure | DirectSum, count: int, features: int) -> tuple[int, ...]:
    if count < 1:
        raise ValueError(f"a {structure.kind} has no parts, expected at least one")
    if structure.features is None:
        pairs, more = divmod(features // 2, count)
        even = [2 * (pairs + (index < more)) for index in range(count)]
        return (*even[:-1], even[-1] + features % 2)
    if len(structure.features) != count or sum(structure.features) != features:
        raise ValueError(
            f"features of a {structure.kind} are {structure.features}, expected {count} numbers "
            f"with the sum {features}"
        )
    return structure.features


def _check_tree(structure: TreeStructure, features: int) -> None:
    if structure.branching < 1 or structure.word_axes < 0:
        raise ValueError(f"{structure}: expected branching of at least 1, word_axes of at least 0")
    if features < (2 if structure.letters == 1 else 3):
        raise ValueError(
            f"a tree with {structure.letters} letters has {features} features, expected at least "
            "3: rotations of fewer features commute, so the order of branches would be lost"
        )


def tree_words(structure: TreeStructure, positions: Tensor) -> Tensor:
    """Return words (..., t) int64 of `positions` (..., p) on the axes of this tree, padded with -1.

    Raises:
        ValueError: the positions are not integers, or not words.
    """
    whole = positions.long()
    if positions.is_floating_point() and not bool((whole == positions).all()):
        raise ValueError("positions in a tree are not integers, expected heap ids or branches")
    if not structure.word_axes:
        words = words_of_heap(whole[..., 0], structure.branching)
        if structure.start:
            words = functional.pad(words, (0, max(0, 1 - words.shape[-1])), value=-1)
            words[..., 0].masked_fill_(whole[..., 0] == 0, structure.branching)
        return words
    ended = whole[..., :-1] < 0
    if bool((ended & (whole[..., 1:] >= 0)).any()) or bool((whole >= structure.letters).any()):
        raise ValueError(
            f"words of a tree have branches from 0 to {structure.letters - 1}, then -1; found "
            f"{int(whole.max())}, or a branch after -1"
        )
    return whole.clamp(min=-1)


def distances(
    structure: Structure, queries: Shaped[Tensor, "*b l p"], keys: Shaped[Tensor, "*b s p"]
) -> Shaped[Tensor, "*b l s"]:
    """Return the distance between each query and key: exact, int64 if positions are integers.

    On a line it is the difference, on a grid the Euclidean distance rounded down, on a cycle the
    shorter arc, in a tree the number of edges between the nodes, and in a direct sum the sum over
    its parts.
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
    """Return words of heap ids: the branches from the root to a node, padded with -1.

    The root is 1. Counted from 0 instead, the children of node n are n * k + 1 to n * k + k. Ids up
    to 0 have no branches. All words are padded to the length of that of the deepest node.
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
    """Return the number of edges between nodes: the sum of depths minus twice the common prefix."""
    letters = max(queries.shape[-1], keys.shape[-1])
    queries, keys = (
        functional.pad(words, (0, letters - words.shape[-1]), value=-1) for words in (queries, keys)
    )
    depths = [(words >= 0).sum(-1) for words in (queries, keys)]
    total = depths[0][..., :, None] + depths[1][..., None, :]
    same = torch.ones_like(total, dtype=torch.bool)
    for letter in range(letters):  # a loop, to avoid a tensor (queries, keys, letters)
        a, b = queries[..., :, None, letter], keys[..., None, :, letter]
        same = same & (a == b) & (a >= 0)
        total = total - 2 * same
    return total
