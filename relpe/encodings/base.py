"""What an encoding of queries and keys offers, whatever its mathematics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class QueryKeyEncoding(Protocol):
    """Acts on queries and keys separately: fits softmax and linear attention.

    `prepare` runs once per call of the model and serves all layers; `encode` runs in each layer.
    Codes and states are tuples of tensors that only the encoding itself looks into.
    """

    out_features: int
    """Features per head after encoding."""

    def init_state(self, seed: int, device: torch.device) -> Any:  # noqa: ANN401 - opaque to callers
        """Noise of one sequence: the same seed gives the same noise on every device."""
        ...

    def prepare(self, positions: Tensor, state: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Codes for `positions` (1, l, p), int64 or float64, and the state after them."""
        ...

    def encode(self, q: Tensor, k: Tensor, codes: Any, layer: int) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Encoded queries and keys (b, l, h, out_features) of q and k (b, l, h, d)."""
        ...
