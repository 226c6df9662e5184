"""What a caller may get wrong, as a researcher without the code would: each is one sentence.

Every row was once silent, or a traceback that said nothing of its cause.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from relpe import (
    AlgebraicConfig,
    Attention,
    AttentionLayerConfig,
    ClassifierConfig,
    ConvolutionInputConfig,
    ConvSPEConfig,
    DecoderConfig,
    EncoderDecoderConfig,
    GridStructure,
    OffsetTable,
    RopeConfig,
    SelectiveRopeConfig,
    SineSPEConfig,
    SinusoidConfig,
    SirenNetworkConfig,
    SoftmaxAttentionConfig,
    TokenInputConfig,
    TreeStructure,
    ValueInputConfig,
    save_model,
    windowed_attention,
)
from relpe.encodings.offset.siren_network import SirenNetwork

TOKENS = torch.zeros(1, 3, dtype=torch.int64)
PLACES = torch.arange(3)[None, :, None]
Q = torch.rand(1, 3, 4, 8)


def decoder(**changes: Any) -> Any:
    return DecoderConfig(
        vocabulary_size=4, width=32, num_heads=4, num_layers=1, hidden=8, **changes
    ).build()


def layer(**changes: Any) -> Attention:
    return Attention(AttentionLayerConfig(width=32, num_heads=4, **changes))


def classifier(inputs: Any, **changes: Any) -> Any:
    exact: Any = {"attention": SoftmaxAttentionConfig(), "encoding": RopeConfig(), **changes}
    return ClassifierConfig(input=inputs, width=32, num_heads=4, num_layers=1, **exact).build()


def encode(kind: Any, of: Any, length: int) -> object:
    """Encode three positions with codes of `length` positions of another encoding, or its own."""
    encoding, other = (config.build(num_heads=4, head_dim=8) for config in (kind, of))
    positions = torch.arange(length)[None, :, None]
    codes, _ = other.prepare(positions, other.init_state(0, Q.device))
    return encoding.encode(Q, Q, codes, 0)


def other_heads() -> object:
    selective: Any = {
        "attention": SoftmaxAttentionConfig(),
        "encoding": SelectiveRopeConfig(),
    }
    x = torch.randn(1, 3, 32)
    _, state = layer(**selective)(x)
    config = AttentionLayerConfig(width=32, num_heads=2, num_kv_heads=2, **selective)
    own = Attention(config).init_state(1)
    mixed = own._replace(layer=own.layer._replace(encoding=state.layer.encoding))
    return Attention(config)(x, mixed)


def network(**changes: Any) -> object:
    return SirenNetwork(
        SirenNetworkConfig(**changes), in_features=1, out_features=1, reference_length=(1.0,)
    )


def windowed(*half_widths: Any, **changes: Any) -> object:
    return windowed_attention(Q, Q, Q, changes.pop("table", OffsetTable()), half_widths, **changes)


X = torch.randn(1, 3, 32)
CASES: list[tuple[str, Callable[[], object]]] = [
    ("positions is None", lambda: decoder()(TOKENS, None, decoder().init_state(1))),
    ("num_realizations is 2.5", lambda: decoder().init_state(1, num_realizations=2.5)),
    ("batch_size is -1", lambda: layer().init_state(-1)),
    ("batch_size is '2'", lambda: decoder().init_state("2")),
    ("seed is 1.5, expected an integer", lambda: layer().init_state(1, seed=1.5)),  # pyright: ignore[reportArgumentType]
    (f"seed is {2**70}", lambda: layer().init_state(1, seed=2**70)),
    ("x is a sparse or nested", lambda: layer()(X.to_sparse())),
    ("shape .1, 3, 0.", lambda: layer()(X, positions=PLACES[..., :0])),
    ("beyond 9007199254740992", lambda: layer()(X, positions=PLACES - 2**63)),
    ("state is that of another model", other_heads),
    ("expected at least two layers, and positive", lambda: network(width=0)),
    ("expected at least two layers, and positive", lambda: network(w0=float("nan"))),
    ("expected 0 to 3", lambda: classifier(TokenInputConfig(vocabulary_size=4))(TOKENS + 4)),
    (
        "mask is of type list",
        lambda: classifier(TokenInputConfig(vocabulary_size=4), towers=2)(
            TOKENS[:, None].expand(1, 2, 3), mask=[True]
        ),
    ),
    ("expected .b, .grid, 1.", lambda: classifier(ValueInputConfig())(X[..., 0])),
    (
        "expected .b, .grid, 3.",
        lambda: classifier(ConvolutionInputConfig())(torch.rand(1, 3, 9, 9)),
    ),
    (
        "expected embeddings .b, l, m.",
        lambda: SinusoidConfig().build(num_heads=4, head_dim=8)(Q, Q),
    ),
    (
        "lags is of type list",
        lambda: (
            SineSPEConfig()
            .build(num_heads=4, head_dim=8)
            .covariance(
                [0, 1]  # pyright: ignore[reportArgumentType]
            )
        ),
    ),
    ("half_widths are .-2.*", lambda: windowed(-2)),
    ("half_widths are .2, 2.*the 1 axes", lambda: windowed(2, 2)),
    ("order is 'rastr'", lambda: windowed(2, order="rastr")),
    ("table is None", lambda: windowed(2, table=None)),
    ("log_weight of the table", lambda: windowed(2, table=OffsetTable(log_weight=Q[0, :, :, 0]))),
    ("key_mask has the shape", lambda: windowed(2, key_mask=torch.ones(1, 4).bool())),
    ("precision is 'int4'", lambda: save_model(decoder(), "unused", "int4")),  # pyright: ignore[reportArgumentType]
    ("model is of type Attention", lambda: save_model(layer(), "unused")),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("message", "call"), CASES, ids=map(str, range(len(CASES))))
def test_wrong_uses_are_refused_in_a_sentence(message: str, call: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_codes_of_other_positions_or_encodings_are_not_spread() -> None:
    for kind in (
        *(RopeConfig(), AlgebraicConfig(), AlgebraicConfig(structure=TreeStructure())),
        *(SineSPEConfig(), SineSPEConfig(noise="sparse"), ConvSPEConfig(taps=(4,))),
    ):
        other = SineSPEConfig() if kind.kind == "rope" else RopeConfig()
        for length in (1, 2, 4):
            with pytest.raises(ValueError, match=f"codes are those of {length} positions"):
                encode(kind, kind, length)
        with pytest.raises(TypeError, match="codes are of type"):
            encode(kind, other, 3)


def test_a_model_that_could_not_be_loaded_is_not_stored(tmp_path: Path) -> None:
    model = decoder()
    save_model(model, tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    torch.nn.init.constant_(model.embedding.weight, float("nan"))
    with pytest.raises(ValueError, match=r"embedding\.weight has values that are not finite"):
        save_model(model, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_an_empty_target_has_no_logits() -> None:
    model = EncoderDecoderConfig(vocabulary_size=4, width=32, num_heads=4, hidden=8).build()
    state = model.read(TOKENS, model.init_state(1))
    logits, after = model(TOKENS[:, :0], state)
    assert logits.shape == (1, 0, 4)
    assert after is state


def test_a_grid_needs_positions() -> None:
    grid = AlgebraicConfig(structure=GridStructure(num_axes=2))
    with pytest.raises(ValueError, match="has 2 axes, expected positions"):
        layer(attention=SoftmaxAttentionConfig(), encoding=grid)(X)
