"""Relative encoding with four terms, whose positional features are networks of the offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from relpe.encodings.base import OffsetTable
from relpe.encodings.offset.base import Coordinates, OffsetCodes, OffsetEncoding, OffsetState
from relpe.encodings.offset.windows import Window, WindowConfig


class RelativeEncoding(OffsetEncoding):
    """Logits of content and of position, with a bias for each (Dai et al., 2019), and a window.

    The method `at` of a network maps offsets (o, n) in steps to features (o, h * d). `content_bias`
    and `position_bias` are (layers, h, d). The window is optional.
    """

    def __init__(
        self,
        make_network: Callable[[int, int], nn.Module],
        *,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        networks_per_layer: int = 1,
        num_axes: int = 1,
        shared: bool = False,
        window: WindowConfig | None = None,
        multiplies: bool = False,
        coordinates: Coordinates = "index",
        span: int | None = None,
    ) -> None:
        super().__init__(
            num_layers=num_layers, head_dim=head_dim, coordinates=coordinates, span=span
        )
        self.num_heads, self.multiplies = num_heads, multiplies
        self.num_axes = num_axes
        shape = (num_layers, num_heads, head_dim)
        bound = (6 / (num_heads + head_dim)) ** 0.5
        self.content_bias = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.position_bias = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.networks = nn.ModuleList(
            nn.ModuleList(make_network(layer, axis) for axis in range(networks_per_layer))
            for layer in range(1 if shared else num_layers)
        )
        # in a sequence the window is over places, for all kinds of coordinates
        window_axes = num_axes if coordinates == "index" else 1
        self.window: Window | None = None
        if window is not None:
            self.window = window.build(
                num_layers=num_layers, num_heads=num_heads, num_axes=window_axes
            )

    def codes_at(self, positions: Tensor, state: OffsetState) -> tuple[OffsetCodes, OffsetState]:
        """See `OffsetEncoding.codes_at`.

        Raises:
            ValueError: the places of a sequence have one axis only.
        """
        if self.coordinates == "index" and self.num_axes > 1:
            raise ValueError(
                f"num_axes is {self.num_axes} with `coordinates: index`, expected 1; use `joint` "
                "or `additive`, or `grid_table` on a grid"
            )
        return super().codes_at(positions, state)

    def before_call(self) -> None:
        """Count a training step for the window."""
        if self.window is not None and self.training and torch.is_grad_enabled():
            self.window.advance()

    def head_spans(self, layer: int) -> tuple[int, ...] | None:
        """Return the spans of the window."""
        return None if self.window is None else self.window.keys_per_head(layer)

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Return the four-term scores with the layer's window."""
        features = self.features(points, layer)
        table = OffsetTable(
            features=features,
            bias=torch.einsum("ohd,hd->oh", features, self.position_bias[layer]),
            content_bias=self.content_bias[layer],
            multiplies=self.multiplies,
        )
        if self.window is None:
            return table
        factor, log_weight = self.window(places, layer)
        return table._replace(
            factor=factor,
            log_weight=log_weight,
            factor_on_position=self.window.config.acts_on == "position",
        )

    def features(self, points: list[Tensor], layer: int) -> Tensor:
        """Return the positional features (o, h, d) of offsets (o, n), or (o_i, 1) for each axis."""
        networks: Any = self.networks[layer % len(self.networks)]
        outputs = [network.at(offsets) for network, offsets in zip(networks, points, strict=True)]
        return torch.cat(outputs).unflatten(-1, (self.num_heads, -1))

    def half_widths(self, layer: int) -> tuple[int, ...]:
        """Return the half width on each axis of a grid: places on each side that any head sees.

        Raises:
            ValueError: there is no window.
        """
        if self.window is None:
            raise ValueError("the encoding has no window; use the extents of the grid instead")
        heads = self.window.current().rounded[layer]
        return tuple(max(axes) for axes in zip(*heads, strict=True))

    def reach(self, layer: int) -> tuple[int, ...] | None:
        """Return the half widths of the window, if there is one."""
        return super().reach(layer) if self.window is None else self.half_widths(layer)
