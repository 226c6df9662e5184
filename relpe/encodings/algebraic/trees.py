"""Trees: the map of a node is the product of the rotations of its branches, from the root.

The map of a child is that of its parent times a rotation on the right, so that the common prefix c
of two nodes cancels: A(cu)^T A(cv) = A(u)^T A(v) (Kogkalidis, Bernardy & Garg, 2024).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from relpe.encodings.algebraic.rotations import NEAR_IDENTITY, InitialGenerators
from relpe.encodings.algebraic.spectra import skew_from_triangle, triangle_from_skew
from relpe.encodings.algebraic.structures import Leaf, TreeStructure, tree_words
from relpe.encodings.algebraic.tree_products import word_maps
from relpe.transforms import apply, first_derivatives

GATHERED_BYTES = 16 * 2**20
"""Maximum bytes of copies of maps (one per token) that exist at once."""


class Groups(NamedTuple):
    """Tokens by node, so that one product serves several tokens of a node.

    A node with more tokens than a group has places has several groups; the last may have free
    places.
    """

    nodes: Tensor | None  # (g,): node of each group; None: each node has one group, in order
    places: Tensor  # (n,): place of each token among those of all groups
    size: int  # places of a group
    num_groups: int


class TreeCodes(NamedTuple):
    """Maps of the distinct nodes of a call, and of all prefixes of their words."""

    maps: Tensor  # (layers or 1, h or 1, u, d, d)
    nodes: Tensor  # (b or 1, l): index into `maps`
    groups: Groups

    @property
    def length(self) -> int:
        """Number of positions (l)."""
        return self.nodes.shape[1]


def grouped(nodes: Int[Tensor, " n"], total: int) -> Groups:
    """Return the groups of tokens by their nodes, of which there are `total`.

    The size of a group is the mean number of tokens of a node.
    """
    size = max(1, -(-len(nodes) // total))
    tokens = torch.bincount(nodes, minlength=total)
    groups = (tokens + size - 1) // size
    if total <= 2 * len(nodes) and int(tokens.max()) <= size:
        groups = torch.ones_like(tokens)  # a few products too many, but no copies of maps
        node_of_group = None
    else:
        node_of_group = torch.arange(total, device=nodes.device).repeat_interleave(groups)
    order = nodes.argsort(stable=True)
    sorted_nodes = nodes[order]
    turn = torch.arange(len(nodes), device=nodes.device) - (tokens.cumsum(0) - tokens)[sorted_nodes]
    places = torch.empty_like(nodes)
    places[order] = (groups.cumsum(0) - groups)[sorted_nodes] * size + turn
    return Groups(
        node_of_group, places, size, total if node_of_group is None else len(node_of_group)
    )


class TreeMaps(nn.Module):
    """Rotations of the branches of a tree: exponentials of skew matrices, (h, k, d, d) per layer.

    Parameter: `triangle` (layers or 1, h or 1, k, d(d-1)/2). Branches initially rotate different
    planes; in the same planes they would commute, and their order would be lost.
    """

    def __init__(self, leaf: Leaf, start: InitialGenerators) -> None:
        super().__init__()
        assert isinstance(leaf.structure, TreeStructure)
        self.structure, self.first_axis = leaf.structure, leaf.first_axis
        self.out_features = leaf.features
        entries = leaf.features * (leaf.features - 1) // 2
        shape = (start.layers, start.heads, self.structure.letters, entries)
        if start.initialization == "near_identity":
            triangle = NEAR_IDENTITY * torch.randn(shape)
        else:
            skew = _initial_skew(self.structure.letters, leaf.features, start)
            triangle = triangle_from_skew(skew).to(torch.get_default_dtype()).expand(shape).clone()
        self.triangle = nn.Parameter(triangle)

    def generators(self) -> Float[Tensor, "layers h k d d"]:
        """Return the rotations of the branches, computed in float64."""
        skew = skew_from_triangle(self.triangle.double(), self.out_features)
        return torch.matrix_exp(skew).to(self.triangle.dtype)

    @torch.no_grad()
    def load(self, skew: Float[Tensor, "*n k d d"]) -> None:
        """Load the logarithms (h, k, d, d) of the rotations of the branches."""
        self.triangle.copy_(triangle_from_skew((skew - skew.mT) / 2))

    def prepare(self, positions: Shaped[Tensor, "b l p"]) -> TreeCodes:
        """Return the maps of the nodes at `positions`."""
        axes = self.structure.word_axes or 1
        coordinates = positions[..., self.first_axis : self.first_axis + axes]
        words = tree_words(self.structure, coordinates)
        generators = self.generators()
        maps, index = word_maps(generators.flatten(0, 1), words.flatten(0, -2))
        groups = grouped(index, maps.shape[1])
        maps = maps.unflatten(0, generators.shape[:2])
        return TreeCodes(maps, index.view(words.shape[:-1]), groups)

    def forward(
        self, x: Float[Tensor, "b l h d"], codes: TreeCodes, layer: int
    ) -> Float[Tensor, "b l h d"]:
        """Return the vectors x, each multiplied by the map of its node."""
        maps = codes.maps[0 if len(codes.maps) == 1 else layer]
        x = x.to(maps.dtype)
        # columns (n, h, c, d) of each token: rows that share positions become columns of one
        # product, and so do heads that share maps
        shared = codes.nodes.shape[0] == 1
        columns = x.permute(1, 2, 0, 3) if shared else x.flatten(0, 1)[:, :, None]
        shape = columns.shape
        if len(maps) == 1:
            columns = columns.flatten(1, 2)[:, None]
        out = apply(_Mapped, maps, columns, codes.groups).view(shape)
        return out.permute(2, 0, 1, 3) if shared else out.view(x.shape)


class _Mapped(torch.autograd.Function):
    """The rows of x (n, h, c, d), each times the map of its node in maps (h, u, d, d), transposed.

    A copy of the map for every group of tokens would take much memory, so only a few copies exist
    at once.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, x: Tensor, groups: Groups) -> Tensor:  # noqa: ANN401
        rows = _in_groups(x, groups)
        out = torch.empty_like(rows)
        for part in _parts(maps, groups):
            out[:, part] = rows[:, part] @ _of(maps, groups, part).mT
        ctx.save_for_backward(maps, rows)
        ctx.groups, ctx.shape = groups, x.shape
        return _by_token(out, groups, x.shape)

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor | None, ...]:
        maps, rows = ctx.saved_tensors
        groups: Groups = ctx.groups
        grads = _in_groups(grad, groups)
        grad_rows, grad_maps = torch.empty_like(rows), torch.zeros_like(maps)
        for part in _parts(maps, groups):
            torch.matmul(grads[:, part], _of(maps, groups, part), out=grad_rows[:, part])
            if groups.nodes is None:
                torch.matmul(grads[:, part].mT, rows[:, part], out=grad_maps[:, part])
            else:
                grad_maps.index_add_(1, groups.nodes[part], grads[:, part].mT @ rows[:, part])
        return grad_maps, _by_token(grad_rows, groups, ctx.shape), None


def _in_groups(x: Float[Tensor, "n h c d"], groups: Groups) -> Float[Tensor, "h g r d"]:
    """Return the rows of all tokens of each group; those of free places are 0."""
    _, heads, columns, features = x.shape
    rows = x.new_zeros(heads, groups.num_groups * groups.size, columns, features)
    rows[:, groups.places] = x.transpose(0, 1)
    return rows.view(heads, groups.num_groups, groups.size * columns, features)


def _by_token(
    rows: Float[Tensor, "h g r d"], groups: Groups, shape: torch.Size
) -> Float[Tensor, "n h c d"]:
    """Return the inverse of `_in_groups`."""
    _, heads, columns, features = shape
    return rows.view(heads, -1, columns, features)[:, groups.places].transpose(0, 1)


def _of(maps: Tensor, groups: Groups, part: slice) -> Float[Tensor, "h g d d"]:
    """Return the maps of some of the groups."""
    return maps[:, part] if groups.nodes is None else maps[:, groups.nodes[part]]


def _parts(maps: Tensor, groups: Groups) -> list[slice]:
    """Return all groups, in parts whose maps may be copied."""
    if groups.nodes is None:
        return [slice(None)]
    size = max(1, GATHERED_BYTES // (maps[:, 0].numel() * maps.element_size()))
    return [slice(start, start + size) for start in range(0, groups.num_groups, size)]


def _initial_skew(letters: int, features: int, start: InitialGenerators) -> Tensor:
    """Skew matrices (k, d, d) with the initial angles, each letter in different planes.

    Features are paired as in a round-robin tournament, with one round per letter. After the last
    round the pairs repeat, with permuted and smaller angles.
    """
    players = features + features % 2
    skew = torch.zeros(letters, features, features, dtype=torch.float64)
    angles = start.angles(features)
    for letter in range(letters):
        deal, turn = divmod(letter, players - 1)
        ring = [(turn + place) % (players - 1) for place in range(players - 1)]
        pairs = [(players - 1, ring[0])]
        pairs += [(ring[i], ring[-i]) for i in range(1, players // 2)]
        pairs = [pair for pair in pairs if max(pair) < features]
        for (one, other), angle in zip(pairs, angles.roll(deal) / (deal + 1), strict=True):
            skew[letter, one, other], skew[letter, other, one] = angle, -angle
    return skew
