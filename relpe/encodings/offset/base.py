"""The base class of encodings that score offsets: the offsets of a call, and cached tables.

Positions are either the places of tokens in their sequence, or coordinates (bar, beat, pitch, ...).
Differences of coordinates are irregular, so the table has a row for each one that occurs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn

import torch
from torch import Tensor

from relpe.checks import at_least
from relpe.encodings.base import (
    EXACT_ATTENTIONS,
    Encoding,
    OffsetTable,
    Scoring,
    check_layer,
)
from relpe.encodings.weights import Weights
from relpe.transforms import may_keep, without_autocast

Coordinates = Literal["index", "joint", "additive"]
"""`index`: the places of consecutive tokens; positions are ignored. `joint`: differences of the
positions on all axes together. `additive`: the sum of a term for each axis."""
_Span = tuple[int | None, tuple[int, ...] | None]
"""Span of a layer (None: all keys), and the spans of its heads if they differ."""


class OffsetCodes(NamedTuple):
    """Scores of the offsets of a call, for each layer."""

    tables: tuple[OffsetTable, ...]


class KeptTables(NamedTuple):
    """Tables of a call, and what they were computed from."""

    sizes: tuple[_Span, ...]  # rows of each layer's table, and the spans of its heads
    weights: Weights
    device: torch.device
    codes: OffsetCodes


class OffsetState(NamedTuple):
    """Number and positions of earlier keys."""

    length: int
    """Number of positions so far."""
    positions: Tensor | None = None
    """(1 or b, s, p): positions that the next query may attend to; None with `index`."""
    kept: KeptTables | None = None
    """Tables of the last call without gradients."""

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> OffsetState:
        """See `DecoderState.map_rows`; positions that all rows share do not change."""
        if self.positions is None or self.positions.shape[0] == 1:
            return self
        return self._replace(positions=change(self.positions))


class OffsetEncoding(Encoding[OffsetCodes, OffsetState]):
    """An encoding that scores offsets; a subclass defines `table_of`."""

    fits = EXACT_ATTENTIONS
    state_type = OffsetState

    def __init__(
        self,
        *,
        num_layers: int,
        head_dim: int,
        coordinates: Coordinates = "index",
        span: int | None = None,
    ) -> None:
        super().__init__()
        at_least(1, span=1 if span is None else span)
        self.out_features = head_dim
        self.num_layers, self.coordinates, self.span = num_layers, coordinates, span

    def init_state(self, seed: int, device: torch.device) -> OffsetState:
        """Return the state before the first position."""
        return OffsetState(0)

    def head_spans(self, layer: int) -> tuple[int, ...] | None:
        """Return the span of each head, the query itself included; None: `span` for all heads."""
        return None

    @abstractmethod
    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Return features and bias at `points`, factor and weight at `places` (o, 1), all <= 0.

        `points` are the offsets of the rows, (o, n) float64. With `additive` coordinates they are
        (o_i, 1) for each axis, and their rows are concatenated.
        """

    def before_call(self) -> None:
        """Prepare for a call of the model, once, before its tables are computed."""

    def codes_at(self, positions: Tensor, state: OffsetState) -> tuple[OffsetCodes, OffsetState]:
        """Return the tables of all layers for `positions` (1 or b, l, p) and their visible keys.

        Without gradients, tables are cached in the state, so that steps of generation reuse them.
        """
        self.before_call()
        length = state.length + positions.shape[1]
        prepare = self._from_places if self.coordinates == "index" else self._from_differences
        with without_autocast(positions.device):
            return prepare(positions, state._replace(length=length), self._spans())

    def table(self, codes: OffsetCodes, layer: int) -> OffsetTable:
        """Return scores of the offsets between the queries of the call and their visible keys."""
        check_layer(layer, self.num_layers)
        return codes.tables[layer]

    def scoring(self, codes: OffsetCodes, layer: int) -> Scoring:
        """Return the table of the layer."""
        return Scoring(table=self.table(codes, layer))

    def grid_table(self, offsets: Tensor, layer: int, step: int = 1) -> OffsetTable:
        """Return the scores of offsets (o, n), key minus query, such as those of a box on a grid.

        A place of the grid is `step` places of the input; see `Encoding.grid_table`.

        Raises:
            ValueError: positions are coordinates, whose differences are not those of a grid.
        """
        if self.coordinates != "index":
            raise ValueError(
                f"coordinates are {self.coordinates}, expected index for attention on a grid"
            )
        places = offsets.double()
        return self.table_of([places * step], places, layer)

    def reach(self, layer: int) -> tuple[int, ...] | None:
        """Return one place less than the span, on each side."""
        return None if self.span is None else (self.span - 1,)

    def forward(self, *inputs: object) -> NoReturn:
        """Refuse, since there is nothing to encode: a layer's attention uses such an encoding.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{type(self).__name__} scores offsets and does not change queries and keys; use it as "
            "the encoding of an AttentionLayerConfig"
        )

    def _spans(self) -> list[_Span]:
        """Return the spans of all layers: those of the encoding, or else of the attention."""
        spans: list[_Span] = []
        for layer in range(self.num_layers):
            sizes = self.head_spans(layer)
            widest = self.span if sizes is None else max(sizes)
            spans.append((self.attention_spans.get(layer) if widest is None else widest, sizes))
        return spans

    def _from_places(
        self, positions: Tensor, state: OffsetState, spans: list[_Span]
    ) -> tuple[OffsetCodes, OffsetState]:
        keep = may_keep(positions.device)
        # without a span, the size of a cached table doubles, so that few are computed
        room = 1 << max(6, (state.length - 1).bit_length()) if keep else state.length
        sizes = tuple((room if span is None else span, heads) for span, heads in spans)
        kept = state.kept
        if (
            keep
            and kept is not None
            and (kept.sizes, kept.device) == (sizes, positions.device)
            and kept.weights.are_those_of(self.parameters())
        ):
            return kept.codes, state
        tables = []
        for layer, (span, heads) in enumerate(spans):
            rows = room if span is None else span if keep else min(span, state.length)
            places = -torch.arange(rows, device=positions.device, dtype=torch.float64)[:, None]
            table = self.table_of([places], places, layer)
            tables.append(table._replace(span=span, head_spans=heads))
        codes = OffsetCodes(tuple(tables))
        if not keep:
            return codes, state._replace(kept=None)
        weights = Weights.of(self.parameters())
        return codes, state._replace(kept=KeptTables(sizes, weights, positions.device, codes))

    def _from_differences(
        self, positions: Tensor, state: OffsetState, spans: list[_Span]
    ) -> tuple[OffsetCodes, OffsetState]:
        bounds = [span for span, _ in spans if span is not None]
        widest = max(bounds) if len(bounds) == len(spans) else None
        reach = state.length if widest is None else min(widest, state.length)
        key_positions = positions
        if state.positions is not None:
            past = state.positions
            rows = max(past.shape[0], positions.shape[0])
            key_positions = torch.cat(
                [past.expand(rows, -1, -1), positions.expand(rows, -1, -1)], 1
            )
        differences = key_minus_query(key_positions, positions.shape[1], reach)  # (1 or b, l, a, p)
        points, rows = distinct(differences, axis_by_axis=self.coordinates == "additive")
        tables = []
        for layer, (span, heads) in enumerate(spans):
            size = reach if span is None else min(span, reach)
            places = -torch.arange(size, device=positions.device, dtype=torch.float64)[:, None]
            table = self.table_of(points, places, layer)._replace(rows=rows[:, :, :size])
            tables.append(table._replace(span=span, head_spans=heads))
        kept = key_positions.shape[1] if widest is None else min(widest - 1, key_positions.shape[1])
        recent = key_positions[:, key_positions.shape[1] - kept :]
        return OffsetCodes(tuple(tables)), state._replace(positions=recent)


def key_minus_query(key_positions: Tensor, length: int, reach: int) -> Tensor:
    """Return differences (r, length, reach, p) of queries and the keys 0, 1, ... places before.

    `key_positions` (r, s, p) end with the positions of the queries. Before their start, the first
    one is repeated.
    """
    if not length:
        return key_positions.new_zeros(key_positions.shape[0], 0, reach, key_positions.shape[2])
    missing = max(0, length + reach - 1 - key_positions.shape[1])
    key_positions = torch.cat([key_positions[:, :1].expand(-1, missing, -1), key_positions], 1)
    key_positions = key_positions[:, key_positions.shape[1] - (length + reach - 1) :]
    windows = key_positions.unfold(1, reach, 1).flip(-1).movedim(-1, 2)
    return windows - windows[:, :, :1]


def distinct(differences: Tensor, *, axis_by_axis: bool) -> tuple[list[Tensor], Tensor]:
    """Return distinct differences (o, p) float64, and the row (r, l, a, 1) of each among them.

    With `axis_by_axis`: (o_i, 1) for each axis, and rows (r, l, a, p) among all of them,
    concatenated. The number of rows depends on the values, so this synchronises with the device.
    """
    if not axis_by_axis:
        places, inverse = _distinct_rows(differences.flatten(0, 2))
        return [places.double()], inverse.view(*differences.shape[:3], 1)
    points, rows, before = [], [], 0
    for axis in differences.unbind(-1):
        values, inverse = axis.unique(return_inverse=True)
        points.append(values.double()[:, None])
        rows.append(inverse + before)
        before += len(values)
    return points, torch.stack(rows, -1)


def _distinct_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows of x (n, p), and the index of each row among them."""
    if not len(x):
        return x, torch.zeros(0, dtype=torch.int64, device=x.device)
    if x.is_floating_point():
        return x.unique(dim=0, return_inverse=True)
    # map each row to one number, since sorting numbers is much faster than sorting rows
    low = x.amin(0)
    sizes = (x.amax(0) - low + 1).tolist()
    if math.prod(sizes) >= 2**62:
        return x.unique(dim=0, return_inverse=True)
    number = torch.zeros_like(x[:, 0])
    for axis, size in enumerate(sizes):
        number = number * size + (x[:, axis] - low[axis])
    values, inverse = number.unique(return_inverse=True)
    columns = []
    for size in reversed(sizes):
        columns.append(values % size)
        values = values // size
    return torch.stack(columns[::-1], -1) + low, inverse
