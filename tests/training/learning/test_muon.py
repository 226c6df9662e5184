from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.learning.muon import Muon, orthogonalize

sizes = st.integers(1, 24)


@given(
    rows=sizes, columns=sizes, seed=st.integers(0, 2**31 - 1), scale=st.sampled_from([1e-3, 1e3])
)
def test_singular_vectors_stay_and_values_come_near_one(rows, columns, seed, scale):
    draw = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, rows, generator=draw, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, generator=draw, dtype=torch.float64))
    rank = min(rows, columns)
    values = 0.2 + torch.rand(rank, generator=draw, dtype=torch.float64)
    matrix = scale * left[:, :rank] @ values.diag() @ right[:, :rank].mT
    inner = left.mT @ orthogonalize(matrix[None])[0] @ right
    found = inner.diagonal()[:rank]
    assert ((found > 0.5) & (found < 1.4)).all()
    torch.testing.assert_close(
        inner - torch.zeros_like(inner).diagonal_scatter(found), torch.zeros_like(inner)
    )


def train(weight, optimizer, steps):
    for step in range(steps):
        weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step))
        optimizer.step()


def fresh(parts):
    weight = torch.nn.Parameter(torch.ones(6, 4))
    group = {"params": [weight], "parts": parts, "weight_decay": 0.1}
    return weight, Muon([group], lr=0.1, betas=(0.9, 0.95))


def test_without_parts_it_is_adamw():
    weight, optimizer = fresh(0)
    reference = torch.nn.Parameter(torch.ones(6, 4))
    train(weight, optimizer, 4)
    adamw = torch.optim.AdamW([reference], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
    train(reference, adamw, 4)
    torch.testing.assert_close(weight, reference)


def test_stacked_matrices_are_orthogonalized_one_by_one():
    weight, optimizer = fresh(3)
    train(weight, optimizer, 1)
    gradient = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    for part in range(3):
        rows = slice(2 * part, 2 * part + 2)
        update = orthogonalize(gradient[rows][None])[0]
        expected = torch.full((2, 4), 1 - 0.1 * 0.1) - 0.1 * 0.2 * 2 * update
        torch.testing.assert_close(weight[rows].detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parts", [0, 3])
def test_its_state_can_be_stored(parts):
    weight, optimizer = fresh(parts)
    train(weight, optimizer, 3)
    other, restored = fresh(parts)
    other.data.copy_(weight.data)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(weight, optimizer, 2)
    train(other, restored, 2)
    assert torch.equal(weight, other)
