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

import relpe
from relpe import (
    AbsoluteEncoding,
    AlgebraicConfig,
    AlibiConfig,
    Decoder,
    DecoderConfig,
    DeltaAttentionConfig,
    EluConfig,
    EncodingConfig,
    FavorConfig,
    LinearAttentionConfig,
    OffsetEncoding,
    QueryKeyEncoding,
    Rope,
    RopeConfig,
    SelectiveEncoding,
    ShawConfig,
    SineSPEConfig,
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
    "delta": DeltaAttentionConfig(),
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
        (RopeConfig(), (*EXACT, "favor", "delta")),
        (AlgebraicConfig(), (*EXACT, "favor", "delta")),
        (AlgebraicConfig(decay=0.98), EXACT),
        (AlgebraicConfig(placement="numerator"), ("relu", "elu")),
        (SineSPEConfig(), (*EXACT, "favor", "relu", "elu")),
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


def built(config: Any, **sizes: int) -> Any:
    return config.build(**{"num_layers": 2, "num_heads": 2, "head_dim": 16, **sizes})


@pytest.mark.parametrize("shape", [(10,), (1, 10), (1, 10, 0), (1, 1, 10, 1)])
@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
def test_positions_of_another_shape_are_refused_in_one_sentence(
    config: Any, shape: tuple[int, ...]
) -> None:
    encoding = built(config())
    with pytest.raises(ValueError, match=rf"positions have the shape .*{shape[-1]}.*, expected"):
        encoding.prepare(torch.ones(shape), encoding.init_state(0, torch.device("cpu")))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.complex64])
def test_positions_of_a_coarse_dtype_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="expected int64 or float64"):
        built(RopeConfig()).prepare(torch.ones(1, 3, 1, dtype=dtype), ())


@pytest.mark.parametrize("name", ["AlgebraicConfig", "RopeConfig", "SineSPEConfig"])
def test_one_call_encodes_a_whole_sequence_in_its_dtype(name: str) -> None:
    encoding = built(getattr(relpe, name)()).to(torch.bfloat16)
    q, k, v = torch.randn(3, 2, 10, 2, 16).bfloat16().unbind(0)
    a, b = encoding(q, k)
    assert a.dtype == b.dtype == torch.bfloat16
    heads_first: Any = [x.transpose(1, 2) for x in (a, b, v)]
    torch.nn.functional.scaled_dot_product_attention(*heads_first)
    places = torch.arange(10)[None, :, None]
    codes, _ = encoding.prepare(places, encoding.init_state(0, q.device))
    wide, _ = encoding.encode(q, k, codes, 0)
    assert torch.equal(encoding(q, k, places)[0], wide.bfloat16())
    for wrong in (places[:, :7], places.expand(3, -1, -1)):
        with pytest.raises(ValueError, match=r"expected \(1, 10, p\) or \(2, 10, p\)"):
            encoding(q, k, wrong)
    with pytest.raises(ValueError, match=r"keys \(2, 9, 2, 16\), expected \(b, l, 2, 16\)"):
        encoding(q, k[:, :9])


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (torch.zeros(2, 10, 1, 16), r"\(2, 10, 1, 16\), expected \(b, l, 2, 16\) for both"),
        (torch.zeros(2, 10, 2, 8), r"expected \(b, l, 2, 16\) for both"),
        (torch.zeros(2, 2, 10, 16), r"expected \(b, l, 2, 16\) for both"),  # heads first
        (torch.zeros(2, 10, 2, 16).long(), "queries are torch.int64 .* expected a floating"),
        ([0.0], "q is of type list, expected Tensor"),
    ],
)
@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
def test_other_queries_and_keys_are_refused_in_one_sentence(
    config: Any, q: Any, message: str
) -> None:
    encoding = built(config())
    more = (torch.zeros(2, 10, 32),) if isinstance(encoding, SelectiveEncoding) else ()
    if isinstance(encoding, QueryKeyEncoding | SelectiveEncoding):
        with pytest.raises((TypeError, ValueError), match=message):
            encoding(q, q, *more)
    elif isinstance(encoding, OffsetEncoding):
        with pytest.raises(NotImplementedError, match="use it as the encoding of an Attention"):
            encoding(q, q)


@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
def test_layers_that_do_not_exist_are_refused_where_layers_differ(config: Any) -> None:
    encoding = built(config())
    codes, _ = encoding.prepare(
        torch.arange(3)[None, :, None], encoding.init_state(0, torch.device("cpu"))
    )
    if not hasattr(encoding, "num_layers"):
        return  # all layers are alike
    q = torch.randn(1, 3, 2, 16)

    def act(layer: int) -> object:
        if isinstance(encoding, QueryKeyEncoding):
            return encoding.encode(q, q, codes, layer)
        if isinstance(encoding, SelectiveEncoding):
            return encoding(q, q, q.flatten(2), layer=layer)
        return encoding.scoring(codes, layer)

    for layer in (-1, 2):
        with pytest.raises(ValueError, match=f"layer is {layer}, expected 0 to 1"):
            act(layer)


@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_no_positions_and_no_rows_are_valid(config: Any, rows: int) -> None:
    encoding = built(config())
    start = encoding.init_state(0, torch.device("cpu"))
    none = torch.zeros(rows, 0, 1, dtype=torch.int64)
    codes, state = encoding.prepare(none, start)
    some = torch.arange(4)[None, :, None].expand(rows, -1, -1)
    if isinstance(encoding, QueryKeyEncoding):
        q = torch.zeros(rows, 0, 2, 16)
        assert encoding.encode(q, q, codes, 1)[0].shape == (rows, 0, 2, encoding.out_features)
        codes, _ = encoding.prepare(some, state)
        q = torch.randn(rows, 4, 2, 16)
        expected, _ = encoding.prepare(some, start)
        assert torch.equal(
            encoding.encode(q, q, codes, 1)[0], encoding.encode(q, q, expected, 1)[0]
        )
    elif isinstance(encoding, SelectiveEncoding):
        q, start = torch.zeros(rows, 0, 2, 16), torch.ones(rows, 2, 8).double()
        encoded, _, after = encoding.encode(q, q, q.flatten(2), codes, 1, start)
        assert encoded.shape == (rows, 0, 2, encoding.out_features)
        assert torch.equal(after, start)
    else:
        encoding.prepare(some, state)


@pytest.mark.parametrize("config", typing.get_args(EncodingConfig), ids=lambda c: c.kind)
def test_encodings_can_be_built_on_the_meta_device(config: Any) -> None:
    options: dict[str, Any] = (
        {"window": WindowConfig(learned=False)} if config is SirenConfig else {}
    )
    original = built(config(**options))
    with torch.device("meta"):
        made = built(config(**options))
    made = made.to_empty(device="cpu")
    made.load_state_dict(original.state_dict(), strict=True)
    places = torch.arange(5)[None, :, None]
    found = []
    for encoding in (original, made):
        codes, _ = encoding.prepare(places, encoding.init_state(0, torch.device("cpu")))
        q, x = torch.ones(1, 5, 2, 16), torch.ones(1, 5, 32)
        if isinstance(encoding, QueryKeyEncoding):
            found.append(encoding.encode(q, q, codes, 1)[0])
        elif isinstance(encoding, SelectiveEncoding):
            found.append(encoding(q, q, x, layer=1)[0])
        elif isinstance(encoding, AbsoluteEncoding):
            found.append(encoding.embed(x, codes))
        elif (table := encoding.scoring(codes, 1).table) is not None:
            parts = [x for x in (table.features, table.log_weight) if x is not None]
            found.append(torch.cat([x.flatten() for x in parts]))
    if found:
        assert torch.equal(*found)


class OwnRope(Rope):
    """Changes a method of an encoding that compiled steps and tiles support."""

    def encode(self, q: Tensor, k: Tensor, codes: Any, layer: int) -> tuple[Tensor, Tensor]:
        """Rotates queries only."""
        return super().encode(q, k, codes, layer)[0], k


class SameRope(Rope):
    """Changes nothing that steps depend on."""


def test_a_subclass_that_changes_a_method_has_to_state_its_capabilities_again() -> None:
    assert (OwnRope.codes_by_position, OwnRope.rows_by_position) == (False, False)
    assert (SameRope.codes_by_position, SameRope.rows_by_position) == (True, True)


def test_an_encoding_without_a_required_method_cannot_be_built() -> None:
    class Missing(QueryKeyEncoding[Tensor, tuple[()]]):
        def codes_at(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
            return positions, state

    with pytest.raises(TypeError, match="encode"):
        Missing()  # pyright: ignore[reportAbstractUsage] - that is the point


# ---- a new encoding: a config, a module, and a name in a union


@dataclass(frozen=True, kw_only=True)
class FlipConfig:
    """Flips the sign of every second feature at odd positions."""

    kind: Literal["flip"] = "flip"

    def build(self, *, num_layers: int, num_heads: int, head_dim: int) -> Flip:
        """Module."""
        return Flip(head_dim)


class Flip(QueryKeyEncoding[Tensor, tuple[()]]):
    """See `FlipConfig`."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.out_features = head_dim
        self.strength = nn.Parameter(torch.ones(()))

    def codes_at(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
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
