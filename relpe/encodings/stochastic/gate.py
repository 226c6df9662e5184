"""The gate of stochastic encodings: how much of each feature ignores position.

A gate g mixes a feature's code with noise that is the same at all positions, with the square roots
of 1 - g and g as weights; the expected product of query and key codes becomes (1 - g) P + g
(Liutkus et al., 2021, section 3.3). Raw gates are one parameter `gates` (layers, h, d) of the
encoding, where g = sigmoid: 1 means that position is ignored.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


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


def mixtures(raw: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Those of all layers, (layers, h, d) and (layers, h, d, r)."""
    through, constant = zip(*map(mixture, raw, noise), strict=True)
    return torch.stack(through), torch.stack(constant)
