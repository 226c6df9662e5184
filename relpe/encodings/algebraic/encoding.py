"""Algebraic positional encodings (Kogkalidis, Bernardy & Garg, 2024).

A position is an element of a group. Each position has a map, a rotation of queries and keys, and
composing two positions multiplies their maps. Hence scores depend only on relative positions, and
norms do not depend on positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from relpe.checks import Checked, positive
from relpe.encodings.algebraic.rotations import (
    InitialGenerators,
    Initialization,
    RotationCodes,
    Rotations,
)
from relpe.encodings.algebraic.structures import (
    Leaf,
    SequenceStructure,
    Structure,
    TreeStructure,
    distances,
    leaves,
    num_axes,
)
from relpe.encodings.algebraic.trees import TreeCodes, TreeMaps
from relpe.encodings.base import (
    EXACT_ATTENTIONS,
    NO_SCORING,
    NoState,
    OffsetTable,
    QueryKeyEncoding,
    Scoring,
    check_codes,
    check_layer,
)
from relpe.transforms import without_autocast


class AlgebraicState(NamedTuple):
    """Record of the positions so far, which a decay of logits needs."""

    length: int
    """Number of positions."""
    first: Tensor | None = None
    """The first position, (1 or b, 1)."""

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> AlgebraicState:
        """See `DecoderState.map_rows`; positions that all rows share do not change."""
        if self.first is None or self.first.shape[0] == 1:
            return self
        return self._replace(first=change(self.first))


class AlgebraicCodes(NamedTuple):
    """Maps of the positions of a call."""

    parts: tuple[RotationCodes | TreeCodes, ...]  # one for each part of the head
    factor: Tensor | None  # (o, h): factors of the logits at the offsets 0, -1, …


@dataclass(frozen=True, kw_only=True)
class AlgebraicConfig(Checked):
    """Algebraic positional encoding: learned rotations of a structure (Kogkalidis et al., 2024)."""

    kind: Literal["algebraic"] = "algebraic"
    structure: Structure = field(default_factory=SequenceStructure)
    """Structure of the positions; a direct sum divides features and axes among several."""
    initialization: Initialization = "rope"
    """Initial angles. rope: those of rotary embedding; original: every second of these, each twice,
    as in the original code; near_identity: small random angles."""
    base: float = 10_000.0
    """Ratio of the longest to the shortest initial wavelength."""
    shared_by_heads: bool = False
    """Use the same generators in all heads."""
    shared_by_layers: bool = True
    """Use the same generators in all layers."""
    trainable: bool = True
    """Train the generators; if false, they keep their initial values."""
    basis: bool = False
    """Learn the planes of rotation for lines, grids and cycles. Needed only if the projections of
    queries and keys cannot learn them: if they are frozen, or if generators are imported."""
    one_sided: bool = False
    """Apply the maps to queries only, so that scores depend on the absolute position."""
    placement: Literal["before", "numerator"] = "before"
    """before: rotate before the feature map, which is exact with softmax and FAVOR+. numerator:
    rotate after relu or elu + 1, only in the numerator; scores are then relative, but weights are
    signed and do not sum to 1."""
    decay: float = 1.0
    """Logits of softmax attention are multiplied by decay^distance; between 0 and 1, where 1 means
    no decay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(base=self.base)
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay is {self.decay}, expected more than 0 and at most 1")

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> Algebraic:
        """Return the module for heads of this size.

        Raises:
            ValueError: the head cannot be divided as configured.
        """
        return Algebraic(self, num_layers=num_layers, num_heads=num_heads, head_dim=head_dim)


class Algebraic(QueryKeyEncoding[AlgebraicCodes, AlgebraicState | NoState]):
    """See `AlgebraicConfig`; `parts` rotate consecutive features of the head.

    Adjacent lines and cycles form one part; each tree is a separate part.
    """

    codes_by_position = True
    rows_by_position = True

    def __init__(
        self, config: AlgebraicConfig, *, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        super().__init__()
        self.config, self.placement, self.num_layers = config, config.placement, num_layers
        self.state_type = AlgebraicState if config.decay < 1 else tuple
        if config.placement == "numerator":
            self.fits, self.codes_by_position = ("relu", "elu"), False
        elif config.decay == 1:
            self.fits = (*EXACT_ATTENTIONS, "favor", "delta")
        else:
            self.fits = EXACT_ATTENTIONS
        if config.decay < 1:
            self.codes_by_position = self.rows_by_position = False
        layers = 1 if config.shared_by_layers else num_layers
        self.num_axes = num_axes(config.structure)
        self.num_heads, self.heads = num_heads, (num_heads, head_dim)
        self.out_features = head_dim
        self.parts = nn.ModuleList()
        heads = 1 if config.shared_by_heads else num_heads
        start = InitialGenerators(layers, heads, config.initialization, config.base)
        for is_tree, run in groupby(leaves(config.structure, head_dim), key=_is_tree):
            if is_tree:
                self.parts.extend(TreeMaps(leaf, start) for leaf in run)
            else:
                self.parts.append(Rotations(list(run), start, basis=config.basis))
        self.requires_grad_(config.trainable)

    @property
    def partners(self) -> tuple[int, ...] | None:
        """See `QueryKeyEncoding.partners`; None with a learned basis or trees."""
        if self.config.basis or any(isinstance(part, TreeMaps) for part in self.parts):
            return None
        return tuple(feature ^ 1 for feature in range(self.out_features))

    def init_state(self, seed: int, device: torch.device) -> AlgebraicState | NoState:
        """Return the state before the first position; only a decay needs one."""
        return AlgebraicState(0) if self.config.decay < 1 else ()

    def codes_at(
        self, positions: Shaped[Tensor, "b l p"], state: AlgebraicState | NoState
    ) -> tuple[AlgebraicCodes, AlgebraicState | NoState]:
        """Return the maps at `positions`; further axes are ignored.

        Positions may be in any order and repeat.

        Raises:
            ValueError: `decay` does not allow these positions.
        """
        factor = None
        if isinstance(state, AlgebraicState):
            state = self._follow(positions, state)
            seen = [self.attention_spans.get(n, state.length) for n in range(self.num_layers)]
            offsets = torch.arange(min(max(seen), state.length), device=positions.device)[:, None]
            factor = self.offset_factors(offsets)
        with without_autocast(positions.device):
            codes = tuple(part.prepare(positions) for part in self._parts())
        return AlgebraicCodes(codes, factor), state

    def scoring(self, codes: AlgebraicCodes, layer: int) -> Scoring:
        """Return factors of the logits, if they decay, or the rotation of the numerator."""
        if self.placement == "numerator":
            return Scoring(rotation=partial(self.rotate_features, codes=codes, layer=layer))
        return NO_SCORING if codes.factor is None else Scoring(OffsetTable(factor=codes.factor))

    def grid_table(self, offsets: Tensor, layer: int, step: int = 1) -> OffsetTable | None:
        """Return the factors of the logits, if they decay."""
        if self.config.decay == 1:
            return None
        return OffsetTable(factor=self.offset_factors(offsets * step))

    def encode(
        self, q: Tensor, k: Tensor, codes: AlgebraicCodes, layer: int
    ) -> tuple[Tensor, Tensor]:
        """Return rotated queries and keys (b, l, h, d); unchanged if the numerator is rotated."""
        if self.placement == "numerator":
            return q, k
        return (
            self.rotate_features(q, codes, layer),
            self.rotate_features(k, codes, layer, keys=True),
        )

    def rotate_features(
        self, x: Float[Tensor, "b l h f"], codes: AlgebraicCodes, layer: int, *, keys: bool = False
    ) -> Float[Tensor, "b l h f"]:
        """Return the features, each vector rotated by the map of its position.

        `keys`: whether they are features of keys, which one-sided encodings do not rotate.
        """
        check_layer(layer, self.num_layers)
        check_codes(codes, AlgebraicCodes, lambda codes: codes.parts[0].length, x)
        if keys and self.config.one_sided:
            return x
        parts = self._parts()
        with without_autocast(x.device):
            if len(parts) == 1:
                return parts[0](x, codes.parts[0], layer)
            blocks = x.split([part.out_features for part in parts], -1)
            turned = [
                part(block, code, layer)
                for part, block, code in zip(parts, blocks, codes.parts, strict=True)
            ]
            return torch.cat(turned, -1)

    def logit_factors(
        self, queries: Shaped[Tensor, "*b l p"], keys: Shaped[Tensor, "*b s p"]
    ) -> Float[Tensor, "*b l s"]:
        """Return the factors of the logits of softmax attention, decay^distance.

        See `structures.distances`. In linear attention, weights decay instead.
        """
        distance = distances(self.config.structure, queries, keys)
        return torch.pow(self.config.decay, distance.double()).to(next(self.parameters()).dtype)

    def offset_factors(self, offsets: Shaped[Tensor, "o p"]) -> Float[Tensor, "o h"]:
        """Return `logit_factors` by offset (key minus query), for the `factor` of an `OffsetTable`.

        Raises:
            ValueError: the structure has a tree, in which distances do not follow from offsets.
        """
        if any(isinstance(part, TreeMaps) for part in self.parts):
            raise ValueError(
                "the structure has a tree, in which offsets do not determine distances; use "
                "logit_factors with queries and keys"
            )
        factors = self.logit_factors(torch.zeros_like(offsets[:1]), offsets)[0]
        return factors[:, None].expand(-1, self.num_heads)

    def _follow(self, positions: Tensor, state: AlgebraicState) -> AlgebraicState:
        """Return the state after `positions`, which must be consecutive if there is a table."""
        place = positions[..., 0]
        first = place[:, :1] if state.first is None else state.first
        length = state.length + place.shape[1]
        consecutive = first + torch.arange(state.length, length, device=place.device)
        one_line = isinstance(self.config.structure, SequenceStructure)
        if not one_line or not bool((place == consecutive).all()):
            raise ValueError(
                "a decay of logits needs positions that rise by one from token to token, in a "
                "sequence that does not continue after padding; use decay = 1, or compute all "
                "scores and use logit_factors"
            )
        return AlgebraicState(length, first)

    def _parts(self) -> Sequence[Rotations | TreeMaps]:
        return list(self.parts)  # pyright: ignore[reportReturnType]


def _is_tree(leaf: Leaf) -> bool:
    return isinstance(leaf.structure, TreeStructure)
