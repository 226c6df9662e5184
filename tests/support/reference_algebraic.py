"""Naive algebraic encodings, as a reference for the fast ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def sequence_map(skew: Float[Tensor, "*n d d"], position: float) -> Float[Tensor, "*n d d"]:
    """exp(p S), the map of position p on a line."""
    return torch.matrix_exp(position * skew)


def tree_map(generators: Float[Tensor, "h k d d"], word: Sequence[int]) -> Float[Tensor, "h d d"]:
    """Product of the rotations of the branches in `word`, in order; -1 in `word` is padding."""
    out = torch.eye(generators.shape[-1], dtype=generators.dtype).expand(len(generators), -1, -1)
    for branch in word:
        if branch >= 0:
            out = out @ generators[:, branch]
    return out


def heap_word(node: int, branching: int) -> list[int]:
    """Branches from the root (id 1) to the node with this heap id."""
    word: list[int] = []
    node -= 1
    while node > 0:
        word.insert(0, (node - 1) % branching)
        node = (node - 1) // branching
    return word


def tree_steps(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of edges between two nodes, given by their words."""
    one, other = ([branch for branch in word if branch >= 0] for word in (one, other))
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return len(one) + len(other) - 2 * common


def apply_maps(
    maps: Float[Tensor, "b l h d d"], x: Float[Tensor, "b l h d"]
) -> Float[Tensor, "b l h d"]:
    """Multiplies each vector by the map of its position."""
    return torch.einsum("blhde,blhe->blhd", maps, x)
