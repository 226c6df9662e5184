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
    QueryKeyEncoding,
    Rope,
    RopeConfig,
    SineSPE,
    SineSPEConfig,
    WindowedAttentionConfig,
)
from relpe.decoding.choose import choose_steps, why_not_compiled
from relpe.decoding.cuda_graph import why_not_tiled
from tests.support.decoders import decoder, logits_of
from tests.support.flip import Flip


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


class FlipByPosition(Flip):
    """The same as `Flip`, but declares that compiled steps support it."""

    codes_by_position = True


class RolledRope(Rope):
    """Turns pairs of features, then moves all of them; hence does not turn pairs only."""

    codes_by_position = True
    rows_by_position = False
    heads_alike = False
    partners: Any = QueryKeyEncoding.partners

    def __init__(self, head_dim: int) -> None:
        super().__init__(RopeConfig(), 2, head_dim)

    def encode(self, q: Tensor, k: Tensor, codes: Any, layer: int) -> tuple[Tensor, Tensor]:
        q, k = super().encode(q, k, codes, layer)
        return q.roll(1, -1), k.roll(3, -1)


class HalvedSineSPE(SineSPE):
    """Uses half of the draws of queries; hence codes are not the products of waves and noise."""

    codes_by_position = True
    rows_by_position = False
    factors: Any = QueryKeyEncoding.factors

    def __init__(self, head_dim: int) -> None:
        config = SineSPEConfig(num_sines=2, num_realizations=8)
        super().__init__(config, num_layers=2, num_heads=2, head_dim=head_dim)

    def project(self, q: Tensor, k: Tensor, codes: Any) -> tuple[Tensor, Tensor]:
        q, k = super().project(q, k, codes)
        return q * (torch.arange(8) < 4), k


class OwnConfig:
    """The config of an encoding that is not part of this package."""

    kind: Literal["own"] = "own"

    def __init__(self, module: Any) -> None:
        self.module = module

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Encoding:
        return self.module(head_dim)


def own_decoder(module: type[Encoding]) -> Decoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocabulary_size": 11, "width": 16, "num_layers": 2, "num_heads": 2}
    encoding: Any = OwnConfig(module)
    attention = WindowedAttentionConfig(span=20)
    return DecoderConfig(**sizes, hidden=24, encoding=encoding, attention=attention).build().eval()


@pytest.mark.parametrize("module", [Flip, FlipByPosition, RolledRope, HalvedSineSPE])
def test_user_defined_encodings_are_decoded_correctly(module):
    model, tokens = own_decoder(module), torch.randint(11, (40,))
    steps = choose_steps(model, precision="float32").make()
    slot = steps.admit(model.init_state(1), 0)
    made = np.stack([steps.step([slot], [token])[0] for token in tokens.tolist()])
    np.testing.assert_allclose(made, logits_of(model, tokens, 0), atol=2e-5, rtol=1e-4)


def test_compiled_steps_and_tiles_require_declared_support():
    model = own_decoder(Flip)
    assert why_not_compiled(model) == "encoding own does not act on queries and keys alone"
    assert choose_steps(model).name == "torch float32"
    assert why_not_compiled(own_decoder(FlipByPosition)) is None
    assert why_not_tiled(own_decoder(FlipByPosition)) is not None
