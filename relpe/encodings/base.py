"""The base class of positional encodings.

An encoding may add to the embeddings (absolute), change queries and keys (rotations, stochastic
codes), or score the offset between a query and a key (relative terms, windows). A subclass
overrides the hooks that it needs; the others do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from relpe.encodings.offset.windows import Window

AttentionName = Literal["softmax", "windowed", "favor", "relu", "elu"]
"""Exact attention to all keys or within a span; linear attention by its feature map."""
ALL_ATTENTIONS: tuple[AttentionName, ...] = get_args(AttentionName)


class OffsetTable(NamedTuple):
    """How one layer scores offsets, key minus query; the offsets are the rows `o` of the table.

    With q, k of heads of d features, E the features, and content C = (q + content_bias).k, position
    R = q.E + bias: the logit is (C + R) * factor / sqrt(d) + log_weight, or C * R for C + R where
    `multiplies`.

    In a sequence, row a is the offset -a, a key a places before its query; there are rows for all
    such distances in the call. `rows`, if given, are the rows of features and bias instead; factor
    and log_weight still go by the place. On a grid the rows are a box of offsets, the last axis
    running fastest.
    """

    features: Tensor | None = None  # (o, h, d)
    bias: Tensor | None = None  # (o, h)
    content_bias: Tensor | None = None  # (h, d)
    factor: Tensor | None = None  # (o, h)
    log_weight: Tensor | None = None  # (o, h); -inf: never seen
    multiplies: bool = False
    factor_on_position: bool = False  # the logit is (C + R * factor) / sqrt(d) + log_weight
    rows: Tensor | None = None  # (1 or b, l, a, n) int64: the key a places back sums n
    span: int | None = None  # keys that a query sees, itself included; None: all
    head_spans: tuple[int, ...] | None = None  # the same for each head, at most `span`

    def map(self, change: Callable[[Tensor], Tensor], *names: str) -> OffsetTable:
        """The table with `change` applied to the named tensors, where there are any."""
        present = {name: x for name in names if (x := getattr(self, name)) is not None}
        return self._replace(**{name: change(x) for name, x in present.items()})

    def to(self, dtype: torch.dtype) -> OffsetTable:
        """The table with its scores in `dtype`."""
        scores = ("features", "bias", "content_bias", "factor", "log_weight")
        return self.map(lambda x: x.to(dtype), *scores)


class Encoding(nn.Module):
    """A positional encoding, shared by the layers of a model.

    `prepare` runs once per call of the model, for all layers. Codes and states are opaque to
    callers; a sequence in pieces passes the state on.
    """

    out_features: int
    """Features per head after encoding."""
    fits: tuple[AttentionName, ...] = ALL_ATTENTIONS
    """Attentions in which the encoding is correct; others are refused."""
    placement: Literal["before", "numerator"] = "before"
    """Where queries and keys are changed: before the feature map, or after it in the numerator
    only, by `rotate_features`."""

    codes_by_position: bool = False
    """Whether an encoding can be decoded by compiled steps, which make codes position by position
    and keep them: codes depend on the position and the noise alone, `encode` is linear in queries
    and keys, and nothing else acts except `embed` (no `table`, no `rotate_features`)."""
    rows_by_position: bool = False
    """Whether `prepare` also takes positions (b, 1, p), one of each row, without waiting for a
    device: then rows at different positions are decoded in one call."""

    def init_state(self, seed: int, device: torch.device) -> Any:  # noqa: ANN401 - opaque to callers
        """State before the first position: the same seed gives the same noise on every device.

        A state some of whose tensors belong to rows of the batch has a method `map_rows`, as
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
        """Encoded queries and keys (b, l, h, out_features) of q and k (b, l, h, d)."""
        return q, k

    def rotate_features(self, x: Tensor, codes: Any, layer: int, *, keys: bool = False) -> Tensor:  # noqa: ANN401
        """Features (b, l, h, f) of queries or keys for the numerator."""
        return x

    def table(self, codes: Any, layer: int) -> OffsetTable | None:  # noqa: ANN401
        """Scores of the offsets between the queries of the call and their visible keys."""
        return None

    def training_window(self) -> Window | None:
        """The learned window among the submodules, if there is one.

        Training adds its `penalty` to the loss, its `metrics` to the log and its `span_state` to
        checkpoints.
        """
        return next((part for part in self.modules() if isinstance(part, Window)), None)


@dataclass(frozen=True, kw_only=True)
class NoEncodingConfig:
    """Queries and keys as they are: the order is known from causality alone."""

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
