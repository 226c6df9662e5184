"""The blocks of models, and what they consist of."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.bidirectional import BidirectionalAttention
from relpe.attention.context import ContextAttention, ContextMemory
from relpe.attention.layer import LayerState, SelfAttention
from relpe.encodings.base import Encoding


class FeedForward(nn.Module):
    """Gated feed-forward layer, SwiGLU (Shazeer, 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.project_in = nn.Linear(width, 2 * hidden, bias=False)
        self.project_out = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., m) to (..., m)."""
        gate, value = self.project_in(x).chunk(2, -1)
        return self.project_out(functional.silu(gate) * value)


class ReluFeedForward(nn.Module):
    """Feed-forward layer with ReLU and biases (Vaswani et al., 2017), and dropout before the ReLU.

    Dropout is there as in Alfons (2022, section 4).
    """

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.project_in = nn.Linear(width, hidden)
        self.project_out = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., m) to (..., m)."""
        return self.project_out(torch.relu(self.dropout(self.project_in(x))))


class Block(nn.Module):
    """Pre-norm block: x + attention(norm x), then x + feed-forward(norm x)."""

    def __init__(self, attention: SelfAttention, *, width: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, hidden)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        codes: object,
        state: LayerState,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, LayerState]:
        """Map (b, l, m) and state to (b, l, m) and state.

        `lengths` (b,) int64 is the number of positions of each row, if rows are padded at their
        end; None: l.
        """
        attended, state = self.attention(self.attention_norm(x), encoding, codes, state, lengths)
        x = x + attended
        return x + self.feed_forward(self.feed_forward_norm(x)), state


class BidirectionalBlock(nn.Module):
    """Block of attention to all positions and feed-forward, with dropout, pre-norm or post-norm.

    Pre-norm adds branch(norm x) to x, post-norm is norm(x + branch x). In training, a row skips
    each of the branches with the probability `skipped` (stochastic depth, Huang et al., 2016).
    """

    def __init__(
        self,
        attention: BidirectionalAttention,
        *,
        width: int,
        hidden: int,
        feed_forward: Literal["swiglu", "relu"] = "swiglu",
        norm: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
        skipped: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm, self.skipped = norm, skipped
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward: nn.Module = (
            FeedForward(width, hidden)
            if feed_forward == "swiglu"
            else ReluFeedForward(width, hidden, dropout)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        codes: object,
        state: Any,  # noqa: ANN401 - of the kind of attention
        grid: tuple[int, ...],
        mask: Tensor | None = None,
        stride: int = 1,
    ) -> Tensor:
        """Map (b, l, m) to (b, l, m); see `BidirectionalAttention`."""
        before = self.norm == "pre"
        read = self.attention_norm(x) if before else x
        x = self._add(x, self.attention(read, encoding, codes, state, grid, mask, stride))
        x = x if before else self.attention_norm(x)
        x = self._add(x, self.feed_forward(self.feed_forward_norm(x) if before else x))
        return x if before else self.feed_forward_norm(x)

    def _add(self, x: Tensor, branch: Tensor) -> Tensor:
        branch = self.dropout(branch)
        if self.training and self.skipped:
            kept = torch.rand(len(x), 1, 1, device=x.device) >= self.skipped
            branch = branch * kept / (1 - self.skipped)
        return x + branch


class TargetBlock(nn.Module):
    """Block of causal attention, attention to a context, and feed-forward, with dropout.

    `norm` is that of `BidirectionalBlock`.
    """

    def __init__(
        self,
        attention: SelfAttention,
        context: ContextAttention,
        *,
        width: int,
        hidden: int,
        norm: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.context_norm = nn.LayerNorm(width)
        self.context = context
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        codes: object,
        state: LayerState,
        memory: ContextMemory,
        first: int,
    ) -> tuple[Tensor, LayerState]:
        """Map (b, l, m) and state to (b, l, m) and state; see `ContextAttention` for the others."""
        before = self.norm == "pre"
        read = self.attention_norm(x) if before else x
        attended, state = self.attention(read, encoding, codes, state)
        x = x + self.dropout(attended)
        x = x if before else self.attention_norm(x)
        read = self.context_norm(x) if before else x
        x = x + self.dropout(self.context.attend(read, encoding, codes, memory, first))
        x = x if before else self.context_norm(x)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x) if before else x))
        return x if before else self.feed_forward_norm(x), state
