"""The cases of `bench_encodings`: our encodings, and naive implementations of the same.

Like those of the authors, the naive implementations compute all codes, maps or scores. Both have
the same parameters, queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.relpe.naive_encodings import convolved_codes, doubled_powers, masked_tree_maps
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.algebraic.rotations import Rotations
from relpe.encodings.algebraic.spectra import skew_from_triangle, skew_of_spectrum
from relpe.encodings.algebraic.structures import TreeStructure, words_of_heap
from relpe.encodings.algebraic.trees import TreeMaps
from relpe.encodings.stochastic.conv import ConvSPEConfig
from relpe.encodings.stochastic.sine import SineSPEConfig
from tests.support import reference_algebraic, reference_stochastic

if TYPE_CHECKING:
    from relpe.encodings.base import QueryKeyEncoding

CPU = torch.device("cpu")
LAYERS = 6
"""Layers that share codes, in the cases of several layers."""
DENSE_LENGTH = 8192
"""Maximum length of dense attention; at twice this length, a call takes half a minute."""

TREE_NODES = 300
"""Maximum number of nodes of a tree, whose naive form takes seconds."""

Outputs = Sequence[Tensor]
Function = Callable[[int], Outputs]
"""Takes the seed of the noise."""


class Shape(NamedTuple):
    """Sizes of one comparison; one row of a batch."""

    length: int = 2048
    heads: int = 8
    features: int = 64
    draws: int = 64
    span: int = 256
    taps: int = 128
    sines: int = 5


class Pair(NamedTuple):
    """Two implementations of the same computation."""

    leaves: list[Tensor]
    """Tensors whose gradients are computed in training."""
    ours: Function
    naive: Function | None = None
    naive_same_noise: Function | None = None
    """The naive form with the same noise as ours, if `naive` draws its own."""

    @property
    def methods(self) -> dict[str, Function]:
        """Ours, and the naive form if there is one."""
        return {"ours": self.ours} | ({} if self.naive is None else {"naive": self.naive})

    @property
    def checked(self) -> Function | None:
        """The naive form with which the outputs of ours are compared."""
        return self.naive_same_noise or self.naive


@dataclass(frozen=True)
class Case:
    """A comparison."""

    name: str
    build: Callable[[Shape, torch.dtype], Pair]
    train: bool = False

    @property
    def mode(self) -> Literal["forward", "training"]:
        """Whether gradients are computed."""
        return "training" if self.train else "forward"

    def pair(self, shape: Shape, dtype: torch.dtype = torch.float32) -> Pair:
        """Return both implementations, with the same parameters and inputs each time."""
        torch.manual_seed(0)
        return self.build(shape, dtype)

    def call(self, pair: Pair, function: Function, seed: int) -> Outputs:
        """Return the outputs and, in training, gradients of `leaves`."""
        if not self.train:
            with torch.no_grad():
                return function(seed)
        out = function(seed)
        generator = torch.Generator().manual_seed(1)
        grads = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in out]
        return [*(x.detach() for x in out), *torch.autograd.grad(list(out), pair.leaves, grads)]


def inputs(shape: Shape, dtype: torch.dtype, count: int = 2) -> list[Tensor]:
    """Return the queries, keys and, if three are requested, values: leaf tensors (1, l, h, d)."""
    size = (1, shape.length, shape.heads, shape.features)
    return [torch.randn(size).to(dtype).requires_grad_() for _ in range(count)]


def line(shape: Shape) -> Tensor:
    """Return the positions (1, l, 1)."""
    return torch.arange(shape.length)[None, :, None]


def encoded(
    encoding: QueryKeyEncoding, q: Tensor, k: Tensor, positions: Tensor, seed: int
) -> Outputs:
    """Encode queries and keys in each layer with the same codes; return those of the last."""
    codes, _ = encoding.prepare(positions, encoding.init_state(seed, CPU))
    layers = getattr(encoding, "num_layers", 1)
    out: Outputs = ()
    for layer in range(layers):
        out = encoding.encode(q, k, codes, layer)
    return out


def sine(shape: Shape, dtype: torch.dtype, *, gated: bool) -> Pair:
    """Compare sine SPE with explicit codes (Liutkus et al., 2021, section 3.1)."""
    config = SineSPEConfig(num_sines=shape.sines, num_realizations=shape.draws, gated=gated)
    encoding = config.build(num_layers=1, num_heads=shape.heads, head_dim=shape.features).to(dtype)
    q, k = inputs(shape, dtype)
    positions = line(shape)

    def naive(seed: int) -> Outputs:
        noise = encoding.init_state(seed, CPU)
        return reference_stochastic.apply_sine_spe(encoding, q, k, positions[0, :, 0], noise, 0)

    ours = partial(encoded, encoding, q, k, positions)
    return Pair([q, k, *encoding.parameters()], ours, naive)


def filtered(shape: Shape, dtype: torch.dtype, *, gated: bool = True, layers: int = 1) -> Pair:
    """Compare filtered noise with explicit codes by grouped convolution (ibid., section 3.2)."""
    config = ConvSPEConfig(taps=(shape.taps,), num_realizations=shape.draws, gated=gated)
    encoding = config.build(num_layers=layers, num_heads=shape.heads, head_dim=shape.features)
    encoding = encoding.to(dtype)
    q, k = inputs(shape, dtype)

    def naive(seed: int, *, same_noise: bool) -> Outputs:
        state = encoding.init_state(seed, CPU)
        codes = convolved_codes(encoding, state, shape.length, same_noise=same_noise)
        out: Outputs = ()
        for layer in range(layers):
            out = reference_stochastic.gated(encoding, q, k, codes, state.gates, layer)
        return out

    ours = partial(encoded, encoding, q, k, line(shape))
    return Pair(
        [q, k, *encoding.parameters()],
        ours,
        partial(naive, same_noise=False),
        partial(naive, same_noise=True),
    )


def algebraic(shape: Shape, dtype: torch.dtype) -> Pair:
    """Compare rotations by angles with a table of matrix powers (Kogkalidis et al., 2024)."""
    encoding = AlgebraicConfig().build(num_layers=1, num_heads=shape.heads, head_dim=shape.features)
    rotations = encoding.parts[0]
    assert isinstance(rotations, Rotations)
    with torch.no_grad():
        for triangle in rotations.triangles:
            triangle.normal_(std=0.1)
    encoding = encoding.to(dtype)  # drawn in float32 first, since each dtype draws other numbers
    q, k = inputs(shape, dtype)

    def naive(seed: int) -> Outputs:
        skew = skew_of_spectrum(rotations.spectra()[0])[0].to(dtype)
        maps = doubled_powers(torch.matrix_exp(skew), shape.length)[None]
        return [reference_algebraic.apply_maps(maps, x) for x in (q, k)]

    ours = partial(encoded, encoding, q, k, line(shape))
    return Pair([q, k, *encoding.parameters()], ours, naive)


def random_heaps(nodes: int) -> Tensor:
    """Return heap ids of the nodes of a binary tree that grows by two children at a random leaf."""
    leaves, heaps = [1], [1]
    while len(heaps) < nodes:
        leaf = leaves.pop(int(torch.randint(len(leaves), ())))
        leaves += [2 * leaf, 2 * leaf + 1]
        heaps += leaves[-2:]
    return torch.tensor(heaps[:nodes])


def tree(shape: Shape, dtype: torch.dtype, *, maps_only: bool = False) -> Pair:
    """Compare products level by level with masked updates of all maps (ibid.).

    In the original code all heads share the branches, but it has as many exponents as if they did
    not, and one more.
    """
    config = AlgebraicConfig(structure=TreeStructure(), shared_by_heads=True)
    unused = 2 * shape.heads - 1
    encoding = config.build(num_layers=1, num_heads=shape.heads, head_dim=shape.features).to(dtype)
    part = encoding.parts[0]
    assert isinstance(part, TreeMaps)
    shape = shape._replace(length=min(shape.length, TREE_NODES))
    q, k = inputs(shape, dtype)
    heaps = random_heaps(shape.length)
    if maps_only:  # in the order in which our maps are stored
        with torch.no_grad():
            heaps = heaps[part.prepare(heaps[None, :, None]).nodes[0].argsort()]
    positions = heaps[None, :, None]

    def naive(seed: int) -> Outputs:
        skew = skew_from_triangle(part.triangle[0], shape.features)
        maps = masked_tree_maps(skew, words_of_heap(heaps, 2), unused=unused)
        if maps_only:
            return [maps]
        maps = maps[None].expand(-1, -1, shape.heads, -1, -1)
        return [reference_algebraic.apply_maps(maps, x) for x in (q, k)]

    def our_maps(seed: int) -> Outputs:
        return [part.prepare(positions).maps[0].transpose(0, 1)]

    ours = our_maps if maps_only else partial(encoded, encoding, q, k, positions)
    leaves = [] if maps_only else [q, k]
    return Pair([*leaves, *encoding.parameters()], ours, naive)


def windowed(shape: Shape, dtype: torch.dtype) -> Pair:
    """Compare windowed attention with dense attention with a mask."""
    q, k, v = inputs(shape, dtype, 3)
    operation = WindowedAttentionConfig(span=shape.span).build()
    size = (1, shape.heads, shape.features)

    def ours(seed: int) -> Outputs:
        return operation(q, k, v, operation.init_state(size, torch.Generator(), q, shape.features))[
            :1
        ]

    def naive(seed: int) -> Outputs:
        places = torch.arange(shape.length)
        ages = places[:, None] - places
        mask = (ages >= 0) & (ages < shape.span)
        out = functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask
        )
        return [out.transpose(1, 2)]

    return Pair([q, k, v], ours, naive if shape.length <= DENSE_LENGTH else None)


TREE = f"tree of {TREE_NODES} nodes"
WINDOWED = Case("windowed", windowed)
"""Windowed attention, which is also timed at several lengths and spans, in a separate table."""

CASES = [
    Case("sine_spe", partial(sine, gated=False)),
    Case("sine_spe, gated", partial(sine, gated=True)),
    Case("sine_spe, gated", partial(sine, gated=True), train=True),
    Case("conv_spe", partial(filtered, gated=False)),
    Case("conv_spe, gated", filtered),
    Case("conv_spe, gated", filtered, train=True),
    Case(f"conv_spe, gated, {LAYERS} layers", partial(filtered, layers=LAYERS)),
    Case("algebraic", algebraic),
    Case("algebraic", algebraic, train=True),
    Case(f"maps of a {TREE}", partial(tree, maps_only=True)),
    Case(f"algebraic, {TREE}", tree),
    Case(f"algebraic, {TREE}", tree, train=True),
    WINDOWED,
]
