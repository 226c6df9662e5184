"""An encoder-decoder Transformer: it reads a source sequence and writes a target sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.bidirectional import BidirectionalAttention
from relpe.attention.context import ContextAttention, ContextMemory
from relpe.attention.feature_maps import FavorConfig
from relpe.attention.layer import AttentionConfig, LayerState, SelfAttention, check_fit
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.checks import (
    Checked,
    at_least,
    check_mask,
    check_rows,
    check_start,
    check_state,
    check_tokens,
    check_type,
)
from relpe.encodings import EncodingConfig
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.base import (
    AbsoluteEncoding,
    Encoding,
    SelectiveEncoding,
    position_after,
    positions_of,
)
from relpe.encodings.offset.base import OffsetEncoding
from relpe.encodings.offset.windows import Windows
from relpe.encodings.rope import RopeConfig
from relpe.models.blocks import BidirectionalBlock, TargetBlock


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(Checked):
    """A Transformer with an encoder of the source and a decoder of the target."""

    vocabulary_size: int = 512
    """Number of token ids (v) of source and target together."""
    width: int = 256
    """Width of the residual stream (m)."""
    num_layers: int = 2
    """Number of blocks of the encoder, and of the decoder."""
    num_heads: int = 8
    """Number of heads (h) in every layer."""
    hidden: int = 704
    """Width of the hidden layer of the feed-forward networks."""
    attention: AttentionConfig = field(default_factory=SoftmaxAttentionConfig)
    """Kind of attention of all layers: softmax, or linear without half_lives."""
    encoding: EncodingConfig = field(default_factory=RopeConfig)
    """Positional encoding of source and target, shared by all layers."""
    axes: tuple[int, ...] | None = None
    """Axes of the positions that the encoding reads, counted from 0, in this order; None: all."""
    normalize_queries_keys: bool = True
    """Normalise queries and keys to a mean square of 1, times a learned temperature, before the
    encoding."""
    norm: Literal["pre", "post"] = "pre"
    """Whether blocks normalise the inputs of their branches (pre) or their outputs (post)."""
    dropout: float = 0.0
    """Share of the features of embeddings and branches that training sets to zero."""
    tied: bool = True
    """Predict tokens by their embeddings; if false, the last layer has weights of its own."""
    logit_scale: float = 1.0
    """Factor of the logits of tied models. A token's own logit grows with the width, to 10 at a
    width of 512, so that a new model repeats its input; 64 / width prevents this (Yang et al.,
    2022, Tensor Programs V, section 4)."""
    noise_seed: int = 0
    """Seed of the noise and random features in evaluation and generation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = ("vocabulary_size", "width", "num_layers", "num_heads", "hidden")
        at_least(1, **{name: getattr(self, name) for name in sizes})
        if self.width % self.num_heads:
            raise ValueError(
                f"width is {self.width}, expected a multiple of num_heads, {self.num_heads}"
            )
        if not 0 < self.logit_scale < math.inf:
            raise ValueError(f"logit_scale is {self.logit_scale}, expected more than 0")
        if not self.tied and self.logit_scale != 1:
            raise ValueError(f"logit_scale is {self.logit_scale}, expected 1, since tied is false")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, expected 0 to less than 1")
        if self.axes is not None and (not self.axes or min(self.axes) < 0):
            raise ValueError(f"axes are {self.axes}, expected at least one, counted from 0")

    @property
    def largest(self) -> int:
        """The largest size of a layer."""
        return max(self.vocabulary_size, self.width, self.hidden)

    def build(self) -> EncoderDecoder:
        """Return a model with new weights.

        Raises:
            ValueError: the encoding or the attention does not fit two sequences.
        """
        return EncoderDecoder(self)


class EncoderDecoderState(NamedTuple):
    """State of a model: what it has read of the source, and the target so far."""

    encoding: Any  # of the target; before its first token that of the noise, shared by the rows
    encoder: tuple[Any, ...]  # random features of each block of the encoder
    layers: tuple[LayerState, ...]  # of each block of the decoder
    memories: tuple[ContextMemory, ...]  # likewise; before the source is read, random features
    length: int = 0  # number of target tokens so far
    has_read: bool = False
    after: Tensor | None = None  # (1 or b,): position after the last that was given; None: length

    def rows(self, index: Tensor) -> EncoderDecoderState:
        """Return the rows of `index` (n,), int64, in that order; indices may repeat."""
        return self.map_rows(lambda x: x[index])

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> EncoderDecoderState:
        """Return the state with `change` applied to each tensor that belongs to rows."""
        encoding = self.encoding
        if hasattr(encoding, "map_rows"):
            encoding = encoding.map_rows(change)
        after = self.after
        return self._replace(
            encoding=encoding,
            after=after if after is None or len(after) == 1 else change(after),
            layers=tuple(layer.map_rows(change) for layer in self.layers),
            memories=tuple(memory.map_rows(change) for memory in self.memories),
        )


class EncoderDecoder(nn.Module):
    """See `EncoderDecoderConfig`. Holds parameters only.

    `state = model.read(source, model.init_state(batch_size))` reads a source sequence, then
    `logits, state = model(target, state)` predicts the token after each of the target, in parts of
    any length. `blocks` are those of the encoder, then those of the decoder.
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        width, heads, count = config.width, config.num_heads, config.num_layers
        self.embedding = nn.Embedding(config.vocabulary_size, width)
        # layers are numbered: encoder, decoder, attention of the decoder to the source
        self.encoding: Encoding = config.encoding.build(
            num_layers=3 * count, num_heads=heads, head_dim=width // heads
        )
        check_fit(self.encoding, config.attention, config.encoding.kind)
        problem = _why_not(config, self.encoding)
        if problem is not None:
            raise ValueError(problem)
        shape: Any = {
            "width": width,
            "num_heads": heads,
            "normalize": config.normalize_queries_keys,
        }
        block: Any = {
            **{"width": width, "hidden": config.hidden},
            **{"norm": config.norm, "dropout": config.dropout},
        }
        attention = config.attention
        self.blocks = nn.ModuleList(
            BidirectionalBlock(BidirectionalAttention(attention, layer=layer, **shape), **block)
            for layer in range(count)
        )
        self.blocks.extend(
            TargetBlock(
                SelfAttention(attention, layer=count + layer, convolution_taps=0, **shape),
                ContextAttention(attention, layer=2 * count + layer, **shape),
                **block,
            )
            for layer in range(count)
        )
        self.encoder_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(config.dropout)
        self.project_out = (
            None if config.tied else nn.Linear(width, config.vocabulary_size, bias=False)
        )
        self._init_weights()

    def _init_weights(self) -> None:
        """Draw weights as `Decoder` does."""
        into_stream = math.sqrt(2 * self.config.num_layers)
        for name, module in self.named_modules():
            if not name.startswith("encoding") and isinstance(module, nn.Linear | nn.Embedding):
                inner = name.endswith("project_out") and name != "project_out"
                nn.init.normal_(module.weight, std=0.02 / (into_stream if inner else 1.0))

    @property
    def encoder_blocks(self) -> list[BidirectionalBlock]:
        """The blocks that read the source."""
        return list(self.blocks)[: self.config.num_layers]  # pyright: ignore[reportReturnType]

    @property
    def decoder_blocks(self) -> list[TargetBlock]:
        """The blocks that write the target."""
        return list(self.blocks)[self.config.num_layers :]  # pyright: ignore[reportReturnType]

    @property
    def num_axes(self) -> int:
        """Number of axes of the positions that the model reads."""
        axes = self.config.axes
        read = range(self.encoding.num_axes) if axes is None else axes[: self.encoding.num_axes]
        return 1 + max(read)

    def named_encoding_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of the encoding."""
        yield from self.encoding.named_parameters()

    def training_window(self) -> Windows | None:
        """Return None: encodings with a window are refused."""
        return None

    def last_redraw(self, step: int, seed: int = 0) -> int:
        """Return the last training step at which random features were redrawn; see `Decoder`."""
        features = getattr(self.config.attention, "feature_map", None)
        return features.last_redraw(step, seed) if isinstance(features, FavorConfig) else step

    def init_state(
        self, batch_size: int, seed: int | None = None, *, feature_seed: int | None = None
    ) -> EncoderDecoderState:
        """Return the state before the source is read.

        `seed` is that of noise, None: that of the config. `feature_seed` is that of random
        features; None: `seed`.
        """
        check_start(batch_size, seed=seed, feature_seed=feature_seed)
        seed = self.config.noise_seed if seed is None else seed
        generator = torch.Generator().manual_seed(
            (seed if feature_seed is None else feature_seed) + 1
        )
        features = self.encoding.out_features
        encoder = tuple(
            block.attention.init_state(generator, features) for block in self.encoder_blocks
        )
        layers, memories = [], []
        for block in self.decoder_blocks:
            layers.append(block.attention.init_state(batch_size, generator, self.encoding))
            memories.append(block.context.init_state(generator, features))
        noise = self.encoding.init_state(seed, self.embedding.weight.device)
        return EncoderDecoderState(noise, encoder, (*layers,), (*memories,))

    def read(
        self,
        source: Tensor,
        state: EncoderDecoderState,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> EncoderDecoderState:
        """Return the state after the whole source (b, s), before the first target token.

        - `positions` (1 or b, s, p): None: 0, 1, 2, ...
        - `mask` (b, s), bool: False at padding, which follows the source and has no effect.

        Raises:
            TypeError: an argument is not a tensor, or the state is that of another model.
            ValueError: a shape, dtype or device does not fit the others, or the state has read a
                source.
        """
        check_tokens("source", source, self.embedding.weight)
        check_type("state", state, EncoderDecoderState)
        self._check_layers(state)
        if state.has_read:
            raise ValueError("the state has read a source; begin each source with init_state")
        check_rows(len(state.layers[0].recent), len(source))
        if mask is not None:
            check_mask("mask", mask, source)
        if not source.shape[1]:
            raise ValueError("the source is empty, expected at least one token")
        x = self.embedding(source)
        codes: Any = None  # encodings that score offsets need none
        if not isinstance(self.encoding, OffsetEncoding):
            # the noise of the target is that of the source, so the state does not change
            codes, _ = self._codes(x, positions, state.encoding)
        x = self._embedded(x, codes)
        grid = (source.shape[1],)
        for block, features in zip(self.encoder_blocks, state.encoder, strict=True):
            x = block(x, self.encoding, codes, features, grid, mask)
        x = self.encoder_norm(x)
        memories = tuple(
            block.context.remember(x, self.encoding, codes, features, mask)
            for block, features in zip(self.decoder_blocks, state.memories, strict=True)
        )
        return state._replace(memories=memories, has_read=True)

    def forward(
        self, target: Tensor, state: EncoderDecoderState, *, positions: Tensor | None = None
    ) -> tuple[Tensor, EncoderDecoderState]:
        """Return logits (b, l, v) of the token after each of the target (b, l), and the new state.

        `positions` are (1 or b, l, p); None: they continue 0, 1, 2, ...

        Raises:
            TypeError: an argument is not a tensor, or the state is that of another model.
            ValueError: the state has read no source, or a shape, dtype or device does not fit the
                others.
        """
        check_tokens("target", target, self.embedding.weight)
        check_type("state", state, EncoderDecoderState)
        self._check_layers(state)
        check_rows(len(state.layers[0].recent), len(target))
        if not state.has_read:
            raise ValueError("the state has read no source; call read first")
        if not target.shape[1]:
            return self.embedding.weight.new_zeros(
                *target.shape, self.config.vocabulary_size
            ), state
        after = state.after
        if positions is None:
            steps = torch.arange(target.shape[1], device=target.device)
            start = torch.full_like(steps[:1], state.length) if after is None else after
            positions = (start[:, None] + steps)[..., None]
            after = None if after is None else after + target.shape[1]
        else:
            after = position_after(positions_of(target, positions), None, target)
        x = self.embedding(target)
        codes, encoding = self._codes(x, positions, state.encoding)
        x = self._embedded(x, codes)
        layers = []
        for block, layer, memory in zip(
            self.decoder_blocks, state.layers, state.memories, strict=True
        ):
            x, layer = block(x, self.encoding, codes, layer, memory, state.length)
            layers.append(layer)
        x = self.norm(x)
        logits = (
            functional.linear(self.config.logit_scale * x, self.embedding.weight)
            if self.project_out is None
            else self.project_out(x)
        )
        return logits, state._replace(
            encoding=encoding,
            layers=tuple(layers),
            length=state.length + target.shape[1],
            after=after,
        )

    def _check_layers(self, state: EncoderDecoderState) -> None:
        """Raise TypeError if a state is that of another model."""
        check_state(
            [type(layer.operation) for layer in state.layers],
            [block.attention.operation.state_type for block in self.decoder_blocks],
        )

    def _codes(self, x: Tensor, positions: Tensor | None, state: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Return codes of the positions of x (b, l, m) that the encoding reads, and its state."""
        positions = positions_of(x, positions)
        axes = self.config.axes
        if axes is not None:
            if max(axes) >= positions.shape[-1]:
                raise ValueError(
                    f"positions have {positions.shape[-1]} axes, but the encoding reads the axes "
                    f"{list(axes)}; expected at least {max(axes) + 1} axes"
                )
            positions = positions[..., list(axes)]
        return self.encoding.prepare(positions, state)

    def _embedded(self, x: Tensor, codes: Any) -> Tensor:  # noqa: ANN401
        """Return embeddings x (b, l, m) plus the vectors of an absolute encoding, with dropout."""
        if isinstance(self.encoding, AbsoluteEncoding):
            x = self.encoding.embed(x, codes)
        return self.dropout(x)


def _why_not(config: EncoderDecoderConfig, encoding: Encoding) -> str | None:
    """Return why an encoding is not defined between two sequences; None if it is."""
    kind = config.encoding.kind
    if isinstance(encoding, SelectiveEncoding):
        return (
            f"encoding {kind} depends on the inputs read so far, which an encoder without "
            "causality does not have; expected another encoding"
        )
    if encoding.reach(0) is not None:
        return (
            f"encoding {kind} has a window or span, expected one without, since the target "
            "attends to all of the source"
        )
    if isinstance(encoding, OffsetEncoding) and encoding.coordinates != "index":
        return (
            f"encoding.coordinates is {encoding.coordinates}, expected index, which means places "
            "in a sequence"
        )
    if isinstance(config.encoding, AlgebraicConfig) and config.encoding.decay < 1:
        return "encoding.decay is that of one sequence, expected 1"
    if getattr(config.attention, "half_lives", None) is not None:
        return "attention.half_lives are those of one sequence; leave them out"
    return None
