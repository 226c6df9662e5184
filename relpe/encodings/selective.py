"""Selective rotary position embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from relpe.checks import Checked, check_state, positive
from relpe.encodings.base import NoState, SelectiveEncoding, check_layer
from relpe.encodings.rope import RopeCodes, check_even, frequencies_of, rotate
from relpe.transforms import without_autocast


@dataclass(frozen=True, kw_only=True)
class SelectiveRopeConfig(Checked):
    """Selective rotary position embedding (Movahedi et al., 2025).

    Each input moves the positions of itself and of all later inputs, by a distance that depends on
    it, so that tokens can count for more, for less, or not at all. Without the convolution and the
    gate of the paper, since the layers of `Decoder` have both.
    """

    kind: Literal["selective_rope"] = "selective_rope"
    base: float = 10_000.0
    """Ratio of the longest to the shortest wavelength."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(base=self.base)

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> SelectiveRope:
        """Return the module for layers of width num_heads * head_dim; `head_dim` must be even."""
        return SelectiveRope(self, num_layers, num_heads, head_dim)


class SelectiveRope(SelectiveEncoding[Tensor, NoState]):
    """See `SelectiveRopeConfig`.

    Features i and i + d/2 of head h at position n are rotated by f_i (p_n + m_n), where p_n is the
    position, f_i = base^(-2i/d), and m_n is the sum of the moves w_hi . x_j of all inputs x_j up to
    n. Initially all moves are zero, which is `Rope`.
    """

    # as for `Rope`
    fits = ("softmax", "windowed", "favor", "delta")
    rows_by_position = True

    def __init__(
        self, config: SelectiveRopeConfig, num_layers: int, num_heads: int, head_dim: int
    ) -> None:
        super().__init__()
        check_even(head_dim)
        self.config = config
        self.num_layers, self.out_features = num_layers, head_dim
        self.heads = (num_heads, head_dim)
        self.moves = nn.Parameter(
            torch.zeros(num_layers, num_heads, head_dim // 2, num_heads * head_dim)
        )

    def codes_at(self, positions: Tensor, state: NoState) -> tuple[Tensor, NoState]:
        """Return the positions (1 or b, l, 1, 1) in float64."""
        return positions[..., :1, None].double(), state

    def init_layer_state(self, batch_size: int, device: torch.device) -> Tensor:
        """Return the sums of the moves so far, (b, h, d/2) in float64."""
        _, heads, pairs, _ = self.moves.shape
        return torch.zeros(batch_size, heads, pairs, dtype=torch.float64, device=device)

    def encode(
        self,
        q: Tensor,
        k: Tensor,
        x: Tensor,
        codes: Tensor,
        layer: int,
        state: Tensor,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries and keys (b, l, h, d), in float32 or wider, and sums of moves."""
        moved, state = self.moved(x, layer, state, lengths)
        frequencies = frequencies_of(self.config.base, self.out_features, x.device)
        angles = (codes + moved) * frequencies % (2 * math.pi)
        angles = angles.to(torch.promote_types(q.dtype, torch.float32))
        turns = RopeCodes(angles.cos(), angles.sin())
        return rotate(q, turns), rotate(k, turns), state

    def moved(
        self, x: Tensor, layer: int, state: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return sums (b, l, h, d/2) of moves up to each input of x (b, l, m), and the last one.

        They are float64, so that a million positions add up exactly enough.

        Raises:
            TypeError: the state is that of another encoding.
            ValueError: there is no such layer, or the inputs have another width.
        """
        check_layer(layer, self.num_layers)
        check_state(state.shape[1:], self.moves.shape[1:3])
        if x.shape[-1] != self.moves.shape[-1]:
            raise ValueError(
                f"the inputs have {x.shape[-1]} features, expected {self.moves.shape[-1]}, those "
                "of all heads together"
            )
        with without_autocast(x.device):
            dtype = torch.promote_types(x.dtype, torch.float32)
            moves = torch.einsum("blm,hfm->blhf", x.to(dtype), self.moves[layer].to(dtype))
        if lengths is not None:
            beyond = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
            moves = moves.masked_fill(beyond[..., None, None], 0.0)
        moved = state[:, None] + moves.double().cumsum(1)
        return moved, moved[:, -1] if x.shape[1] else state
