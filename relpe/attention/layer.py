"""Attention modules: projections, encoding and operation of a layer, state in and state out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.attention.feature_maps import FeatureMapConfig, ReluConfig
from relpe.attention.linear import fla as fla_backend
from relpe.attention.linear.attention import LinearState, causal_linear_attention
from relpe.attention.linear.numerator import numerator_only_attention
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from relpe.attention.feature_maps import FeatureMap
    from relpe.encodings.base import AttentionName, Encoding


class LinearAttentionState(NamedTuple):
    """What one layer of linear attention remembers."""

    sums: LinearState
    projection: Tensor | None  # (d, n): the random features that the sums were made with


@dataclass(frozen=True, kw_only=True)
class LinearAttentionConfig:
    """Attention of linear cost by a feature map (Katharopoulos et al., 2020)."""

    kind: Literal["linear"] = "linear"
    feature_map: FeatureMapConfig = field(default_factory=ReluConfig)
    """Turns queries and keys into non-negative features."""
    half_lives: tuple[float, float] | None = None
    """Of the first and of the last head, in positions, geometric between them: a key weighs half as
    much after that many positions (Sun et al., 2023, section 2.1). None: keys never fade."""

    @property
    def name(self) -> AttentionName:
        """That of the feature map."""
        return self.feature_map.kind

    def build(self) -> LinearOperation:
        """The operation on encoded queries and keys.

        Raises:
            ValueError: a half-life that is not a positive number.
        """
        if self.half_lives is not None and not all(0 < x < math.inf for x in self.half_lives):
            raise ValueError(f"half_lives {self.half_lives}: expected two positive numbers")
        return LinearOperation(self.feature_map.build(), self.half_lives)


AttentionConfig = LinearAttentionConfig | SoftmaxAttentionConfig | WindowedAttentionConfig


class LinearOperation:
    """Causal linear attention with its feature map."""

    def __init__(self, feature_map: FeatureMap, half_lives: tuple[float, float] | None) -> None:
        self.feature_map = feature_map
        self.half_lives = half_lives

    def init_state(
        self,
        shape: tuple[int, int, int],
        generator: torch.Generator,
        weight: Tensor,
        in_features: int,
    ) -> LinearAttentionState:
        """Empty sums for shape (b, h, e), and random features drawn from `generator`.

        For encoded queries and keys of `in_features`. On the device of `weight`, in its dtype or
        float32, whichever is wider.
        """
        b, h, e = shape
        device, dtype = weight.device, torch.promote_types(torch.float32, weight.dtype)
        projection = self.feature_map.draw(in_features, generator)
        features = self.feature_map.num_features(in_features)
        return LinearAttentionState(
            LinearState.empty((b, h, features, e), device=device, dtype=dtype),
            None if projection is None else projection.to(device),
        )

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: LinearAttentionState,
        turn: Callable[..., Tensor] | None = None,
    ) -> tuple[Tensor, LinearAttentionState]:
        """Values (b, l, h, e) for encoded q and k (b, l, h, d).

        `turn`, where given, is `Encoding.rotate_features` of this call: of the numerator alone.
        """
        if not q.shape[1]:
            return v, state
        with torch.autocast(q.device.type, enabled=False):
            projection = (
                None if state.projection is None else state.projection.to(state.sums.kv.dtype)
            )
            q, k = q.to(state.sums.kv.dtype), k.to(state.sums.kv.dtype)
            queries, keys = self.feature_map(q, projection), self.feature_map(k, projection)
            log_scale, faded = keys.log_scale, None
            if self.half_lives is not None:
                ramp, faded = self._fading(k.shape[1], k.shape[2], k.device)
                log_scale = ramp[None] if log_scale is None else log_scale + ramp
            features = queries.values, keys.values
            if turn is None:
                by_kernel = fla_backend.serves(v) and q.shape[1] > 1
                attend = (
                    fla_backend.causal_linear_attention if by_kernel else causal_linear_attention
                )
                out, sums = attend(*features, v, state.sums, log_scale)
            else:
                turned = turn(features[0]), turn(features[1], keys=True)
                out, sums = numerator_only_attention(*features, *turned, v, state.sums, log_scale)
            if faded is not None:
                log_scale = (sums.log_scale - faded).to(sums.kv.dtype)
                sums = sums._replace(log_scale=log_scale)
        return out, state._replace(sums=sums)

    def _fading(self, length: int, heads: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Logarithms (length, h) by which later keys outweigh those before the call, and the last.

        Keys that grow exponentially are keys that fade, since only ratios count. Places are counted
        from the call's start and in float64, so that they are as exact after 10^6 positions as
        after 10.
        """
        assert self.half_lives is not None
        rates = _rates_on(*self.half_lives, heads, device)
        ramp = torch.arange(1, length + 1, device=device)[:, None] * rates
        return ramp, ramp[-1]


@lru_cache(maxsize=64)
def fading_rates(first: float, last: float, heads: int) -> NDArray[np.float64]:
    """(h,), what each head's keys lose of their logarithm with each position."""
    return math.log(2) / np.geomspace(first, last, heads)


@lru_cache(maxsize=64)
def _rates_on(first: float, last: float, heads: int, device: torch.device) -> Tensor:
    """The same on a device, which a CUDA graph cannot copy to."""
    with torch.inference_mode(False):
        return torch.from_numpy(fading_rates(first, last, heads)).to(device)


class ConvolvedState(NamedTuple):
    """Inputs that the short convolution still needs, and the operation's own state."""

    recent: Tensor  # (b, taps - 1, m)
    operation: Any


class SelfAttention(nn.Module):
    """Causal multi-head self-attention of one layer.

    Queries and keys are brought to unit mean square per head and scaled by a learned temperature,
    before the encoding: stochastic codes make the squared norms heavy-tailed, and exponential
    features of large norms overflow. A depthwise convolution over the last few positions lets a
    head find what stands just before, which averages over a noisy kernel do badly. `delayed`: every
    other feature begins a position late, so that keys of what stood before meet queries of now.
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
    ) -> None:
        super().__init__()
        self.layer, self.num_heads = layer, num_heads
        self.operation = config.build()
        self.project_in = nn.Linear(width, 3 * width, bias=False)
        self.project_out = nn.Linear(width, width, bias=False)
        self.log_temperature = nn.Parameter(torch.zeros(2, num_heads, 1)) if normalize else None
        if convolution_taps > 0:
            # the last tap is the present
            taps = torch.zeros(width, convolution_taps)
            taps[:, -1] = 1.0
            if delayed:
                taps[1::2] = taps[1::2].roll(-1, 1)
            self.convolution = nn.Parameter(taps)
        else:
            self.convolution = None

    def init_state(
        self, batch_size: int, generator: torch.Generator, encoded_features: int
    ) -> ConvolvedState:
        """State before the first position, for encoded queries and keys of so many features."""
        weight = self.project_in.weight
        width, device = weight.shape[1], weight.device
        taps = 1 if self.convolution is None else self.convolution.shape[1]
        recent = torch.zeros(batch_size, taps - 1, width, device=device, dtype=weight.dtype)
        shape = (batch_size, self.num_heads, width // self.num_heads)
        operation = self.operation.init_state(shape, generator, weight, encoded_features)
        return ConvolvedState(recent, operation)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        codes: Any,  # noqa: ANN401
        state: ConvolvedState,
    ) -> tuple[Tensor, ConvolvedState]:
        """Attention of x (b, l, m) to itself and to what the state remembers."""
        recent = state.recent
        if self.convolution is not None:
            x, recent = causal_convolution(x, self.convolution, recent)
        q, k, v = self.project_in(x).unflatten(-1, (3, self.num_heads, -1)).unbind(2)
        if self.log_temperature is not None:
            q_scale, k_scale = self.log_temperature.exp()
            q = functional.rms_norm(q, q.shape[-1:], eps=1e-6) * q_scale
            k = functional.rms_norm(k, k.shape[-1:], eps=1e-6) * k_scale
        q, k = encoding.encode(q, k, codes, self.layer)
        scoring: Any  # what the operation takes: the pair was checked when it was built
        if encoding.placement == "numerator":
            scoring = partial(encoding.rotate_features, codes=codes, layer=self.layer)
        else:
            scoring = encoding.table(codes, self.layer)
        out, operation = self.operation(q, k, v, state.operation, scoring)
        return self.project_out(out.flatten(2)), ConvolvedState(recent, operation)


def causal_convolution(x: Tensor, taps: Tensor, recent: Tensor) -> tuple[Tensor, Tensor]:
    """Depthwise convolution of x (b, l, c) with taps (c, n), the last of them the present.

    `recent` (b, n - 1, c) are the inputs before x; returned are (b, l, c) and the inputs that a
    next piece needs.
    """
    history = torch.cat([recent.to(x.dtype), x], 1)
    return _CausalConvolution.apply(history, taps), history[:, x.shape[1] :]


class _CausalConvolution(torch.autograd.Function):
    """Sum of shifted copies, in place: far less memory traffic than the sum left to autograd."""

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
