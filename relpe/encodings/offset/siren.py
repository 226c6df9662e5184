"""Relative encoding with networks of sines, in a window of learned width (Alfons, 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from relpe.checks import Checked
from relpe.encodings.offset.base import Coordinates
from relpe.encodings.offset.relative import RelativeEncoding
from relpe.encodings.offset.siren_network import SirenNetwork, SirenNetworkConfig
from relpe.encodings.offset.windows import WindowConfig


@dataclass(frozen=True, kw_only=True)
class SirenConfig(Checked):
    """Positional features from a network of sines of the offset, in a window (Alfons, 2022)."""

    kind: Literal["siren"] = "siren"
    network: SirenNetworkConfig = field(default_factory=SirenNetworkConfig)
    """Configuration of the network."""
    window: WindowConfig | None = field(default_factory=WindowConfig)
    """Window that bounds the keys that a query attends to. None: no window."""
    shared: bool = False
    """Use one network for all layers instead of one per layer."""
    combine: Literal["add", "multiply"] = "add"
    """How content and positional logits are combined."""
    coordinates: Coordinates = "index"
    """`index`: places of tokens. `joint`: one network of the differences on all axes of the
    positions. `additive`: the sum of one network per axis."""
    num_axes: int = 1
    """Number of axes of the positions (p)."""
    reference_length: tuple[float, ...] = (1024.0,)
    """Offset in steps that is one unit of the network's coordinates, one for all axes or one per
    axis. It does not depend on the length of a sequence."""
    layer_networks: tuple[SirenNetworkConfig, ...] = ()
    """Configuration of the network of each layer, instead of `network`."""
    span: int | None = None
    """Number of keys that a query attends to without a window, itself included; None: all."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> RelativeEncoding:
        """Return the module for a model of this shape.

        Raises:
            ValueError: the number of values does not match the number of axes or layers.
        """
        lengths, networks = self.reference_length, self.layer_networks
        if len(lengths) not in {1, self.num_axes}:
            raise ValueError(
                f"reference_length is {lengths}, expected one value, or one for each of "
                f"{self.num_axes} axes"
            )
        if networks and (self.shared or len(networks) != num_layers):
            raise ValueError(
                f"layer_networks has {len(networks)} networks, expected {num_layers}, one for each "
                "layer, and shared to be false"
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
