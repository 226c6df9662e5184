"""The self-attention module of a layer: projections, short convolution, encoding and attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig, SoftmaxOperation
from relpe.attention.windowed.attention import WindowedAttentionConfig, WindowedOperation
from relpe.checks import check_state
from relpe.encodings.base import (
    AbsoluteEncoding,
    Encoding,
    QueryKeyEncoding,
    SelectiveEncoding,
)
from relpe.transforms import apply

AttentionConfig = (
    LinearAttentionConfig | SoftmaxAttentionConfig | WindowedAttentionConfig | DeltaAttentionConfig
)


class LayerState(NamedTuple):
    """State of a layer: that of its short convolution, its operation and its encoding."""

    recent: Tensor  # (b, taps - 1, m): recent inputs of the convolution
    operation: Any
    encoding: Tensor | None = None  # (b, ...), for encodings that depend on the inputs

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> LayerState:
        """Return the state with `change` applied to each tensor that belongs to rows."""
        encoding = None if self.encoding is None else change(self.encoding)
        return LayerState(change(self.recent), self.operation.map_rows(change), encoding)


class SelfAttention(nn.Module):
    """Causal multi-head self-attention of one layer.

    Before the encoding, queries and keys are normalised per head to a mean square of 1 and scaled
    by a learned temperature. Otherwise exponential features could overflow, since stochastic codes
    make squared norms heavy-tailed. A depthwise convolution over the last few positions gives a
    head access to the preceding tokens, which a noisy kernel resolves badly. With `delayed`, every
    other feature is initially delayed by one position, so that a query of the current token can
    match keys of the preceding one.
    """

    def __init__(
        self,
        config: AttentionConfig,
        *,
        layer: int,
        width: int,
        num_heads: int,
        normalize: bool,
        convolution_taps: int,
        delayed: bool = False,
        num_kv_heads: int | None = None,
    ) -> None:
        """Make the attention of one layer with new weights.

        `num_kv_heads` is the number of different heads of keys and values, each of which serves
        equally many heads of queries (Ainslie et al., 2023); None: `num_heads`.
        """
        super().__init__()
        self.layer, self.num_heads = layer, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.operation = config.build()
        heads = num_heads + 2 * self.num_kv_heads
        self.project_in = nn.Linear(width, heads * (width // num_heads), bias=False)
        self.project_out = nn.Linear(width, width, bias=False)
        self.gates = None
        if isinstance(config, DeltaAttentionConfig | LinearAttentionConfig):
            self.gates = config.build_gates(width, num_heads)
        # one temperature for each head of queries, also for the keys that heads share
        self.log_temperature = nn.Parameter(torch.zeros(2, num_heads, 1)) if normalize else None
        if convolution_taps > 0:
            # the last tap is the current position
            taps = torch.zeros(width, convolution_taps)
            taps[:, -1] = 1.0
            if delayed:
                taps[1::2] = taps[1::2].roll(-1, 1)
            self.convolution = nn.Parameter(taps)
        else:
            self.convolution = None

    def init_state(
        self,
        batch_size: int,
        generator: torch.Generator,
        encoding: Encoding,
        encoded_features: int | None = None,
    ) -> LayerState:
        """Return the state before the first position.

        `encoded_features` is the number of features of queries and keys after the encoding; None:
        its `out_features`.
        """
        weight = self.project_in.weight
        width, device = weight.shape[1], weight.device
        taps = 1 if self.convolution is None else self.convolution.shape[1]
        recent = torch.zeros(batch_size, taps - 1, width, device=device, dtype=weight.dtype)
        heads = self.num_kv_heads if self._keeps_groups(encoding) else self.num_heads
        shape = (batch_size, heads, width // self.num_heads)
        if encoded_features is None:
            encoded_features = encoding.out_features
        operation = self.operation.init_state(shape, generator, weight, encoded_features)
        selects = isinstance(encoding, SelectiveEncoding)
        encoding_state = encoding.init_layer_state(batch_size, device) if selects else None
        return LayerState(recent, operation, encoding_state)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        codes: object,
        state: LayerState,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, LayerState]:
        """Return the attention of x (b, l, m) to itself and to the positions in the state.

        `lengths` (b,) int64 is the number of positions of each row, if rows are padded at their
        end; None: l. Padding does not affect the state; its outputs are undefined.
        """
        if 0 in x.shape[:2]:
            return x, state
        recent, convolution, gates = state.recent, self.convolution, self.gates
        check_state(
            recent.shape[1:], (0 if convolution is None else convolution.shape[1] - 1, x.shape[2])
        )
        if convolution is not None:
            x, recent = causal_convolution(x, convolution, recent, lengths)
        more = {} if gates is None else {"gates": gates(x)}
        keeps_groups = self._keeps_groups(encoding)
        q, k, v = self._heads(self.project_in(x), keeps_groups)
        temperature = self.log_temperature
        if temperature is not None:
            q_scale, k_scale = temperature.exp()
            if keeps_groups:  # only the product of a head's temperatures matters
                q_scale, k_scale = q_scale * k_scale, torch.ones_like(k_scale[:1])
            q = functional.rms_norm(q, q.shape[-1:], eps=1e-6) * q_scale
            k = functional.rms_norm(k, k.shape[-1:], eps=1e-6) * k_scale
        encoding_state = state.encoding
        if isinstance(encoding, QueryKeyEncoding):
            q, k = encoding.encode(q, k, codes, self.layer)
        elif isinstance(encoding, SelectiveEncoding):
            if encoding_state is None:
                check_state(None, Tensor)
            assert encoding_state is not None
            q, k, encoding_state = encoding.encode(
                q, k, x, codes, self.layer, encoding_state, lengths
            )
        scoring = encoding.scoring(codes, self.layer)
        out, operation = self.operation(q, k, v, state.operation, scoring, lengths, **more)
        return self.project_out(out.flatten(2)), LayerState(recent, operation, encoding_state)

    def _keeps_groups(self, encoding: Encoding) -> bool:
        """Return whether the state has keys and values that heads share only once."""
        exact = isinstance(self.operation, SoftmaxOperation | WindowedOperation)
        alike = encoding.heads_alike or isinstance(encoding, AbsoluteEncoding)
        return exact and alike and self.num_kv_heads < self.num_heads

    def _heads(self, x: Tensor, keeps_groups: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values (b, l, h, d) of projected inputs x."""
        if self.num_kv_heads == self.num_heads:
            q, k, v = x.unflatten(-1, (3, self.num_heads, -1)).unbind(2)
            return q, k, v
        heads = x.unflatten(-1, (self.num_heads + 2 * self.num_kv_heads, -1))
        q, k, v = heads.split([self.num_heads, self.num_kv_heads, self.num_kv_heads], 2)
        copies = 1 if keeps_groups else self.num_heads // self.num_kv_heads
        return q, k.repeat_interleave(copies, 2), v.repeat_interleave(copies, 2)


def check_fit(encoding: Encoding, attention: AttentionConfig, kind: str) -> None:
    """Check that an encoding is correct with a kind of attention; `kind` is that of the encoding.

    Raises:
        ValueError: it is not, or the attention is another config.
    """
    if not isinstance(attention, AttentionConfig):
        raise ValueError(
            f"attention is of type {type(attention).__name__}, expected a config such as "
            "LinearAttentionConfig()"
        )
    if attention.name not in encoding.fits:
        reason = encoding.reasons.get(attention.name)
        raise ValueError(
            f"encoding {kind} does not fit {attention.name} attention"
            f"{'' if reason is None else f' ({reason})'}, expected {' or '.join(encoding.fits)}"
        )


def limit_offsets(encoding: Encoding, attention: AttentionConfig, layer: int) -> None:
    """Tell an encoding how many keys the windowed attention of a layer sees."""
    if isinstance(attention, WindowedAttentionConfig):
        encoding.attention_spans[layer] = attention.span


def causal_convolution(
    x: Tensor, taps: Tensor, recent: Tensor, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Convolve x (b, l, c) by channel with taps (c, n); the last tap is the current position.

    `recent` (b, n - 1, c) are the inputs before x, and `lengths` (b,) the number of inputs of each
    row (None: l). Returns (b, l, c), and the recent inputs for the next call.
    """
    history = torch.cat([recent.to(x.dtype), x], 1)
    if x.shape[1] == 1 and not torch.is_grad_enabled():
        out = (history * taps.mT.to(x.dtype)).sum(1, keepdim=True)
    else:
        out = apply(_CausalConvolution, history, taps)
    if lengths is None:
        return out, history[:, x.shape[1] :]
    places = lengths[:, None] + torch.arange(recent.shape[1], device=x.device)
    return out, history[torch.arange(len(x), device=x.device)[:, None], places]


class _CausalConvolution(torch.autograd.Function):
    """Sum of shifted copies in place, with much less memory traffic than autograd would have."""

    @staticmethod
    def forward(ctx: Any, history: Tensor, taps: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(history, taps)
        length = history.shape[1] - taps.shape[1] + 1
        out = history[:, :length] * taps[:, 0].to(history.dtype)
        for tap in range(1, taps.shape[1]):
            out.addcmul_(history[:, tap : tap + length], taps[:, tap].to(history.dtype))
        return out

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor, Tensor]:
        history, taps = ctx.saved_tensors
        grad_history, grad_taps = torch.zeros_like(history), torch.empty_like(taps)
        length = grad.shape[1]
        for tap in range(taps.shape[1]):
            span = slice(tap, tap + length)
            grad_history[:, span].addcmul_(grad, taps[:, tap].to(grad.dtype))
            grad_taps[:, tap] = (grad * history[:, span]).sum((0, 1), dtype=taps.dtype)
        return grad_history, grad_taps
