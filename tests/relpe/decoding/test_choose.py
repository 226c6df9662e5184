"""Choice of the steps for a decoder; user-defined encodings are decoded correctly."""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np
import pytest
import torch
from llvmlite.binding import get_host_cpu_name
from torch import Tensor

from relpe import (
    Decoder,
    DecoderConfig,
    Encoding,
    OffsetTable,
    QueryKeyEncoding,
    Rope,
    RopeConfig,
    SineSPE,
    SineSPEConfig,
    WindowedAttentionConfig,
)
from relpe.decoding.choose import choose_steps, why_not_compiled
from relpe.decoding.cuda_graph import why_not_tiled
from relpe.encodings.offset.base import OffsetEncoding
from tests.support.decoders import decoder, logits_of
from tests.support.own_xpos import XPosConfig


def test_the_backend_is_named():
    model = decoder("sine relu")
    host = get_host_cpu_name()
    assert choose_steps(model).name == f"compiled int8 for {host}"
    assert choose_steps(model, precision="float32").name == f"compiled float32 for {host}"
    plain = choose_steps(model, "torch")
    assert plain.name == "torch float32"
    assert plain.fell_back is None


@pytest.mark.parametrize("case", ["NUMBA_DISABLE_JIT", "nowhere to keep"])
def test_without_a_compiler_torch_is_used(case, monkeypatch):
    model = decoder("sine relu")
    if case == "NUMBA_DISABLE_JIT":
        monkeypatch.setattr("relpe.decoding.compiled.numba_config.DISABLE_JIT", 1)
    else:
        monkeypatch.setitem(sys.modules, "relpe.decoding.compiled", None)  # as if not installed
    chosen = choose_steps(model)
    assert chosen.name == "torch float32"
    assert chosen.fell_back
    with pytest.raises(ValueError, match="use the backend torch"):
        choose_steps(model, "compiled")


class Kerple(OffsetEncoding):
    """A bias that falls with the logarithm of the distance; declares no capabilities."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__(num_layers=2, head_dim=head_dim)
        self.num_heads = num_heads

    def table_of(self, points: list[Tensor], places: Tensor, layer: int) -> OffsetTable:
        return OffsetTable(log_weight=-4 * places.abs().log1p().expand(-1, self.num_heads))


class Signs(QueryKeyEncoding[Tensor, tuple[()]]):
    """Flips every other feature at odd positions."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim

    def codes_at(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        odd = (positions[..., :1, None] % 2).expand(-1, -1, 1, self.out_features).clone()
        odd[..., ::2] = 0
        return 1 - 2 * odd, state

    def encode(self, q: Tensor, k: Tensor, codes: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        return q * codes, k * codes


class SignsByPosition(Signs):
    """The same as `Signs`, but declares that compiled steps support it."""

    codes_by_position = True


class RolledRope(Rope):
    """Turns pairs of features, then moves all of them; hence does not turn pairs only."""

    codes_by_position = True

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__(RopeConfig(), num_heads, head_dim)

    def encode(self, q: Tensor, k: Tensor, codes: Any, layer: int) -> tuple[Tensor, Tensor]:
        q, k = super().encode(q, k, codes, layer)
        return q.roll(1, -1), k.roll(3, -1)


class HalvedSineSPE(SineSPE):
    """Uses half of the draws of queries; hence codes are not the products of waves and noise."""

    codes_by_position = True

    def __init__(self, num_heads: int, head_dim: int) -> None:
        config = SineSPEConfig(num_sines=2, num_realizations=8)
        super().__init__(config, num_layers=2, num_heads=num_heads, head_dim=head_dim)

    def project(self, q: Tensor, k: Tensor, codes: Any) -> tuple[Tensor, Tensor]:
        q, k = super().project(q, k, codes)
        return q * (torch.arange(8) < 4), k


class OwnConfig:
    """The config of an encoding that is not part of this package."""

    kind: Literal["own"] = "own"

    def __init__(self, module: Any) -> None:
        self.module = module

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Encoding:
        return self.module(num_heads, head_dim)


def own_decoder(module: type[Encoding]) -> Decoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocabulary_size": 11, "width": 16, "num_layers": 2, "num_heads": 2}
    encoding: Any = OwnConfig(module)
    attention = WindowedAttentionConfig(span=20)
    return DecoderConfig(**sizes, hidden=24, encoding=encoding, attention=attention).build().eval()


@pytest.mark.parametrize("module", [Kerple, Signs, SignsByPosition, RolledRope, HalvedSineSPE])
def test_user_defined_encodings_are_decoded_correctly(module):
    model, tokens = own_decoder(module), torch.randint(11, (40,))
    steps = choose_steps(model, precision="float32").make()
    slot = steps.admit(model.init_state(1), 0)
    made = np.stack([steps.step([slot], [token])[0] for token in tokens.tolist()])
    np.testing.assert_allclose(made, logits_of(model, tokens, 0), atol=2e-5, rtol=1e-4)


def test_an_encoding_outside_of_the_package_is_decoded_correctly() -> None:
    """Its scores are those of the paper, and steps agree with whole sequences."""
    config: Any = XPosConfig()
    q, k = torch.randn(2, 1, 30, 2, 8).double().unbind(0)
    a, b = config.build(num_heads=2, head_dim=8)(q, k)
    scores = torch.einsum("blhd,bshd->bhls", a, b)
    lags = torch.arange(30)[:, None] - torch.arange(30)
    share = torch.arange(4).double() / 4
    turn = torch.polar(
        ((share + 0.4) / 1.4) ** (lags[..., None] / 512), lags[..., None] * 10_000**-share
    )
    q, k = (torch.complex(*x.chunk(2, -1)) for x in (q, k))
    expected = torch.einsum("blhi,bshi,lsi->bhls", q, k.conj(), turn).real
    torch.testing.assert_close(scores, expected)

    sizes: dict[str, Any] = {"vocabulary_size": 11, "width": 16, "num_layers": 2, "num_heads": 2}
    attention = WindowedAttentionConfig(span=20)
    model = DecoderConfig(**sizes, hidden=24, encoding=config, attention=attention).build().eval()
    tokens = torch.randint(11, (40,))
    chosen = choose_steps(model, precision="float32")
    assert chosen.fell_back
    steps = chosen.make()
    slot = steps.admit(model.init_state(1), 0)
    made = np.stack([steps.step([slot], [token])[0] for token in tokens.tolist()])
    np.testing.assert_allclose(made, logits_of(model, tokens, 0), atol=2e-5, rtol=1e-4)


def test_compiled_steps_and_tiles_require_declared_support():
    for module in (Kerple, Signs):
        model = own_decoder(module)
        assert why_not_compiled(model) == ("encoding own does not act on queries and keys alone")
        assert choose_steps(model).name == "torch float32"
    assert why_not_compiled(own_decoder(SignsByPosition)) is None
    assert why_not_tiled(own_decoder(SignsByPosition)) is not None
