"""Products of features with sinusoidal codes, block by block, without computing the codes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relpe.transforms import first_derivatives


class FusedProjection(torch.autograd.Function):
    """Multiplies x (b, l, h, d) and waves by noise, without computing codes; see `SineFactors`.

    Works block by block and recomputes intermediate results in the backward pass, so that memory
    beyond inputs and outputs is that of one block.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, waves: Tensor, noise: Tensor) -> Tensor:  # noqa: ANN401
        """Return the sums (b, l, h, r) over features and waves."""
        ctx.save_for_backward(x, waves, noise)
        out = x.new_empty(*x.shape[:3], noise.shape[-1])
        for index, (start, stop) in enumerate(_blocks(x, waves)):
            features = _wave_features(x[:, start:stop], waves, index)
            out[:, start:stop] = _unfold(features @ noise[index].flatten(1, 2), x.shape[0])
        return out

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, waves and noise."""
        x, waves, noise = ctx.saved_tensors
        grad_x, grad_waves = torch.empty_like(x), torch.zeros_like(waves)
        grad_noise = torch.empty_like(noise)
        for index, (start, stop) in enumerate(_blocks(x, waves)):
            part, grad_part = x[:, start:stop], _fold(grad[:, start:stop])
            features = _wave_features(part, waves, index)
            grad_noise[index] = (features.mT @ grad_part).view_as(noise[index])
            grad_features = _unfold(grad_part @ noise[index].flatten(1, 2).mT, x.shape[0])
            grad_features = grad_features.unflatten(-1, (x.shape[3], -1))  # (b, c, h, d, 2k)
            block = waves[index % waves.shape[0], : stop - start]
            grad_x[:, start:stop] = torch.einsum("bchdk,chdk->bchd", grad_features, block)
            grad_waves[index % waves.shape[0], : stop - start] += torch.einsum(
                "bchdk,bchd->chdk", grad_features, part
            )
        return grad_x, grad_waves, grad_noise


def _blocks(x: Tensor, waves: Tensor) -> list[tuple[int, int]]:
    """Return start and end of each block of positions."""
    length, block = x.shape[1], waves.shape[1]
    return [(start, min(start + block, length)) for start in range(0, length, block)]


def _wave_features(x: Tensor, waves: Tensor, index: int) -> Tensor:
    """Multiply every feature of x (b, c, h, d) by every wave: (h, b * c, d * 2k)."""
    block = waves[index % waves.shape[0], : x.shape[1]]
    return _fold((x[..., None] * block).flatten(3))


def _fold(x: Tensor) -> Tensor:
    """Reorder (b, c, h, f) to (h, b * c, f)."""
    return x.permute(2, 0, 1, 3).flatten(1, 2)


def _unfold(x: Tensor, rows: int) -> Tensor:
    """Reorder (h, b * c, f) to (b, c, h, f)."""
    return x.unflatten(1, (rows, -1)).permute(1, 2, 0, 3)
