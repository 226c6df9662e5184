"""A layer of causal self-attention with its positional encoding, for other people's models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from relpe.attention.layer import (
    AttentionConfig,
    LayerState,
    SelfAttention,
    check_fit,
    limit_offsets,
)
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.checks import (
    Checked,
    at_least,
    check_features,
    check_rows,
    check_start,
    check_state,
    check_type,
)
from relpe.encodings import EncodingConfig
from relpe.encodings.base import AbsoluteEncoding, Encoding, position_after, positions_of
from relpe.encodings.offset.base import OffsetEncoding
from relpe.encodings.stochastic.sine import SineSPEConfig
from relpe.models.packing import pack_rows


@dataclass(frozen=True, kw_only=True)
class AttentionLayerConfig(Checked):
    """A layer of attention with its positional encoding."""

    width: int = 256
    """Number of features of inputs and outputs (m)."""
    num_heads: int = 8
    """Number of heads of queries (h)."""
    num_kv_heads: int | None = None
    """Number of heads of keys and values, which groups of query heads share; None: `num_heads`."""
    attention: AttentionConfig = field(default_factory=LinearAttentionConfig)
    """Kind of attention."""
    encoding: EncodingConfig = field(default_factory=SineSPEConfig)
    """Positional encoding."""
    normalize_queries_keys: bool = True
    """Normalise queries and keys to a mean square of 1, times a learned temperature, before the
    encoding."""
    convolution_taps: int = 0
    """Kernel size of a short causal convolution before the projections; 0: no convolution."""
    noise_seed: int = 0
    """Seed of random codes and features, unless `init_state` gets another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, width=self.width, num_heads=self.num_heads)
        at_least(0, convolution_taps=self.convolution_taps)
        if self.width % self.num_heads:
            raise ValueError(
                f"width is {self.width}, expected a multiple of num_heads, {self.num_heads}"
            )
        groups = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        at_least(1, num_kv_heads=groups)
        if self.num_heads % groups:
            raise ValueError(f"num_kv_heads is {groups}, expected a divisor of {self.num_heads}")


class AttentionState(NamedTuple):
    """State of a layer between two parts of its sequences."""

    encoding: Any
    layer: LayerState
    positions: Tensor
    """(1 or b,): the position on the first axis after the last one, of all rows or of each."""

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> AttentionState:
        """Return the state with `change` applied to each tensor that belongs to rows."""
        encoding, positions = self.encoding, self.positions
        if hasattr(encoding, "map_rows"):
            encoding = encoding.map_rows(change)
        if len(positions) > 1:
            positions = change(positions)
        return AttentionState(encoding, self.layer.map_rows(change), positions)


class Attention(nn.Module):
    """Causal self-attention of one layer: `out, state = Attention(config)(x, state)`.

    A sequence may be processed in parts of any length, each with the state of the previous one. All
    data of a sequence is in its state. Noise is part of the state too: in training, begin each step
    with `init_state(batch_size, seed=step)`.
    """

    def __init__(self, config: AttentionLayerConfig) -> None:
        """Make an attention with new weights.

        Raises:
            TypeError: the config is not that of a layer.
            ValueError: the encoding does not fit the attention.
        """
        super().__init__()
        check_type("config", config, AttentionLayerConfig)
        self.config = config
        self.encoding: Encoding = config.encoding.build(
            num_layers=1, num_heads=config.num_heads, head_dim=config.width // config.num_heads
        )
        check_fit(self.encoding, config.attention, config.encoding.kind)
        limit_offsets(self.encoding, config.attention, 0)
        self.attention = SelfAttention(
            config.attention,
            layer=0,
            width=config.width,
            num_heads=config.num_heads,
            normalize=config.normalize_queries_keys,
            convolution_taps=config.convolution_taps,
            num_kv_heads=config.num_kv_heads,
        )

    def init_state(self, batch_size: int, seed: int | None = None) -> AttentionState:
        """Return the state before the first position; `seed` is the noise's, None: the config's."""
        check_start(batch_size, seed=seed)
        seed = self.config.noise_seed if seed is None else seed
        device = self.attention.project_in.weight.device
        generator = torch.Generator().manual_seed(seed + 1)
        return AttentionState(
            self.encoding.init_state(seed, device),
            self.attention.init_state(batch_size, generator, self.encoding),
            torch.zeros(1, dtype=torch.int64, device=device),
        )

    def forward(
        self,
        x: Tensor,
        state: AttentionState | None = None,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, AttentionState]:
        """Attend from x (b, l, m) to itself and to the state; return (b, l, m) and the new state.

        - `state`: the state after the previous part of the sequences; None: they begin.
        - `positions` (1 or b, l, p): None: consecutive integers on one axis, after the last
          position of the state.
        - `mask` (b, l), bool: False where x is padding, at any place. Padding has no effect, its
          outputs are zero, and default positions do not count it.
        - `cu_seqlens` (n + 1,), integers: x is (1, l, m) and contains n sequences one after
          another, which begin at these places; the last entry is l. The state has n rows.

        Raises:
            TypeError: an argument is not a tensor, or the state is that of another layer.
            ValueError: a shape, dtype or device does not fit the others, or the encoding does not
                support padding.
        """
        check_features("x", x, "l", self.config.width, self.attention.project_in.weight)
        rows = pack_rows(x, mask, cu_seqlens)
        # `len` would be a constant in an exported model
        count = x.shape[0] if rows is None else len(rows.lengths)
        if state is None:
            state = self.init_state(count)
        check_type("state", state, AttentionState)
        check_state(type(state.layer.operation), self.attention.operation.state_type)
        check_rows(state.layer.recent.shape[0], count)
        if positions is not None:
            positions = positions_of(x, positions)
        elif self.encoding.num_axes > 1:
            raise ValueError(
                f"encoding {self.config.encoding.kind} has {self.encoding.num_axes} axes, expected "
                "positions (1 or b, l, p) of them"
            )
        if rows is None:
            return self._of_rows(x, state, positions, None)
        if isinstance(self.encoding, OffsetEncoding) and self.encoding.coordinates != "index":
            raise ValueError(
                f"encoding {self.config.encoding.kind} keeps the positions of all keys, so rows "
                "must have equal lengths; leave out mask and cu_seqlens"
            )
        if positions is not None:
            positions = rows.gather(positions.expand(len(x), -1, -1))
        out, state = self._of_rows(rows.gather(x), state, positions, rows.lengths)
        return rows.scatter(out, x), state

    def _of_rows(
        self, x: Tensor, state: AttentionState, positions: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, AttentionState]:
        """Call the layer for rows padded only at their end, after `lengths` (b,) positions."""
        after = state.positions + (x.shape[1] if lengths is None else lengths)
        if positions is None:
            steps = torch.arange(x.shape[1], device=x.device)
            positions = (state.positions[:, None] + steps)[..., None]
        elif x.shape[1]:
            after = position_after(positions, lengths, state.positions)
        codes, encoding = self.encoding.prepare(positions, state.encoding)
        if isinstance(self.encoding, AbsoluteEncoding):
            x = self.encoding.embed(x, codes)
        out, layer = self.attention(x, self.encoding, codes, state.layer, lengths)
        return out, AttentionState(encoding, layer, after)
