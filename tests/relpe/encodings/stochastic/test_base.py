from __future__ import annotations

import torch

from relpe.encodings.stochastic.base import mixture


def test_gates_mix_by_square_roots_and_have_gradients_at_0_and_1() -> None:
    raw = torch.tensor([[-200.0, -20.0, 0.0, 1.5, 20.0, 80.0]], requires_grad=True)
    noise = torch.ones(1, 6, 4)
    kept, added = mixture(raw, noise)
    gate = torch.sigmoid(raw.double())
    torch.testing.assert_close(kept.double(), torch.sigmoid(-raw.double()).sqrt())
    torch.testing.assert_close(added[..., 0].double(), gate.sqrt() * 24**-0.25)
    (slope,) = torch.autograd.grad(kept.sum() + added.sum(), raw)
    assert slope.isfinite().all()
