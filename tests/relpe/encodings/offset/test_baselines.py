from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.encodings.base import Encoding
from relpe.encodings.offset.baselines import (
    AlibiConfig,
    LearnedPositionConfig,
    ShawConfig,
    SinusoidConfig,
    TransformerXLConfig,
)
from relpe.encodings.offset.sinusoids import sinusoids
from relpe.encodings.offset.windows import WindowConfig
from tests.support.offsets_in_pieces import attend
from tests.support.paths import GOLDEN_FOLDER

FOLDER = GOLDEN_FOLDER
SIREN = np.load(FOLDER / "siren.npz", allow_pickle=False)
ALGEBRAIC = np.load(FOLDER / "algebraic.npz", allow_pickle=False)
SPE = np.load(FOLDER / "spe.npz", allow_pickle=False)
SHAPE = {"num_layers": 2, "num_heads": 2, "head_dim": 4}
CONFIGS = {
    "transformer_xl": TransformerXLConfig(num_sinusoids=6),
    "transformer_xl in a window": TransformerXLConfig(
        num_sinusoids=6, shared=True, window=WindowConfig(width=(3.0,), block=4)
    ),
    "transformer_xl within a span": TransformerXLConfig(num_sinusoids=6, span=7),
    "shaw": ShawConfig(window=5),
    "shaw within a span": ShawConfig(window=5, span=9),
    "alibi": AlibiConfig(),
    "alibi within a span": AlibiConfig(span=6),
}


def places(length: int, start: int = 0) -> torch.Tensor:
    return torch.arange(start, start + length)[None, :, None]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_features_of_the_baseline_are_those_of_the_original(dtype: torch.dtype) -> None:
    length = int(SIREN["baseline/structure_size"][0])
    config = TransformerXLConfig(num_sinusoids=6, origin=length - 1)
    encoding = config.build(num_layers=1, num_heads=2, head_dim=4).to(dtype)
    assert encoding.networks is not None
    (network,) = encoding.networks[0]  # type: ignore[misc]
    with torch.no_grad():
        network.project.weight.copy_(torch.from_numpy(SIREN["baseline/W"]))
        network.project.bias.copy_(torch.from_numpy(SIREN["baseline/b"]))
        offsets = torch.arange(1 - length, length, dtype=torch.float64)[:, None]
        features = encoding.features([offsets], 0)
    assert features is not None
    found = features.flatten(1)
    atol, rtol = (1e-9, 0) if dtype == torch.float64 else (2e-5, 1e-4)
    expected = torch.from_numpy(SIREN["baseline/E"]).to(dtype)
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol)
    crop = torch.from_numpy(SIREN["baseline/E_crop9"]).to(dtype)
    torch.testing.assert_close(found[length - 5 : length + 4], crop, atol=atol, rtol=rtol)


def test_features_of_the_baseline_do_not_depend_on_length_by_default() -> None:
    encoding = CONFIGS["transformer_xl"].build(**SHAPE)
    short, long = (table_of(encoding, n).features for n in (10, 30))
    assert short is not None
    assert long is not None
    torch.testing.assert_close(short, long[:10])


def table_of(encoding: Encoding, length: int, layer: int = 0) -> Any:
    codes, _ = encoding.prepare(places(length), encoding.init_state(0, torch.device("cpu")))
    return encoding.table(codes, layer)


def test_clamped_vectors_score_as_in_the_original() -> None:
    for suffix, atol in (("f64", 1e-11), ("f32", 1e-4)):
        q, k = (torch.from_numpy(ALGEBRAIC[f"seq/self_{x}/{suffix}"]).movedim(3, 2) for x in "qk")
        vectors = torch.from_numpy(ALGEBRAIC[f"rel/embedding/{suffix}"])
        config = ShawConfig(window=4)
        encoding = config.build(num_layers=1, num_heads=2, head_dim=8).to(vectors.dtype)
        with torch.no_grad():
            encoding.vectors.copy_(vectors)
            offsets = torch.arange(-11.0, 12.0, dtype=torch.float64)[:, None]
            table = encoding.table_of([offsets], offsets, 0)
        assert table.features is not None
        steps = torch.arange(12)
        features = table.features[steps - steps[:, None] + 11]  # key minus query
        scores = torch.einsum("blhd,bshd->blsh", q, k)
        scores = (scores + torch.einsum("blhd,lshd->blsh", q, features)) / 8**0.5
        expected = torch.from_numpy(ALGEBRAIC["rel/scores/f64"]).to(scores)
        torch.testing.assert_close(scores, expected, atol=atol, rtol=0)


def test_alibi_is_a_line_for_each_head() -> None:
    weight = table_of(AlibiConfig().build(num_layers=1, num_heads=8, head_dim=4), 5).log_weight
    slopes = torch.tensor([2.0**-i for i in range(1, 9)], dtype=torch.float64)
    torch.testing.assert_close(weight, -torch.arange(5.0).double()[:, None] * slopes)


def test_sinusoids_are_those_of_the_originals() -> None:
    table = torch.from_numpy(ALGEBRAIC["sin/table/f32"])
    made = sinusoids(torch.arange(64), 16).float()
    torch.testing.assert_close(made, table, atol=1e-5, rtol=0)
    table = torch.from_numpy(SPE["ape_table"])
    made = sinusoids(torch.arange(table.shape[0]), table.shape[1]).to(table)
    torch.testing.assert_close(made, table, atol=1e-6, rtol=0)


def test_sinusoids_are_added_to_scaled_embeddings() -> None:
    encoding = SinusoidConfig().build(**SHAPE)
    x = torch.randn(3, 6, 8)
    codes, _ = encoding.prepare(places(6, 10), ())
    table = sinusoids(torch.arange(10, 16), 8).float()
    torch.testing.assert_close(encoding.embed(x, codes), x * 8**0.5 + table)
    rows = places(6).expand(3, -1, -1) + torch.tensor([0, 5, 9])[:, None, None]
    codes, _ = encoding.prepare(rows, ())
    assert encoding.embed(x, codes).shape == x.shape


def test_sinusoids_of_far_positions_are_exact() -> None:
    far = sinusoids(torch.tensor([10**9]), 4)
    torch.testing.assert_close(far[0, 0], torch.tensor(10.0**9, dtype=torch.float64).sin())
    assert far.dtype == torch.float64


def test_learned_positions_end_with_the_last_vector() -> None:
    encoding = LearnedPositionConfig(num_positions=4).build(**SHAPE)
    x = torch.zeros(1, 6, 8)
    codes, _ = encoding.prepare(places(6), ())
    out = encoding.embed(x, codes)
    torch.testing.assert_close(out[0, :4], encoding.vectors.detach().clone())
    torch.testing.assert_close(out[0, 4:], encoding.vectors[-1:].detach().expand(2, -1))
    out.sum().backward()
    assert encoding.vectors.grad is not None


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    pieces=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    dense=st.booleans(),
    grad=st.booleans(),
)
def test_any_split_gives_the_same_dense_or_windowed(
    name: str, pieces: list[int], dense: bool, grad: bool
) -> None:
    encoding = CONFIGS[name].build(**SHAPE).double().eval()
    length = sum(pieces)
    whole = attend(encoding, places(length, 5), [length], dense=True)
    with torch.set_grad_enabled(grad):
        split = attend(encoding, places(length), pieces, dense=dense)
    torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", CONFIGS)
def test_states_keep_tables_only_as_long_as_weights_stay(name: str) -> None:
    encoding = CONFIGS[name].build(**SHAPE).double().eval()
    with torch.no_grad():
        _, state = encoding.prepare(places(3), encoding.init_state(0, torch.device("cpu")))
        first, state = encoding.prepare(places(1, 3), state)
        second, state = encoding.prepare(places(1, 4), state)
        assert first is second
        for parameter in encoding.parameters():
            parameter.mul_(1.01)
        changed, state = encoding.prepare(places(1, 5), state)
        assert (changed is not second) == bool(list(encoding.parameters()))
        assert state.length == 6


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ShawConfig(window=0), "window"),
        (ShawConfig(span=0), "span"),
        (TransformerXLConfig(num_sinusoids=5), "pairs"),
        (LearnedPositionConfig(num_positions=0), "num_positions"),
    ],
)
def test_what_makes_no_encoding_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table_of(config.build(**SHAPE), 3)
