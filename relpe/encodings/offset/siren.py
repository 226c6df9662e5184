"""Relative encoding by networks of sines in a window of learned width (Alfons, 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from relpe.encodings.offset.base import Coordinates
from relpe.encodings.offset.relative import RelativeEncoding
from relpe.encodings.offset.siren_network import SirenNetwork, SirenNetworkConfig
from relpe.encodings.offset.windows import WindowConfig


@dataclass(frozen=True, kw_only=True)
class SirenConfig:
    """Positional features of offsets from a network of sines, in a window (Alfons, 2022)."""

    kind: Literal["siren"] = "siren"
    network: SirenNetworkConfig = field(default_factory=SirenNetworkConfig)
    """The network."""
    window: WindowConfig | None = field(default_factory=WindowConfig)
    """Bounds the keys that a query sees. None: no window."""
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
    """Offset that is one unit of the network's coordinates, for all axes or for each: a constant,
    whatever the length of a sequence."""
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
