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

POLISHED_LEVELS = 16
"""Number of levels after which products in float32 are orthogonalised."""
GATHERED_BYTES = 16 * 2**20
"""Maximum bytes of copies of maps (one per token) that exist at once."""


class TreeCodes(NamedTuple):
    """Maps of the distinct nodes of a call, and of all prefixes of their words."""

    maps: Tensor  # (u, layers or 1, h or 1, d, d)
    nodes: Tensor  # (b or 1, l): index into `maps`


def word_maps(
    generators: Float[Tensor, "h k d d"], words: Int[Tensor, "n t"]
) -> tuple[Float[Tensor, "u h d d"], Int[Tensor, " n"]]:
    """Maps of all distinct prefixes of words, the empty one first, and the index of each word.

    Equal nodes are computed only once. Each level of the tree costs one gather and one batched
    product.
    """
    heads, letters, features, _ = generators.shape
    by_branch = generators.transpose(0, 1)
    levels, index = prefix_tree(words, letters)
    eye = torch.eye(features, dtype=generators.dtype, device=generators.device)
    maps = [eye.expand(1, heads, features, features)]
    for depth, (parents, branches) in enumerate(levels, 1):
        product = maps[-1][parents] @ by_branch[branches]
        if depth % POLISHED_LEVELS == 0 and generators.dtype != torch.float64:
            product = polished(product)
        maps.append(product)
    return torch.cat(maps), index


def prefix_tree(
    words: Int[Tensor, "n t"], letters: int
) -> tuple[list[tuple[Tensor, Tensor]], Int[Tensor, " n"]]:
    """Distinct prefixes of all words, level by level, and the index of each whole word.

    A level has the index of the parent (in the level above) and the last branch of each node. The
    index of a word counts the nodes of all levels, starting from the root.
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


def polished(maps: Float[Tensor, "*n d d"]) -> Float[Tensor, "*n d d"]:
    """One Newton-Schulz step towards the nearest orthogonal matrix, which squares the error."""
    return 1.5 * maps - 0.5 * maps @ (maps.mT @ maps)


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
        """Rotations of the branches, computed in float64."""
        skew = skew_from_triangle(self.triangle.double(), self.out_features)
        return torch.matrix_exp(skew).to(self.triangle.dtype)

    @torch.no_grad()
    def load(self, skew: Float[Tensor, "*n k d d"]) -> None:
        """Loads the logarithms (h, k, d, d) of the rotations of the branches."""
        self.triangle.copy_(triangle_from_skew((skew - skew.mT) / 2))

    def prepare(self, positions: Shaped[Tensor, "b l p"]) -> TreeCodes:
        """Maps of the nodes at `positions`."""
        axes = self.structure.word_axes or 1
        own = positions[..., self.first_axis : self.first_axis + axes]
        words = tree_words(self.structure, own)
        generators = self.generators()
        maps, index = word_maps(generators.flatten(0, 1), words.flatten(0, -2))
        return TreeCodes(maps.unflatten(1, generators.shape[:2]), index.view(words.shape[:-1]))

    def forward(
        self, x: Float[Tensor, "b l h d"], codes: TreeCodes, layer: int
    ) -> Float[Tensor, "b l h d"]:
        """The vectors x, each multiplied by the map of its node."""
        maps = codes.maps[:, 0 if codes.maps.shape[1] == 1 else layer]
        x = x.to(maps.dtype)
        shared = codes.nodes.shape[0] == 1
        # rows that share positions become columns of one product
        columns = x.permute(1, 2, 3, 0) if shared else x.flatten(0, 1)[..., None]
        shape = columns.shape  # (n, h, d, c)
        if maps.shape[1] == 1:  # so are heads that share maps
            columns = columns.transpose(1, 2).flatten(2)[:, None]
        out = _Gathered.apply(maps, codes.nodes.flatten(), columns)
        if maps.shape[1] == 1:
            out = out[:, 0].unflatten(2, (shape[1], shape[3])).transpose(1, 2)
        return out.permute(3, 0, 1, 2) if shared else out.reshape(x.shape)


class _Gathered(torch.autograd.Function):
    """Each of x (n, h, d, c) times the map of its node in maps (u, h, d, d): (n, h, d, c).

    A copy of the map for every token would take d times as much memory as the tokens, so only a few
    copies exist at once.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, index: Tensor, x: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(maps, index, x)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        for part in _parts(maps, index):
            torch.matmul(maps[index[part]], x[part], out=out[part])
        return out

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor | None, ...]:
        maps, index, x = ctx.saved_tensors
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        grad_maps = torch.zeros_like(maps)
        for part in _parts(maps, index):
            torch.matmul(maps[index[part]].mT, grad[part], out=grad_x[part])
            grad_maps.index_add_(0, index[part], grad[part] @ x[part].mT)
        return grad_maps, None, grad_x


def _parts(maps: Tensor, index: Tensor) -> list[slice]:
    size = max(1, GATHERED_BYTES // (maps[0].numel() * maps.element_size()))
    return [slice(start, start + size) for start in range(0, len(index), size)]


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
