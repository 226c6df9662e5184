"""What is learned when a model is tuned: all weights, or corrections of low rank."""

from __future__ import annotations

from typing import Any, Final

from relpe.learning.low_rank import add_corrections
from relpe.models.decoder import Decoder
from training.learning.muon import parameter_groups
from training.tuning.options import Method

LEARNING_RATES: Final[dict[Method, float]] = {"low-rank": 3e-4, "full": 1e-4}
"""The best of those that were tried."""


def prepare(decoder: Decoder, method: Method) -> list[dict[str, Any]]:
    """Make the parameters of a method learnable; return the groups of `Muon`.

    `low-rank` is `add_corrections`; `merge_corrections` makes an ordinary model of it again.
    """
    if method == "low-rank":
        return [{"params": add_corrections(decoder), "weight_decay": 0.0}]
    decoder.requires_grad_(requires_grad=True)
    return parameter_groups(decoder, 0.0, orthogonalized=True)
