"""The gated delta rule by the kernel of a package, with a stand-in that has its interface."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from relpe.attention.delta import fla
from relpe.attention.delta.operation import DeltaOperation, DeltaState, Gates
from relpe.attention.delta.rule import gated_delta_rule
from tests.support.reference_delta import recurrence


def stand_in(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    g: Tensor,
    beta: Tensor,
    scale: float,
    initial_state: Tensor,
    output_final_state: bool,
) -> tuple[Tensor, Tensor]:
    """`chunk_gated_delta_rule` of fla-core 0.6, in float32."""
    assert q.dtype == k.dtype == v.dtype == beta.dtype
    assert g.dtype == initial_state.dtype == torch.float32
    assert scale == 1.0
    assert output_final_state
    out, state = recurrence(q.float(), k.float(), v.float(), beta.float(), g, initial_state)
    return out.to(v.dtype), state


def inputs(dtype: torch.dtype) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 40, 3, 8, generator=draw).unbind(0)
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    strength, decay = torch.rand(2, 2, 40, 3, generator=draw).unbind(0)
    return [q, k, v.to(dtype), strength, -decay, torch.randn(2, 3, 8, 8, generator=draw)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_the_package_gets_what_it_expects(dtype: torch.dtype, tolerance: float) -> None:
    q, k, v, strength, decay, state = inputs(dtype)
    found = fla.gated_delta_rule(q, k, v, strength, decay, state, stand_in)
    wanted = gated_delta_rule(q, k, v, strength, decay, state)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < tolerance * b.norm()


def test_the_kernel_of_the_package_is_used_if_it_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        out, state = stand_in(q, k, v, **options)
        return 1.1 * out, state

    package: Any = ModuleType("fla.ops.gated_delta_rule")
    for module in (ModuleType("fla"), ModuleType("fla.ops"), package):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for operation in (wrong, stand_in):
        package.chunk_gated_delta_rule = operation
        fla.kernel.cache_clear()
        with torch.inference_mode():  # as if generation were its first use
            assert (fla.kernel(torch.device("cpu")) is operation) == (operation is stand_in)
    fla.kernel.cache_clear()


def test_layers_use_a_kernel_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, strength, decay, memory = inputs(torch.float32)
    given, gates = DeltaState(memory), Gates(strength, decay)
    wanted, _ = DeltaOperation()(q, k, v, given, gates=gates)
    calls: list[int] = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(len(rest))
        strength, decay, state = rest
        return gated_delta_rule(q, k, v, strength, decay, state)

    monkeypatch.setattr(fla, "serves", lambda v: True)
    monkeypatch.setattr(fla, "gated_delta_rule", kernel)
    found, _ = DeltaOperation()(q, k, v, given, gates=gates)
    assert calls == [3]
    assert torch.equal(found, wanted)


def test_the_package_is_used_only_for_bfloat16_on_gpus() -> None:
    assert not fla.serves(torch.zeros(1, dtype=torch.bfloat16))
