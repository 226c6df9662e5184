"""Attention of one sequence to all of another, which is read once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.layer import AttentionConfig
from relpe.attention.linear.operation import LinearAttentionState, LinearOperation
from relpe.attention.softmax import SoftmaxMemory, SoftmaxOperation
from relpe.attention.windowed.offset_scores import PairScores
from relpe.encodings.base import Encoding, QueryKeyEncoding, Rotation

ContextMemory = SoftmaxMemory | LinearAttentionState
"""What a layer has read: keys and values, or with linear attention their sums."""


class ContextAttention(nn.Module):
    """Multi-head attention of one layer to another sequence, the context.

    `remember` reads the context, and `attend` takes queries, all at once or one after another. Both
    sequences have positions of their own; queries and keys are normalised as in `SelfAttention`.
    """

    def __init__(
        self,
        config: AttentionConfig,
        *,
        layer: int,
        width: int,
        num_heads: int,
        normalize: bool,
        num_kv_heads: int | None = None,
    ) -> None:
        """Make an attention with new weights.

        Raises:
            ValueError: this kind of attention is defined within one sequence only.
        """
        super().__init__()
        operation = config.build()
        if not isinstance(operation, SoftmaxOperation | LinearOperation):
            raise ValueError(
                f"{config.kind} attention is defined within one sequence, expected softmax or "
                "linear"
            )
        self.operation = operation
        self.layer, self.num_heads = layer, num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        head_dim = width // num_heads
        self.project_queries = nn.Linear(width, width, bias=False)
        self.project_context = nn.Linear(width, 2 * self.num_kv_heads * head_dim, bias=False)
        self.project_out = nn.Linear(width, width, bias=False)
        self.log_temperature = nn.Parameter(torch.zeros(2, num_heads, 1)) if normalize else None

    def init_state(self, generator: torch.Generator, encoded_features: int) -> Any:  # noqa: ANN401 - of the operation
        """Return random features for queries and keys with `encoded_features`; rows share them."""
        weight = self.project_queries.weight
        shape = (1, self.num_heads, weight.shape[1] // self.num_heads)
        return self.operation.init_state(shape, generator, weight, encoded_features)

    def remember(
        self,
        context: Tensor,
        encoding: Encoding,
        codes: object,
        state: Any,  # noqa: ANN401 - of `init_state`
        mask: Tensor | None = None,
    ) -> ContextMemory:
        """Return what queries attend to, for a context (b, s, m) with the `codes` of its positions.

        `mask` (b, s), bool, is False at padding.
        """
        k, v = self.project_context(context).unflatten(-1, (2, self.num_kv_heads, -1)).unbind(2)
        copies = self.num_heads // self.num_kv_heads
        k, v = (part.repeat_interleave(copies, 2) for part in (k, v))
        k = self._normalised(k, 1)
        if isinstance(encoding, QueryKeyEncoding):
            k = encoding.encode_keys(k, codes, self.layer)
        return self.operation.remember(k, v, state, mask, self._turn(encoding, codes))

    def attend(
        self,
        x: Tensor,
        encoding: Encoding,
        codes: object,
        memory: ContextMemory,
        first: int = 0,
    ) -> Tensor:
        """Return attention (b, l, m) of x (b, l, m), with `codes` of its positions, to the context.

        `first` is the place of the first query in its sequence, for encodings that score offsets:
        those of places in the context from places in the sequence of the queries.
        """
        q = self.project_queries(x).unflatten(-1, (self.num_heads, -1))
        dtype, q = q.dtype, self._normalised(q, 0)
        if isinstance(encoding, QueryKeyEncoding):
            q = encoding.encode_queries(q, codes, self.layer)
        operation = self.operation
        if isinstance(operation, LinearOperation):
            assert isinstance(memory, LinearAttentionState)
            out = operation.recall(q, memory, self._turn(encoding, codes))
        else:
            assert isinstance(memory, SoftmaxMemory)
            out = operation.recall(q, memory, self._pairs(encoding, q, memory.keys, first))
        return self.project_out(out.to(dtype).flatten(2))

    def _normalised(self, x: Tensor, side: int) -> Tensor:
        if self.log_temperature is None:
            return x
        return functional.rms_norm(x, x.shape[-1:], eps=1e-6) * self.log_temperature[side].exp()

    def _turn(self, encoding: Encoding, codes: Any) -> Rotation | None:  # noqa: ANN401
        """Return the rotation of features in the numerator, by the codes of their own sequence."""
        if isinstance(self.operation, SoftmaxOperation):
            return None
        return encoding.scoring(codes, self.layer).rotation

    def _pairs(self, encoding: Encoding, q: Tensor, k: Tensor, first: int) -> PairScores | None:
        """Return the scores of the offsets of keys from queries, if the encoding has any."""
        queries = torch.arange(first, first + q.shape[1], device=q.device)
        lowest = 1 - first - q.shape[1]
        offsets = torch.arange(lowest, k.shape[1] - first, device=q.device)
        table = encoding.grid_table(offsets[:, None], self.layer)
        if table is None:
            return None
        keys = torch.arange(k.shape[1], device=q.device)
        return PairScores(table, keys - queries[:, None] - lowest)
