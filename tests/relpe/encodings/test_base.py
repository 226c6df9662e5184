"""All encodings: refused combinations, and how a new encoding is added."""

from __future__ import annotations

import itertools
import subprocess
import sys
import typing
from typing import Any

import pytest
import torch
from torch import Tensor

from relpe import (
    AbsoluteEncoding,
    AlgebraicConfig,
    Decoder,
    DecoderConfig,
    EncodingConfig,
    OffsetEncoding,
    QueryKeyEncoding,
    Rope,
    RopeConfig,
    SelectiveEncoding,
    ShawConfig,
    SineSPEConfig,
    SirenConfig,
)
from relpe.encodings.offset.windows import Window, WindowConfig
from relpe.models.config import from_plain, to_plain
from tests.support.decoders import DELTA, ELU, FAVOR, RELU, SOFTMAX, WINDOWED, in_pieces
from tests.support.flip import FlipConfig

ATTENTIONS = {
    "softmax": SOFTMAX,
    "windowed": WINDOWED,
    "favor": FAVOR,
    "relu": RELU,
    "elu": ELU,
    "delta": DELTA,
}
EXACT = ("softmax", "windowed")
ENCODINGS: tuple[Any, ...] = typing.get_args(EncodingConfig)
CPU = torch.device("cpu")


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


def test_pairs_that_do_not_fit_are_refused() -> None:
    pairs: list[tuple[Any, tuple[str, ...]]] = [
        (RopeConfig(), (*EXACT, "favor", "delta")),
        (AlgebraicConfig(), (*EXACT, "favor", "delta")),
        (AlgebraicConfig(decay=0.98), EXACT),
        (AlgebraicConfig(placement="numerator"), ("relu", "elu")),
        (SineSPEConfig(), (*EXACT, "favor", "relu", "elu")),
        (SirenConfig(), EXACT),
    ]
    for (encoding, fits), attention in itertools.product(pairs, ATTENTIONS):
        if attention in fits:
            assert build(encoding, attention).encoding.fits == fits
            continue
        words = f"{encoding.kind} does not fit {attention} attention.*expected {' or '.join(fits)}"
        with pytest.raises(ValueError, match=words):
            build(encoding, attention)


def test_training_window_returns_the_window_if_there_is_one() -> None:
    def find(encoding: Any) -> Window | None:
        return encoding.build(num_layers=1, num_heads=2, head_dim=8).training_window()

    for config in ENCODINGS:
        if not hasattr(config(), "window") or config is ShawConfig:  # its window clamps offsets
            assert find(config()) is None
            continue
        assert find(config(window=None)) is None
        found = find(config(window=WindowConfig(width=(5.0,))))
        assert found is not None
        assert found.config.width == (5.0,)


def test_configs_survive_conversion_to_plain_values() -> None:
    for config in ENCODINGS:
        assert from_plain(EncodingConfig, to_plain(config())) == config()


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


def test_other_positions_are_refused_in_one_sentence() -> None:
    for config in ENCODINGS:
        encoding = built(config())
        for shape in ((10,), (1, 10), (1, 10, 0), (1, 1, 10, 1)):
            message = rf"positions have the shape .*{shape[-1]}.*, expected"
            with pytest.raises(ValueError, match=message):
                encoding.prepare(torch.ones(shape), encoding.init_state(0, CPU))
    for dtype in (torch.bfloat16, torch.float16, torch.bool, torch.complex64):
        with pytest.raises(ValueError, match="expected int64 or float64"):
            built(RopeConfig()).prepare(torch.ones(1, 3, 1, dtype=dtype), ())


@pytest.mark.parametrize("config", [AlgebraicConfig, RopeConfig, SineSPEConfig])
def test_one_call_encodes_a_whole_sequence_in_its_dtype(config: Any) -> None:
    encoding = built(config()).to(torch.bfloat16)
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


def test_other_queries_and_keys_are_refused_in_one_sentence() -> None:
    cases: list[tuple[Any, str]] = [
        (torch.zeros(2, 10, 1, 16), r"\(2, 10, 1, 16\), expected \(b, l, 2, 16\) for both"),
        (torch.zeros(2, 10, 2, 8), r"expected \(b, l, 2, 16\) for both"),
        (torch.zeros(2, 2, 10, 16), r"expected \(b, l, 2, 16\) for both"),  # heads first
        (torch.zeros(2, 10, 2, 16).long(), "queries are torch.int64 .* expected a floating"),
        ([0.0], "q is of type list, expected Tensor"),
    ]
    for config, (q, message) in itertools.product(ENCODINGS, cases):
        encoding = built(config())
        more = (torch.zeros(2, 10, 32),) if isinstance(encoding, SelectiveEncoding) else ()
        if isinstance(encoding, QueryKeyEncoding | SelectiveEncoding):
            with pytest.raises((TypeError, ValueError), match=message):
                encoding(q, q, *more)
        elif isinstance(encoding, OffsetEncoding):
            with pytest.raises(NotImplementedError, match="use it as the encoding of an Attention"):
                encoding(q, q)


def results(encoding: Any, positions: Tensor, state: Any, layer: int = 1) -> Tensor:
    """What layers get from an encoding for inputs of ones, as one tensor."""
    codes, _ = encoding.prepare(positions, state)
    shape = (*positions.shape[:2], 2, 16)
    q = torch.ones(shape)
    if isinstance(encoding, QueryKeyEncoding):
        return encoding.encode(q, q, codes, layer)[0]
    if isinstance(encoding, SelectiveEncoding):
        return encoding(q, q, q.flatten(2), positions, layer=layer)[0]
    if isinstance(encoding, AbsoluteEncoding):
        return encoding.embed(q.flatten(2), codes)
    table = encoding.scoring(codes, layer).table
    parts = () if table is None else (table.features, table.log_weight)
    return torch.cat([x.flatten() for x in parts if x is not None] or [torch.zeros(0)])


def test_layers_that_do_not_exist_are_refused_where_layers_differ() -> None:
    places = torch.arange(3)[None, :, None]
    encodings = [built(config()) for config in ENCODINGS]
    differ = [encoding for encoding in encodings if hasattr(encoding, "num_layers")]
    assert len(differ) > 8
    for encoding, layer in itertools.product(differ, (-1, 2)):
        with pytest.raises(ValueError, match=f"layer is {layer}, expected 0 to 1"):
            results(encoding, places, encoding.init_state(0, CPU), layer)


@pytest.mark.parametrize("config", ENCODINGS, ids=lambda c: c.kind)
def test_no_positions_and_no_rows_are_valid(config: Any) -> None:
    encoding = built(config())
    start = encoding.init_state(0, CPU)
    for rows in (0, 1, 2):
        none = torch.zeros(rows, 0, 1, dtype=torch.int64)
        some = torch.arange(4)[None, :, None].expand(rows, -1, -1)
        codes, state = encoding.prepare(none, start)
        assert torch.equal(results(encoding, some, state), results(encoding, some, start))
        q = torch.zeros(rows, 0, 2, 16)
        if isinstance(encoding, QueryKeyEncoding):
            encoded = encoding.encode(q, q, codes, 1)[0]
            assert encoded.shape == (rows, 0, 2, encoding.out_features)
        elif isinstance(encoding, SelectiveEncoding):
            moved = torch.ones(rows, 2, 8).double()
            encoded, _, after = encoding.encode(q, q, q.flatten(2), codes, 1, moved)
            assert encoded.shape == (rows, 0, 2, encoding.out_features)
            assert torch.equal(after, moved)


@pytest.mark.parametrize("config", ENCODINGS, ids=lambda c: c.kind)
def test_encodings_can_be_built_on_the_meta_device(config: Any) -> None:
    options: dict[str, Any] = (
        {"window": WindowConfig(learned=False)} if config is SirenConfig else {}
    )
    original, places = built(config(**options)), torch.arange(5)[None, :, None]
    with torch.device("meta"):
        made = built(config(**options))
    made = made.to_empty(device="cpu")
    made.load_state_dict(original.state_dict(), strict=True)
    pair = (results(one, places, one.init_state(0, CPU)) for one in (original, made))
    assert torch.equal(*pair)


class SameRope(Rope):
    """Changes nothing that steps depend on."""


def rotate_queries(
    self: Rope, q: Tensor, k: Tensor, codes: Any, layer: int
) -> tuple[Tensor, Tensor]:
    return Rope.encode(self, q, k, codes, layer)[0], k


def test_a_subclass_that_changes_a_method_has_to_state_its_capabilities_again() -> None:
    capabilities = ("codes_by_position", "rows_by_position", "heads_alike", "partners")
    stated: dict[str, Any] = {"encode": rotate_queries}
    for index, name in enumerate(capabilities):
        message = f"encode, but inherits {', '.join(capabilities[index:])};"
        with pytest.raises(TypeError, match=message):
            type("QueryRope", (Rope,), dict(stated))
        stated[name] = QueryKeyEncoding.partners if name == "partners" else False
    query_rope: Any = type("QueryRope", (Rope,), stated)
    assert (query_rope.codes_by_position, query_rope.rows_by_position) == (False, False)
    assert (SameRope.codes_by_position, SameRope.rows_by_position) == (True, True)


def test_an_encoding_without_a_required_method_cannot_be_built() -> None:
    class Missing(QueryKeyEncoding[Tensor, tuple[()]]):
        def codes_at(self, positions: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
            return positions, state

    with pytest.raises(TypeError, match="encode"):
        Missing()  # pyright: ignore[reportAbstractUsage] - that is the point


def test_a_new_encoding_is_a_config_a_module_and_a_name():
    extended = EncodingConfig | FlipConfig
    config = from_plain(extended, {"kind": "flip"})
    assert config == FlipConfig()
    model = build(config, "favor")
    tokens = torch.randint(0, 7, (2, 30))
    parts, whole = (in_pieces(model, tokens, sizes) for sizes in ([13, 17], [30]))
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)
