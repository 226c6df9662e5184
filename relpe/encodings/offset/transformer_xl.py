"""Sinusoids of the offset through a linear layer, as in Transformer-XL (Dai et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from relpe.encodings.absolute import sinusoids
from relpe.encodings.offset.relative import RelativeEncoding
from relpe.encodings.offset.windows import WindowConfig


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig:
    """Sinusoids of the offset through a linear layer, as in Transformer-XL (Dai et al., 2019)."""

    kind: Literal["transformer_xl"] = "transformer_xl"
    num_sinusoids: int = 64
    """Features before the linear layer, an even number: sines and cosines."""
    base: float = 10_000.0
    """Ratio of the longest to the shortest wave length."""
    origin: float = 0.0
    """Added to every offset: the length less one gives the features of Alfons (2022)."""
    window: WindowConfig | None = None
    """Bounds the keys that a query sees. None: no window."""
    shared: bool = False
    """One linear layer for all layers instead of one for each."""
    span: int | None = None
    """Keys that a query sees without a window, itself included; None: all."""

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> RelativeEncoding:
        """Module for a model of this shape."""
        return RelativeEncoding(
            lambda layer, axis: SinusoidNetwork(
                self.num_sinusoids, num_heads * head_dim, base=self.base, origin=self.origin
            ),
            num_layers=num_layers,
            num_heads=num_heads,
            head_dim=head_dim,
            shared=self.shared,
            window=self.window,
            span=self.span,
        )


class SinusoidNetwork(nn.Module):
    """Sines and cosines of an offset, interleaved, through a linear layer."""

    def __init__(
        self, num_sinusoids: int, out_features: int, *, base: float, origin: float
    ) -> None:
        super().__init__()
        self.num_sinusoids, self.base, self.origin = num_sinusoids, base, origin
        self.project = nn.Linear(num_sinusoids, out_features)

    def at(self, offsets: Tensor) -> Tensor:
        """(o, out_features) of offsets (o, 1), in steps."""
        places = offsets[:, 0].double() + self.origin
        table = sinusoids(places, self.num_sinusoids, self.base)
        return self.project(table.to(self.project.weight.dtype))
