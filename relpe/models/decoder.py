"""A causal Transformer decoder, with one code path for sequences, chunks and single tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from relpe.attention.feature_maps import FavorConfig
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
    check_rows,
    check_start,
    check_state,
    check_tokens,
    check_type,
)
from relpe.encodings import EncodingConfig
from relpe.encodings.base import AbsoluteEncoding, Encoding, positions_of
from relpe.encodings.offset.base import OffsetEncoding
from relpe.encodings.offset.windows import Windows
from relpe.encodings.stochastic.base import StochasticEncoding
from relpe.encodings.stochastic.sine import SineSPEConfig
from relpe.models.blocks import Block
from relpe.models.events import Events, EventsConfig, EventState
from relpe.models.layers import Layer, LayerConfig, layers_of, shared_encodings
from relpe.models.pointer.config import PointerConfig


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Checked):
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
    """Kind of attention of all layers, unless `layers` names others."""
    encoding: EncodingConfig = field(default_factory=SineSPEConfig)
    """Positional encoding, shared by all layers, unless `layers` names others."""
    layers: tuple[LayerConfig, ...] = ()
    """Pattern of layers of different kinds, repeated until there are `num_layers`, for example
    [{count: 3}, {attention: {kind: windowed}, encoding: {kind: algebraic}}]; []: all layers are
    alike."""
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
    events: EventsConfig | None = None
    """Groups of tokens that pass the blocks as one position; None: every token does."""
    pointer: PointerConfig | None = None
    """Pointer that generation mixes with the predictions; logits and training do without it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = ("vocabulary_size", "width", "num_layers", "num_heads", "hidden")
        at_least(1, **{name: getattr(self, name) for name in sizes})
        at_least(0, convolution_taps=self.convolution_taps)
        if self.width % self.num_heads:
            raise ValueError(
                f"width is {self.width}, expected a multiple of num_heads, {self.num_heads}"
            )
        if self.convolution_start == "delayed" and self.convolution_taps < 2:
            raise ValueError(
                f"convolution_taps is {self.convolution_taps}, expected at least 2 with the "
                "convolution_start delayed"
            )
        if self.pointer is not None:
            self.pointer.check(self.vocabulary_size)

    @property
    def largest(self) -> int:
        """The largest size of a layer."""
        return max(self.vocabulary_size, self.width, self.hidden)

    @property
    def layers_in_order(self) -> list[Layer]:
        """Attention and encoding of each block."""
        return layers_of(self.layers, self.num_layers, self.attention, self.encoding)

    def build(self) -> Decoder:
        """Return a decoder with new weights.

        Raises:
            ValueError: an encoding does not fit the attention of its layer.
        """
        return Decoder(self)


class DecoderState(NamedTuple):
    """State of a decoder; its size is constant with linear attention."""

    encodings: tuple[Any, ...]  # of each encoding, shared by the rows
    layers: tuple[LayerState, ...]
    events: EventState | None = None

    def rows(self, index: Tensor) -> DecoderState:
        """Return the rows of `index` (n,), int64, in that order; indices may repeat."""
        return self.map_rows(lambda x: x[index])

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> DecoderState:
        """Return the state with `change` applied to each tensor that belongs to rows."""
        encodings = tuple(
            one.map_rows(change) if hasattr(one, "map_rows") else one for one in self.encodings
        )
        layers = tuple(layer.map_rows(change) for layer in self.layers)
        events = None if self.events is None else self.events.map_rows(change)
        return DecoderState(encodings, layers, events)


class Decoder(nn.Module):
    """A decoder; see `DecoderConfig`. Holds parameters only: a sequence's data is in its state."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        head_dim = config.width // config.num_heads
        self.embedding = nn.Embedding(config.vocabulary_size, config.width)
        layers = config.layers_in_order
        self._shared = shared_encodings(layers)
        self._encoding_of = {b: index for index, one in enumerate(self._shared) for b in one.blocks}
        built: list[Encoding] = [
            one.encoding.build(
                num_layers=len(one.blocks), num_heads=config.num_heads, head_dim=head_dim
            )
            for one in self._shared
        ]
        # the names of the parameters of a model with one encoding are those of earlier versions
        self.encoding: Encoding = built[0]
        self.more_encodings = nn.ModuleList(built[1:])
        for block, layer in enumerate(layers):
            encoding = built[self._encoding_of[block]]
            check_fit(encoding, layer.attention, layer.encoding.kind)
            limit_offsets(encoding, layer.attention, self.place_in_encoding(block))
        if len({_redraws(layer) for layer in layers} - {None}) > 1:
            raise ValueError(
                "the random features of different layers are redrawn at different steps; use the "
                "same redraw_interval and redraw_probability in all layers"
            )
        blocks = [
            Block(
                SelfAttention(
                    layer.attention,
                    layer=self.place_in_encoding(block),
                    width=config.width,
                    num_heads=config.num_heads,
                    normalize=config.normalize_queries_keys,
                    convolution_taps=config.convolution_taps,
                    delayed=config.convolution_start == "delayed",
                ),
                width=config.width,
                hidden=config.hidden,
            )
            for block, layer in enumerate(layers)
        ]
        self.blocks = nn.ModuleList(blocks)
        self._state_types = [block.attention.operation.state_type for block in blocks]
        self.events = None
        if config.events is not None:
            for block, layer in enumerate(layers):
                problem = _why_without_events(layer, built[self._encoding_of[block]])
                if problem is not None:
                    raise ValueError(f"{problem}, which models with events do not support")
            self.events = Events(
                config.events, vocabulary_size=config.vocabulary_size, width=config.width
            )
        self.norm = nn.LayerNorm(config.width)
        self.project_out = nn.Linear(config.width, config.vocabulary_size, bias=False)
        self._init_weights()

    def _init_weights(self) -> None:
        """Draw weights from N(0, 0.02), or smaller for projections into the residual stream.

        Source: Radford et al. (2019). Encodings initialise their own weights.
        """
        for name, module in self.named_modules():
            outside_encodings = name.split(".")[0] not in ("encoding", "more_encodings")
            if outside_encodings and isinstance(module, nn.Linear | nn.Embedding):
                into_stream = name.endswith("project_out") and name != "project_out"
                scale = math.sqrt(2 * self.config.num_layers) if into_stream else 1.0
                nn.init.normal_(module.weight, std=0.02 / scale)
        if self.events is not None:
            nn.init.normal_(self.events.start, std=0.02)

    @property
    def encodings(self) -> list[Encoding]:
        """The distinct encodings, in the order of the first blocks that use them."""
        return [self.encoding, *self.more_encodings]  # pyright: ignore[reportReturnType]

    def axes_of(self, encoding: int) -> tuple[int, ...]:
        """Return the axes of the positions that an encoding reads, given by its number."""
        axes, module = self._shared[encoding].axes, self.encodings[encoding]
        return tuple(range(module.num_axes)) if axes is None else axes[: module.num_axes]

    @property
    def num_axes(self) -> int:
        """Number of axes of the positions that the model reads."""
        return 1 + max(max(self.axes_of(index)) for index in range(len(self.encodings)))

    def encoding_of(self, block: int) -> Encoding:
        """Return the encoding of a block, which may share it with others."""
        return self.encodings[self._encoding_of[block]]

    def blocks_of(self, encoding: int) -> list[int]:
        """Return the blocks that share an encoding, given by its number."""
        return self._shared[encoding].blocks

    def place_in_encoding(self, block: int) -> int:
        """Return the number of a block among those that share its encoding.

        It is the `layer` of the encoding's methods.
        """
        return self._shared[self._encoding_of[block]].blocks.index(block)

    def named_encoding_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield parameters of all encodings; names begin with its number if there are several."""
        for index, encoding in enumerate(self.encodings):
            prefix = f"{index}" if self.more_encodings else ""
            yield from encoding.named_parameters(prefix)

    def training_window(self) -> Windows | None:
        """Return the learned windows of all encodings, if there are any."""
        candidates = [encoding.training_window() for encoding in self.encodings]
        windows = [window for window in candidates if window is not None]
        return Windows(windows) if windows else None

    def init_state(
        self,
        batch_size: int,
        seed: int | None = None,
        num_realizations: int | None = None,
        *,
        feature_seed: int | None = None,
    ) -> DecoderState:
        """Return the state before the first token.

        `seed` is the seed of noise and random features; None: that of the config.
        `num_realizations` (r) replaces the number in the encoding's config. `feature_seed` is a
        separate seed of the random features, for training, where they are redrawn less often than
        noise; see `last_redraw`.

        Raises:
            ValueError: `num_realizations` is less than 1, or the encoding has no random codes.
        """
        check_start(
            batch_size, seed=seed, feature_seed=feature_seed, num_realizations=num_realizations
        )
        seed = self.config.noise_seed if seed is None else seed
        feature_seed = seed if feature_seed is None else feature_seed
        device = self.embedding.weight.device
        draws = [isinstance(encoding, StochasticEncoding) for encoding in self.encodings]
        if num_realizations is not None and not any(draws):
            kinds = ", ".join(dict.fromkeys(x.encoding.kind for x in self.config.layers_in_order))
            raise ValueError(
                f"num_realizations is {num_realizations}, but encoding {kinds} has no random "
                "codes; leave it out"
            )
        noise, features = [], []
        for encoding in self.encodings:
            if num_realizations is not None and isinstance(encoding, StochasticEncoding):
                noise.append(encoding.init_state(seed, device, num_realizations))
                features.append(num_realizations)
            else:
                noise.append(encoding.init_state(seed, device))
                features.append(encoding.out_features)
        generator = torch.Generator().manual_seed(feature_seed + 1)
        layers: list[LayerState] = []
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            index = self._encoding_of[number]
            start = (batch_size, generator, self.encodings[index], features[index])
            layers.append(block.attention.init_state(*start))
        events = None if self.events is None else self.events.init_state(batch_size)
        return DecoderState(tuple(noise), tuple(layers), events)

    def last_redraw(self, step: int, seed: int = 0) -> int:
        """Return the last training step, up to `step`, at which random features were redrawn.

        See `FavorConfig.last_redraw`. Without random features, `step` itself.
        """
        maps = [getattr(x.attention, "feature_map", None) for x in self.config.layers_in_order]
        favor = next((one for one in maps if isinstance(one, FavorConfig)), None)
        return step if favor is None else favor.last_redraw(step, seed)

    def forward(
        self, tokens: Tensor, positions: Tensor, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """Return logits (b, l, v) of the token after each of `tokens` (b, l), and the new state.

        `positions` are (1, l, p), or (b, l, p) for positions of each row. With events, the blocks
        use the number of the event instead of the first axis, and the others at its last token.

        Raises:
            TypeError: an argument is not a tensor, or the state is that of another model.
            ValueError: a shape, dtype or device does not fit the others.
        """
        check_tokens("tokens", tokens, self.embedding.weight)
        check_type("positions", positions, Tensor)
        positions = positions_of(tokens, positions)
        check_type("state", state, DecoderState)
        check_state([type(layer.operation) for layer in state.layers], self._state_types)
        check_rows(len(state.layers[0].recent), len(tokens))
        if not tokens.shape[1]:
            return self.embedding.weight.new_zeros(
                *tokens.shape, self.config.vocabulary_size
            ), state
        x = self.embedding(tokens)
        if self.events is None or state.events is None:
            x, state = self.through_blocks(x, positions, state)
        else:
            grouped = self.events.group(tokens, x, state.events)
            places = self.events.positions(positions, grouped, state.events)
            rows, after = self.through_blocks(grouped.inputs, places, state, grouped.padded)
            x, events = self.events(tokens, rows, grouped, state.events)
            state = after._replace(events=events)
        return self.project_out(self.norm(x)), state

    def through_blocks(
        self, x: Tensor, positions: Tensor, state: DecoderState, lengths: Tensor | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Return the outputs of the blocks for inputs x (b, n, m) at `positions` (1 or b, n, p).

        `lengths` (b,) is the number of positions of each row, if rows are padded; None: n.
        """
        if not x.shape[1]:
            return x, state
        codes, encodings = self.prepare(positions, state.encodings)
        x = self.embed(x, codes)
        layers, modules = [], self.encodings
        for number, (block, layer) in enumerate(zip(self.blocks, state.layers, strict=True)):
            index = self._encoding_of[number]
            x, layer = block(x, modules[index], codes[index], layer, lengths)
            layers.append(layer)
        return x, state._replace(encodings=encodings, layers=tuple(layers))

    def prepare(
        self, positions: Tensor, states: tuple[Any, ...]
    ) -> tuple[list[object], tuple[Any, ...]]:
        """Return codes of each encoding for `positions` (1 or b, l, p), and their states after."""
        codes, after = [], []
        for encoding, shared, state in zip(self.encodings, self._shared, states, strict=True):
            positions_read = positions if shared.axes is None else _axes_of(positions, shared.axes)
            encoding_codes, state = encoding.prepare(positions_read, state)
            codes.append(encoding_codes)
            after.append(state)
        return codes, tuple(after)

    def embed(self, x: Tensor, codes: list[Any]) -> Tensor:
        """Return the embeddings x (b, l, m) plus the vectors of absolute encodings."""
        for encoding, encoding_codes in zip(self.encodings, codes, strict=True):
            if isinstance(encoding, AbsoluteEncoding):
                x = encoding.embed(x, encoding_codes)
        return x


def _axes_of(positions: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the axes of positions (1 or b, l, p) that a layer reads."""
    if max(axes) >= positions.shape[-1]:
        raise ValueError(
            f"positions have {positions.shape[-1]} axes, but a layer reads the axes {list(axes)}; "
            f"expected at least {max(axes) + 1} axes"
        )
    return positions[..., list(axes)]


def _redraws(layer: Layer) -> tuple[object, ...] | None:
    """Return what determines when the random features of a layer are redrawn; None without any."""
    features = getattr(layer.attention, "feature_map", None)
    if not isinstance(features, FavorConfig):
        return None
    return features.redraw_interval, features.redraw_probability


def _why_without_events(layer: Layer, encoding: Encoding) -> str | None:
    """Return why rows of a layer cannot have different lengths; None if they can."""
    if layer.attention.name == "softmax":
        return "softmax attention without a window has one length for all rows"
    if isinstance(encoding, OffsetEncoding) and encoding.coordinates != "index":
        return f"encoding {layer.encoding.kind} keeps the positions of all keys"
    return None
