"""Attention of one sequence to another, with a positional encoding of both."""

from __future__ import annotations

import torch
from torch import Tensor

from relpe.attention.context import ContextAttention
from relpe.attention.layer import check_fit
from relpe.checks import check_features, check_mask, check_start, check_type
from relpe.encodings.base import NO_SCORING, Encoding, NoEncoding, QueryKeyEncoding, positions_of
from relpe.models.attention import AttentionLayerConfig


class CrossAttention(ContextAttention):
    """Attention of a sequence to all of another: `out = CrossAttention(config)(x, context)`.

    Positions of both sequences are points of the same line (or grid, ...), so that scores depend on
    their difference. With the context x, this is attention without causality.
    """

    def __init__(self, config: AttentionLayerConfig) -> None:
        """Make an attention with new weights.

        Raises:
            TypeError: the config is not that of a layer.
            ValueError: the attention or the encoding is defined within one sequence only.
        """
        check_type("config", config, AttentionLayerConfig)
        super().__init__(
            config.attention,
            layer=0,
            width=config.width,
            num_heads=config.num_heads,
            normalize=config.normalize_queries_keys,
            num_kv_heads=config.num_kv_heads,
        )
        self.config = config
        self.encoding: Encoding = config.encoding.build(
            num_layers=1, num_heads=config.num_heads, head_dim=config.width // config.num_heads
        )
        check_fit(self.encoding, config.attention, config.encoding.kind)
        if not isinstance(self.encoding, QueryKeyEncoding | NoEncoding):
            raise ValueError(
                f"encoding {config.encoding.kind} does not act on queries and keys alone, expected "
                "one that does, such as sine_spe, algebraic or rope"
            )
        if config.convolution_taps:
            raise ValueError("a convolution is causal, expected convolution_taps = 0")

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
        """Return the attention (b, l, m) of x (b, l, m) to the context (b, s, m).

        - `positions` (1 or b, l, p) and `context_positions` (1 or b, s, p); None: 0, 1, 2, ...
        - `context_mask` (b, s), bool: False where the context is padding.
        - `seed`: that of random codes and features; None: that of the config.

        Raises:
            TypeError: an argument is not a tensor.
            ValueError: a shape, dtype or device does not fit the others.
        """
        weight = self.project_queries.weight
        check_features("x", x, "l", self.config.width, weight)
        check_features("context", context, "s", self.config.width, weight)
        if len(x) != len(context):
            raise ValueError(
                f"x has {len(x)} rows and the context has {len(context)}, expected the same number"
            )
        if context_mask is not None:
            check_mask("context_mask", context_mask, context)
        check_start(seed=seed)
        seed = self.config.noise_seed if seed is None else seed
        # the same seed gives both sequences one noise
        codes = self._codes(x, positions_of(x, positions), seed)
        of_context = self._codes(context, positions_of(context, context_positions), seed)
        generator = torch.Generator().manual_seed(seed + 1)
        state = self.init_state(generator, self.encoding.out_features)
        memory = self.remember(context, self.encoding, of_context, state, context_mask)
        return self.attend(x, self.encoding, codes, memory)

    def _codes(self, x: Tensor, positions: Tensor, seed: int) -> object:
        """Return the codes of the positions of x (b, l, m)."""
        start = self.encoding.init_state(seed, x.device)
        codes, _ = self.encoding.prepare(positions, start)
        if self.encoding.scoring(codes, 0) != NO_SCORING:
            raise ValueError(
                f"encoding {self.config.encoding.kind} changes scores within one sequence, "
                "expected decay = 1 and placement = before"
            )
        return codes
