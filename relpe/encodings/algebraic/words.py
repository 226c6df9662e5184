"""Words: paths from the root of a tree, the branches taken, padded with -1."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional


def words_of_heap(ids: Int[Tensor, "*n"], branching: int) -> Int[Tensor, "*n t"]:
    """Words of heap ids: root 1, children of the n-th node n * k + 1 to n * k + k, counted from 0.

    As long as the deepest of them, with no limit but that of int64. Ids up to 0 have no branches.
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
    """Edges between nodes: both depths, less twice what the words begin with in common."""
    letters = max(queries.shape[-1], keys.shape[-1])
    queries, keys = (
        functional.pad(words, (0, letters - words.shape[-1]), value=-1) for words in (queries, keys)
    )
    depths = [(words >= 0).sum(-1) for words in (queries, keys)]
    total = depths[0][..., :, None] + depths[1][..., None, :]
    same = torch.ones_like(total, dtype=torch.bool)
    for letter in range(letters):  # never a tensor of queries, keys and letters
        a, b = queries[..., :, None, letter], keys[..., None, :, letter]
        same = same & (a == b) & (a >= 0)
        total = total - 2 * same
    return total


def prefix_tree(
    words: Int[Tensor, "n t"], letters: int
) -> tuple[list[tuple[Tensor, Tensor]], Int[Tensor, " n"]]:
    """Different beginnings of all words, level by level, and where each whole word stands.

    A level is the place of the parent in the level above and the last branch of each node; the
    levels, the root's single node first, are counted through for the index.
    """
    index = words.new_zeros(len(words))
    place, total = index, 1
    levels: list[tuple[Tensor, Tensor]] = []
    for branches in words.unbind(1):
        inside = branches >= 0
        keys, inverse = torch.unique(
            place[inside] * letters + branches[inside], return_inverse=True
        )
        if not len(keys):
            break
        levels.append((keys // letters, keys % letters))
        place = place.masked_scatter(inside, inverse)
        index = index.masked_scatter(inside, inverse + total)
        total += len(keys)
    return levels, index
