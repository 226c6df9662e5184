from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.feature_maps import EluConfig, FavorConfig, ReluConfig
from relpe.attention.layer import SelfAttention
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import (
    AlgebraicConfig,
    AlibiConfig,
    NoEncodingConfig,
    RopeConfig,
    SinusoidConfig,
    SirenConfig,
    TransformerXLConfig,
)
from relpe.encodings.base import QueryKeyEncoding
from relpe.encodings.offset.windows import WindowConfig
from relpe.encodings.stochastic.sine import SineSPEConfig
from relpe.models.blocks import Block
from relpe.models.decoder import Decoder, DecoderConfig
from tests.support.paths import GOLDEN_FOLDER
from training.evaluation.metrics.relative import (
    _Probe,
    monotonicity_violation,
    positional_maps,
    relativity,
    translation_invariance,
)

GOLDEN = np.load(GOLDEN_FOLDER / "spe.npz", allow_pickle=False)
MEASURES = (translation_invariance, monotonicity_violation)
few = settings(max_examples=30)
LINEAR_FADING = LinearAttentionConfig(feature_map=EluConfig(), half_lives=(1.0, 16.0))
SOFTMAX, WINDOWED = SoftmaxAttentionConfig(), WindowedAttentionConfig(span=6)


def decoder(attention, encoding, **changes) -> Decoder:
    torch.manual_seed(1)
    sizes = {"vocabulary_size": 8, "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 8}
    config = DecoderConfig(**{**sizes, "attention": attention, "encoding": encoding, **changes})
    return config.build()


def attention_of(model: Decoder, layer: int) -> SelfAttention:
    block = model.blocks[layer]
    assert isinstance(block, Block)
    return block.attention


def random_map(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, size))


def test_golden_maps_have_the_published_values():
    for row in GOLDEN["pem_results"]:
        first, last, offset = (None if value < 0 else int(value) for value in row[:3])
        limits = {"min_pos": first or 0, "max_pos": last, "max_offset": offset}
        found = [measure(GOLDEN["pem_map"], **limits) for measure in MEASURES]
        assert found == pytest.approx(row[3:5].tolist(), rel=1e-12)


@few
@given(seed=st.integers(0, 9), size=st.integers(1, 40), limit=st.none() | st.integers(0, 8))
def test_a_toeplitz_map_has_t_of_0(seed, size, limit):
    lags = np.random.default_rng(seed).normal(size=2 * size)
    toeplitz = lags[size + np.subtract.outer(np.arange(size), np.arange(size))]
    assert translation_invariance(toeplitz, max_offset=limit) == pytest.approx(0, abs=1e-20)
    columns = np.tile(random_map(seed, 64)[0], (64, 1))  # equal columns are far from it
    assert translation_invariance(columns) > 0.8


@few
@given(seed=st.integers(0, 9), scale=st.floats(0.1, 10), shift=st.floats(-5, 5))
def test_neither_measure_changes_with_scale_and_shift(seed, scale, shift):
    scores = random_map(seed, 12)
    for measure in MEASURES:
        assert measure(scale * scores + shift) == pytest.approx(measure(scores), rel=1e-9)


@few
@given(seed=st.integers(0, 9), size=st.integers(2, 80), limit=st.none() | st.integers(1, 80))
def test_scores_rising_towards_the_diagonal_have_m_of_0_and_falling_ones_1(seed, size, limit):
    growing = np.sort(random_map(seed, size), 1)
    assert monotonicity_violation(growing, max_offset=limit) == 0
    assert monotonicity_violation(-growing, max_offset=limit) == 1
    assert monotonicity_violation(np.ones((size, size)), max_offset=limit) == 0


@few
@given(
    seed=st.integers(0, 99),
    size=st.integers(1, 40),
    first=st.integers(0, 20),
    limit=st.none() | st.integers(0, 40),
)
def test_m_counts_every_pair(seed, size, first, limit):
    scores = np.random.default_rng(seed).integers(0, 5, (size, size)).astype(float)
    first = min(first, size - 1)
    violations = pairs = 0
    for query in range(first, size):
        keys = [k for k in range(query + 1) if limit is None or query - k <= limit]
        pairs += len(keys) * (len(keys) - 1) // 2
        violations += sum(scores[query, i] > scores[query, j] for i in keys for j in keys if i < j)
    found = monotonicity_violation(scores, min_pos=first, max_offset=limit)
    assert found == pytest.approx(violations / pairs) if pairs else np.isnan(found)


def test_invalid_maps_are_refused():
    for measure in MEASURES:
        with pytest.raises(ValueError, match="expected"):
            measure(np.zeros((2, 3)))
        with pytest.raises(ValueError, match="no scores"):
            measure(np.zeros((2, 2)), min_pos=2)
        with pytest.raises(ValueError, match="not finite"):
            measure(np.array([[0, 0], [np.inf, 0.0]]))


@pytest.mark.parametrize(
    ("attention", "encoding"),
    [
        (SOFTMAX, TransformerXLConfig()),
        (SOFTMAX, SirenConfig(window=WindowConfig())),
        (WINDOWED, RopeConfig()),
        (WINDOWED, AlibiConfig()),
        (LINEAR_FADING, NoEncodingConfig()),
        (LinearAttentionConfig(feature_map=FavorConfig(num_features=8)), SineSPEConfig()),
        (LinearAttentionConfig(half_lives=(1.0, 8.0)), AlgebraicConfig(placement="numerator")),
    ],
    ids=lambda config: type(config).__name__,
)
def test_scores_give_the_weights_of_the_attention(attention, encoding):
    """If the values are the rows of the identity, the output is the attention weights."""
    model, length = decoder(attention, encoding).double(), 12
    probe = _Probe(attention_of(model, 1).operation)
    state = model.init_state(1)
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, length, 2, 8, generator=draw).double() for _ in range(2))
    positions = torch.arange(length)[None, :, None]
    codes, _ = model.encoding.prepare(positions, state.encodings[0])
    if isinstance(model.encoding, QueryKeyEncoding):
        q, k = model.encoding.encode(q, k, codes, 1)
    numerator = isinstance(encoding, AlgebraicConfig)
    scoring = model.encoding.scoring(codes, 1)
    eye = torch.eye(length, dtype=torch.float64)
    operation = attention_of(model, 1).operation
    empty = operation.init_state((1, 2, length), draw, eye, q.shape[-1])
    with torch.no_grad():
        weights, _ = probe(q, k, eye[None, :, None].expand(1, -1, 2, -1), empty, scoring)
        scores = probe.scores()
    weights = weights[0].transpose(0, 1)
    seen = torch.ones(2, length, length, dtype=torch.bool).tril()
    for head, span in enumerate(probe.spans()):
        if span is not None:
            seen[head] = seen[head].triu(1 - span)
    if attention.kind == "linear":
        expected = scores.masked_fill(~seen, 0.0)
        if not numerator:
            expected = expected / expected.sum(-1, keepdim=True)
        else:  # denominators differ, so rows agree up to a factor
            expected = expected * (weights[..., :1] / expected[..., :1])
    else:
        expected = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    torch.testing.assert_close(weights, expected, rtol=1e-8, atol=1e-12)


def test_exact_relative_encodings_are_translation_invariant_and_added_positions_are_not():
    for attention, encoding in ((WINDOWED, AlibiConfig()), (SOFTMAX, RopeConfig())):
        found = relativity(decoder(attention, encoding), 40, token=3, seeds=[0])
        assert found.translation_invariance.shape == (1, 2, 2)
        assert found.translation_invariance.max() < 1e-4
    found = relativity(decoder(SOFTMAX, SinusoidConfig()), 40, token=3, seeds=[0])
    assert found.translation_invariance.min() > 0.01
    noisy = decoder(SOFTMAX, SineSPEConfig(num_realizations=4))
    found = relativity(noisy, 20, token=3, seeds=[0, 1])
    assert found.translation_invariance.std(0).min() > 0  # each seed draws anew


def test_alibi_and_fading_keys_are_monotone():
    for attention, encoding in ((SOFTMAX, AlibiConfig()), (LINEAR_FADING, NoEncodingConfig())):
        model = decoder(attention, encoding, convolution_taps=0)
        found = relativity(model, 30, token=3, seeds=[0]).monotonicity_violation
        assert found.max() < 1e-9


def test_maps_are_reproducible_and_do_not_change_the_model():
    relu = LinearAttentionConfig(feature_map=ReluConfig())
    for attention, encoding in (
        (relu, SineSPEConfig(num_realizations=4)),
        (DeltaAttentionConfig(), RopeConfig()),
    ):
        model = decoder(attention, encoding)
        operation = attention_of(model, 0).operation
        first, second = (list(positional_maps(model, 10, token=3)) for _ in range(2))
        assert [maps.scores.shape for maps in first] == [(2, 10, 10)] * 2
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a.scores, b.scores)
            assert np.isfinite(a.scores).all()
            assert a.scores.any()
        assert attention_of(model, 0).operation is operation
        assert next(model.parameters()).dtype == torch.float32
