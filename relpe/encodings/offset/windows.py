"""Windows over the offset between query and key, whose learned width bounds the span of attention.

A width is learned in steps, so that it means the same at every length. How many keys a query sees
is an integer made from it now and then, outside the graph: shapes stay the same between refreshes,
and nothing in `forward` waits for a device.
"""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from relpe.torch_compile import outside_graphs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HEAD_GROUPS = 3
"""Spans that the heads of one layer may have; each costs a call of the operation."""

WindowMode = Literal["logit_multiply", "log_bias", "soft_threshold", "adaptive_ramp"]


@dataclass(frozen=True, kw_only=True)
class WindowConfig:
    """A window of learned width: G = exp(-sum_i (r_i / width_i)^2 / 2) of the offset r."""

    mode: WindowMode = "soft_threshold"
    """`logit_multiply`: logits times G (Alfons, 2022, section 3). `log_bias`: weights times G.
    `soft_threshold`: weights times max(0, (G - t) / (1 - t)), which is zero beyond the span.
    `adaptive_ramp`: weights times a ramp from 1 at the width to 0 (Sukhbaatar et al., 2019)."""
    acts_on: Literal["all", "position"] = "all"
    """With `logit_multiply`: whether G multiplies all logits or the positional ones alone."""
    width: tuple[float, ...] = (64.0,)
    """Initial widths in steps: one for all layers, or one per layer."""
    per_head: bool = False
    """Whether each head learns a width of its own."""
    learned: bool = True
    """Whether widths are learned."""
    threshold: float = 0.1
    """G at the border of the span (t); 0 or less: no border but `max_span`."""
    ramp: float = 32.0
    """Length of the ramp of `adaptive_ramp`, in steps."""
    block: int = 16
    """Spans are rounded up to a multiple of this many keys."""
    span_refresh: int = 50
    """Training steps between two readings of the widths."""
    max_span: int = 1024
    """Most keys that a query sees, itself included (per axis: before or after it)."""
    penalty: float = 2e-6
    """Weight of the mean half width, in units of `max_span`, in the loss."""

    def build(self, *, num_layers: int, num_heads: int, num_axes: int = 1) -> Window:
        """Module for a model of this shape.

        Raises:
            ValueError: values that make no window, or widths for another number of layers.
        """
        if min(self.width) <= 0:
            raise ValueError(f"width {self.width}: expected positive numbers of steps")
        if len(self.width) not in {1, num_layers}:
            raise ValueError(f"width {self.width}: expected one, or one for each of {num_layers}")
        if self.threshold >= 1 or (self.mode == "soft_threshold" and self.threshold <= 0):
            raise ValueError(f"threshold {self.threshold} of {self.mode}: expected 0 to 1")
        if self.acts_on == "position" and self.mode != "logit_multiply":
            raise ValueError(f"acts_on position: only with logit_multiply, found {self.mode}")
        if min(self.ramp, self.block, self.span_refresh, self.max_span) < 1:
            raise ValueError("ramp, block, span_refresh and max_span: expected 1 or more")
        return Window(self, num_layers, num_heads, num_axes)


class WindowValues(NamedTuple):
    """What a window does to the logits of some offsets."""

    factor: Tensor | None  # (o, h)
    log_weight: Tensor | None  # (o, h)


class Spans(NamedTuple):
    """Half widths by layer, head (one where heads share it) and axis, in steps."""

    exact: list[list[list[int]]]
    rounded: list[list[list[int]]]


class Window(nn.Module):
    """See `WindowConfig`; `log_width` (layers, h or 1, n) is the logarithm of the widths."""

    log_width: Tensor

    def __init__(
        self, config: WindowConfig, num_layers: int, num_heads: int, num_axes: int
    ) -> None:
        super().__init__()
        self.config, self.num_heads = config, num_heads
        widths = config.width * (num_layers if len(config.width) == 1 else 1)
        shape = (num_layers, num_heads if config.per_head else 1, num_axes)
        values = torch.tensor(widths).log()[:, None, None].expand(shape).clone()
        if config.learned:
            self.log_width = nn.Parameter(values)
        else:
            self.register_buffer("log_width", values, persistent=False)
        self._training_spans: Spans | None = None
        self._held = False
        self._calls = 0
        self._outgrown = 0
        self._evaluation: tuple[Any, Spans] | None = None

    def forward(self, offsets: Tensor, layer: int) -> WindowValues:
        """Factor and logarithmic weight at `offsets` (o, n)."""
        config = self.config
        width = self.log_width[layer].exp()
        offsets = offsets.to(width)
        cut = None
        if config.mode == "adaptive_ramp":
            ramps = (width + config.ramp - offsets.abs()[:, None]) / config.ramp
            return WindowValues(None, self._per_head(_safe_log(ramps.clamp(0, 1).prod(-1))))
        squares = (offsets[:, None] / width).square().sum(-1) / 2  # (o, h or 1)
        if config.mode == "soft_threshold":
            above = (torch.exp(-squares) - config.threshold) / (1 - config.threshold)
            return WindowValues(None, self._per_head(_safe_log(above.clamp(min=0))))
        if config.mode == "log_bias":
            return WindowValues(None, self._per_head(-squares))
        if config.threshold > 0:
            seen = torch.stack([in_box(offsets, axes) for axes in self.current().exact[layer]], -1)
            cut = torch.zeros_like(squares).masked_fill(~seen, -math.inf)
        return WindowValues(
            self._per_head(torch.exp(-squares)), None if cut is None else self._per_head(cut)
        )

    def _per_head(self, values: Tensor) -> Tensor:
        return values.expand(-1, self.num_heads)

    def half_widths(self) -> Tensor:
        """Where weights end (layers, h or 1, n), in steps, not rounded: differentiable."""
        config, width = self.config, self.log_width.exp()
        if config.mode == "adaptive_ramp":
            return width + config.ramp
        if config.threshold <= 0:
            return torch.full_like(width, config.max_span - 1)
        return width * math.sqrt(-2 * math.log(config.threshold))

    def penalty(self) -> Tensor:
        """What the loss gains for the spans of all layers and heads."""
        return self.config.penalty * self.half_widths().mean() / self.config.max_span

    def advance(self) -> None:
        """Counts a training step; every `span_refresh` of them the widths are read again."""
        if self._held:
            return
        if self._training_spans is None or self._calls % self.config.span_refresh == 0:
            self._training_spans = self._read(self._training_spans)
        self._calls += 1

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """A training step of as many calls as it takes, which count as one."""
        self.advance()
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def current(self) -> Spans:
        """Spans in force: those of the last refresh in training, those of the widths otherwise."""
        if self.training:
            if self._training_spans is None:
                self._training_spans = self._read(None)
            return self._training_spans
        if torch.compiler.is_compiling() and self._evaluation is not None:
            # a trace has no versions to look at: it takes the spans read before it
            return self._evaluation[1]
        key = (id(self.log_width), self.log_width._version)
        if self._evaluation is None or self._evaluation[0] != key:
            self._evaluation = (key, self._read(None))
        return self._evaluation[1]

    def keys_per_head(self, layer: int) -> tuple[int, ...]:
        """Keys that each head sees before a query and at it, in at most `HEAD_GROUPS` sizes."""
        sizes = [1 + max(axes) for axes in self.current().rounded[layer]]
        groups = group_sizes(sizes, HEAD_GROUPS)
        return groups * (self.num_heads if len(groups) == 1 else 1)

    def span_state(self) -> dict[str, Any]:
        """What a resumed training needs to go on with the same spans: plain values.

        Lists and numbers alone, so that a checkpoint that holds them loads without unpickling.
        """
        spans = None if self._training_spans is None else list(self._training_spans)
        return {"spans": spans, "calls": self._calls, "outgrown": self._outgrown}

    def load_span_state(self, state: dict[str, Any]) -> None:
        """Takes over what `span_state` gave."""
        spans = state["spans"]
        self._training_spans = None if spans is None else Spans(*spans)
        self._calls, self._outgrown = state["calls"], state["outgrown"]

    def metrics(self) -> dict[str, float]:
        """For the log: mean keys of a query, receptive field, and refreshes that came too late."""
        spans = [
            [min(1 + max(axes), self.config.max_span) for axes in heads]
            for heads in self.current().rounded
        ]
        return {
            "mean_span": sum(sum(heads) / len(heads) for heads in spans) / len(spans),
            "receptive_field": 1.0 + sum(max(heads) - 1 for heads in spans),
            "outgrown_spans": float(self._outgrown),
        }

    @outside_graphs  # it waits for the device, and gives integers that shapes depend on
    def _read(self, before: Spans | None) -> Spans:
        """Spans of the widths as they are: the one place that waits for the device."""
        config = self.config
        limit = config.max_span - 1
        # in float64, whatever the module is in: a span is an integer
        width = self.log_width.detach().double().cpu().exp()
        needed: list[list[list[int]]] = [
            [[min(limit, _half_width(config, value)) for value in axes] for axes in heads]
            for heads in width.tolist()
        ]
        rounded = _mapped(needed, lambda h: min(limit, config.block * math.ceil(h / config.block)))
        if before is not None:
            flat = zip(_flat(needed), _flat(before.rounded), strict=True)
            self._outgrown += any(new > old for new, old in flat)
            olds = iter(_flat(before.rounded))
            rounded = _mapped(rounded, lambda h: _steadied(h, next(olds), config.block))
        return Spans(needed, rounded)


def gaussian(offsets: Tensor, width: Tensor) -> Tensor:
    """Window (o, ...) of offsets (o, n) for widths (..., n) in the same unit; 1 at offset 0."""
    offsets = offsets.view(offsets.shape[0], *(1 for _ in width.shape[:-1]), -1)
    return torch.exp(-(offsets / width).square().sum(-1) / 2)


def in_box(offsets: Tensor, half_widths: Sequence[int]) -> Tensor:
    """Whether offsets (..., n) lie within the half width of every axis: (...)."""
    sides = [axis.abs() <= size for axis, size in zip(offsets.unbind(-1), half_widths, strict=True)]
    return torch.stack(sides).all(0)


def half_width(width: float, threshold: float) -> int:
    """Largest offset of the span, in steps: where a Gaussian of this width falls to `threshold`."""
    if not 0 < threshold < 1:
        raise ValueError(f"threshold {threshold}: expected a number between 0 and 1")
    return math.ceil(math.sqrt(-2 * math.log(threshold)) * abs(width))


def span_size(grid: Sequence[int], widths: Sequence[float], threshold: float) -> tuple[int, ...]:
    """Offsets per axis, odd, that a window of `widths` in units of the grid's extent leaves.

    An axis of s places has 2s - 1 offsets and extent s - 1; a threshold of 0 or less keeps them all
    (Alfons, 2022, algorithm 6).
    """
    if threshold <= 0:
        return tuple(2 * places - 1 for places in grid)
    return tuple(
        min(2 * half_width(width * (places - 1), threshold), 2 * places - 2) + 1
        for places, width in zip(grid, widths, strict=True)
    )


def group_sizes(sizes: Sequence[int], groups: int) -> tuple[int, ...]:
    """Each size raised to one of at most `groups` values, adding as little as possible."""
    values = sorted(set(sizes))
    if len(values) <= groups:
        return tuple(sizes)

    def raised(tops: Iterable[int]) -> tuple[int, ...]:
        ordered = sorted(tops)
        return tuple(next(top for top in ordered if top >= size) for size in sizes)

    chosen = itertools.combinations(values[:-1], groups - 1)
    return min((raised((*tops, values[-1])) for tops in chosen), key=sum)


def _half_width(config: WindowConfig, width: float) -> int:
    if config.mode == "adaptive_ramp":
        return math.ceil(width + config.ramp)
    return half_width(width, config.threshold) if config.threshold > 0 else config.max_span - 1


def _steadied(new: int, old: int, block: int) -> int:
    """Spans grow at once and shrink by more than one block only, lest shapes flicker."""
    return new if new > old or old - new > block else old


def _safe_log(x: Tensor) -> Tensor:
    """Logarithm, -inf at zero, whose gradient is zero there instead of not a number."""
    positive = x > 0
    return torch.where(positive, x, 1.0).log().masked_fill(~positive, -math.inf)


def _flat(nested: list[list[list[int]]]) -> list[int]:
    return [value for heads in nested for axes in heads for value in axes]


def _mapped(nested: list[list[list[int]]], change: Any) -> list[list[list[int]]]:  # noqa: ANN401
    return [[[change(value) for value in axes] for axes in heads] for heads in nested]
