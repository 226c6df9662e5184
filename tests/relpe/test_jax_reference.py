"""The functions in JAX have the values and gradients of the modules, or else golden values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.stochastic.conv import ConvSPEConfig
from relpe.encodings.stochastic.sine import SineNoise, SineSPEConfig
from tests.support import golden_algebraic
from tests.support.filtered import state_with

jax = pytest.importorskip("jax")
jnp = jax.numpy

from relpe import jax_reference as reference  # noqa: E402


@pytest.fixture(autouse=True)
def _float64():
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def close(found, wanted, tolerance: float = 1e-10) -> None:
    both = np.asarray(found), np.asarray(wanted)
    np.testing.assert_allclose(*both, rtol=tolerance, atol=tolerance)


def test_maps_of_sequences_are_the_golden_ones() -> None:
    golden = golden_algebraic.ARRAYS
    base = golden["seq/base/f64"]
    mapped = {}
    for side in "qk":
        x = golden[f"seq/{side}/f64"].swapaxes(2, 3)  # stored as (b, l, d, h)
        mapped[side] = reference.mapped(x, base, golden[f"seq/{side}_positions"])
        close(mapped[side].swapaxes(2, 3), golden[f"seq/{side}_mapped/f64"], 1e-11)
    scores = jnp.einsum("blhd,bshd->blsh", mapped["q"], mapped["k"]) / 8**0.5
    close(scores, golden["seq/scores/f64"], 1e-11)
    units = np.eye(8)[None, None, :, None].repeat(7, 1).repeat(2, 3)  # (1, l, d, h, d)
    positions = golden["ext/real_positions"]
    found = [reference.mapped(units[:, :, i], base, positions)[0] for i in range(8)]
    close(jnp.stack(found, -1), golden["ext/real_maps/f64"], 1e-8)


def test_turned_pairs_are_the_golden_rotary_embedding() -> None:
    golden = golden_algebraic.ARRAYS
    angles = golden["rope/thetas/f64"][None].repeat(2, 0)
    for side in "qk":
        x = golden[f"seq/self_{side}/f64"].swapaxes(2, 3)
        found = reference.turned(x, angles, np.arange(12))
        close(found.swapaxes(2, 3), golden[f"rope/{side}_mapped/f64"], 1e-6)  # angles of float32


def gradients_agree(function, module_out: torch.Tensor, pairs: list) -> None:
    """Compares values and gradients of a function of arrays with those of a module.

    `pairs` are the arguments, and the gradient that the module has for each.
    """
    weights = np.random.default_rng(0).normal(size=module_out.shape)
    arguments, parameters = zip(*pairs, strict=True)
    close(function(*arguments), module_out.detach(), 1e-10)
    grads = torch.autograd.grad((module_out * torch.from_numpy(weights)).sum(), parameters)
    found = jax.grad(lambda *x: (function(*x) * weights).sum(), range(len(arguments)))(*arguments)
    for one, other in zip(found, grads, strict=True):
        close(np.asarray(one).reshape(other.shape), other, 1e-9)


def arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.detach().numpy() for tensor in tensors]


def test_gradients_of_sine_spe_are_those_of_the_module() -> None:
    module = SineSPEConfig(num_sines=3, num_realizations=6).build(num_heads=2, head_dim=4).double()
    q = torch.randn(2, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([0, 3, 1, 700, 12])
    drawn = SineNoise(torch.randn(2, 4, 3, 2, 6).double(), torch.randn(1, 2, 4, 6).double())
    codes, _ = module.prepare(positions[None, :, None], drawn)
    out, _ = module.encode(q, q, codes, 0)
    sines, constant = arrays(drawn.sines, drawn.gates)

    def function(x, frequencies, offsets, gains, raw_gates):
        code, _ = reference.sine_codes(frequencies, offsets, gains, sines, positions.numpy())
        return reference.encoded(x, reference.gated(code, raw_gates[0], constant[0]))

    gates = module.gates
    assert gates is not None
    parameters = (q, module.frequencies, module.offsets, module.gains, gates)
    gradients_agree(function, out, list(zip(arrays(*parameters), parameters, strict=True)))


def test_gradients_of_convolutional_spe_are_those_of_the_module() -> None:
    config = ConvSPEConfig(taps=(4,), num_realizations=6, gated=False)
    module = config.build(num_heads=2, head_dim=4).double()
    k = torch.randn(2, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(2, 4, 8, 6).double()
    codes, _ = module.prepare(torch.arange(5)[None, :, None], state_with(module, noise, (0,)))
    q, k_out = module.encode(k, k, codes, 0)

    def function(x, query_taps, key_taps):
        codes = reference.convolved_codes(query_taps, key_taps, noise.numpy())
        return jnp.stack([reference.encoded(x, code) for code in codes])

    parameters = (k, module.query_filter, module.key_filter)
    pairs = list(zip(arrays(*parameters), parameters, strict=True))
    gradients_agree(function, torch.stack([q, k_out]), pairs)


def test_gradients_of_the_algebraic_encoding_are_those_of_the_module() -> None:
    module = AlgebraicConfig().build(num_heads=2, head_dim=6).double()
    q = torch.randn(2, 4, 2, 6, dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([0, 5, 2, 9000])
    codes, _ = module.prepare(positions[None, :, None], module.init_state(0, q.device))
    out, _ = module.encode(q, q, codes, 0)
    [angles] = module.parameters()

    def function(x, raw):
        return reference.turned(x, raw.reshape(2, 3), positions.numpy())

    gradients_agree(function, out, list(zip(arrays(q, angles), (q, angles), strict=True)))
