"""Absolute encodings, which add a vector for each position to the embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from relpe.checks import Checked, at_least, positive
from relpe.encodings.algebraic.structures import TreeStructure, tree_words
from relpe.encodings.base import AbsoluteEncoding, NoState


def sinusoids(positions: Tensor, features: int, base: float = 10_000.0) -> Tensor:
    """Return sines (even features) and cosines (odd) of `positions` (...): (..., features) float64.

    Pair j has base^(-2j/features) radians per position (Vaswani et al., 2017, 3.5).
    """
    if features % 2:
        raise ValueError(f"the number of sinusoids is {features}, expected an even number")
    pairs = torch.arange(0, features, 2, dtype=torch.float64, device=positions.device)
    angles = (positions.double()[..., None] * base ** (-pairs / features)) % (2 * math.pi)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


@dataclass(frozen=True, kw_only=True)
class SinusoidConfig(Checked):
    """Sines and cosines of the position, added to the embeddings (Vaswani et al., 2017)."""

    kind: Literal["sinusoid"] = "sinusoid"
    base: float = 10_000.0
    """Ratio of the longest to the shortest wavelength."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(base=self.base)

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> Sinusoid:
        """Return the module for a model of this shape; num_heads * head_dim must be even."""
        return Sinusoid(self, num_heads * head_dim, head_dim)


class Sinusoid(AbsoluteEncoding[NoState]):
    """See `SinusoidConfig`; embeddings of tokens are multiplied by the square root of their width.

    This is the convention of Vaswani et al. (2017, 3.4). Other inputs, such as projected values,
    are as large as the table and are not multiplied.
    """

    codes_by_position = True

    def __init__(self, config: SinusoidConfig, width: int, head_dim: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"embeddings have {width} features, expected an even number")
        self.out_features = head_dim
        self.width, self.base = width, config.base
        self.token_scale = math.sqrt(width)

    def codes_at(self, positions: Tensor, state: NoState) -> tuple[Tensor, NoState]:
        """Return the table at `positions` (1 or b, l, 1): (1 or b, l, m) float64."""
        return sinusoids(positions[..., 0].double(), self.width, self.base), state


@dataclass(frozen=True, kw_only=True)
class LearnedPositionConfig(Checked):
    """A learned vector for each position, added to the embeddings (Gehring et al., 2017)."""

    kind: Literal["learned"] = "learned"
    num_positions: int = 2048
    """Number of vectors; later positions get the last one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, num_positions=self.num_positions)

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> LearnedPosition:
        """Return the module for a model of this shape."""
        return LearnedPosition(self, num_heads * head_dim, head_dim)


class LearnedPosition(AbsoluteEncoding[NoState]):
    """See `LearnedPositionConfig`; `vectors` are (positions, m)."""

    codes_by_position = True

    def __init__(self, config: LearnedPositionConfig, width: int, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim
        self.vectors = nn.Parameter(torch.randn(config.num_positions, width) * 0.02)

    def codes_at(self, positions: Tensor, state: NoState) -> tuple[Tensor, NoState]:
        """Return the vectors at `positions` (1 or b, l, 1), rounded down: (1 or b, l, m)."""
        rows = positions[..., 0].floor().long().clamp(0, len(self.vectors) - 1)
        return self.vectors[rows], state


@dataclass(frozen=True, kw_only=True)
class TreeSQConfig(Checked):
    """The branches on the last steps to a node, added to the embeddings (Shiv & Quirk, 2019)."""

    kind: Literal["tree_sq"] = "tree_sq"
    tree: TreeStructure = field(default_factory=TreeStructure)
    """The tree, and how positions identify its nodes."""
    max_depth: int = 8
    """Number of encoded steps, counted from the node upwards."""
    original_order: bool = False
    """Order the weights of steps as in the code of Kogkalidis et al. (2024), which assigns them to
    the wrong slots; only for comparison with it."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> TreeSQ:
        """Return the module for embeddings of num_heads * head_dim features.

        Raises:
            ValueError: the width is less than one feature for each branch of each step.
        """
        width, slots = num_heads * head_dim, self.max_depth * self.tree.letters
        if slots < 1 or width < slots:
            raise ValueError(
                f"width is {width}, expected at least {max(1, slots)}, a feature for each of "
                f"{self.max_depth} steps (max_depth) and {self.tree.letters} branches"
            )
        return TreeSQ(self, width, head_dim)


class TreeSQ(AbsoluteEncoding[NoState]):
    """See `TreeSQConfig`: one slot of features for each branch of each step, nearest step first.

    The slot of the branch that is taken at step n has the value s w^n, with w = tanh(raw). The
    scale s = sqrt((1 - w^2) f/2), with f features in a slot, bounds the sum of squares. All other
    features are zero.
    """

    codes_by_position = True

    def __init__(self, config: TreeSQConfig, width: int, head_dim: int) -> None:
        super().__init__()
        self.config = config
        self.num_axes = config.tree.word_axes or 1
        self.out_features = head_dim
        self.width = width
        features = width // (config.max_depth * config.tree.letters)
        self.raw = nn.Parameter(torch.empty(features).uniform_(0.7, 0.999))

    def codes_at(
        self, positions: Shaped[Tensor, "b l p"], state: NoState
    ) -> tuple[Tensor, NoState]:
        """Return the vectors (b, l, m) for `positions`."""
        structure = self.config.tree
        words = tree_words(structure, positions[..., : self.num_axes])
        depths = (words >= 0).sum(-1, keepdim=True)
        places = depths - 1 - torch.arange(self.config.max_depth, device=words.device)
        padded = functional.pad(words, (0, 1), value=-1)  # padded, since words may be empty
        branches = padded.gather(-1, places.clamp(min=0))
        taken = (branches[..., None] == torch.arange(structure.letters, device=words.device)) & (
            places >= 0
        )[..., None]
        vectors = taken[..., None] * self._weights()  # (b, l, step, branch, f)
        vectors = vectors.flatten(-3)
        return functional.pad(vectors, (0, self.width - vectors.shape[-1])), state

    def _weights(self) -> Float[Tensor, "step branch f"]:
        w = torch.tanh(self.raw)
        scale = torch.sqrt((1 - w.square()) * len(w) / 2)
        steps = torch.arange(self.config.max_depth, device=w.device)[:, None]
        weights = scale * w**steps
        letters = self.config.tree.letters
        if self.config.original_order:
            return weights.repeat(letters, 1).unflatten(0, (-1, letters))
        return weights[:, None].expand(-1, letters, -1)
