"""Sinusoids of the offset through a linear layer, as in Transformer-XL (Dai et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from relpe.checks import Checked
from relpe.encodings.absolute import sinusoids
from relpe.encodings.offset.relative import RelativeEncoding
from relpe.encodings.offset.windows import WindowConfig


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig(Checked):
    """Sinusoids of the offset and a linear layer, as in Transformer-XL (Dai et al., 2019)."""

    kind: Literal["transformer_xl"] = "transformer_xl"
    num_sinusoids: int = 64
    """Number of sines and cosines before the linear layer, even."""
    base: float = 10_000.0
    """Ratio of the longest to the shortest wavelength."""
    origin: float = 0.0
    """Constant added to every offset; length - 1 gives the features of Alfons (2022)."""
    window: WindowConfig | None = None
    """Window that bounds the keys that a query attends to. None: no window."""
    shared: bool = False
    """Use one linear layer for all layers instead of one per layer."""
    span: int | None = None
    """Number of keys that a query attends to without a window, itself included; None: all."""

    def build(self, *, num_layers: int = 1, num_heads: int, head_dim: int) -> RelativeEncoding:
        """Return the module for a model of this shape."""
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
    """Interleaved sines and cosines of an offset, followed by a linear layer."""

    def __init__(
        self, num_sinusoids: int, out_features: int, *, base: float, origin: float
    ) -> None:
        super().__init__()
        self.num_sinusoids, self.base, self.origin = num_sinusoids, base, origin
        self.project = nn.Linear(num_sinusoids, out_features)

    def at(self, offsets: Tensor) -> Tensor:
        """Return the features (o, out_features) of offsets (o, 1), in steps."""
        places = offsets[:, 0].double() + self.origin
        table = sinusoids(places, self.num_sinusoids, self.base)
        return self.project(table.to(self.project.weight.dtype))
