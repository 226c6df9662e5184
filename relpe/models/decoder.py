"""A causal Transformer decoder: one code path for sequences, pieces and single tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.feature_maps import FavorConfig
from relpe.attention.layer import AttentionConfig, ConvolvedState, SelfAttention
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.encodings import EncodingConfig
from relpe.encodings.base import Encoding
from relpe.encodings.stochastic.base import StochasticEncoding
from relpe.encodings.stochastic.sine import SineSPEConfig


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A pre-norm Transformer decoder."""

    vocabulary_size: int = 512
    """Token ids (v)."""
    width: int = 256
    """Features of the residual stream (m)."""
    num_layers: int = 6
    """Blocks."""
    num_heads: int = 8
    """Heads (h) of every layer."""
    hidden: int = 704
    """Features inside the feed-forward layer."""
    attention: AttentionConfig = field(default_factory=LinearAttentionConfig)
    """The operation, the same in all layers."""
    encoding: EncodingConfig = field(default_factory=SineSPEConfig)
    """Positions, shared by all layers."""
    normalize_queries_keys: bool = True
    """Brings queries and keys to unit mean square, times a learned temperature, before the
    encoding."""
    convolution_taps: int = 4
    """Positions that the short convolution before each attention sees, the present included; 0:
    none."""
    convolution_start: Literal["present", "delayed"] = "present"
    """Initial taps: each feature as it is, or every other feature delayed by a position. Then a
    head can match the token before a key with the token of its query, and copying is learnt far
    sooner."""
    noise_seed: int = 0
    """Seed of noise and random features in evaluation and generation: all users of a model share
    its codes."""

    def __post_init__(self) -> None:
        sizes = ("vocabulary_size", "width", "num_layers", "num_heads", "hidden")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.width % self.num_heads:
            raise ValueError(f"width {self.width} does not divide among {self.num_heads} heads")
        if self.convolution_taps < 0:
            raise ValueError(f"convolution_taps is {self.convolution_taps}, expected 0 or more")
        if self.convolution_start not in ("present", "delayed"):
            raise ValueError(
                f"convolution_start is {self.convolution_start!r}, expected present or delayed"
            )
        if self.convolution_start == "delayed" and self.convolution_taps < 2:
            raise ValueError(
                f"convolution_start is delayed with convolution_taps of {self.convolution_taps}, "
                "expected at least 2"
            )

    def build(self) -> Decoder:
        """A decoder with new weights."""
        return Decoder(self)


class DecoderState(NamedTuple):
    """State of a decoder: constant in size with linear attention."""

    encoding: Any  # shared by the rows
    layers: tuple[ConvolvedState, ...]

    def rows(self, index: Tensor) -> DecoderState:
        """The rows of `index` (n,), int64, in that order; indices may repeat."""
        return self.map_rows(lambda x: x[index])

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> DecoderState:
        """The state with `change` applied to each tensor that belongs to rows."""
        encoding = self.encoding
        if hasattr(encoding, "map_rows"):
            encoding = encoding.map_rows(change)
        return DecoderState(encoding, tuple(layer.map_rows(change) for layer in self.layers))


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
        codes: Any,  # noqa: ANN401
        state: ConvolvedState,
    ) -> tuple[Tensor, ConvolvedState]:
        """(b, l, m) and state to (b, l, m) and state."""
        attended, state = self.attention(self.attention_norm(x), encoding, codes, state)
        x = x + attended
        return x + self.feed_forward(self.feed_forward_norm(x)), state


class Decoder(nn.Module):
    """See `DecoderConfig`. Holds parameters only; everything about a sequence is in its state."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        head_dim = config.width // config.num_heads
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        self.encoding: Encoding = config.encoding.build(
            num_layers=config.num_layers, num_heads=config.num_heads, head_dim=head_dim
        )
        if config.attention.name not in self.encoding.fits:
            raise ValueError(
                f"encoding {config.encoding.kind} with {config.attention.name} attention: scores "
                f"would not be what it says; expected {' or '.join(self.encoding.fits)}"
            )
        self.blocks = nn.ModuleList(
            Block(
                SelfAttention(
                    config.attention,
                    layer=layer,
                    width=config.width,
                    num_heads=config.num_heads,
                    normalize=config.normalize_queries_keys,
                    convolution_taps=config.convolution_taps,
                    delayed=config.convolution_start == "delayed",
                ),
                width=config.width,
                hidden=config.hidden,
            )
            for layer in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.project_out = nn.Linear(config.width, config.vocabulary_size, bias=False)
        self._init_weights()

    def _init_weights(self) -> None:
        """N(0, 0.02), smaller for projections into the residual stream (Radford et al., 2019).

        Encodings have initial values of their own.
        """
        for name, module in self.named_modules():
            if name.split(".")[0] != "encoding" and isinstance(module, nn.Linear | nn.Embedding):
                into_stream = name.endswith("project_out") and name != "project_out"
                scale = math.sqrt(2 * self.config.num_layers) if into_stream else 1.0
                nn.init.normal_(module.weight, std=0.02 / scale)

    def init_state(
        self,
        batch_size: int,
        seed: int | None = None,
        num_realizations: int | None = None,
        *,
        feature_seed: int | None = None,
    ) -> DecoderState:
        """State before the first token.

        `seed` is that of noise and random features; None: the config's. `num_realizations` codes
        (r), if given, replace the number of the encoding's config. `feature_seed` is that of random
        features, where they are held while noise is redrawn: in training that of the step
        `last_redraw`.

        Raises:
            ValueError: fewer than one realization, or an encoding without random codes.
        """
        seed = self.config.noise_seed if seed is None else seed
        feature_seed = seed if feature_seed is None else feature_seed
        encoding, device = self.encoding, self.embedding.weight.device
        features = encoding.out_features
        if num_realizations is None:
            noise = encoding.init_state(seed, device)
        elif isinstance(encoding, StochasticEncoding):
            noise = encoding.init_state(seed, device, num_realizations)
            features = num_realizations
        else:
            raise ValueError(
                f"num_realizations is {num_realizations}, but encoding "
                f"{self.config.encoding.kind} draws nothing: leave it out"
            )
        generator = torch.Generator().manual_seed(feature_seed + 1)
        layers: list[ConvolvedState] = []
        for block in self.blocks:
            assert isinstance(block, Block)
            layers.append(block.attention.init_state(batch_size, generator, features))
        return DecoderState(noise, tuple(layers))

    def last_redraw(self, step: int, seed: int = 0) -> int:
        """The training step, at most `step`, whose random features are in force at `step`.

        See `FavorConfig.last_redraw`; `step` itself without random features.
        """
        feature_map = getattr(self.config.attention, "feature_map", None)
        return feature_map.last_redraw(step, seed) if isinstance(feature_map, FavorConfig) else step

    def forward(
        self, tokens: Tensor, positions: Tensor, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """Logits (b, l, v) of the token after each of `tokens` (b, l), at `positions` (1, l, p).

        Or (b, l, p), for each row, which encodings whose codes are shared by the rows refuse.
        """
        if not tokens.shape[1]:
            return self.embedding.weight.new_zeros(
                *tokens.shape, self.config.vocabulary_size
            ), state
        codes, encoding = self.encoding.prepare(positions, state.encoding)
        x = self.encoding.embed(self.embedding(tokens), codes)
        layers = []
        for block, layer_state in zip(self.blocks, state.layers, strict=True):
            x, layer_state = block(x, self.encoding, codes, layer_state)
            layers.append(layer_state)
        return self.project_out(self.norm(x)), DecoderState(encoding, tuple(layers))
