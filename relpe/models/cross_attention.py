"""Attention of one sequence to another, with a positional encoding of both."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.layer import check_fit
from relpe.attention.linear.operation import LinearOperation
from relpe.attention.softmax import SoftmaxOperation
from relpe.encodings.base import NO_SCORING, Encoding, NoEncoding, QueryKeyEncoding, positions_of
from relpe.models.attention import AttentionLayerConfig


class CrossAttention(nn.Module):
    """Attention of a sequence to all of another: `out = CrossAttention(config)(x, context)`.

    Positions of both sequences are points of the same line (or grid, ...), so that scores depend on
    their difference. With the context x, this is attention without causality.
    """

    def __init__(self, config: AttentionLayerConfig) -> None:
        """Attention with new weights.

        Raises:
            ValueError: the attention or the encoding is defined within one sequence only.
        """
        super().__init__()
        self.config = config
        head_dim = config.width // config.num_heads
        self.encoding: Encoding = config.encoding.build(
            num_layers=1, num_heads=config.num_heads, head_dim=head_dim
        )
        check_fit(self.encoding, config.attention, config.encoding.kind)
        operation = config.attention.build()
        if not isinstance(operation, SoftmaxOperation | LinearOperation):
            raise ValueError(
                f"{config.attention.kind} attention is defined within one sequence, expected "
                "softmax or linear"
            )
        if not isinstance(self.encoding, QueryKeyEncoding | NoEncoding):
            raise ValueError(
                f"encoding {config.encoding.kind} does not act on queries and keys alone, expected "
                "one that does, such as sine_spe, algebraic or rope"
            )
        if config.convolution_taps:
            raise ValueError("a convolution is causal, expected convolution_taps = 0")
        self.operation = operation
        self.num_kv_heads = config.num_kv_heads or config.num_heads
        self.project_queries = nn.Linear(config.width, config.width, bias=False)
        self.project_context = nn.Linear(config.width, 2 * self.num_kv_heads * head_dim, bias=False)
        self.project_out = nn.Linear(config.width, config.width, bias=False)
        shape = (2, config.num_heads, 1)
        self.log_temperature = (
            nn.Parameter(torch.zeros(shape)) if config.normalize_queries_keys else None
        )

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        *,
        positions: Tensor | None = None,
        context_positions: Tensor | None = None,
        context_mask: Tensor | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Attention (b, l, m) of x (b, l, m) to the context (b, s, m).

        - `positions` (1 or b, l, p) and `context_positions` (1 or b, s, p); None: 0, 1, 2, ...
        - `context_mask` (b, s), bool: False where the context is padding.
        - `seed`: that of random codes and features; None: that of the config.

        Raises:
            ValueError: a shape does not fit the others.
        """
        width = self.config.width
        if x.ndim != 3 or context.ndim != 3 or not x.shape[2] == context.shape[2] == width:
            raise ValueError(
                f"x has the shape {tuple(x.shape)} and the context {tuple(context.shape)}, "
                f"expected (b, l, {width}) and (b, s, {width})"
            )
        if len(x) != len(context):
            raise ValueError(
                f"x has {len(x)} rows and the context has {len(context)}; they must be equal"
            )
        if context_mask is not None and (
            context_mask.shape != context.shape[:2] or context_mask.dtype != torch.bool
        ):
            raise ValueError(
                f"context_mask has the shape {tuple(context_mask.shape)} and is "
                f"{context_mask.dtype}, expected {tuple(context.shape[:2])} and bool"
            )
        seed = self.config.noise_seed if seed is None else seed
        heads = self.config.num_heads
        q = self.project_queries(x).unflatten(-1, (heads, -1))
        k, v = self.project_context(context).unflatten(-1, (2, self.num_kv_heads, -1)).unbind(2)
        copies = heads // self.num_kv_heads
        k, v = (part.repeat_interleave(copies, 2) for part in (k, v))
        if self.log_temperature is not None:
            q_scale, k_scale = self.log_temperature.exp()
            q = functional.rms_norm(q, q.shape[-1:], eps=1e-6) * q_scale
            k = functional.rms_norm(k, k.shape[-1:], eps=1e-6) * k_scale
        q = self._encoded(q, positions_of(x, positions), seed)[0]
        k = self._encoded(k, positions_of(context, context_positions), seed)[1]
        generator = torch.Generator().manual_seed(seed + 1)
        shape = (len(x), heads, width // heads)
        state = self.operation.init_state(
            shape, generator, self.project_out.weight, self.encoding.out_features
        )
        out = self.operation.between(q, k, v, state, context_mask)  # pyright: ignore[reportArgumentType]
        return self.project_out(out.flatten(2))

    def _encoded(self, x: Tensor, positions: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """X (b, l, h, d) as queries and as keys; the same seed gives both sequences one noise."""
        start = self.encoding.init_state(seed, x.device)
        codes, _ = self.encoding.prepare(positions, start)
        if self.encoding.scoring(codes, 0) != NO_SCORING:
            raise ValueError(
                f"encoding {self.config.encoding.kind} changes scores within one sequence, "
                "expected decay = 1 and placement = before"
            )
        if not isinstance(self.encoding, QueryKeyEncoding):
            return x, x
        return self.encoding.encode(x, x, codes, 0)
