from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.attention.feature_maps import EluConfig, FavorConfig, FeatureMapConfig, ReluConfig
from relpe.attention.linear import fla as fla_backend
from relpe.attention.linear.attention import LinearState, causal_linear_attention, linear_attention
from relpe.attention.linear.chunked import Tiling, tiling
from tests.support import reference_linear as reference
from tests.support.compared import compare_with_gradients
from tests.support.golden_spe import golden

TILINGS = {
    "the device's": None,
    "a loop": Tiling(64, 1, 8, torch.float64),
    "a loop over rows too": Tiling(32, 1, 2, torch.float64),
    "several chunks": Tiling(16, 3, 3, torch.float64),
    "all at once": Tiling(128, 16, 99, torch.float64),
}
MAPS = {"favor": FavorConfig(num_features=4), "relu": ReluConfig(), "elu": EluConfig()}


def golden_features(kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    omega = golden("attn_omega")
    config = FavorConfig(num_features=2 * omega.shape[1]) if kind == "favor" else MAPS[kind]
    q, k = (config.build()(golden(f"attn_{x}"), omega) for x in "qk")
    return q.values, k.values, k.log_scale


def empty(like: torch.Tensor, width: int) -> LinearState:
    rows, _, heads, features = like.shape
    return LinearState.empty((rows, heads, features, width), device=like.device, dtype=like.dtype)


@pytest.mark.parametrize("kind", MAPS)
def test_attention_and_sums_match_the_original(kind: str) -> None:
    q, k, log_scale = golden_features(kind)
    v = golden("attn_v")
    if kind == "favor":
        assert log_scale is not None
        features = k * log_scale.exp()[..., None]
        torch.testing.assert_close(features, golden("attn_favor_phi_k"), rtol=1e-10, atol=1e-10)
    out, state = causal_linear_attention(q, k, v, empty(q, v.shape[-1]), log_scale)
    torch.testing.assert_close(out, golden(f"attn_causal_{kind}_eps0"), rtol=1e-10, atol=1e-10)
    scale = state.log_scale.exp()
    torch.testing.assert_close(
        state.kv * scale[..., None, None], golden(f"attn_state_S_{kind}"), rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        state.k_sum * scale[..., None], golden(f"attn_state_Z_{kind}"), rtol=1e-10, atol=1e-10
    )


def inputs(length: int, kind: str, seed: int = 0, size: float = 1.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 2, length, 2, 4, dtype=torch.float64, generator=generator) * size
    map_config: FeatureMapConfig = MAPS[kind]
    feature_map = map_config.build()
    projection = feature_map.draw(4, generator)
    projection = None if projection is None else projection.double()
    return q, k, v, torch.empty(0) if projection is None else projection


def run(
    kind: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    projection: torch.Tensor,
    pieces: list[int],
    how: Tiling | None = None,
) -> torch.Tensor:
    feature_map = MAPS[kind].build()
    queries, keys = feature_map(q, projection), feature_map(k, projection)
    state = empty(queries.values, v.shape[-1])
    outs, start = [], 0
    for size in pieces:
        span = slice(start, start + size)
        scale = None if keys.log_scale is None else keys.log_scale[:, span]
        out, state = causal_linear_attention(
            queries.values[:, span], keys.values[:, span], v[:, span], state, scale, how
        )
        outs.append(out)
        start += size
    return torch.cat(outs, 1)


@given(
    pieces=st.lists(st.integers(1, 90) | st.just(1), min_size=1, max_size=5),
    kind=st.sampled_from(sorted(MAPS)),
    tiling=st.sampled_from(sorted(TILINGS)),
    seed=st.integers(0, 99),
)
def test_any_split_matches_the_naive_result_and_gradients(
    pieces: list[int], kind: str, tiling: str, seed: int
) -> None:
    q, k, v, projection = inputs(sum(pieces), kind, seed)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    fast = run(kind, leaves[0], leaves[1], leaves[2], projection, pieces, TILINGS[tiling])
    a, b = (MAPS[kind].build()(x, projection) for x in leaves[:2])
    slow = reference.causal_linear_attention(a.values, b.values, leaves[2], b.log_scale)
    compare_with_gradients(fast, slow, leaves, rtol=1e-7, atol=1e-9)


def test_nothing_depends_on_a_later_key() -> None:
    q, k, v, projection = inputs(100, "favor")
    before = run("favor", q, k, v, projection, [100])
    k, v = k.clone(), v.clone()
    k[:, 70:] *= 30  # large enough to change a maximum over the whole sequence
    v[:, 70:] += 1
    assert torch.equal(run("favor", q, k, v, projection, [100])[:, :70], before[:, :70])


def test_large_keys_do_not_overflow() -> None:
    q, k, v, projection = (x.float() for x in inputs(200, "favor", size=30.0))
    assert run("favor", q, k, v, projection, [200]).isfinite().all()


def test_a_query_without_keys_gives_zero() -> None:
    q, v = torch.ones(1, 3, 1, 2), torch.ones(1, 3, 1, 2)
    out, _ = causal_linear_attention(q, torch.zeros_like(q), v, empty(q, 2))
    assert torch.equal(out, torch.zeros_like(v))


def test_random_features_estimate_the_softmax_kernel() -> None:
    q, k = (0.6 * torch.randn(2, 5, 6, dtype=torch.float64)).unbind(0)
    feature_map = FavorConfig(num_features=8).build()
    generator = torch.Generator().manual_seed(1)
    exact = torch.exp(q @ k.T / 6**0.5)
    estimates = []
    for _ in range(1000):
        projection = feature_map.draw(6, generator).double()
        a, b = feature_map(q, projection), feature_map(k, projection)
        assert a.log_scale is not None
        assert b.log_scale is not None
        estimates.append(
            (a.values * a.log_scale.exp()[:, None]) @ (b.values * b.log_scale.exp()[:, None]).T
        )
    stacked = torch.stack(estimates)
    error = stacked.std(0) / len(estimates) ** 0.5
    assert ((stacked.mean(0) - exact).abs() <= 5 * error).all()


@pytest.mark.parametrize("scales", ["none", "shared", "own"])
def test_bfloat16_rounds_products_and_sums_are_exact(scales: str) -> None:
    a, b = torch.rand(2, 2, 700, 2, 8) + 0.1  # avoids cancellation in gradients
    v = torch.randn(2, 700, 2, 4)
    log_scale = 0.01 * torch.arange(700.0)[None, :, None].expand(1, 700, 2)
    if scales == "own":
        log_scale = log_scale + torch.randn(2, 700, 2)
    grad = torch.randn(v.shape)

    def results(how: Tiling) -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in (a, b, v)]
        scale = None if scales == "none" else log_scale
        out, state = causal_linear_attention(
            leaves[0], leaves[1], leaves[2], empty(a, 4), scale, how
        )
        assert state.kv.dtype == torch.float32
        return [out, *state, *torch.autograd.grad(out, leaves, grad)]

    narrow = results(Tiling(128, 4, 2, torch.bfloat16))
    for rounded, exact in zip(narrow, results(Tiling(64, 1, 8, torch.float32)), strict=True):
        assert (rounded - exact).norm() <= 0.02 * exact.norm()


def test_long_sums_in_bfloat16_do_not_stall() -> None:
    """Bfloat16 cannot count beyond 256, so a mean over 5,000 equal keys needs wider sums."""
    q = torch.ones(1, 5000, 1, 2)
    v = torch.linspace(0, 1, 5000)[None, :, None, None].expand(1, 5000, 1, 2)
    how = Tiling(128, 16, 8, torch.bfloat16)
    out, _ = causal_linear_attention(q, q, v, empty(q, 2), None, how)
    torch.testing.assert_close(out, v / 2, rtol=0.01, atol=0.003)


# ---- attention from all queries to all keys


@pytest.mark.parametrize("kind", MAPS)
def test_masked_attention_matches_the_original(kind: str) -> None:
    q, k, log_scale = golden_features(kind)
    mask = torch.arange(k.shape[1]) < golden("attn_lengths")[:, None]
    out = linear_attention(q, k, golden("attn_v"), mask, log_scale)
    # the original adds 1e-6 to denominators; this implementation does not
    torch.testing.assert_close(out, golden(f"attn_full_masked_{kind}"), rtol=1e-4, atol=1e-6)


def everything(kind: str, seed: int = 0) -> tuple[torch.Tensor, ...]:
    q, k, v, projection = inputs(30, kind, seed)
    a, b = MAPS[kind].build()(q[:, :13], projection), MAPS[kind].build()(k, projection)
    scale = torch.zeros(k.shape[:3], dtype=k.dtype) if b.log_scale is None else b.log_scale
    return a.values, b.values, v, torch.rand(2, 30) < 0.6, scale


@pytest.mark.parametrize("kind", MAPS)
def test_outputs_are_weighted_means_of_the_unmasked_values(kind: str) -> None:
    """Hence the order of keys does not matter."""
    q, k, v, mask, scale = everything(kind)
    weights = torch.einsum("blhf,bshf->bhls", q, k) * scale.exp().permute(0, 2, 1)[:, :, None]
    weights = weights * mask[:, None, None]
    expected = torch.einsum("bhls,bshe->blhe", weights / weights.sum(-1, keepdim=True), v)
    torch.testing.assert_close(linear_attention(q, k, v, mask, scale), expected)


@pytest.mark.parametrize("kind", MAPS)
def test_padding_has_no_effect(kind: str) -> None:
    q, k, v, mask, scale = everything(kind)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = linear_attention(q, k, v, mask, scale)
    grads = torch.autograd.grad(out.square().sum(), leaves)
    bad_k, bad_v = (x.detach().masked_fill(~mask[..., None, None], torch.inf) for x in (k, v))
    worse = linear_attention(q, bad_k, bad_v, mask, scale.masked_fill(~mask[..., None], 500.0))
    assert torch.equal(worse, out)
    for grad in grads[1:]:
        assert not grad[~mask].any()
    assert all(grad.isfinite().all() for grad in grads)
    nothing = linear_attention(q, k, v, torch.zeros_like(mask), scale)
    assert torch.equal(nothing, torch.zeros_like(nothing))


# ---- kernels of flash-linear-attention


def simple_gla(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    g: torch.Tensor | None,
    scale: float,
    initial_state: torch.Tensor,
    output_final_state: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operation of the package as documented, one position at a time; it requires a GPU."""
    assert output_final_state
    sums, outs = initial_state.double(), []
    for place in range(q.shape[1]):
        if g is not None:
            sums = sums * g[:, place, :, None, None].exp().double()
        sums = sums + k[:, place, :, :, None].double() * v[:, place, :, None].double()
        outs.append((scale * q[:, place, :, None].double() @ sums)[..., 0, :])
    return torch.stack(outs, 1).to(v.dtype), sums


@pytest.mark.parametrize("kind", MAPS)
def test_the_package_computes_the_same_attention(kind: str) -> None:
    q, k, v, projection = inputs(60, kind)
    a, b = MAPS[kind].build()(q, projection), MAPS[kind].build()(k, projection)
    state = other = empty(a.values, 4)
    for span in (slice(0, 20), slice(20, 60)):
        scale = None if b.log_scale is None else b.log_scale[:, span]
        parts = a.values[:, span], b.values[:, span], v[:, span]
        out, state = causal_linear_attention(*parts, state, scale)
        same, other = fla_backend.causal_linear_attention(*parts, other, scale, simple_gla)
        torch.testing.assert_close(same, out, rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(state, other, strict=True):
            torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-6)


class Package(ModuleType):
    """Fake of the package with `operation`; if that is an exception, it is raised on access."""

    def __init__(self, operation: object) -> None:
        super().__init__("fla.ops.simple_gla")
        self.operation = operation

    def __getattr__(self, name: str) -> object:
        if name != "chunk_simple_gla":
            raise AttributeError(name)
        if isinstance(self.operation, Exception):
            raise self.operation
        return self.operation


def broken(*args: object, **kwargs: object) -> None:
    raise RuntimeError("no such instruction")


def wrong(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    out, sums = simple_gla(q, k, v, **options)
    return out * 1.1, sums


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (ImportError(), None),
        (ValueError("key contains names"), "its import failed.*key contains names"),
        (broken, "its test failed.*no such instruction"),
        (wrong, "relative error is"),
    ],
)
def test_a_package_that_fails_or_disagrees_is_not_used(
    operation: object,
    message: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "fla.ops.simple_gla", Package(operation))
    fla_backend.kernel.cache_clear()
    assert fla_backend.kernel(torch.device("cpu")) is None
    assert re.search(message, caplog.text) if message else not caplog.text
    monkeypatch.setitem(sys.modules, "fla.ops.simple_gla", Package(simple_gla))
    fla_backend.kernel.cache_clear()
    with torch.inference_mode():  # as if generation were its first use
        assert fla_backend.kernel(torch.device("cpu")) is simple_gla
    fla_backend.kernel.cache_clear()


def test_the_package_is_used_only_for_bfloat16_on_gpus() -> None:
    assert not fla_backend.serves(torch.zeros(1, dtype=torch.bfloat16))


def test_float16_is_never_summed_in_float16() -> None:
    assert tiling(torch.device("cuda"), torch.float16, torch.float32).dtype == torch.float32
    assert tiling(torch.device("cuda"), torch.bfloat16, torch.float32).dtype == torch.bfloat16


def test_empty_inputs_change_nothing() -> None:
    q, v = torch.zeros(2, 0, 2, 4), torch.zeros(2, 0, 2, 3)
    out, state = causal_linear_attention(q, q, v, empty(q, 3))
    assert out.shape == v.shape
    assert not state.kv.any()
    assert not linear_attention(torch.ones(2, 5, 2, 4), q, v, None, v[..., 0]).any()


def test_values_without_features_leave_the_sums_of_keys() -> None:
    """As the denominator alone is computed where rotations are in the numerator."""
    draw = torch.Generator().manual_seed(0)
    q, k = torch.rand(2, 3, 100, 2, 4, dtype=torch.float64, generator=draw).unbind(0)
    v = torch.zeros(3, 100, 2, 0, dtype=torch.float64)
    for how in TILINGS.values():
        out, state = causal_linear_attention(q, k, v, empty(q, 0), None, how)
        assert out.shape == v.shape
        torch.testing.assert_close(state.k_sum, k.sum(1))
