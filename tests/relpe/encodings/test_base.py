"""All encodings: refused combinations, and how a new encoding is added."""

from __future__ import annotations

import subprocess
import sys
import typing
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from relpe import (
    AlgebraicConfig,
    AlibiConfig,
    Decoder,
    DecoderConfig,
    EluConfig,
    Encoding,
    EncodingConfig,
    FavorConfig,
    LinearAttentionConfig,
    RopeConfig,
    ShawConfig,
    SirenConfig,
    SoftmaxAttentionConfig,
    WindowedAttentionConfig,
)
from relpe.encodings.offset.windows import Window, WindowConfig
from relpe.models.config import from_plain, to_plain

ATTENTIONS = {
    "softmax": SoftmaxAttentionConfig(),
    "windowed": WindowedAttentionConfig(),
    "favor": LinearAttentionConfig(feature_map=FavorConfig()),
    "relu": LinearAttentionConfig(),
    "elu": LinearAttentionConfig(feature_map=EluConfig()),
}
EXACT = ("softmax", "windowed")


def build(encoding: Any, attention: str) -> Decoder:
    return DecoderConfig(
        vocabulary_size=7,
        width=16,
        num_layers=1,
        num_heads=2,
        hidden=8,
        encoding=encoding,
        attention=ATTENTIONS[attention],
    ).build()


@pytest.mark.parametrize(
    ("encoding", "fits"),
    [
        (RopeConfig(), (*EXACT, "favor")),
        (AlgebraicConfig(), (*EXACT, "favor")),
        (AlgebraicConfig(decay=0.98), EXACT),
        (AlgebraicConfig(placement="numerator"), ("relu", "elu")),
        (SirenConfig(), EXACT),
        (AlibiConfig(), EXACT),
    ],
)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_pairs_that_do_not_fit_are_refused(encoding: Any, fits: tuple[str, ...], attention: str):
    if attention in fits:
        assert build(encoding, attention).encoding.fits == fits
        return
    words = f"{encoding.kind} does not fit {attention} attention.*expected {' or '.join(fits)}"
    with pytest.raises(ValueError, match=words):
        build(encoding, attention)


@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
def test_training_window_returns_the_window_if_there_is_one(config: Any):
    def find(encoding: Any) -> Window | None:
        return encoding.build(num_layers=1, num_heads=2, head_dim=8).training_window()

    if not hasattr(config(), "window") or config is ShawConfig:  # its window only clamps offsets
        assert find(config()) is None
        return
    assert find(config(window=None)) is None
    found = find(config(window=WindowConfig(width=(5.0,))))
    assert found is not None
    assert found.config.width == (5.0,)


@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
def test_configs_survive_conversion_to_plain_values(config: type):
    assert from_plain(EncodingConfig, to_plain(config())) == config()


def test_kinds_are_distinct():
    kinds = [config.kind for config in typing.get_args(EncodingConfig)]
    assert len(set(kinds)) == len(kinds)


def test_importing_requires_only_the_core_packages():
    """Encodings can be used with other attention code, without the packages of the apps."""
    allowed = {"torch", "safetensors", "numpy", "jaxtyping"}
    script = (
        "import sys\n"
        "from importlib.metadata import packages_distributions\n"
        "import torch, safetensors, numpy, jaxtyping\n"
        "before = set(sys.modules)\n"
        "import relpe\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new & set(packages_distributions())))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= allowed | {"relpe"}


# ---- a new encoding: a config, a module, and a name in a union


@dataclass(frozen=True, kw_only=True)
class FlipConfig:
    """Flips the sign of every second feature at odd positions."""

    kind: Literal["flip"] = "flip"

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Flip:
        """Module."""
        return Flip(head_dim)


class Flip(Encoding):
    """See `FlipConfig`."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim
        self.strength = nn.Parameter(torch.ones(()))

    def prepare(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        """Signs (1, l, 1, d)."""
        odd = (positions[..., :1, None] % 2).expand(-1, -1, 1, self.out_features).clone()
        odd[..., ::2] = 0
        return 1 - 2 * odd, state

    def encode(self, q: Tensor, k: Tensor, codes: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Signed queries and keys."""
        return q * codes * self.strength, k * codes


def test_a_new_encoding_is_a_config_a_module_and_a_name():
    extended = EncodingConfig | FlipConfig
    config = from_plain(extended, {"kind": "flip"})
    assert config == FlipConfig()
    model = build(config, "favor")
    tokens = torch.randint(0, 7, (2, 30))
    places = torch.arange(30)[None, :, None]
    with torch.no_grad():
        whole, _ = model(tokens, places, model.init_state(2))
        first, state = model(tokens[:, :13], places[:, :13], model.init_state(2))
        second, _ = model(tokens[:, 13:], places[:, 13:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-4, atol=1e-5)
