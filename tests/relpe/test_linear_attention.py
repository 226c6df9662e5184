from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe import reference
from relpe.feature_maps import EluConfig, FavorConfig, FeatureMapConfig, ReluConfig
from relpe.linear_attention import LinearState, causal_linear_attention

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "spe.npz", allow_pickle=False)
MAPS = {"favor": FavorConfig(num_features=4), "relu": ReluConfig(), "elu": EluConfig()}


def golden(name: str) -> torch.Tensor:
    return torch.from_numpy(GOLDEN[name])


def golden_features(kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    omega = golden("attn_omega")
    config = FavorConfig(num_features=2 * omega.shape[1]) if kind == "favor" else MAPS[kind]
    q, k = (config.build()(golden(f"attn_{x}"), omega) for x in "qk")
    return q.values, k.values, k.log_scale


def empty(like: torch.Tensor, width: int) -> LinearState:
    rows, _, heads, features = like.shape
    return LinearState.empty((rows, heads, features, width), device=like.device, dtype=like.dtype)


@pytest.mark.parametrize("kind", MAPS)
def test_attention_and_sums_are_those_of_the_original(kind: str) -> None:
    q, k, log_scale = golden_features(kind)
    v = golden("attn_v")
    out, state = causal_linear_attention(q, k, v, empty(q, v.shape[-1]), log_scale)
    torch.testing.assert_close(out, golden(f"attn_causal_{kind}_eps0"), rtol=1e-10, atol=1e-10)
    scale = state.log_scale.exp()
    torch.testing.assert_close(
        state.kv * scale[..., None, None], golden(f"attn_state_S_{kind}"), rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        state.k_sum * scale[..., None], golden(f"attn_state_Z_{kind}"), rtol=1e-10, atol=1e-10
    )


def test_favor_features_are_those_of_the_original() -> None:
    q, k, _ = golden_features("favor")
    del q
    omega = golden("attn_omega")
    made = FavorConfig(num_features=2 * omega.shape[1]).build()(golden("attn_k"), omega)
    assert made.log_scale is not None
    torch.testing.assert_close(
        k * made.log_scale.exp()[..., None], golden("attn_favor_phi_k"), rtol=1e-10, atol=1e-10
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
) -> torch.Tensor:
    feature_map = MAPS[kind].build()
    queries, keys = feature_map(q, projection), feature_map(k, projection)
    state = empty(queries.values, v.shape[-1])
    outs, start = [], 0
    for size in pieces:
        span = slice(start, start + size)
        scale = None if keys.log_scale is None else keys.log_scale[:, span]
        out, state = causal_linear_attention(
            queries.values[:, span], keys.values[:, span], v[:, span], state, scale
        )
        outs.append(out)
        start += size
    return torch.cat(outs, 1)


@given(
    pieces=st.lists(st.integers(1, 90), min_size=1, max_size=5),
    kind=st.sampled_from(sorted(MAPS)),
    seed=st.integers(0, 99),
)
def test_any_split_equals_the_slow_whole_with_gradients(
    pieces: list[int], kind: str, seed: int
) -> None:
    length = sum(pieces)
    q, k, v, projection = inputs(length, kind, seed)
    grad = torch.randn(2, length, 2, 4, dtype=torch.float64)

    def results(fast: bool) -> tuple[torch.Tensor, ...]:
        leaves = a, b, c = tuple(x.clone().requires_grad_() for x in (q, k, v))
        if fast:
            out = run(kind, a, b, c, projection, pieces)
        else:
            a, b = (MAPS[kind].build()(x, projection) for x in leaves[:2])
            out = reference.causal_linear_attention(a.values, b.values, leaves[2], b.log_scale)
        return (out, *torch.autograd.grad(out, leaves, grad))

    for fast, slow in zip(results(True), results(False), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", MAPS)
def test_nothing_depends_on_a_later_key(kind: str) -> None:
    q, k, v, projection = inputs(100, kind)
    before = run(kind, q, k, v, projection, [100])
    k, v = k.clone(), v.clone()
    k[:, 70:] *= 30  # a large later key would show through a maximum over the whole sequence
    v[:, 70:] += 1
    assert torch.equal(run(kind, q, k, v, projection, [100])[:, :70], before[:, :70])


def test_large_keys_do_not_overflow() -> None:
    q, k, v, projection = (x.float() for x in inputs(200, "favor", size=30.0))
    assert run("favor", q, k, v, projection, [200]).isfinite().all()


def test_a_query_without_keys_gives_zero() -> None:
    q, v = torch.ones(1, 3, 1, 2), torch.ones(1, 3, 1, 2)
    out, _ = causal_linear_attention(q, torch.zeros_like(q), v, empty(q, 2))
    assert torch.equal(out, torch.zeros_like(v))


def test_random_features_estimate_the_softmax_kernel() -> None:
    q, k = torch.randn(2, 5, 6, dtype=torch.float64).unbind(0)
    feature_map = FavorConfig(num_features=8).build()
    generator = torch.Generator().manual_seed(1)
    exact = torch.exp(q @ k.T / 6**0.5)
    estimates = []
    for _ in range(3000):
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


@pytest.mark.parametrize("kind", MAPS)
def test_the_recurrent_step_equals_the_chunked_operation(kind: str) -> None:
    q, k, v, projection = inputs(20, kind, size=3.0)
    with torch.no_grad():
        steps = run(kind, q, k, v, projection, [1] * 20)
    torch.testing.assert_close(steps, run(kind, q, k, v, projection, [20]), rtol=1e-9, atol=1e-10)
