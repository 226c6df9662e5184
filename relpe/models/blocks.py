"""The blocks of a decoder, and what they consist of."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.layer import LayerState, SelfAttention
from relpe.encodings.base import Encoding


class FeedForward(nn.Module):
    """Gated feed-forward layer, SwiGLU (Shazeer, 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.project_in = nn.Linear(width, 2 * hidden, bias=False)
        self.project_out = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., m) to (..., m)."""
        gate, value = self.project_in(x).chunk(2, -1)
        return self.project_out(functional.silu(gate) * value)


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
        """(b, l, m) and state to (b, l, m) and state.

        `lengths` (b,) int64 is the number of positions of each row, if rows are padded at their
        end; None: l.
        """
        attended, state = self.attention(self.attention_norm(x), encoding, codes, state, lengths)
        x = x + attended
        return x + self.feed_forward(self.feed_forward_norm(x)), state
