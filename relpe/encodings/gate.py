"""The gate of stochastic encodings: how much of each feature ignores position.

A gate g mixes a feature's code with noise that is the same at all positions, with the square roots
of 1 - g and g as weights; the expected product of query and key codes becomes (1 - g) P + g
(Liutkus et al., 2021, section 3.3). Raw gates are one parameter `gates` (layers, h, d) of the
encoding, where g = sigmoid: 1 means that position is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.encodings.base import CodeMaps

if TYPE_CHECKING:
    from collections.abc import Sequence


def raw_gates(num_layers: int, num_heads: int, head_dim: int) -> nn.Parameter:
    """New gates of all layers, as in the original: standard normal before the sigmoid."""
    return nn.Parameter(torch.randn(num_layers, num_heads, head_dim))


def checked_draws(default: int, wanted: int | None) -> int:
    """How many realizations a state has (r): `wanted`, or the config's.

    Raises:
        ValueError: fewer than one.
    """
    draws = default if wanted is None else wanted
    if draws < 1:
        raise ValueError(f"num_realizations is {draws}, expected at least 1")
    return draws


def mixture(raw: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (h, d) of positional codes, and what is added to the codes of all positions.

    For the raw gates (h, d) of a layer and its noise (h, d, r), normal before scaling; what is
    added, (h, d, r), has the scale (r * d)^(-1/4) of codes.
    """
    features, draws = noise.shape[-2:]
    raw = raw.to(torch.promote_types(raw.dtype, noise.dtype))
    # roots of sigmoids by their logarithms: a gate that is wide open or shut keeps its gradient
    ignored, kept = (torch.exp(functional.logsigmoid(x) / 2) for x in (raw, -raw))
    return kept, noise * (ignored * (draws * features) ** -0.25)[..., None]


def gated_maps(
    queries: Sequence[Tensor | None],
    keys: Sequence[Tensor | None],
    raw: Tensor | None,
    noise: Tensor,
) -> CodeMaps:
    """Codes (l, h, d, r) of sets of layers, and the raw gates (layers, h, d) with their noise.

    Raises:
        ValueError: more positions than codes are made of at once.
    """
    made = [[x for x in part if x is not None] for part in (queries, keys)]
    if len(made[0]) < len(queries):
        raise ValueError("codes of so many positions are not formed; ask for fewer at a time")
    maps = CodeMaps(torch.stack(made[0]), torch.stack(made[1]))
    if raw is None:
        return maps
    through, constant = zip(*map(mixture, raw, noise), strict=True)
    return maps._replace(through=torch.stack(through), constant=torch.stack(constant))
