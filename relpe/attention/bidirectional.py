"""Self-attention of a layer without causality: every position attends to all others."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.layer import AttentionConfig
from relpe.attention.linear.operation import LinearOperation
from relpe.attention.softmax import SoftmaxOperation
from relpe.attention.windowed.attention import (
    WindowedOperation,
    box_of,
    box_offsets,
    windowed_attention,
)
from relpe.encodings.base import Encoding, OffsetTable, QueryKeyEncoding
from relpe.transforms import without_autocast

Order = Literal["raster", "product", None]
"""Which keys of a grid are not later than a query, itself among them. `raster`: those up to it, row
by row. `product`: those that are not beyond it on any axis. None: all."""


class BidirectionalAttention(nn.Module):
    """Multi-head self-attention of one layer to all positions of a sequence or grid.

    Queries and keys are normalised and encoded as in `SelfAttention`. With an `order`, no query
    attends to later keys.
    """

    def __init__(
        self,
        config: AttentionConfig,
        *,
        layer: int,
        width: int,
        num_heads: int,
        normalize: bool,
        biases: bool = False,
        order: Order = None,
    ) -> None:
        """Make an attention with new weights.

        Raises:
            ValueError: this kind of attention is defined only with causality, or only without.
        """
        super().__init__()
        operation = config.build()
        if not isinstance(operation, SoftmaxOperation | WindowedOperation | LinearOperation):
            raise ValueError(
                f"{config.kind} attention is causal, expected softmax, windowed or linear"
            )
        if isinstance(operation, LinearOperation) and operation.half_lives is not None:
            raise ValueError("half_lives are those of causal attention; leave them out")
        if isinstance(operation, LinearOperation) and order is not None:
            raise ValueError(
                f"order is {order} with {config.kind} attention, expected softmax or windowed"
            )
        self.operation = operation
        self.order: Order = order
        self.layer, self.num_heads = layer, num_heads
        self.project_in = nn.Linear(width, 3 * width, bias=biases)
        self.project_out = nn.Linear(width, width, bias=biases)
        self.log_temperature = nn.Parameter(torch.zeros(2, num_heads, 1)) if normalize else None

    def init_state(self, generator: torch.Generator, encoded_features: int) -> Any:  # noqa: ANN401 - of the operation
        """Return random features for queries and keys with `encoded_features`; rows share them."""
        weight = self.project_in.weight
        shape = (1, self.num_heads, weight.shape[1] // self.num_heads)
        return self.operation.init_state(shape, generator, weight, encoded_features)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        codes: object,
        state: Any,  # noqa: ANN401
        grid: tuple[int, ...],
        mask: Tensor | None = None,
        stride: int = 1,
    ) -> Tensor:
        """Return attention (b, l, m) of x (b, l, m), whose positions are places of a grid in order.

        `codes` are those of the encoding for these positions; encodings that score offsets need
        none, since their offsets are those of the grid, times `stride`. `mask` (b, l), bool, is
        False at padding, which has no effect; its own outputs are undefined.
        """
        q, k, v = self.project_in(x).unflatten(-1, (3, self.num_heads, -1)).unbind(2)
        if self.log_temperature is not None:
            q_scale, k_scale = self.log_temperature.exp()
            q = functional.rms_norm(q, q.shape[-1:], eps=1e-6) * q_scale
            k = functional.rms_norm(k, k.shape[-1:], eps=1e-6) * k_scale
        if isinstance(encoding, QueryKeyEncoding):
            q, k = encoding.encode(q, k, codes, self.layer)
        operation = self.operation
        if isinstance(operation, LinearOperation):
            turn = encoding.scoring(codes, self.layer).rotation
            out = operation.between(q, k, v, state, mask, turn)
        else:
            half_widths = self._half_widths(encoding, grid)
            offsets = box_offsets(box_of(half_widths, self.order), x.device)
            table = encoding.grid_table(offsets, self.layer, stride)
            if isinstance(operation, SoftmaxOperation) and table is None and self.order is None:
                out = operation.between(q, k, v, state, mask)
            else:
                table = table or OffsetTable()
                out = _in_box(q, k, v, table, half_widths, grid, mask, self.order)
        return self.project_out(out.flatten(2))

    def _half_widths(self, encoding: Encoding, grid: tuple[int, ...]) -> tuple[int, ...]:
        """Return the places on each side that a query may attend to, for each axis of the grid."""
        reach = encoding.reach(self.layer)
        if reach is None and isinstance(self.operation, WindowedOperation):
            reach = (self.operation.span - 1,) * len(grid)
        widest = [extent - 1 for extent in grid]
        return tuple(widest if reach is None else map(min, widest, reach))


def _in_box(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: OffsetTable,
    half_widths: tuple[int, ...],
    grid: tuple[int, ...],
    mask: Tensor | None,
    order: Order,
) -> Tensor:
    """Return attention (b, l, h, e) to the keys in the box around each query, float32 or wider."""
    dtype = torch.promote_types(torch.float32, q.dtype)
    with without_autocast(q.device):
        on_grid = [x.to(dtype).unflatten(1, grid) for x in (q, k, v)]
        visible = None if mask is None else mask.unflatten(1, grid)
        out = windowed_attention(
            *(on_grid[0], on_grid[1], on_grid[2], table.to(dtype), half_widths),
            order=order,
            key_mask=visible,
        )
    return out.flatten(1, len(grid)).to(v.dtype)
