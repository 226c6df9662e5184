"""`torch.compile` changes no output and no gradient, for every encoding with every attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jaxtyping
import pytest
import torch

from tests.support.decoders import CONFIGS, decoder, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the compiler itself

MACHINE_CODE = ("algebraic favor",)
BREAKS = ("conv", "siren spe", "two spans", "windowed", "decay", "events", "tree_sq")
"""These have graph breaks: where they draw noise, read spans, attend to boxes, group tokens or
measure the depth of trees."""


@pytest.fixture(autouse=True)
def _unwrapped() -> Iterator[None]:
    """Disables the shape checks of the tests, which compilers cannot trace."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def results(name: str, backend: str | None) -> list[torch.Tensor]:
    torch.compiler.reset()
    model, tokens = decoder(name), tokens_of(70)
    positions = torch.arange(70)[None, :, None]
    run = model
    if backend is not None:
        whole = not any(word in name for word in BREAKS)
        run = torch.compile(model, backend=backend, fullgraph=whole)
    out, state = run(tokens[:, :40], positions[:, :40], model.init_state(2))
    rest, _ = run(tokens[:, 40:], positions[:, 40:], state)
    out = torch.cat([out, rest], 1)
    out.logsumexp(-1).sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(grads) == len(list(model.parameters()))
    return [out.detach(), *grads]


def compare(name: str, backend: str) -> None:
    for compiled, eager in zip(results(name, backend), results(name, None), strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # the first one takes ten seconds
@pytest.mark.parametrize("name", CONFIGS)
def test_traced_and_differentiated_by_the_compiler(name: str) -> None:
    compare(name, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINE_CODE)
def test_compiled_to_machine_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # its cache could contain the outputs' metadata of an earlier version of an operation
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    compare(name, "inductor")


def test_operations_match_their_declarations() -> None:
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    q, k = torch.rand(2, 4, 70, 8).unbind(0)
    inputs = [q, k, torch.randn(4, 70, 5), torch.zeros(4, 8, 5), torch.zeros(4, 8)]
    inputs = [x.requires_grad_() for x in inputs]
    for dtype in (None, torch.float32, torch.float64):
        log_scale = None if dtype is None else torch.randn(4, 70, dtype=dtype)
        torch.library.opcheck(
            torch.ops.relpe.causal_sums.default,
            (*inputs, log_scale, torch.full((4,), -torch.inf), 16, 3, 2),
            test_utils=checks,
        )
    q, k, v = torch.randn(3, 2, 70, 3, 8).unbind(0)
    strength, decay = torch.rand(2, 2, 70, 3).unbind(0)
    inputs = [q, k, v[..., :5], strength, -decay, torch.randn(2, 3, 8, 5)]
    torch.library.opcheck(
        torch.ops.relpe.gated_delta_rule.default,
        (*(x.requires_grad_() for x in inputs), 32),
        test_utils=checks,
    )


@pytest.mark.parametrize("name", ["algebraic delta", "sine relu, gated decay"])
def test_a_backward_pass_within_autocast_is_the_same_as_outside(name: str) -> None:
    model, tokens = decoder(name), tokens_of(40)
    found: list[list[torch.Tensor]] = []
    for within in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            out, _ = model(tokens, torch.arange(40)[None, :, None], model.init_state(2))
            loss = out.logsumexp(-1).sum()
            with torch.autocast("cpu", torch.bfloat16, enabled=within):
                found.append([*torch.autograd.grad(loss, list(model.parameters()))])
    for inside, outside in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(inside, outside, rtol=1e-5, atol=1e-6)
