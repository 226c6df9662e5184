from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from relpe import reference
from relpe.attention import SoftmaxAttentionConfig, causal_convolution
from relpe.feature_maps import FavorConfig, Features, ReluConfig
from relpe.linear_attention import LinearState, causal_linear_attention

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "spe.npz", allow_pickle=False)


def golden(name: str) -> torch.Tensor:
    return torch.from_numpy(GOLDEN[name])


def test_softmax_attention_is_exact() -> None:
    q, k, v = (golden(f"attn_{name}") for name in "qkv")
    operation = SoftmaxAttentionConfig().build(in_features=q.shape[-1])
    shape = (q.shape[0], q.shape[2], v.shape[-1])
    state = operation.init_state(shape, torch.Generator(), v)
    state = type(state)(torch.zeros(*q.shape[:1], 0, *q.shape[2:]), state.values)
    out, _ = operation(q, k, v, state)
    torch.testing.assert_close(out, golden("attn_causal_exact_softmax"), rtol=1e-9, atol=1e-9)


def test_the_limit_of_many_draws_is_softmax_of_the_expected_logits() -> None:
    out = reference.softmax_attention(golden("filt_expected_logits"), golden("e2e_v"))
    torch.testing.assert_close(out, golden("e2e_limit_softmax"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["favor", "relu"])
def test_encoded_queries_and_keys_through_attention_are_those_of_the_original(kind: str) -> None:
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


def test_the_shapes_of_signatures_are_checked() -> None:
    q, v = torch.ones(1, 4, 2, 3), torch.ones(1, 5, 2, 3)
    state = LinearState.empty((1, 2, 3, 3), device=q.device, dtype=torch.float32)
    with pytest.raises(Exception, match="type"):
        causal_linear_attention(q, q, v, state)


def test_the_short_convolution_is_a_convolution_with_gradients() -> None:
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
