"""Relative positional encoding by networks of sines, with a learned span (Alfons, 2022).

A small network makes the positional features of an offset; a logit is content, position and a bias
of each (Dai et al., 2019), within a window of learned width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from relpe.encodings.base import OffsetTable
from relpe.encodings.offset.offsets import Coordinates, OffsetEncoding
from relpe.encodings.offset.sinusoids import SinusoidNetwork
from relpe.encodings.offset.siren_network import SirenNetwork, SirenNetworkConfig
from relpe.encodings.offset.windows import WindowConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from relpe.encodings.offset.windows import Window


@dataclass(frozen=True, kw_only=True)
class SirenConfig:
    """Positional features of offsets from a network of sines, in a window (Alfons, 2022)."""

    kind: Literal["siren"] = "siren"
    network: SirenNetworkConfig = field(default_factory=SirenNetworkConfig)
    """The network."""
    window: WindowConfig | None = field(default_factory=WindowConfig)
    """Bounds what a query sees. None: no window."""
    shared: bool = False
    """One network for all layers instead of one for each."""
    combine: Literal["add", "multiply"] = "add"
    """Content and positional logits together."""
    coordinates: Coordinates = "index"
    """`index`: places of tokens. `joint`: differences of all axes of the positions in one network.
    `additive`: a network for each axis, summed."""
    num_axes: int = 1
    """Axes of the positions (p)."""
    reference_length: tuple[float, ...] = (1024.0,)
    """Offset that is one unit of the network's coordinates, for all axes or for each: never the
    length at hand."""
    layer_networks: tuple[SirenNetworkConfig, ...] = ()
    """One network for each layer, in place of `network`."""
    span: int | None = None
    """Keys that a query sees without a window, itself included; None: all."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> RelativeEncoding:
        """Module for a model of this shape.

        Raises:
            ValueError: values for another number of axes or layers.
        """
        lengths, networks = self.reference_length, self.layer_networks
        if len(lengths) not in {1, self.num_axes}:
            raise ValueError(
                f"reference_length {lengths}: expected one, or one for each of {self.num_axes} axes"
            )
        if networks and (self.shared or len(networks) != num_layers):
            raise ValueError(
                f"layer_networks of {len(networks)} layers: expected {num_layers}, and not shared"
            )
        separate = self.coordinates == "additive"

        def make(layer: int, axis: int) -> SirenNetwork:
            network = networks[layer] if networks else self.network
            return network.build(
                in_features=1 if separate else self.num_axes,
                out_features=num_heads * head_dim,
                reference_length=(lengths[axis % len(lengths)],) if separate else lengths,
            )

        return RelativeEncoding(
            make,
            num_layers=num_layers,
            num_heads=num_heads,
            head_dim=head_dim,
            networks_per_layer=self.num_axes if separate else 1,
            num_axes=self.num_axes,
            shared=self.shared,
            window=self.window,
            multiplies=self.combine == "multiply",
            coordinates=self.coordinates,
            span=self.span,
        )


class RelativeEncoding(OffsetEncoding):
    """Four terms: content and position, and a bias of each; features come from networks of offsets.

    The method `at` of a network takes offsets (o, n) in steps and gives (o, h * d). `content_bias`
    and `position_bias` are (layers, h, d).
    """

    def __init__(
        self,
        make_network: Callable[[int, int], SirenNetwork | SinusoidNetwork] | None,
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
        self.networks: nn.ModuleList | None = None
        self.position_bias: nn.Parameter | None = None
        if make_network is not None:
            self.position_bias = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
            self.networks = nn.ModuleList(
                nn.ModuleList(make_network(layer, axis) for axis in range(networks_per_layer))
                for layer in range(1 if shared else num_layers)
            )
        # a window of a sequence is one of places, whatever the coordinates
        window_axes = num_axes if coordinates == "index" else 1
        self.window: Window | None = None
        if window is not None:
            self.window = window.build(
                num_layers=num_layers, num_heads=num_heads, num_axes=window_axes
            )

    def before_call(self) -> None:
        """Counts a step of training for the window."""
        if self.coordinates == "index" and self.num_axes > 1:
            raise ValueError(
                "a sequence has one axis of places: give `coordinates: joint` or `additive` for "
                f"positions of {self.num_axes} axes; grids take their table from `grid_table`"
            )
        if self.window is not None and self.training and torch.is_grad_enabled():
            self.window.advance()

    def head_spans(self, layer: int) -> tuple[int, ...] | None:
        """Those of the window."""
        return None if self.window is None else self.window.keys_per_head(layer)

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        """Four-term scores with the layer's window."""
        table = OffsetTable(content_bias=self.content_bias[layer], multiplies=self.multiplies)
        features = self.features(points, layer)
        if features is not None and self.position_bias is not None:
            bias = torch.einsum("ohd,hd->oh", features, self.position_bias[layer])
            table = table._replace(features=features, bias=bias)
        if self.window is None:
            return table
        factor, log_weight = self.window(places, layer)
        return table._replace(
            factor=factor,
            log_weight=log_weight,
            factor_on_position=self.window.config.acts_on == "position",
        )

    def features(self, points: list[Tensor], layer: int) -> Tensor | None:
        """Positional features (o, h, d) of offsets (o, n), or (o_i, 1) for each axis in a row."""
        if self.networks is None:
            return None
        networks = self.networks[layer % len(self.networks)]
        assert isinstance(networks, nn.ModuleList)
        made = []
        for network, offsets in zip(networks, points, strict=True):
            assert isinstance(network, SirenNetwork | SinusoidNetwork)
            made.append(network.at(offsets))
        return torch.cat(made).unflatten(-1, (self.num_heads, -1))

    def half_widths(self, layer: int) -> tuple[int, ...]:
        """Of a grid: places on each side of a query, for each axis, that all heads' windows need.

        Raises:
            ValueError: no window bounds them.
        """
        if self.window is None:
            raise ValueError("half widths without a window: give the grid's own extents instead")
        heads = self.window.current().rounded[layer]
        return tuple(max(axes) for axes in zip(*heads, strict=True))

    def grid_table(self, offsets: Tensor, layer: int) -> OffsetTable:
        """Scores of explicit offsets (o, n), such as those of a box on a grid."""
        points = offsets.double()
        return self.table_of([points], points, layer)
