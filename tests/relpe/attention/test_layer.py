from __future__ import annotations

import math

import pytest
import torch

from relpe.attention.feature_maps import FavorConfig, FeatureMapConfig, Features, ReluConfig
from relpe.attention.layer import causal_convolution
from relpe.attention.linear.attention import LinearState, causal_linear_attention
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from tests.support import reference_linear as reference
from tests.support.compared import compare_with_gradients
from tests.support.golden_spe import golden


def test_softmax_attention_is_exact() -> None:
    q, k, v = (golden(f"attn_{name}") for name in "qkv")
    operation = SoftmaxAttentionConfig().build()
    shape = (q.shape[0], q.shape[2], v.shape[-1])
    state = operation.init_state(shape, torch.Generator(), v, q.shape[-1])
    out, _ = operation(q, k, v, state)
    torch.testing.assert_close(out, golden("attn_causal_exact_softmax"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["favor", "relu"])
def test_attention_of_encoded_queries_and_keys_matches_the_original(kind: str) -> None:
    q, k, v = golden("filt_qhat"), golden("filt_khat"), golden("e2e_v")
    omega = golden("e2e_omega") if kind == "favor" else None
    config = FavorConfig(num_features=2 * golden("e2e_omega").shape[1])
    feature_map = config.build() if kind == "favor" else ReluConfig().build()
    queries, keys = feature_map(q, omega), feature_map(k, omega)
    rows, _, heads, features = queries.values.shape
    state = LinearState.empty(
        (rows, heads, features, v.shape[-1]), device=q.device, dtype=torch.float64
    )
    out, _ = causal_linear_attention(queries.values, keys.values, v, state, keys.log_scale)
    # the original adds 1e-6 to the denominator
    denominator = torch.einsum("blhf,bshf->bhls", queries.values, true_size(keys)).tril().sum(-1)
    denominator = denominator.mT[..., None]
    if queries.log_scale is not None:
        denominator = denominator * queries.log_scale.exp()[..., None]
    out = out * denominator / (denominator + 1e-6)
    torch.testing.assert_close(out, golden(f"e2e_causal_{kind}"), rtol=1e-9, atol=1e-9)


def true_size(features: Features) -> torch.Tensor:
    if features.log_scale is None:
        return features.values
    return features.values * features.log_scale.exp()[..., None]


def test_the_short_convolution_matches_torch_with_gradients() -> None:
    x = torch.randn(2, 9, 3, dtype=torch.float64, requires_grad=True)
    taps = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    recent = torch.randn(2, 3, 3, dtype=torch.float64)
    out, last = causal_convolution(x, taps, recent)
    history = torch.cat([recent, x], 1).mT
    wanted = torch.nn.functional.conv1d(history, taps[:, None], groups=3).mT
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(last, x[:, -3:])
    assert torch.autograd.gradcheck(
        lambda x, taps: causal_convolution(x, taps, recent)[0], (x, taps)
    )


@pytest.mark.parametrize("config", [ReluConfig(), FavorConfig(num_features=8)])
def test_fading_keys_match_the_naive_result_and_gradients(config: FeatureMapConfig) -> None:
    operation = LinearAttentionConfig(feature_map=config, half_lives=(1.5, 60.0)).build()
    q, k, v = torch.randn(3, 2, 150, 3, 4, dtype=torch.float64).requires_grad_().unbind()
    state = operation.init_state((2, 3, 4), torch.Generator().manual_seed(1), v.detach(), 4)
    projection = None if state.projection is None else state.projection.double()
    queries, keys = (operation.feature_map(x, projection) for x in (q, k))
    lives = torch.tensor([1.5, math.sqrt(1.5 * 60), 60.0], dtype=torch.float64)
    slow = reference.causal_linear_attention(
        queries.values, keys.values, v, keys.log_scale, half_lives=lives
    )
    outs = []
    for part in range(3):  # the state includes the decay so far
        span = slice(50 * part, 50 * part + 50)
        out, state = operation(q[:, span], k[:, span], v[:, span], state)
        outs.append(out)
    fast = torch.cat(outs, 1)
    compare_with_gradients(fast, slow, (q, k, v), rtol=1e-6, atol=1e-8)


def test_large_queries_and_keys_have_gradients() -> None:
    """Products of exponentials underflow, and the inverse of their sum would overflow."""
    operation = LinearAttentionConfig(feature_map=FavorConfig(num_features=64)).build()
    for size in (5.0, 30.0):
        q, k, v = (size * torch.randn(3, 2, 100, 2, 32)).unbind(0)
        q, k, v = (x.requires_grad_() for x in (q, k, v / size))
        state = operation.init_state((2, 2, 32), torch.Generator().manual_seed(0), q, 32)
        out, _ = operation(q, k, v, state)
        grads = torch.autograd.grad(out.square().sum(), [q, k, v])
        assert all(x.isfinite().all() for x in (out, *grads))


@pytest.mark.parametrize("half_lives", [(1, 1024), (1, 1)])
def test_keys_fade_exactly_in_long_calls(half_lives: tuple[float, float]) -> None:
    operation = LinearAttentionConfig(half_lives=half_lives).build()
    q, k, v = torch.randn(3, 1, 8000, 2, 4).unbind(0)
    state, pieces = operation.init_state((1, 2, 4), torch.Generator(), q, 4), []
    whole, _ = operation(q, k, v, state)
    for parts in zip(*(x.split(400, 1) for x in (q, k, v)), strict=True):
        some_q, some_k, some_v = parts
        out, state = operation(some_q, some_k, some_v, state)
        pieces.append(out)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=1e-4, atol=2e-6)
    assert state.sums.log_scale.dtype == torch.float32


def test_invalid_half_lives_are_refused() -> None:
    for half_lives in ((0, 1), (1, float("nan")), (1, float("inf")), (-1, 2)):
        with pytest.raises(ValueError, match="expected two positive numbers"):
            LinearAttentionConfig(half_lives=half_lives).build()
