from __future__ import annotations

from typing import Any

import pytest
import torch

from relpe.encodings import ConvSPEConfig, SineSPEConfig, SirenSPEConfig
from relpe.encodings.stochastic.base import mixture


def test_gates_begin_at_their_initial_value() -> None:
    size: Any = {"num_layers": 2, "num_heads": 3, "head_dim": 4}
    configs: tuple[Any, ...] = (SineSPEConfig, ConvSPEConfig, SirenSPEConfig)
    for config in configs:
        gates = config(initial_gate=0.05).build(**size).gates
        torch.testing.assert_close(gates.sigmoid(), torch.full((2, 3, 4), 0.05))
        assert config().build(**size).gates.std() > 0.5
        for changes in ({"initial_gate": 1.0}, {"initial_gate": 0.1, "gated": False}):
            with pytest.raises(ValueError, match="initial_gate is"):
                config(**changes)


def test_gates_mix_by_square_roots_and_have_gradients_at_0_and_1() -> None:
    raw = torch.tensor([[-200.0, -20.0, 0.0, 1.5, 20.0, 80.0]], requires_grad=True)
    noise = torch.ones(1, 6, 4)
    kept, added = mixture(raw, noise)
    gate = torch.sigmoid(raw.double())
    torch.testing.assert_close(kept.double(), torch.sigmoid(-raw.double()).sqrt())
    torch.testing.assert_close(added[..., 0].double(), gate.sqrt() * 24**-0.25)
    (slope,) = torch.autograd.grad(kept.sum() + added.sum(), raw)
    assert slope.isfinite().all()
