"""A bidirectional Transformer that classifies sequences, grids, or pairs of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.bidirectional import BidirectionalAttention, Order
from relpe.attention.feature_maps import FavorConfig
from relpe.attention.layer import AttentionConfig, check_fit
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.checks import (
    Checked,
    at_least,
    check_device,
    check_dtype,
    check_start,
    check_tokens,
    check_type,
)
from relpe.encodings import EncodingConfig
from relpe.encodings.base import AbsoluteEncoding, Encoding, SelectiveEncoding, positions_of
from relpe.encodings.offset.base import OffsetEncoding
from relpe.encodings.offset.windows import Windows
from relpe.encodings.stochastic.sine import SineSPEConfig
from relpe.models.blocks import BidirectionalBlock
from relpe.models.classifier.inputs import InputConfig, TokenInputConfig
from relpe.models.classifier.pooling import GridVectors
from relpe.models.packing import pack_rows


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Checked):
    """A Transformer encoder with a classifier on top."""

    input: InputConfig = field(default_factory=lambda: TokenInputConfig(vocabulary_size=256))
    """What the model reads: tokens, values, or an image through convolutions."""
    num_classes: int = 10
    """Number of classes (c)."""
    width: int = 128
    """Width of the residual stream (m)."""
    num_layers: int = 4
    """Number of blocks."""
    num_heads: int = 4
    """Number of heads (h) in every layer."""
    hidden: int = 256
    """Width of the hidden layer of the feed-forward network."""
    feed_forward: Literal["swiglu", "relu"] = "swiglu"
    """Feed-forward network: gated, or with a ReLU, biases and dropout before the ReLU."""
    attention: AttentionConfig = field(default_factory=LinearAttentionConfig)
    """Kind of attention; windowed attention sees `span` - 1 places on each side."""
    attention_biases: bool = False
    """Add biases to the queries, keys, values and outputs of attention."""
    order: Order = None
    """Positions that a position attends to, with softmax or windowed attention. None: all.
    `raster`: itself and those before it, row by row. `product`: those that are not beyond it on any
    axis."""
    encoding: EncodingConfig = field(default_factory=SineSPEConfig)
    """Positional encoding, shared by all layers. If it has as many axes as the input, positions are
    those on the grid; with one axis, the grid is read as a sequence, row by row."""
    normalize_queries_keys: bool = True
    """Normalise queries and keys to a mean square of 1, times a learned temperature, before the
    encoding."""
    norm: Literal["pre", "post"] = "pre"
    """Whether blocks normalise the inputs of their branches (pre, with a norm after the last block)
    or their outputs (post)."""
    reduction: tuple[int, ...] = ()
    """Side of the regions of which the maximum is taken after each block, so that later blocks have
    fewer positions; what remains at the end of an axis is dropped. Encodings still measure
    distances in places of the input, windows and spans count those that are left. Empty: 1 after
    each block."""
    dropout: float = 0.0
    """Share of the features of embeddings, branches and the head that training sets to zero."""
    skipped: float = 0.0
    """Probability with which training skips a branch of the last block (stochastic depth); it rises
    linearly from 0 in the first one."""
    pooling: Literal["mean", "max", "last", "cls", "learned"] = "mean"
    """How positions become one vector. `mean`, `max`: the mean or maximum of each feature. `last`:
    the last position. `cls`: a position with a learned vector before the first. `learned`: a mean
    with weights that are the softmax of a learned score (sequence pooling, Hassani et al.,
    2021)."""
    head_hidden: tuple[int, ...] = ()
    """Widths of hidden layers between the pooled vector and the classes."""
    head_activation: Literal["gelu", "norm_relu"] = "gelu"
    """What follows each hidden layer of the head; `norm_relu`: a layer norm and a ReLU."""
    initialization: Literal["normal", "xavier"] = "normal"
    """Initial weights of blocks. `normal`: as those of `Decoder`. `xavier`: attention has those of
    Glorot and Bengio (2010) without biases, feed-forward layers have PyTorch's."""
    towers: Literal[1, 2] = 1
    """Number of inputs of an example, which pass through the same encoder."""
    combine: Literal["concatenate", "symmetric"] = "concatenate"
    """What the head reads of two towers x and y. `concatenate`: [x, y]. `symmetric`: [x + y,
    |x - y|], so that their order does not matter."""
    noise_seed: int = 0
    """Seed of the noise and random features in evaluation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(2, num_classes=self.num_classes)
        sizes = {"width": self.width, "num_layers": self.num_layers, "hidden": self.hidden}
        at_least(1, **sizes, num_heads=self.num_heads)
        if self.head_hidden:
            at_least(1, head_hidden=min(self.head_hidden))
        if self.reduction:
            at_least(1, reduction=min(self.reduction))
        if len(self.reduction) not in (0, self.num_layers):
            raise ValueError(
                f"reduction is {self.reduction}, expected one value for each of {self.num_layers} "
                "layers"
            )
        if self.pooling == "cls" and (max(self.reduction, default=1) > 1 or self.order):
            raise ValueError("cls has no place with reduction or order; expected another pooling")
        if max(self.reduction, default=1) > 1 and self.order:
            raise ValueError(
                f"reduction is {self.reduction} with the order {self.order}, in which regions "
                "would join earlier and later positions; expected one of them"
            )
        if self.width % self.num_heads:
            raise ValueError(
                f"width is {self.width}, expected a multiple of num_heads, {self.num_heads}"
            )
        for name in ("dropout", "skipped"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 0 to less than 1")

    @property
    def largest(self) -> int:
        """The largest size of a layer."""
        tokens = self.input.vocabulary_size if isinstance(self.input, TokenInputConfig) else 0
        return max(tokens, self.width, self.hidden, self.num_classes, *self.head_hidden)

    def build(self) -> Classifier:
        """Return a classifier with new weights.

        Raises:
            ValueError: the encoding does not fit the attention, or attention is causal.
        """
        return Classifier(self)


class ClassifierState(NamedTuple):
    """Noise and random features of a call, the same for all rows."""

    encoding: Any
    layers: tuple[Any, ...]


class Classifier(nn.Module):
    """A classifier; see `ClassifierConfig`: `logits = model(x)`.

    In training, begin each step with `init_state(seed=step)`, so that noise differs.
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        width, heads = config.width, config.num_heads
        self.embedding = config.input.build(width)
        self.encoding: Encoding = config.encoding.build(
            num_layers=config.num_layers, num_heads=heads, head_dim=width // heads
        )
        check_fit(self.encoding, config.attention, config.encoding.kind)
        if isinstance(self.encoding, OffsetEncoding) and self.encoding.coordinates != "index":
            raise ValueError(
                f"encoding.coordinates is {self.encoding.coordinates}, expected index, which means "
                "places on the grid"
            )
        if isinstance(self.encoding, SelectiveEncoding):
            raise ValueError(
                f"encoding {config.encoding.kind} depends on the inputs read so far, which a "
                "classifier without causality does not have; expected another encoding"
            )
        if config.pooling == "cls" and self.encoding.num_axes > 1:
            raise ValueError(
                f"the encoding has {self.encoding.num_axes} axes, in which cls has no place; "
                "expected another pooling"
            )
        self.blocks = nn.ModuleList(
            BidirectionalBlock(
                BidirectionalAttention(
                    config.attention,
                    layer=number,
                    width=width,
                    num_heads=heads,
                    normalize=config.normalize_queries_keys,
                    biases=config.attention_biases,
                    order=config.order,
                ),
                width=width,
                hidden=config.hidden,
                feed_forward=config.feed_forward,
                norm=config.norm,
                dropout=config.dropout,
                skipped=config.skipped * number / max(1, config.num_layers - 1),
            )
            for number in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(width) if config.norm == "pre" else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.cls_embedding = nn.Parameter(torch.zeros(width)) if config.pooling == "cls" else None
        self.pool_score = nn.Linear(width, 1) if config.pooling == "learned" else None
        sizes = [config.towers * width, *config.head_hidden]
        self.head_layers = nn.ModuleList(
            nn.Linear(before, after)
            for before, after in zip(sizes, config.head_hidden, strict=False)
        )
        normed = config.head_hidden if config.head_activation == "norm_relu" else ()
        self.head_norms = nn.ModuleList(nn.LayerNorm(size) for size in normed)
        self.project_out = nn.Linear(sizes[-1], config.num_classes)
        self._init_weights()

    def _init_weights(self) -> None:
        """Draw weights as `Decoder` does; values and convolutions keep PyTorch's initial ones."""
        xavier = self.config.initialization == "xavier"
        for name, module in self.blocks.named_modules():
            if isinstance(module, nn.Linear) and ".attention." in name and module.bias is not None:
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.Linear) and xavier:
                if ".attention." in name:
                    nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, nn.Linear):
                into_stream = name.endswith("project_out")
                scale = math.sqrt(2 * self.config.num_layers) if into_stream else 1.0
                nn.init.normal_(module.weight, std=0.02 / scale)
        if isinstance(self.embedding, nn.Embedding):
            nn.init.normal_(self.embedding.weight, std=0.02)

    def named_encoding_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of the encoding."""
        yield from self.encoding.named_parameters()

    @property
    def num_axes(self) -> int:
        """Number of axes of the positions that the model reads."""
        return self.encoding.num_axes

    def training_window(self) -> Windows | None:
        """Return the learned window of the encoding, if it has one."""
        window = self.encoding.training_window()
        return None if window is None else Windows([window])

    def last_redraw(self, step: int, seed: int = 0) -> int:
        """Return the last training step at which random features were redrawn; see `Decoder`."""
        features = getattr(self.config.attention, "feature_map", None)
        return features.last_redraw(step, seed) if isinstance(features, FavorConfig) else step

    def init_state(
        self, batch_size: int = 1, seed: int | None = None, *, feature_seed: int | None = None
    ) -> ClassifierState:
        """Return the noise and random features of a call; `batch_size` does not matter.

        `seed` is that of noise, None: that of the config. `feature_seed` is that of random
        features; None: `seed`.
        """
        check_start(batch_size, seed=seed, feature_seed=feature_seed)
        seed = self.config.noise_seed if seed is None else seed
        feature_seed = seed if feature_seed is None else feature_seed
        generator = torch.Generator().manual_seed(feature_seed + 1)
        layers: list[Any] = []
        for block in self.blocks:
            assert isinstance(block, BidirectionalBlock)
            layers.append(block.attention.init_state(generator, self.encoding.out_features))
        device = self.project_out.weight.device
        return ClassifierState(self.encoding.init_state(seed, device), (*layers,))

    def forward(
        self,
        x: Tensor,
        state: ClassifierState | None = None,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits (b, c) of classes of x (b, *grid) or, with values, (b, *grid, channels).

        With two towers, x is (b, 2, *grid) or (b, 2, *grid, channels), and so is the mask.

        - `state`: noise and random features; None: those of the config's seed.
        - `positions` (1 or b, l, p) of the l places of the grid in order; None: their places on the
          grid, or in the sequence if the encoding has one axis. That of cls is one less than the
          first. Encodings that score offsets always use places.
        - `mask` (b, l), bool: False where x is padding, at any place. Padding has no effect, and
          positions that are None do not count it. Only for sequences.

        Raises:
            ValueError: a shape does not fit the others, or the axes of the encoding.
        """
        towers = self.config.towers
        if towers > 1:
            check_type("x", x, Tensor)
            if mask is not None:
                check_type("mask", mask, Tensor)
            if x.ndim < 3 or x.shape[1] != towers:
                raise ValueError(f"x has the shape {tuple(x.shape)}, expected (b, {towers}, ...)")
            x = x.flatten(0, 1)
            mask = None if mask is None else mask.flatten(0, 1)
        pooled = self.encode(x, state, positions=positions, mask=mask)
        if towers > 1:
            first, second = pooled.unflatten(0, (-1, towers)).unbind(1)
            pair = [first, second]
            if self.config.combine == "symmetric":
                pair = [first + second, (first - second).abs()]
            pooled = torch.cat(pair, -1)
        for number, layer in enumerate(self.head_layers):
            pooled = layer(pooled)
            if self.head_norms:
                pooled = torch.relu(self.head_norms[number](pooled))
            else:
                pooled = functional.gelu(pooled)
            pooled = self.dropout(pooled)
        return self.project_out(pooled)

    def encode(
        self,
        x: Tensor,
        state: ClassifierState | None = None,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the pooled vector (b, m) of each row, before the head; see `forward`."""
        state = self.init_state() if state is None else state
        check_type("state", state, ClassifierState)
        self._check_inputs(x)
        x = self.embedding(x)
        grid = tuple(x.shape[1:-1])
        if not grid or 0 in grid:
            raise ValueError(f"inputs have the grid {grid}, expected at least one position")
        x = x.flatten(1, -2)
        positions = None if positions is None else positions_of(x, positions)
        exists = None
        if mask is not None:
            if len(grid) > 1:
                raise ValueError(f"inputs have the grid {grid}, expected a sequence with a mask")
            rows = pack_rows(x, mask, None)
            assert rows is not None
            if not rows.places.shape[1]:
                raise ValueError("the mask is False everywhere, expected at least one position")
            if self.config.reduction:
                self._check_extents((int(rows.lengths.min()),))
            x, exists = rows.gather(x), rows.exists
            if positions is not None:
                positions = rows.gather(positions.expand(len(mask), -1, -1))
            grid = (x.shape[1],)
        grid = self._read_as(grid)
        if self.cls_embedding is None:
            positions = _places(grid, x.device) if positions is None else positions
        else:
            positions = _places(grid, x.device) + 1 if positions is None else positions
            positions = torch.cat([positions[:, :1] - 1, positions], 1)
            x = torch.cat([self.cls_embedding.expand(x.shape[0], 1, -1).to(x.dtype), x], 1)
            exists = None if exists is None else functional.pad(exists, (1, 0), value=True)
            grid = (x.shape[1],)
        self._check_extents(grid)
        read = self._through_blocks(GridVectors(x, grid, positions, exists), state)
        return self._pooled(read)

    def _check_inputs(self, x: Tensor) -> None:
        """Raise TypeError or ValueError if x cannot be read."""
        weight, inputs = self.project_out.weight, self.config.input
        if isinstance(inputs, TokenInputConfig):
            assert isinstance(self.embedding, nn.Embedding)
            check_tokens("x", x, self.embedding.weight, grid=True)
            return
        check_type("x", x, Tensor)
        check_device("x", x, weight)
        check_dtype("x", x, weight)
        if x.ndim < 3 or x.shape[-1] != inputs.channels:
            raise ValueError(
                f"x has the shape {tuple(x.shape)}, expected (b, *grid, {inputs.channels})"
            )

    def _read_as(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        """Return the grid of the encoding's positions: that of the input, or a sequence."""
        axes = self.encoding.num_axes
        if axes in (1, len(grid)):
            return grid if axes > 1 else (math.prod(grid),)
        raise ValueError(
            f"encoding {self.config.encoding.kind} has {axes} axes and the input {len(grid)}, "
            "expected the same number, or an encoding with one axis"
        )

    def _check_extents(self, grid: tuple[int, ...]) -> None:
        least = math.prod(self.config.reduction)
        if min(grid) < least:
            raise ValueError(
                f"inputs have the grid {grid}, expected at least {least} places on each axis for "
                f"the reduction {self.config.reduction}"
            )

    def _through_blocks(self, read: GridVectors, state: ClassifierState) -> GridVectors:
        """Return the outputs of the blocks, normalised."""
        if isinstance(self.encoding, OffsetEncoding):
            self.encoding.before_call()
        codes = self._codes(read, state)
        x = read.x
        if isinstance(self.encoding, AbsoluteEncoding):
            tokens = isinstance(self.config.input, TokenInputConfig)
            x = self.encoding.embed(x, codes, tokens=tokens)
        read = read._replace(x=self.dropout(x))
        sides = self.config.reduction or (1,) * len(self.blocks)
        for block, layer, side in zip(self.blocks, state.layers, sides, strict=True):
            x = block(read.x, self.encoding, codes, layer, read.grid, read.exists, read.stride)
            read = read._replace(x=x)
            if side > 1:
                read = read.pool(side)
                codes = self._codes(read, state)
        return read._replace(x=self.norm(read.x))

    def _codes(self, read: GridVectors, state: ClassifierState) -> Any:  # noqa: ANN401 - of the encoding
        """Return codes of positions; None if offsets are scored, which are those of the grid."""
        if isinstance(self.encoding, OffsetEncoding):
            return None
        return self.encoding.prepare(read.positions, state.encoding)[0]

    def _pooled(self, read: GridVectors) -> Tensor:
        """Return one vector (b, m) of each row."""
        if self.cls_embedding is not None:
            return read.x[:, 0]
        if self.config.pooling == "last":
            return read.last()
        if self.config.pooling == "max":
            return read.maximum()
        return read.mean(None if self.pool_score is None else self.pool_score(read.x)[..., 0])


def _places(grid: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the places (1, l, n) on a grid of n axes in order, the last axis varying fastest."""
    axes = [torch.arange(extent, device=device) for extent in grid]
    return torch.cartesian_prod(*axes).view(1, -1, len(grid))
