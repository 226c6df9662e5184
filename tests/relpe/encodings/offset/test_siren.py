from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.attention.windowed.attention import (
    WindowedAttentionConfig,
    box_of,
    box_offsets,
    windowed_attention,
)
from relpe.encodings.offset.siren import SirenConfig
from relpe.encodings.offset.siren_network import SirenNetwork, SirenNetworkConfig
from relpe.encodings.offset.windows import WindowConfig
from tests.support import reference_offsets
from tests.support.golden_siren import golden, golden_network
from tests.support.offsets_in_pieces import attend

CPU = torch.device("cpu")
SHAPE = {"num_layers": 2, "num_heads": 2, "head_dim": 4}
NETWORK = SirenNetworkConfig(width=8)
SMALL = WindowConfig(width=(4.0,), block=4)
CONFIGS = {
    "soft": SirenConfig(network=NETWORK, window=SMALL),
    "ramp, per head": SirenConfig(
        network=NETWORK,
        window=WindowConfig(
            mode="adaptive_ramp", width=(2.0, 5.0), ramp=4.0, per_head=True, block=4
        ),
    ),
    "original": SirenConfig(
        network=NETWORK, window=WindowConfig(mode="logit_multiply", width=(4.0,), block=4)
    ),
    "original on positions, product": SirenConfig(
        network=NETWORK,
        combine="multiply",
        window=WindowConfig(mode="logit_multiply", acts_on="position", width=(4.0,), block=1),
    ),
    "bias, shared": SirenConfig(
        network=NETWORK,
        shared=True,
        window=WindowConfig(mode="log_bias", width=(4.0,), block=4),
    ),
    "no window": SirenConfig(network=NETWORK, window=None),
    "span": SirenConfig(network=NETWORK, window=None, span=9),
    "joint": SirenConfig(network=NETWORK, window=SMALL, coordinates="joint", num_axes=3),
    "joint, no window": SirenConfig(network=NETWORK, window=None, coordinates="joint", num_axes=3),
    "additive": SirenConfig(
        network=NETWORK,
        window=SMALL,
        coordinates="additive",
        num_axes=3,
        reference_length=(64.0, 16.0, 128.0),
    ),
}
MUSIC = [name for name in CONFIGS if CONFIGS[name].num_axes > 1]


def build(name: str) -> Any:
    torch.manual_seed(0)
    return CONFIGS[name].build(**SHAPE).double().eval()


def places(name: str, length: int, start: int = 0) -> torch.Tensor:
    """Positions (1 or 2, length, p): token positions, or bar, beat and place in the bar."""
    steps = torch.arange(start, start + length)
    if CONFIGS[name].num_axes == 1:
        return steps[None, :, None]
    generator = torch.Generator().manual_seed(1)
    jumps = torch.randint(0, 3, (2, 400, 2), generator=generator)
    jumps[..., 0] //= 2
    return torch.cat(
        [jumps.cumsum(1)[:, :length] + start, steps[None, :, None].expand(2, -1, -1)], -1
    )


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    pieces=st.lists(st.integers(1, 25), min_size=1, max_size=5),
    dense=st.booleans(),
    grad=st.booleans(),
)
def test_any_split_of_a_sequence_gives_the_same_output(
    name: str, pieces: list[int], dense: bool, grad: bool
) -> None:
    encoding, positions = build(name), places(name, sum(pieces))
    whole = attend(encoding, positions, [sum(pieces)], dense=True)
    with torch.set_grad_enabled(grad):
        split = attend(encoding, positions, pieces, dense=dense)
    torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", CONFIGS)
def test_shifts_and_later_tokens_change_nothing(name: str) -> None:
    encoding, positions = build(name), places(name, 40)
    whole = attend(encoding, positions, [40])
    far = attend(encoding, places(name, 40, 10**6), [40])
    torch.testing.assert_close(far, whole, rtol=1e-10, atol=1e-10)
    after = attend(encoding, positions, [40], changed_from=25)
    torch.testing.assert_close(whole[:, :25], after[:, :25], rtol=0, atol=1e-12)
    assert not torch.allclose(whole[:, 25:], after[:, 25:])


@pytest.mark.parametrize("name", MUSIC)
def test_tables_of_irregular_positions_are_the_network_at_each_difference(name: str) -> None:
    encoding, positions = build(name), places(name, 20)
    codes, _ = encoding.prepare(positions, encoding.init_state(0, CPU))
    table: Any = encoding.table(codes, 1)
    networks: Any = encoding.networks[1]
    for row, query, age in ((0, 12, 5), (1, 19, 0), (0, 7, 7), (1, 8, 3)):
        difference = (positions[row, query - age] - positions[row, query]).double()
        axes = difference[None, None] if len(networks) == 1 else difference[:, None, None]
        terms = [network.at(axis) for network, axis in zip(networks, axes, strict=True)]
        expected = torch.stack(terms).sum(0)
        found = table.features[table.rows[row, query, age]].sum(0)
        torch.testing.assert_close(found.flatten(), expected[0], rtol=1e-10, atol=1e-12)


def test_positions_need_not_be_integers() -> None:
    encoding = build("joint")
    exact = places("joint", 24)
    halves, doubled = exact.double() / 2, exact.double() / 2 + 0.25
    torch.testing.assert_close(
        attend(encoding, halves, [24]), attend(encoding, doubled, [10, 14]), rtol=1e-9, atol=1e-10
    )


def test_state_is_bounded_by_the_span() -> None:
    for name in ("soft", "joint", "additive"):
        encoding = build(name)
        (span,) = {max(encoding.head_spans(layer) or ()) for layer in range(2)}
        state = encoding.init_state(0, CPU)
        with torch.no_grad():
            for length in (50, 1, 1, 30):
                codes, state = encoding.prepare(places(name, length), state)
        table: Any = encoding.table(codes, 0)
        assert table.log_weight.shape[0] == span
        assert state.positions is None or state.positions.shape[1] == span - 1


def test_rows_of_a_state_can_be_selected() -> None:
    encoding = build("joint")
    with torch.no_grad():
        _, state = encoding.prepare(places("joint", 9), encoding.init_state(0, CPU))
    swapped = state.map_rows(lambda x: x[[1, 0, 1]])
    assert torch.equal(swapped.positions, state.positions[[1, 0, 1]])
    shared = state._replace(positions=state.positions[:1])
    assert shared.map_rows(lambda x: x[[1, 0, 1]]) is shared


def test_generation_evaluates_no_network() -> None:
    encoding = build("soft")
    with torch.no_grad():
        _, state = encoding.prepare(places("soft", 5), encoding.init_state(0, CPU))
        for module in encoding.modules():
            if isinstance(module, SirenNetwork):
                module.register_forward_pre_hook(lambda *_: pytest.fail("evaluated again"))
        for step in range(5, 12):
            _, state = encoding.prepare(places("soft", 1, step), state)


def test_each_axis_of_a_grid_has_its_own_window() -> None:
    config = SirenConfig(
        network=NETWORK,
        num_axes=2,
        window=WindowConfig(mode="logit_multiply", width=(1.1,), block=1),
    )
    torch.manual_seed(0)
    encoding = config.build(**SHAPE).double().eval()
    half_widths = encoding.half_widths(1)
    assert half_widths == (3, 3)
    q, k, v = torch.randn(3, 2, 5, 7, 2, 4, dtype=torch.float64)
    table = encoding.grid_table(box_offsets(box_of(half_widths, "raster")), 1)
    out = windowed_attention(q, k, v, table, half_widths, order="raster")

    points = reference_offsets.grid_positions([5, 7])
    offsets = reference_offsets.pair_offsets(points, points)
    wide: Any = encoding.grid_table(offsets.flatten(0, 1), 1)
    expected, _ = reference_offsets.offset_attention(
        *(x.flatten(1, 2) for x in (q, k, v)),
        allowed=reference_offsets.span_mask(offsets, half_widths)
        & reference_offsets.causal_mask(offsets, "raster"),
        features=wide.features.unflatten(0, (35, 35)),
        content_bias=encoding.content_bias[1],
        position_bias=encoding.position_bias[1],
        factor=wide.factor.unflatten(0, (35, 35)),
    )
    torch.testing.assert_close(out.flatten(1, 2), expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="grid_table"):
        encoding.prepare(places("joint", 4), encoding.init_state(0, CPU))


def test_modules_match_the_streamed_case_of_the_original() -> None:
    case, network = "attn/1d_long_span_causal", golden_network("siren/1d_long")
    width = float(golden(f"{case}/sigma")[0]) * 63
    config = SirenConfig(
        network=network.config,
        window=WindowConfig(mode="logit_multiply", width=(width,), block=1),
        reference_length=(63.0,),
    )
    encoding: Any = config.build(num_layers=1, num_heads=2, head_dim=4).double().eval()
    encoding.networks[0][0].load_state_dict(network.state_dict())
    with torch.no_grad():
        encoding.content_bias[0] = golden(f"{case}/u")
        encoding.position_bias[0] = golden(f"{case}/vbias")
        encoding.window.log_width.fill_(math.log(width))
    q, k, v, expected = (golden(f"{case}/{key}").permute(0, 3, 1, 2) for key in (*"qkv", "out"))
    operation = WindowedAttentionConfig().build()
    state = encoding.init_state(0, q.device)
    memory = operation.init_state((1, 2, 4), torch.Generator(), q, 4)
    outs = []
    with torch.no_grad():
        for piece in (slice(0, 40), slice(40, 41), slice(41, 64)):
            places = torch.arange(64)[None, piece, None]
            codes, state = encoding.prepare(places, state)
            part = q[:, piece], k[:, piece], v[:, piece]
            out, memory = operation(*part, memory, encoding.scoring(codes, 0))
            outs.append(out)
            assert memory.keys.shape[1] == int(golden(f"{case}/mask_size")[0]) // 2
    torch.testing.assert_close(torch.cat(outs, 1), expected, rtol=0, atol=1e-9)


def test_invalid_configs_are_refused() -> None:
    choices: list[dict[str, Any]] = [
        {"layer_networks": (NETWORK,)},
        {"layer_networks": (NETWORK, NETWORK), "shared": True},
        {"reference_length": (1.0, 2.0)},
        {"span": 0, "window": None},
    ]
    for options in choices:
        with pytest.raises(ValueError, match=next(iter(options))):
            SirenConfig(**options).build(**SHAPE)


def test_layers_may_have_separate_networks() -> None:
    networks = (SirenNetworkConfig(width=8, w0=5.0), SirenNetworkConfig(width=12))
    encoding = SirenConfig(layer_networks=networks).build(**SHAPE)
    found = [x.config for x in encoding.modules() if isinstance(x, SirenNetwork)]
    assert found == list(networks)


def test_only_training_steps_advance_the_window() -> None:
    torch.manual_seed(0)
    encoding = SirenConfig(
        network=NETWORK, window=WindowConfig(width=(4.0,), block=4, span_refresh=2)
    ).build(**SHAPE)
    window: Any = encoding.window
    start = encoding.init_state(0, CPU)

    def span() -> int:
        codes, _ = encoding.prepare(places("soft", 50), start)
        return encoding.table(codes, 0).span or 0

    assert span() == 13
    with torch.no_grad():
        window.log_width.fill_(math.log(10.0))
        for _ in range(3):
            assert span() == 13  # steps without gradients are not counted
    assert [span() for _ in range(2)] == [13, 25]
