"""The base class of positional encodings.

An encoding may add vectors to the embeddings (absolute), change queries and keys (rotations,
stochastic codes), or score the offset between a query and a key (relative terms, windows). A
subclass overrides the methods that it needs; the others do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from relpe.encodings.offset.windows import Window

AttentionName = Literal["softmax", "windowed", "favor", "relu", "elu"]
"""Kinds of attention: exact, to all keys (softmax) or within a span (windowed), and linear, by the
name of its feature map."""
ALL_ATTENTIONS: tuple[AttentionName, ...] = get_args(AttentionName)


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
        """The table with `change` applied to the named tensors that are not None."""
        present = {name: x for name in names if (x := getattr(self, name)) is not None}
        return self._replace(**{name: change(x) for name, x in present.items()})

    def to(self, dtype: torch.dtype) -> OffsetTable:
        """The table with its scores in `dtype`."""
        scores = ("features", "bias", "content_bias", "factor", "log_weight")
        return self.map(lambda x: x.to(dtype), *scores)


class Encoding(nn.Module):
    """A positional encoding, shared by the layers of a model.

    `prepare` runs once per call of the model, for all layers. Codes and states are opaque to
    callers. If a sequence is processed in several calls, each call takes the state of the previous
    one.
    """

    out_features: int
    """Number of features per head after encoding."""
    fits: tuple[AttentionName, ...] = ALL_ATTENTIONS
    """Kinds of attention for which the encoding is correct; models reject others."""
    placement: Literal["before", "numerator"] = "before"
    """Where queries and keys are changed: before the feature map, or after it in the numerator
    only, by `rotate_features`."""

    num_axes: int = 1
    """Number of axes of the positions that it reads: the first ones."""
    codes_by_position: bool = False
    """Whether compiled steps support the encoding; they compute and cache the codes of each
    position. Codes must depend only on the position and the noise, `encode` must be linear in
    queries and keys, and `table` and `rotate_features` must not be used."""
    rows_by_position: bool = False
    """Whether `prepare` also accepts positions (b, 1, p), one for each row, without synchronising
    with the device, so that rows at different positions can be decoded in one call."""

    def init_state(self, seed: int, device: torch.device) -> Any:  # noqa: ANN401 - opaque to callers
        """State before the first position; the same seed gives the same noise on every device.

        If tensors of the state belong to rows of the batch, it has a method like
        `DecoderState.map_rows`.
        """
        return ()

    def prepare(self, positions: Tensor, state: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Codes for `positions` (1 or b, l, p), int64 or float64, and the state after them."""
        return (), state

    def embed(self, x: Tensor, codes: Any) -> Tensor:  # noqa: ANN401
        """Embeddings x (b, l, m) plus the vectors of absolute encodings."""
        return x

    def encode(self, q: Tensor, k: Tensor, codes: Any, layer: int) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Encoded queries and keys (b, l, h, out_features) from q and k (b, l, h, d)."""
        return q, k

    def rotate_features(self, x: Tensor, codes: Any, layer: int, *, keys: bool = False) -> Tensor:  # noqa: ANN401
        """Rotated features (b, l, h, f) of queries or keys, for the numerator."""
        return x

    def table(self, codes: Any, layer: int) -> OffsetTable | None:  # noqa: ANN401
        """Scores of the offsets between the queries of the call and their visible keys."""
        return None

    def training_window(self) -> Window | None:
        """The learned window of the encoding, if it has one.

        In training, its `penalty` is added to the loss, its `metrics` to the log and its
        `span_state` to checkpoints.
        """
        return next((part for part in self.modules() if isinstance(part, Window)), None)


@dataclass(frozen=True, kw_only=True)
class NoEncodingConfig:
    """No positional encoding; a model can infer order only from causality."""

    kind: Literal["none"] = "none"

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> NoEncoding:
        """Module for heads of this size."""
        return NoEncoding(head_dim)


class NoEncoding(Encoding):
    """See `NoEncodingConfig`."""

    codes_by_position = True
    rows_by_position = True

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim
