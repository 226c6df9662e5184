"""Windows over the offset between query and key, whose learned width bounds the span of attention.

Widths are in steps, so that they do not depend on the length of a sequence. The span is an integer
that is derived from a width at regular intervals, outside graphs. Between these refreshes, shapes
are constant, and `forward` does not synchronise with the device.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from relpe.checks import Checked
from relpe.encodings.weights import Weights
from relpe.transforms import outside_graphs

HEAD_GROUPS = 3
"""Maximum number of different spans in a layer; each needs a call of the operation."""

WindowMode = Literal["logit_multiply", "log_bias", "soft_threshold", "adaptive_ramp"]


@dataclass(frozen=True, kw_only=True)
class WindowConfig(Checked):
    """A window of learned width, G(r) = exp(-sum_i (r_i / width_i)^2 / 2) of the offset r."""

    mode: WindowMode = "soft_threshold"
    """`logit_multiply`: multiply logits by G (Alfons, 2022, section 3). `log_bias`: multiply
    weights by G. `soft_threshold`: multiply weights by max(0, (G - t) / (1 - t)), with t the
    `threshold`; it is zero beyond the span. `adaptive_ramp`: multiply weights by a ramp that falls
    from 1 at the width to 0 (Sukhbaatar et al., 2019)."""
    acts_on: Literal["all", "position"] = "all"
    """With `logit_multiply`: whether G multiplies all logits or only positional ones."""
    width: tuple[float, ...] = (64.0,)
    """Initial width in steps: one for all layers, or one per layer."""
    per_head: bool = False
    """Learn a separate width for each head."""
    learned: bool = True
    """Learn the widths; if false, they keep their initial values."""
    threshold: float = 0.1
    """Value of G at which the span ends (t); 0 or less: only `max_span` bounds the span."""
    ramp: float = 32.0
    """Length of the ramp of `adaptive_ramp`, in steps."""
    block: int = 16
    """Round spans up to a multiple of this many keys."""
    span_refresh: int = 50
    """Number of training steps between updates of the spans from the learned widths."""
    max_span: int = 1024
    """Maximum span: the keys that a query may attend to, itself included (on a grid: per axis, on
    each side)."""
    penalty: float = 2e-6
    """Weight in the loss of the mean half width, in units of `max_span`."""

    def build(self, *, num_layers: int, num_heads: int, num_axes: int = 1) -> Window:
        """Return the module for a model of this shape.

        Raises:
            ValueError: a value is out of range, or the number of widths does not match.
        """
        if min(self.width) <= 0:
            raise ValueError(f"width is {self.width}, expected positive numbers of steps")
        if len(self.width) not in {1, num_layers}:
            raise ValueError(
                f"width is {self.width}, expected one value, or one for each of {num_layers} layers"
            )
        if self.threshold >= 1 or (self.mode == "soft_threshold" and self.threshold <= 0):
            raise ValueError(f"threshold is {self.threshold}, expected 0 to 1 with {self.mode}")
        if self.acts_on == "position" and self.mode != "logit_multiply":
            raise ValueError(f"acts_on is position, expected all with the mode {self.mode}")
        if min(self.ramp, self.block, self.span_refresh, self.max_span) < 1:
            raise ValueError("ramp, block, span_refresh and max_span must be at least 1")
        return Window(self, num_layers, num_heads, num_axes)


class WindowValues(NamedTuple):
    """Effect of a window on the logits at some offsets."""

    factor: Tensor | None  # (o, h)
    log_weight: Tensor | None  # (o, h)


class Spans(NamedTuple):
    """Half widths by layer, head (one if heads share it) and axis, in steps."""

    exact: list[list[list[int]]]
    rounded: list[list[list[int]]]


class TrainingSpans(NamedTuple):
    """Spans during training, and counters of their refreshes."""

    spans: Spans | None = None
    """Spans of the last refresh."""
    calls: int = 0
    """Number of training steps so far."""
    outgrown: int = 0
    """Number of refreshes at which a width had outgrown its span."""


class Window(nn.Module):
    """See `WindowConfig`; `log_width` (layers, h or 1, n) is the logarithm of the widths.

    It is None if the widths are not learned; see `log_widths`.
    """

    log_width: Tensor

    def __init__(
        self, config: WindowConfig, num_layers: int, num_heads: int, num_axes: int
    ) -> None:
        super().__init__()
        self.config, self.num_heads = config, num_heads
        self._shape = (num_layers, num_heads if config.per_head else 1, num_axes)
        learned = nn.Parameter(self._configured()) if config.learned else None
        self.register_parameter("log_width", learned)
        self._in_training = TrainingSpans()
        self._within_step = False
        self._evaluation: tuple[Weights, Spans] | None = None

    def _configured(self, device: torch.device | None = None) -> Tensor:
        """Return the logarithm (layers, h or 1, n) of the widths of the config."""
        widths = torch.tensor(self.config.width, device=device).log()[:, None, None]
        return widths.expand(self._shape).clone()

    def log_widths(self, device: torch.device | None = None) -> Tensor:
        """Return logarithmic widths (layers, h or 1, n), on `device` if they are not learned."""
        # no buffer, which would be lost when a module is built on the meta device
        return self.log_width if self.config.learned else self._configured(device)

    def forward(self, offsets: Tensor, layer: int) -> WindowValues:
        """Return the factor and logarithmic weight at `offsets` (o, n)."""
        config = self.config
        width = self.log_widths(offsets.device)[layer].exp()
        offsets = offsets.to(width)
        if config.mode == "adaptive_ramp":
            ramps = (width + config.ramp - offsets.abs()[:, None]) / config.ramp
            return WindowValues(None, self._per_head(_safe_log(ramps.clamp(0, 1).prod(-1))))
        squares = (offsets[:, None] / width).square().sum(-1) / 2  # (o, h or 1)
        if config.mode == "soft_threshold":
            above = (torch.exp(-squares) - config.threshold) / (1 - config.threshold)
            return WindowValues(None, self._per_head(_safe_log(above.clamp(min=0))))
        if config.mode == "log_bias":
            return WindowValues(None, self._per_head(-squares))
        factor = self._per_head(torch.exp(-squares))
        if config.threshold <= 0:
            return WindowValues(factor, None)
        visible = torch.stack([in_box(offsets, axes) for axes in self.current().exact[layer]], -1)
        cut = torch.zeros_like(squares).masked_fill(~visible, -math.inf)
        return WindowValues(factor, self._per_head(cut))

    def _per_head(self, values: Tensor) -> Tensor:
        return values.expand(-1, self.num_heads)

    def half_widths(self) -> Tensor:
        """Return half widths (layers, h or 1, n) in steps, at which weights end; differentiable."""
        return self._half_widths(self.log_widths().exp())

    def _half_widths(self, width: Tensor) -> Tensor:
        config = self.config
        if config.mode == "adaptive_ramp":
            return width + config.ramp
        if config.threshold <= 0:
            return torch.full_like(width, config.max_span - 1)
        return width * math.sqrt(-2 * math.log(config.threshold))

    def penalty(self) -> Tensor:
        """Return the term of the loss that penalises the spans of all layers and heads."""
        return self.config.penalty * self.half_widths().mean() / self.config.max_span

    def advance(self) -> None:
        """Count a training step, and refresh the spans every `span_refresh` steps."""
        if self._within_step:
            return
        state = self._in_training
        if state.spans is None or state.calls % self.config.span_refresh == 0:
            state = self._refresh(state)
        self._in_training = state._replace(calls=state.calls + 1)

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """Count any number of calls as one training step."""
        self.advance()
        self._within_step = True
        try:
            yield
        finally:
            self._within_step = False

    def current(self) -> Spans:
        """Return the current spans: in training those of the last refresh, else from the widths."""
        if self.training:
            if self._in_training.spans is None:
                self._in_training = self._refresh(self._in_training)
            assert self._in_training.spans is not None
            return self._in_training.spans
        if torch.compiler.is_compiling() and self._evaluation is not None:
            # values cannot be compared during tracing, so use the spans read before
            return self._evaluation[1]
        if self._evaluation is None or not self._evaluation[0].are_those_of(self.parameters()):
            self._evaluation = (Weights.of(self.parameters()), self._read())
        return self._evaluation[1]

    def keys_per_head(self, layer: int) -> tuple[int, ...]:
        """Return the span of each head, the query included, in at most `HEAD_GROUPS` sizes."""
        sizes = [1 + max(axes) for axes in self.current().rounded[layer]]
        groups = group_sizes(sizes, HEAD_GROUPS)
        return groups * self.num_heads if len(groups) == 1 else groups  # one if heads share it

    def span_state(self) -> dict[str, Any]:
        """Return the spans during training, for resuming a run.

        They consist of lists and numbers, so that a checkpoint can be loaded without unpickling.
        """
        spans, calls, outgrown = self._in_training
        plain = None if spans is None else list(spans)
        return {"spans": plain, "calls": calls, "outgrown": outgrown}

    def load_span_state(self, state: dict[str, Any]) -> None:
        """Restore the spans from the result of `span_state`."""
        spans = None if state["spans"] is None else Spans(*state["spans"])
        self._in_training = TrainingSpans(spans, state["calls"], state["outgrown"])

    def metrics(self) -> dict[str, float]:
        """Return metrics for the log: mean span, receptive field, refreshes that came too late."""
        spans = self.spans()
        return {
            "mean_span": sum(sum(heads) / len(heads) for heads in spans) / len(spans),
            "receptive_field": 1.0 + sum(max(heads) - 1 for heads in spans),
            "outgrown_spans": float(self._in_training.outgrown),
        }

    def spans(self) -> list[list[int]]:
        """Return keys on one side, the query included, of each layer and head (one if shared)."""
        return [
            [min(1 + max(axes), self.config.max_span) for axes in heads]
            for heads in self.current().rounded
        ]

    @outside_graphs
    def _refresh(self, before: TrainingSpans) -> TrainingSpans:
        """Return the spans for the current widths, following those of `before`.

        A span grows at once, but shrinks only by more than one block, so that shapes rarely change.
        """
        spans = self._read()
        if before.spans is None:
            return before._replace(spans=spans)
        exact, new = map(torch.tensor, spans)
        old = torch.tensor(before.spans.rounded)
        steady = torch.where((new > old) | (old - new > self.config.block), new, old)
        outgrown = before.outgrown + int((exact > old).any())
        return before._replace(spans=spans._replace(rounded=steady.tolist()), outgrown=outgrown)

    @outside_graphs  # it synchronises with the device, and shapes depend on its result
    def _read(self) -> Spans:
        """Return the spans of the current widths; only this method synchronises with the device."""
        limit, block = self.config.max_span - 1, self.config.block
        # in float64 for all dtypes of the module, since spans are integers
        width = self.log_widths().detach().double().cpu().exp()
        exact = self._half_widths(width).ceil().clamp(max=limit).long()
        rounded = ((exact + block - 1) // block * block).clamp(max=limit)
        return Spans(exact.tolist(), rounded.tolist())


class Windows:
    """The learned windows of a model, treated as one in training."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """See `Window.one_step`."""
        with ExitStack() as stack:
            for window in self.windows:
                stack.enter_context(window.one_step())
            yield

    def penalty(self) -> Tensor:
        """Return the sum of the penalties of all windows."""
        return torch.stack([window.penalty() for window in self.windows]).sum()

    def metrics(self) -> dict[str, float]:
        """See `Window.metrics`; those of all windows together, and those of each layer.

        Layers are those with windows, from 1: `span/layer_1`, a mean over heads, and
        `window_width/layer_1`, a mean over heads and axes.
        """
        metrics = [window.metrics() for window in self.windows]
        layers = [len(window.current().exact) for window in self.windows]
        spans = sum(
            values["mean_span"] * count for values, count in zip(metrics, layers, strict=True)
        )
        return {
            "mean_span": spans / sum(layers),
            "receptive_field": 1.0 + sum(values["receptive_field"] - 1 for values in metrics),
            "outgrown_spans": sum(values["outgrown_spans"] for values in metrics),
            **self._metrics_of_layers(),
        }

    def _metrics_of_layers(self) -> dict[str, float]:
        spans = [heads for window in self.windows for heads in window.spans()]
        widths = [width for window in self.windows for width in window.log_widths().detach().exp()]
        metrics: dict[str, float] = {}
        for layer, (heads, width) in enumerate(zip(spans, widths, strict=True), 1):
            metrics[f"span/layer_{layer}"] = sum(heads) / len(heads)
            metrics[f"window_width/layer_{layer}"] = float(width.mean())
        return metrics

    def span_state(self) -> dict[str, Any]:
        """See `Window.span_state`."""
        states = [window.span_state() for window in self.windows]
        if len(states) == 1:
            return states[0]
        return {str(index): state for index, state in enumerate(states)}

    def load_span_state(self, state: dict[str, Any]) -> None:
        """See `Window.load_span_state`."""
        if len(self.windows) == 1:
            self.windows[0].load_span_state(state)
            return
        for index, window in enumerate(self.windows):
            window.load_span_state(state[str(index)])


def in_box(offsets: Tensor, half_widths: Sequence[int]) -> Tensor:
    """Return whether offsets (..., n) are within the half width on every axis: (...)."""
    sides = [axis.abs() <= size for axis, size in zip(offsets.unbind(-1), half_widths, strict=True)]
    return torch.stack(sides).all(0)


def group_sizes(sizes: Sequence[int], groups: int) -> tuple[int, ...]:
    """Round sizes up to at most `groups` different values, adding as little as possible."""
    values = sorted(set(sizes))
    if len(values) <= groups:
        return tuple(sizes)

    def raised(tops: Iterable[int]) -> tuple[int, ...]:
        ordered = sorted(tops)
        return tuple(next(top for top in ordered if top >= size) for size in sizes)

    lower_tops = itertools.combinations(values[:-1], groups - 1)
    return min((raised((*tops, values[-1])) for tops in lower_tops), key=sum)


def _safe_log(x: Tensor) -> Tensor:
    """Return the logarithm that is -inf at 0, where its gradient is 0 instead of NaN."""
    positive = x > 0
    return torch.where(positive, x, 1.0).log().masked_fill(~positive, -math.inf)
