"""The interfaces of positional encodings.

There are four kinds. `AbsoluteEncoding` adds vectors to the embeddings. `QueryKeyEncoding` changes
queries and keys (rotations, stochastic codes), and `SelectiveEncoding` does so depending on the
inputs of the layer. `offset.base.OffsetEncoding` scores the offset between a query and a key
(relative terms, windows). A subclass implements the abstract methods of its kind; what else it can
do (compiled steps, tiles) it states in attributes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from relpe.checks import Checked, check_device, check_state, check_type
from relpe.encodings.offset.windows import Window
from relpe.transforms import can_read

AttentionName = Literal["softmax", "windowed", "favor", "relu", "elu", "delta"]
"""Kinds of attention: exact, to all keys (softmax) or within a span (windowed); linear, by the name
of its feature map; the gated delta rule (delta)."""
ALL_ATTENTIONS: tuple[AttentionName, ...] = get_args(AttentionName)
EXACT_ATTENTIONS: tuple[AttentionName, ...] = ("softmax", "windowed")

CodesT = TypeVar("CodesT")
"""What an encoding computes once per call for all layers."""
StateT = TypeVar("StateT")
"""What an encoding keeps from one call to the next."""
NoState = tuple[()]
"""State of an encoding that keeps nothing."""


class OffsetTable(NamedTuple):
    """Scores of one layer for offsets (key minus query), which are the rows `o` of the table.

    For a query q and a key k with d features, E being `features`, the content term is
    C = (q + content_bias).k and the positional term R = q.E + bias. The logit is
    (C + R) * factor / sqrt(d) + log_weight; with `multiplies`, C * R replaces C + R.

    In a sequence, row a belongs to the offset -a, that is, to a key that is a places before its
    query, and there is a row for each such distance in the call. If `rows` is given, it selects the
    rows of features and bias instead; factor and log_weight still depend on the place. On a grid,
    the rows are the offsets of a box, the last axis varying fastest.
    """

    features: Tensor | None = None  # (o, h, d)
    bias: Tensor | None = None  # (o, h)
    content_bias: Tensor | None = None  # (h, d)
    factor: Tensor | None = None  # (o, h)
    log_weight: Tensor | None = None  # (o, h); -inf: never attended to
    multiplies: bool = False
    factor_on_position: bool = False  # the logit is (C + R * factor) / sqrt(d) + log_weight
    rows: Tensor | None = (
        None  # (1 or b, l, a, n) int64: for the key a places back, n rows that are summed
    )
    span: int | None = None  # keys that a query attends to, itself included; None: all
    head_spans: tuple[int, ...] | None = None  # the same for each head, at most `span`

    def map(self, change: Callable[[Tensor], Tensor], *names: str) -> OffsetTable:
        """Return the table with `change` applied to the named tensors that are not None."""
        present = {name: x for name in names if (x := getattr(self, name)) is not None}
        return self._replace(**{name: change(x) for name, x in present.items()})

    def to(self, dtype: torch.dtype) -> OffsetTable:
        """Return the table with its scores in `dtype`."""
        scores = ("features", "bias", "content_bias", "factor", "log_weight")
        return self.map(lambda x: x.to(dtype), *scores)


class Rotation(Protocol):
    """Rotates features (b, l, h, f) of queries or keys, each by the map of its position."""

    def __call__(self, x: Tensor, *, keys: bool = False) -> Tensor:
        """Return the rotated features; `keys`: whether they are features of keys."""
        ...


class Scoring(NamedTuple):
    """What an encoding adds to the scores of one layer, besides changing queries and keys."""

    table: OffsetTable | None = None
    """Scores of offsets, for softmax and windowed attention."""
    rotation: Rotation | None = None
    """Rotation of features after the feature map, in the numerator only, for linear attention."""


NO_SCORING = Scoring()


class Encoding(nn.Module, ABC, Generic[CodesT, StateT]):
    """A positional encoding, shared by the layers of a model.

    `prepare` runs once per call of the model, for all layers. Codes and states are opaque to
    callers. If a sequence is processed in several calls, each call takes the state of the previous
    one.
    """

    out_features: int
    """Number of features per head after encoding."""
    fits: tuple[AttentionName, ...] = ALL_ATTENTIONS
    """Kinds of attention for which the encoding is correct; models reject others."""
    reasons: Mapping[AttentionName, str] = MappingProxyType({})
    """Why the encoding does not fit some kinds of attention, for the message."""
    num_axes: int = 1
    """Number of axes of the positions that it reads: the first ones."""
    relative: Literal["exactly", "in the mean"] | None = "exactly"
    """Whether scores depend on differences of positions alone, for each noise or in its mean, with
    all attentions that it `fits` (with FAVOR+ in the mean over its features); None: they do not."""
    state_type: type | None = None
    """Class of its states, to refuse those of other encodings; None: any."""
    heads_alike: bool = False
    """Whether keys are encoded alike in all heads, so that keys which heads share are kept once."""

    codes_by_position: bool = False
    """Whether compiled steps support the encoding; they compute and cache the codes of each
    position. Codes must depend only on the position and the noise, `encode` must be linear in
    queries and keys, and there must be no `scoring`. If this is false, torch decodes."""
    rows_by_position: bool = False
    """Whether `prepare` also accepts positions (b, 1, p), one for each row, without synchronising
    with the device, so that tiles of rows at different positions can be decoded in one call."""

    _METHODS: ClassVar = {
        *("codes_at", "codes_of_row", "embed", "encode", "project"),
        *("scoring", "table_of", "rotate_features"),
    }
    _RESTATED: ClassVar[tuple[str, ...]] = ("codes_by_position", "rows_by_position", "heads_alike")

    def __init__(self) -> None:
        super().__init__()
        self.attention_spans: dict[int, int] = {}
        """Number of keys that the attention of a layer sees, by layer, where it is limited. A model
        sets it, so that scores of farther keys are not computed."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Require a subclass that overrides a method to restate what depends on it.

        Raises:
            TypeError: it inherits a statement or a shortcut of a base class.
        """
        super().__init_subclass__(**kwargs)
        overridden = sorted(cls._METHODS & cls.__dict__.keys())
        inherited = [name for name in cls._RESTATED if cls._inherits(name)]
        if overridden and inherited:
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(overridden)}, but inherits "
                f"{', '.join(inherited)}; define each again, with the value that still holds"
            )

    @classmethod
    def _inherits(cls, name: str) -> bool:
        """Return whether the class inherits an attribute with another value than the default."""
        values = [base.__dict__[name] for base in cls.__mro__ if name in base.__dict__]
        return name not in cls.__dict__ and bool(values) and values[0] is not values[-1]

    def init_state(self, seed: int, device: torch.device) -> StateT:
        """Return the state before the first position; a seed gives the same noise on every device.

        If tensors of the state belong to rows of the batch, it has a method like
        `DecoderState.map_rows`. By default, there is no state (`NoState`).
        """
        return cast("StateT", ())

    @abstractmethod
    def codes_at(self, positions: Tensor, state: StateT) -> tuple[CodesT, StateT]:
        """Return codes for `positions` (1 or b, l, p), checked by `prepare`, and the new state."""

    def prepare(self, positions: Tensor, state: StateT) -> tuple[CodesT, StateT]:
        """Return codes for `positions` (1 or b, l, p), int64 or float64, and the state after them.

        Raises:
            ValueError: the positions have another shape or dtype.
        """
        if self.state_type is not None:
            check_state(type(state), self.state_type)
        return self.codes_at(checked_positions(positions, self.num_axes), state)

    def scoring(self, codes: CodesT, layer: int) -> Scoring:
        """Return what the encoding adds to the scores of a layer; by default nothing."""
        return NO_SCORING

    def grid_table(self, offsets: Tensor, layer: int, step: int = 1) -> OffsetTable | None:
        """Return scores of offsets (o, n), key minus query, on a grid of n axes; None without any.

        Attention without causality uses them instead of `scoring`. A place of this grid is `step`
        places of the input, in which distances are measured; windows and spans count its places.
        """
        return None

    def reach(self, layer: int) -> tuple[int, ...] | None:
        """Return places on each side of a query that it may attend to, for each axis; None: all."""
        return None

    def training_window(self) -> Window | None:
        """Return the learned window of the encoding, if it has one.

        In training, its `penalty` is added to the loss, its `metrics` to the log and its
        `span_state` to checkpoints.
        """
        return next((part for part in self.modules() if isinstance(part, Window)), None)


class AbsoluteEncoding(Encoding[Tensor, StateT]):
    """An encoding that adds a vector for each position to the embeddings: codes (1 or b, l, m)."""

    relative = None

    token_scale: float = 1.0
    """Factor of the embeddings of tokens, which are small at first."""

    def embed(self, x: Tensor, codes: Tensor, *, tokens: bool = True) -> Tensor:
        """Return the embeddings x (b, l, m) plus the vectors of their positions.

        `tokens`: whether they are those of tokens, which are multiplied by `token_scale`.
        """
        return (x * self.token_scale if tokens else x) + codes.to(x)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Encode the embeddings x (b, l, m) of a whole sequence; they keep their dtype.

        `positions` are (1 or b, l, p); None: 0, 1, 2, ...
        """
        check_type("x", x, Tensor)
        if x.ndim != 3:
            raise ValueError(f"x has the shape {tuple(x.shape)}, expected embeddings (b, l, m)")
        positions = positions_of(x, positions)
        codes, _ = self.prepare(positions, self.init_state(0, x.device))
        return self.embed(x, codes).to(x.dtype)


class QueryKeyEncoding(Encoding[CodesT, StateT]):
    """An encoding that changes queries and keys, and hence works with any attention it `fits`."""

    heads: tuple[int, int] | None = None
    """Heads and features of each head (h, d) that `forward` expects; None: any."""

    _RESTATED: ClassVar = (*Encoding._RESTATED, "partners", "matrices", "factors")

    @property
    def partners(self) -> tuple[int, ...] | None:
        """If vectors are only turned in pairs of features: the other feature of each pair (d).

        Compiled steps are faster then. None: an encoded feature may depend on all.
        """
        return None

    @abstractmethod
    def encode(self, q: Tensor, k: Tensor, codes: CodesT, layer: int) -> tuple[Tensor, Tensor]:
        """Encode q and k (b, l, h, d) as queries and keys (b, l, h, out_features).

        With half precision, results may be float32; `forward` returns the dtype of its inputs.
        """

    def encode_queries(self, q: Tensor, codes: CodesT, layer: int = 0) -> Tensor:
        """Encode queries alone, for models that keep encoded keys in caches of their own."""
        return self.encode(q, q, codes, layer)[0]

    def encode_keys(self, k: Tensor, codes: CodesT, layer: int = 0) -> Tensor:
        """Encode keys alone; see `encode_queries`.

        With `heads_alike`, they may have fewer heads than queries, those that heads share.
        """
        return self.encode(k, k, codes, layer)[1]

    def matrices(self, codes: CodesT) -> Tensor | None:
        """Return codes that queries and keys are multiplied by, before gates: (n, 2, l, h, d, r).

        n is the number of layers if their codes differ, else 1. None: codes are something else, and
        compiled steps find the matrices by encoding unit vectors.
        """
        return None

    def factors(self, positions: Tensor, state: StateT) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return factors of the codes of a block of c positions (1, c, p), if they are products.

        They are waves (1, c, n h, d, k), and the noise of queries and of keys (1, n h, d, k, r),
        for n as in `matrices`. Compiled steps multiply them.
        """
        return None

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        layer: int = 0,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Encode queries and keys (b, l, h, d) of a whole sequence; they keep their dtype.

        `positions` are (1 or b, l, p); None: 0, 1, 2, ... `seed` is that of random codes. To encode
        a sequence in parts, or for several layers at once, use `prepare` and `encode`.

        Raises:
            TypeError: one of them is not a tensor.
            ValueError: queries, keys or positions have another shape, dtype or device.
        """
        check_queries_keys(q, k, self.heads)
        positions = positions_of(q, positions)
        codes, _ = self.prepare(positions, self.init_state(seed, q.device))
        queries, keys = self.encode(q, k, codes, layer)
        return queries.to(q.dtype), keys.to(k.dtype)


class SelectiveEncoding(Encoding[CodesT, StateT]):
    """An encoding that changes queries and keys depending on the inputs of the layer.

    What has been read matters, so the encoding has a state for each layer, a tensor whose first
    axis is that of the rows. Torch decodes it, since compiled steps look codes up by position.
    """

    heads: tuple[int, int] | None = None
    """As in `QueryKeyEncoding`."""

    @abstractmethod
    def init_layer_state(self, batch_size: int, device: torch.device) -> Tensor:
        """Return the state (b, ...) of a layer before the first position."""

    @abstractmethod
    def encode(
        self,
        q: Tensor,
        k: Tensor,
        x: Tensor,
        codes: CodesT,
        layer: int,
        state: Tensor,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Encode q and k (b, l, h, d) as (b, l, h, out_features); return the new state too.

        x (b, l, m) are the inputs of the layer. `lengths` (b,) int64 is the number of positions of
        each row, if rows are padded at their end; None: l. Padding does not affect the state.
        """

    def forward(
        self, q: Tensor, k: Tensor, x: Tensor, positions: Tensor | None = None, *, layer: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Encode queries and keys (b, l, h, d) of a whole sequence; they keep their dtype.

        x are the inputs of the layer, (b, l, m). `positions` are (1 or b, l, p); None: 0, 1, 2, ...

        Raises:
            TypeError: one of them is not a tensor.
            ValueError: queries, keys, inputs or positions have another shape, dtype or device.
        """
        check_queries_keys(q, k, self.heads)
        check_type("x", x, Tensor)
        if x.ndim != 3 or x.shape[:2] != q.shape[:2]:
            raise ValueError(
                f"queries have the shape {tuple(q.shape)} and the inputs x {tuple(x.shape)}, "
                "expected (b, l, h, d) and (b, l, m)"
            )
        codes, _ = self.prepare(positions_of(q, positions), self.init_state(0, q.device))
        start = self.init_layer_state(len(x), x.device)
        queries, keys, _ = self.encode(q, k, x, codes, layer, start)
        return queries.to(q.dtype), keys.to(k.dtype)


def check_queries_keys(q: Tensor, k: Tensor, heads: tuple[int, int] | None) -> None:
    """Check that queries and keys are (b, l, h, d), with (h, d) those of `heads` if given.

    Raises:
        TypeError: one is not a tensor.
        ValueError: they have another shape, or no floating dtype.
    """
    check_type("q", q, Tensor)
    check_type("k", k, Tensor)
    if q.ndim != 4 or q.shape != k.shape or (heads is not None and q.shape[2:] != heads):
        sizes = "h, d" if heads is None else f"{heads[0]}, {heads[1]}"
        raise ValueError(
            f"queries have the shape {tuple(q.shape)} and keys {tuple(k.shape)}, expected "
            f"(b, l, {sizes}) for both"
        )
    if not (q.is_floating_point() and k.is_floating_point()):
        raise ValueError(f"queries are {q.dtype} and keys {k.dtype}, expected a floating dtype")


def positions_of(x: Tensor, positions: Tensor | None) -> Tensor:
    """Return the positions of x (b, l, ...), (1 or b, l, p); 0, 1, 2, ... if they are None.

    Raises:
        TypeError: they are not a tensor.
        ValueError: their number of rows or of positions, or their device, is not that of x.
    """
    if positions is None:
        return torch.arange(x.shape[1], device=x.device)[None, :, None]
    check_type("positions", positions, Tensor)
    check_device("positions", positions, x)
    rows, length = x.shape[:2]
    shape = tuple(positions.shape)
    if len(shape) == 3 and shape[0] in (1, rows) and shape[1] == length and shape[2]:
        return positions
    raise ValueError(
        f"positions have the shape {shape}, expected (1, {length}, p) or ({rows}, {length}, p), "
        "with p axes"
    )


def position_after(positions: Tensor, lengths: Tensor | None, before: Tensor) -> Tensor:
    """Return the place (1 or b,) after the last of `positions` (1 or b, l, p), on axis 1.

    `lengths` (b,) is the number of positions of each row; rows without any keep that `before`.
    """
    if lengths is None:
        return positions[:, -1, 0] + 1
    last = positions[..., 0].gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
    return torch.where(lengths > 0, last + 1, before)


def checked_positions(positions: Tensor, num_axes: int) -> Tensor:
    """Return positions (1 or b, l, p) with at least `num_axes` axes; without rows, a row of zeros.

    Raises:
        ValueError: they have another shape or dtype.
    """
    if positions.ndim != 3 or positions.shape[2] < num_axes:
        raise ValueError(
            f"positions have the shape {tuple(positions.shape)}, expected (1 or b, l, p) with p at "
            f"least {num_axes}; for one axis, use positions[..., None]"
        )
    if positions.dtype in (torch.float16, torch.bfloat16, torch.bool) or positions.is_complex():
        raise ValueError(
            f"positions are {positions.dtype}, in which neighbours are equal or which are no "
            "numbers; expected int64 or float64"
        )
    most = 2**24 if positions.dtype == torch.float32 else 2**53
    if positions.numel() and can_read(positions):
        least, greatest = (x.item() for x in positions.aminmax())
        if -most <= least and greatest <= most:
            return positions
        raise ValueError(
            f"positions have values of {positions.dtype} beyond {most}, where neighbours are equal "
            "or no numbers; expected smaller ones, in int64 or float64"
        )
    return positions if positions.shape[0] else positions.new_zeros(1, *positions.shape[1:])


def check_codes(
    codes: object, kind: type | UnionType, count: Callable[[Any], int], x: Tensor
) -> None:
    """Check that codes are of a kind, and those of as many positions as x (b, l, h, d) has.

    `count` returns the number of positions of such codes.

    Raises:
        TypeError: they are those of another encoding.
        ValueError: they are those of other positions.
    """
    if not isinstance(codes, kind):
        raise TypeError(
            f"codes are of type {type(codes).__name__}, expected those that `prepare` of this "
            "encoding returns"
        )
    if (length := count(codes)) != x.shape[1]:
        raise ValueError(
            f"codes are those of {length} positions and queries or keys have the shape "
            f"{tuple(x.shape)}, expected (b, {length}, h, d)"
        )


def check_layer(layer: int, num_layers: int) -> None:
    """Check the number of a layer.

    Raises:
        ValueError: there is no such layer.
    """
    if not 0 <= layer < num_layers:
        raise ValueError(f"layer is {layer}, expected 0 to {num_layers - 1}")


@dataclass(frozen=True, kw_only=True)
class NoEncodingConfig(Checked):
    """No positional encoding; a model can infer order only from causality."""

    kind: Literal["none"] = "none"

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> NoEncoding:
        """Return the module for heads of this size."""
        return NoEncoding(head_dim)


class NoEncoding(Encoding[NoState, NoState]):
    """See `NoEncodingConfig`."""

    codes_by_position = True
    rows_by_position = True
    heads_alike = True

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim

    def codes_at(self, positions: Tensor, state: NoState) -> tuple[NoState, NoState]:
        """Return nothing."""
        return (), state

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys as they are."""
        return q, k
