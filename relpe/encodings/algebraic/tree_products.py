"""Products of rotations along the words of a tree, level by level."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from relpe.transforms import apply, first_derivatives

POLISHED_LEVELS = 16
"""Number of levels after which products in float32 are orthogonalised."""


class Level(NamedTuple):
    """The nodes of one level of a tree, sorted by branch."""

    parents: Int[Tensor, " m"]  # index in the level above
    counts: list[int]  # number of nodes at the end of each branch

    def branches(self) -> list[tuple[int, slice]]:
        """Return the branches that occur, and the nodes at their ends."""
        ends = accumulate(self.counts)
        return [
            (branch, slice(end - count, end))
            for branch, (count, end) in enumerate(zip(self.counts, ends, strict=True))
            if count
        ]


def word_maps(
    generators: Float[Tensor, "h k d d"], words: Int[Tensor, "n t"]
) -> tuple[Float[Tensor, "h u d d"], Int[Tensor, " n"]]:
    """Return the maps of all distinct prefixes of words, and the index of each word.

    The empty prefix is the first.

    Equal nodes are computed only once. Each level of the tree costs one gather and, for each
    branch, one product.
    """
    levels, index = prefix_tree(words, generators.shape[1])
    return apply(_Products, generators, levels), index


def prefix_tree(words: Int[Tensor, "n t"], letters: int) -> tuple[list[Level], Int[Tensor, " n"]]:
    """Return the distinct prefixes of all words, level by level, and the index of each whole word.

    The index of a word counts the nodes of all levels, starting from the root.
    """
    index = words.new_zeros(len(words))
    place, total, above = index, 1, 1
    levels: list[Level] = []
    for branches in words.unbind(1):
        inside = branches >= 0
        keys, inverse = torch.unique(branches[inside] * above + place[inside], return_inverse=True)
        if not len(keys):
            break
        counts: list[int] = torch.bincount(keys // above, minlength=letters).tolist()
        levels.append(Level(keys % above, counts))
        place = place.masked_scatter(inside, inverse)
        index = index.masked_scatter(inside, inverse + total)
        above = len(keys)
        total += above
    return levels, index


def polished(maps: Float[Tensor, "*n d d"]) -> Float[Tensor, "*n d d"]:
    """Take a Newton-Schulz step towards the nearest orthogonal matrix, which squares the error."""
    return 1.5 * maps - 0.5 * maps @ (maps.mT @ maps)


class _Products(torch.autograd.Function):
    """Maps (h, u, d, d) of the root and all levels, given rotations (h, k, d, d) of the branches.

    All levels are written to one tensor; autograd would keep a copy of the parents of each level.
    The gradients are those of products without orthogonalisation. On orthogonal maps this only
    removes the part of a gradient that would make them less orthogonal, and that part does not
    reach the exponents of the rotations.
    """

    @staticmethod
    def forward(ctx: Any, generators: Tensor, levels: list[Level]) -> Tensor:  # noqa: ANN401
        heads, _, features, _ = generators.shape
        total = 1 + sum(len(level.parents) for level in levels)
        maps = generators.new_empty(heads, total, features, features)
        maps[:, 0] = torch.eye(features, dtype=maps.dtype, device=maps.device)
        above, here = maps[:, :1], 1
        for depth, level in enumerate(levels, 1):
            nodes = maps[:, here : here + len(level.parents)]
            for branch, part in level.branches():
                parents = above.index_select(1, level.parents[part])
                products = torch.bmm(_stacked(parents), generators[:, branch])
                nodes[:, part] = products.view_as(parents)
            if depth % POLISHED_LEVELS == 0 and generators.dtype != torch.float64:
                with torch.no_grad():
                    nodes.copy_(polished(nodes))
            above, here = nodes, here + len(level.parents)
        ctx.levels = levels
        ctx.save_for_backward(generators, maps)
        return maps

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor, None]:
        generators, maps = ctx.saved_tensors
        grad, grad_generators = grad.clone(), torch.zeros_like(generators)
        end = maps.shape[1]
        for depth in range(len(ctx.levels), 0, -1):
            level: Level = ctx.levels[depth - 1]
            size = len(level.parents)
            start = end - size
            begin = start - (len(ctx.levels[depth - 2].parents) if depth > 1 else 1)
            grad_nodes = grad[:, start:end]
            for branch, part in level.branches():
                parents, outer = level.parents[part], _stacked(grad_nodes[:, part])
                grad_generators[:, branch] += _stacked(maps[:, begin:start][:, parents]).mT @ outer
                inner = (outer @ generators[:, branch].mT).view_as(grad_nodes[:, part])
                grad[:, begin:start].index_add_(1, parents, inner)
            end = start
        return grad_generators, None


def _stacked(maps: Float[Tensor, "h n d e"]) -> Float[Tensor, "h m e"]:
    """Join the rows of all maps of each head into one matrix, so that one product serves all."""
    return maps.view(len(maps), -1, maps.shape[-1])
