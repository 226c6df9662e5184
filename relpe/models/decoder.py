"""A causal Transformer decoder, with one code path for sequences, chunks and single tokens."""

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
from relpe.models.pointer import PointerConfig


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A pre-norm Transformer decoder."""

    vocabulary_size: int = 512
    """Number of token ids (v)."""
    width: int = 256
    """Width of the residual stream (m)."""
    num_layers: int = 6
    """Number of blocks."""
    num_heads: int = 8
    """Number of heads (h) in every layer."""
    hidden: int = 704
    """Width of the hidden layer of the feed-forward network."""
    attention: AttentionConfig = field(default_factory=LinearAttentionConfig)
    """Kind of attention, the same in all layers."""
    encoding: EncodingConfig = field(default_factory=SineSPEConfig)
    """Positional encoding, shared by all layers."""
    normalize_queries_keys: bool = True
    """Normalise queries and keys to a mean square of 1, times a learned temperature, before the
    encoding."""
    convolution_taps: int = 4
    """Kernel size of the short causal convolution before each attention; 0: no convolution."""
    convolution_start: Literal["present", "delayed"] = "present"
    """Initial weights of the convolution. `present`: the identity. `delayed`: every other feature
    is delayed by one position, so that a head can compare a query with the token before a key, and
    a model learns to copy much sooner."""
    noise_seed: int = 0
    """Seed of the noise and random features in evaluation and generation, so that they are the same
    for all users of a model."""
    pointer: PointerConfig | None = None
    """Pointer that generation mixes with the predictions; logits and training do without it."""

    def __post_init__(self) -> None:
        sizes = ("vocabulary_size", "width", "num_layers", "num_heads", "hidden")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.width % self.num_heads:
            raise ValueError(
                f"width is {self.width}, expected a multiple of num_heads, {self.num_heads}"
            )
        if self.convolution_taps < 0:
            raise ValueError(f"convolution_taps is {self.convolution_taps}, expected at least 0")
        if self.convolution_start not in ("present", "delayed"):
            raise ValueError(
                f"convolution_start is {self.convolution_start!r}, expected present or delayed"
            )
        if self.convolution_start == "delayed" and self.convolution_taps < 2:
            raise ValueError(
                f"convolution_taps is {self.convolution_taps}, expected at least 2 with the "
                "convolution_start delayed"
            )
        if self.pointer is not None:
            self.pointer.check(self.vocabulary_size)

    def build(self) -> Decoder:
        """A decoder with new weights."""
        return Decoder(self)


class DecoderState(NamedTuple):
    """State of a decoder; its size is constant with linear attention."""

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
    """A decoder; see `DecoderConfig`. Holds parameters only: a sequence's data is in its state."""

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
                f"encoding {config.encoding.kind} does not fit {config.attention.name} attention, "
                f"expected {' or '.join(self.encoding.fits)}"
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
        """Draws weights from N(0, 0.02), or smaller for projections into the residual stream.

        Source: Radford et al. (2019). Encodings initialise their own weights.
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

        `seed` is the seed of noise and random features; None: that of the config.
        `num_realizations` (r) replaces the number in the encoding's config. `feature_seed` is a
        separate seed of the random features, for training, where they are redrawn less often than
        noise; see `last_redraw`.

        Raises:
            ValueError: `num_realizations` is less than 1, or the encoding has no random codes.
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
                f"{self.config.encoding.kind} has no random codes; leave it out"
            )
        generator = torch.Generator().manual_seed(feature_seed + 1)
        layers: list[ConvolvedState] = []
        for block in self.blocks:
            assert isinstance(block, Block)
            layers.append(block.attention.init_state(batch_size, generator, features))
        return DecoderState(noise, tuple(layers))

    def last_redraw(self, step: int, seed: int = 0) -> int:
        """The last training step, up to `step`, at which random features were redrawn.

        See `FavorConfig.last_redraw`. Without random features, `step` itself.
        """
        feature_map = getattr(self.config.attention, "feature_map", None)
        return feature_map.last_redraw(step, seed) if isinstance(feature_map, FavorConfig) else step

    def forward(
        self, tokens: Tensor, positions: Tensor, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """Logits (b, l, v) of the token after each of `tokens` (b, l), and the new state.

        `positions` are (1, l, p), or (b, l, p) for positions of each row, which only encodings
        whose codes are not shared by the rows accept.
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
