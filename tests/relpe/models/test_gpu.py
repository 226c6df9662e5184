"""Results on a GPU equal those on the CPU. Run with `pytest -m gpu`; skipped without a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relpe.attention.delta import fla as delta_backend
from relpe.attention.delta.rule import gated_delta_rule
from relpe.attention.linear import fla as fla_backend
from relpe.attention.linear.attention import LinearState, causal_linear_attention
from relpe.attention.linear.chunked import tiling
from relpe.decoding.choose import choose_steps
from relpe.decoding.cuda_graph import TileSteps
from relpe.decoding.eager import PlainSteps
from tests.support.decoders import CONFIGS, decoder, tokens_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def _exact_products() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def results(name: str, device: torch.device) -> list[torch.Tensor]:
    """Logits of a sequence at once, in parts and token by token, and gradients of parameters."""
    model, tokens = decoder(name).to(device), tokens_of(150).to(device)
    positions = torch.arange(150, device=device)[None, :, None]
    whole, _ = model(tokens, positions, model.init_state(2))
    whole.logsumexp(-1).sum().backward()
    found = [whole.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
    state, start = model.init_state(2), 0
    with torch.no_grad():
        for size in (70, 1, 1, 78):
            span = slice(start, start + size)
            out, state = model(tokens[:, span], positions[:, span], state)
            found.append(out)
            start += size
    return [x.cpu() for x in found]


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_and_gradients_match_the_cpu(name: str) -> None:
    pairs = [*zip(results(name, torch.device("cpu")), results(name, GPU), strict=True)]
    # the gradient of what changes nothing, as a bias of all keys, is rounding errors alone
    largest = max(float(here.abs().max()) for here, _ in pairs)
    for here, there in pairs:
        most = 2e-4 * max(float(here.abs().max()), 1e-4 * largest)
        torch.testing.assert_close(there, here, rtol=1e-3, atol=most)


@pytest.mark.parametrize("name", CONFIGS)
def test_bfloat16_trains(name: str) -> None:
    model, tokens = decoder(name).to(GPU), tokens_of(150).to(GPU)
    positions = torch.arange(150, device=GPU)[None, :, None]
    exact, _ = model(tokens, positions, model.init_state(2))
    with torch.autocast("cuda", torch.bfloat16):
        out, _ = model(tokens, positions, model.init_state(2))
    out.float().logsumexp(-1).sum().backward()
    assert (out.float() - exact).norm() < 0.03 * exact.norm()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def attention_in_bfloat16() -> tuple[torch.Tensor, ...]:
    q, k = torch.rand(2, 2, 1000, 8, 128, device=GPU).unbind(0)
    v = torch.randn(2, 1000, 8, 64, device=GPU)
    return q, k, v, torch.randn(2, 1000, 8, device=GPU)


def empty() -> LinearState:
    return LinearState.empty((2, 8, 128, 64), device=GPU, dtype=torch.float32)


def test_chunks_at_once_are_close_to_float32() -> None:
    q, k, v, log_scale = attention_in_bfloat16()
    exact, _ = causal_linear_attention(q, k, v, empty(), log_scale)
    how = tiling(GPU, torch.bfloat16, torch.float32)
    assert how.dtype == torch.bfloat16
    out, _ = causal_linear_attention(q, k, v, empty(), log_scale, how)
    assert (out - exact).norm() < 0.02 * exact.norm()


def test_kernels_of_flash_linear_attention_are_close_to_float32() -> None:
    if fla_backend.kernel(GPU) is None:
        pytest.skip("flash-linear-attention is not here, or does not run")
    q, k, v, log_scale = attention_in_bfloat16()
    exact, _ = causal_linear_attention(q, k, v, empty(), log_scale)
    out, _ = fla_backend.causal_linear_attention(q, k, v.bfloat16(), empty(), log_scale)
    assert (out.float() - exact).norm() < 0.02 * exact.norm()


def test_the_kernel_of_the_delta_rule_is_close_to_float32() -> None:
    if delta_backend.kernel(GPU) is None:
        pytest.skip("flash-linear-attention is not here, or does not run")
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 300, 4, 64, generator=draw).to(GPU).unbind(0)
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    strength, decay = torch.rand(2, 2, 300, 4, generator=draw).to(GPU).unbind(0)
    state = torch.zeros(2, 4, 64, 64, device=GPU)
    exact, _ = gated_delta_rule(q, k, v, strength, -decay, state)
    out, _ = delta_backend.gated_delta_rule(q, k, v.bfloat16(), strength, -decay, state)
    assert (out - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("name", ["sine relu, fading", "sine favor", "algebraic windowed"])
def test_steps_match_the_cpu(name: str) -> None:
    found = []
    for device in (torch.device("cpu"), GPU):
        model = decoder(name).to(device)
        steps = PlainSteps(model) if device.type == "cpu" else choose_steps(model, "torch").make()
        assert device.type == "cpu" or isinstance(steps, TileSteps)
        slot = steps.admit(model.init_state(1), 0)
        slots = [slot, *(steps.fork(slot) for _ in range(2)), steps.admit(model.init_state(1), 9)]
        found.append([steps.step(slots, [1, 5, place % 11, 2]) for place in range(20)])
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-4)


def test_rows_are_independent_bit_for_bit() -> None:
    model = decoder("sine relu, fading").to(GPU)
    written = []
    for rows in (1, 3, 40):
        steps = choose_steps(model, "torch").make()
        slots = [steps.admit(model.init_state(1), row) for row in range(rows)]
        written.append([steps.step(slots, [place % 11] * rows)[0] for place in range(12)])
    assert all(np.array_equal(one, written[0]) for one in written[1:])
