"""The layer for other people's models: parts, padding, packed sequences, groups of heads."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import typing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from relpe import (
    AlgebraicConfig,
    AlibiConfig,
    Attention,
    AttentionLayerConfig,
    EncodingConfig,
    FavorConfig,
    KerpleConfig,
    LinearAttentionConfig,
    RopeConfig,
    SelectiveRope,
    ShawConfig,
    SinusoidConfig,
    T5Config,
    WindowedAttentionConfig,
)
from tests.support.decoders import CONFIGS, DELTA, ELU, NONE, RELU, SIREN, SOFTMAX, parameters

CASES = [name for name, config in CONFIGS.items() if not {"layers", "events"} & config.keys()]
WINDOWED = WindowedAttentionConfig(span=7)
ATTENTIONS = {
    "softmax": SOFTMAX,
    "windowed": WINDOWED,
    "favor": LinearAttentionConfig(feature_map=FavorConfig(num_features=4096)),
    "relu": RELU,
    "elu": ELU,
    "delta": DELTA,
}
JOINT, ADDITIVE = (replace(SIREN, coordinates=kind) for kind in ("joint", "additive"))
# a decay of logits needs positions that rise by one
any_positions = pytest.mark.parametrize(
    "name", parameters([name for name in CASES if name != "algebraic softmax, decay"])
)


def layer(name: str = "sine relu", **changes: Any) -> Attention:
    """A layer of 16 features in 4 heads, in float64."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 16, "num_heads": 4, "convolution_taps": 3}
    config = AttentionLayerConfig(**(sizes | CONFIGS[name] | changes))
    module = Attention(config).double().eval()
    if isinstance(module.encoding, SelectiveRope):  # otherwise it would be rotary embedding
        torch.nn.init.normal_(module.encoding.moves, std=0.3)
    return module


def inputs(*shape: int) -> Tensor:
    """Random inputs in float64, the same for the same shape."""
    return torch.randn(*shape, 16, generator=torch.Generator().manual_seed(1)).double()


def close(a: Tensor, b: Tensor) -> None:
    """Compares results that differ only by the order of sums."""
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@torch.no_grad()
def test_parts_equal_the_whole_with_coordinates() -> None:
    for encoding in (JOINT, ADDITIVE):
        compare_parts(layer("siren windowed", encoding=encoding, attention=WINDOWED))


def compare_parts(module: Attention) -> None:
    """Compares parts, of which one is empty, with the whole."""
    x = inputs(2, 12)
    whole, _ = module(x)
    outs, state = [], None
    for part in x.split([5, 0, 1, 6], 1):
        out, state = module(part, state)
        outs.append(out)
    close(torch.cat(outs, 1), whole)


@any_positions
@torch.no_grad()
def test_padding_has_no_effect_wherever_it_is(name: str) -> None:
    module, x = layer(name), inputs(4, 9)
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[0, 6:], mask[1, :4], mask[2, ::2], mask[3] = False, False, False, False
    out, state = module(x.where(mask[..., None], torch.inf), mask=mask)
    # a row of padding keeps its state
    _, state = module(x, state, mask=torch.zeros(4, 9, dtype=torch.bool))
    after, _ = module(x[:, :3], state)
    assert not out[~mask].any()
    for row in range(4):
        alone, own = module(x[row : row + 1, mask[row]])
        close(out[row, mask[row]], alone[0])
        close(after[row], module(x[row : row + 1, :3], own)[0][0])
    chosen = state.map_rows(lambda s: s[torch.tensor([2, 0])])
    close(module(x[[2, 0], :3], chosen)[0], after[[2, 0]])


@any_positions
@torch.no_grad()
def test_packed_sequences_do_not_see_each_other(name: str) -> None:
    module, x, starts = layer(name), inputs(1, 20), [0, 7, 7, 8, 20]
    out, state = module(x, cu_seqlens=torch.tensor(starts, dtype=torch.int32))
    after, _ = module(inputs(4, 2), state)
    assert out.shape == x.shape
    for row, (start, stop) in enumerate(itertools.pairwise(starts)):
        alone, own = module(x[:, start:stop])
        close(out[:, start:stop], alone)
        close(after[row], module(inputs(4, 2)[row : row + 1], own)[0][0])


@pytest.mark.parametrize(
    ("name", "groups"), [("sine relu", 1), ("algebraic windowed", 2), ("siren windowed", 2)]
)
@torch.no_grad()
def test_heads_of_a_group_share_keys_and_values(name: str, groups: int) -> None:
    grouped, full, x = layer(name, num_kv_heads=groups), layer(name), inputs(2, 8)
    full.load_state_dict(grouped.state_dict() | {"attention.project_in.weight": repeated(grouped)})
    close(grouped(x)[0], full(x)[0])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("attention", [SOFTMAX, WINDOWED])
@pytest.mark.parametrize(
    "encoding",
    [NONE, RopeConfig(), AlibiConfig(), KerpleConfig(), T5Config(), SinusoidConfig(), SIREN],
)
def test_keys_and_values_that_heads_share_are_kept_once(
    encoding: Any, attention: Any, *, training: bool
) -> None:
    sizes = {}
    with torch.set_grad_enabled(training):
        for groups in (1, 2, 4):
            options = {"encoding": encoding, "attention": attention}
            module, full = layer(num_kv_heads=groups, **options), layer(**options)
            torch.nn.init.normal_(module.attention.log_temperature)  # pyright: ignore[reportArgumentType]
            weight = {"attention.project_in.weight": repeated(module)}
            full.load_state_dict(module.state_dict() | weight)
            outs, state = [], None
            for part in inputs(2, 12).split([5, 1, 6], 1):
                out, state = module(part, state)
                outs.append(out)
            close(torch.cat(outs, 1), full(inputs(2, 12))[0])
            assert state is not None
            sizes[groups] = sum(x.nbytes for x in state.layer.operation[:2])
    # the scores of SIREN depend on each head's queries as they are
    assert sizes[4] == sizes[1] * (1 if encoding is SIREN else 4)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_default_positions_continue_those_that_were_given(name: str) -> None:
    module, x = layer(name), inputs(2, 12)
    given = torch.arange(1000, 1012)[None, :, None]
    whole, _ = module(x, positions=given)
    _, state = module(x[:, :7], positions=given[:, :7].expand(2, -1, -1))
    _, state = module(x[:, 7:9], state)
    close(module(x[:, 9:], state)[0], whole[:, 9:])
    if name != "algebraic softmax, decay":  # which needs rows of equal lengths
        mask = torch.tensor([[True] * 4 + [False] * 3, [False] * 7])
        _, state = module(x[:, :7], positions=given[:, :7], mask=mask)
        assert state.positions.tolist() == [1004, 0]


@pytest.mark.parametrize("name", CASES)
def test_float16_is_finite_with_a_backward_pass_within_autocast(name: str) -> None:
    module = layer(name).float()
    with torch.autocast("cpu", torch.float16):
        module(inputs(2, 40).float())[0].float().square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
    assert module.half()(inputs(2, 40).half())[0].isfinite().all()


@torch.no_grad()
def test_states_of_every_other_layer_are_refused_or_fit() -> None:
    """A state serves the layer that made it, or one whose states have the same content."""
    modules = {name: layer(name) for name in CASES}
    states = {name: module(inputs(2, 5))[1] for name, module in modules.items()}
    for name, other in itertools.product(CASES, CASES):
        with contextlib.suppress(TypeError):  # any other error fails the test
            assert modules[name](inputs(2, 3), states[other])[0].isfinite().all()


def repeated(module: Attention) -> Tensor:
    """Weights of a layer without groups that computes the same."""
    groups = module.attention.num_kv_heads
    heads = module.attention.project_in.weight.unflatten(0, (4 + 2 * groups, 4))
    q, k, v = heads.split([4, groups, groups])
    k, v = (x.repeat_interleave(4 // groups, 0) for x in (k, v))
    return torch.cat([q, k, v]).flatten(0, 1)


@any_positions
def test_half_precision_gradients_copies_and_empty_inputs(name: str) -> None:
    module = copy.deepcopy(layer(name)).bfloat16().train()
    out, _ = module(inputs(2, 6).bfloat16())
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in used(module))
    assert module(inputs(0, 6).bfloat16())[0].shape == (0, 6, 16)
    assert module(inputs(2, 0).bfloat16())[0].shape == (2, 0, 16)
    if name != "algebraic softmax, decay":
        packed = module(inputs(1, 0).bfloat16(), cu_seqlens=torch.tensor([0, 0]))[0]
        assert packed.shape == (1, 0, 16)


def used(module: Attention) -> list[torch.nn.Parameter]:
    """Parameters that affect outputs; a bias common to all keys cancels in softmax."""
    return [p for name, p in module.named_parameters() if "last" not in name]


@pytest.mark.parametrize(
    "encoding",
    [
        AlibiConfig(),
        ShawConfig(window=20),
        replace(SIREN, window=None),
        replace(JOINT, window=None),
        AlgebraicConfig(decay=0.9),
    ],
)
@torch.no_grad()
def test_the_span_of_the_attention_limits_states_and_scores(encoding: Any) -> None:
    """A window has a state of constant size, with encodings that have no span of their own too."""
    module, state, numbers = layer(encoding=encoding, attention=WINDOWED), None, []
    for part in inputs(1, 300).split([100, 1, 199], 1):
        _, state = module(part, state)
        numbers.append(count(state))
        codes, _ = module.encoding.prepare(torch.zeros(1, 0, 1).double(), state.encoding)
        table: Any = module.encoding.scoring(codes, 0).table
        rows = [x for x in (table.features, table.log_weight, table.factor) if x is not None]
        assert all(len(x) <= WINDOWED.span for x in rows) or table.rows is not None
    assert len(set(numbers)) == 1


def count(state: object) -> int:
    """Number of elements of all tensors of a state, which consists of nested tuples."""
    if isinstance(state, Tensor):
        return state.numel()
    return sum(map(count, state)) if isinstance(state, tuple) else 0


@torch.no_grad()
def test_the_seed_determines_the_noise() -> None:
    module, x = layer(), inputs(1, 6)
    one, same, other = (module(x, module.init_state(1, seed))[0] for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)


META = torch.zeros(1, 5, 16, device="meta").double()


def test_wrong_inputs_are_refused_in_one_sentence() -> None:
    one, two = inputs(1, 5), inputs(2, 5)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (one[0], {}, r"x has the shape \(5, 16\), expected \(b, l, 16\)"),
        (one.numpy(), {}, "x is of type ndarray, expected Tensor"),
        (one.float(), {}, "x is torch.float32 and the weights are torch.float64"),
        (META, {}, "x is on meta, expected cpu; move it with"),
        (two, {"positions": two[..., 0]}, r"expected \(1, 5, p\) or \(2, 5, p\)"),
        (one, {"positions": META}, "positions is on meta, expected cpu"),
        (one, {"positions": one[..., :1] * math.nan}, "where neighbours are equal or no numbers"),
        (two, {"mask": two[..., 0]}, r"torch.float64, expected \(2, 5\) and bool"),
        (two, {"cu_seqlens": torch.tensor([0, 5])}, r"expected x of \(1, l, m\)"),
        (one, {"cu_seqlens": torch.tensor([0, 4])}, "rise from 0 to l"),
        (one, {"cu_seqlens": torch.tensor([0, 4, 2, 5])}, "rise from 0 to l"),
        (one, {"cu_seqlens": torch.tensor([0, 2.5, 5])}, "torch.float32, expected int64"),
        (
            one,
            {"cu_seqlens": torch.tensor([0, 5]), "mask": torch.ones(1, 5) > 0},
            "both mask and cu_seqlens",
        ),
        (one, {"positions": torch.arange(5)[None, :, None] + 2**62}, "beyond 9007199254740992"),
        (one, {"positions": torch.arange(5.0)[None, :, None] + 2**25}, "beyond 16777216"),
        (one, {"state": layer(convolution_taps=2).init_state(1)}, "that of another model"),
        (one, {"state": ()}, "state is of type tuple, expected AttentionState"),
        (one, {"state": layer().init_state(3)}, "the state has 3 rows and the inputs have 1"),
        (one, {"state": layer("algebraic windowed").init_state(1)}, "that of another model"),
    ]
    for x, options, message in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            layer()(x, **options)


def test_autocast_takes_any_floating_dtype() -> None:
    module = Attention(AttentionLayerConfig(width=16, num_heads=4))
    with torch.autocast("cpu", torch.bfloat16):
        assert module(inputs(1, 5).bfloat16())[0].dtype == torch.bfloat16
        with pytest.raises(ValueError, match="x is torch"):
            module(torch.zeros(1, 5, 16).long())


def test_other_configs_are_refused() -> None:
    with pytest.raises(TypeError, match="config is of type RopeConfig, expected AttentionLayer"):
        Attention(RopeConfig())  # pyright: ignore[reportArgumentType] - that is the point
    swapped: Any = {"attention": RopeConfig(), "encoding": RopeConfig()}
    with pytest.raises(ValueError, match="attention is of type RopeConfig, expected a config"):
        Attention(AttentionLayerConfig(**swapped))
    with pytest.raises(ValueError, match="encoding rope does not fit relu attention"):
        Attention(AttentionLayerConfig(encoding=RopeConfig()))


def test_padding_is_refused_where_positions_of_keys_are_kept() -> None:
    module = layer(encoding=JOINT, attention=WINDOWED)
    with pytest.raises(ValueError, match="leave out mask and cu_seqlens"):
        module(inputs(2, 4), mask=torch.ones(2, 4, dtype=torch.bool))


def test_impossible_sizes_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"width": 10, "num_heads": 4}, "expected a multiple of num_heads, 4"),
        ({"num_kv_heads": 3}, "num_kv_heads is 3, expected a divisor of 8"),
        ({"num_kv_heads": 0}, "num_kv_heads is 0, expected at least 1"),
        ({"convolution_taps": -1}, "convolution_taps is -1, expected at least 0"),
    ]
    for values, message in cases:
        with pytest.raises(ValueError, match=message):
            AttentionLayerConfig(**values)


RELATIVE = [(config, name) for config in typing.get_args(EncodingConfig) for name in ATTENTIONS]


@pytest.mark.parametrize(("config", "attention"), RELATIVE)
@torch.no_grad()
def test_encodings_are_relative_if_they_say_so_with_all_that_they_fit(
    config: Any, attention: str
) -> None:
    """Adding a number to all positions changes nothing, or only noise of many draws."""
    torch.manual_seed(0)
    many = {"num_realizations": 4096} if hasattr(config, "num_realizations") else {}
    encoding = config(**many)
    if attention not in encoding.build(num_heads=4, head_dim=4).fits:
        return
    noisy = bool(many) or attention == "favor"
    module = layer(encoding=encoding, attention=ATTENTIONS[attention])
    x, positions = inputs(2, 12), torch.arange(12)[None, :, None]
    moved = [module(x, positions=positions + start)[0] for start in (0, 777)]
    difference = float((moved[1] - moved[0]).norm() / moved[0].norm())
    claim = module.encoding.relative
    assert (claim == "in the mean") == bool(many)
    if claim is None:
        assert difference > 1e-3
    else:
        assert difference < (0.25 if noisy else 1e-9)


def test_positions_are_ignored_where_the_documentation_says_so() -> None:
    """Skipped positions change all other encodings."""
    text = " ".join(Path("docs/pages/concepts/choosing.md").read_text().split())
    said = text.partition("The values of positions are ignored by ")[2].partition(", whose")[0]
    said = said.partition("whatever")[0].partition("their distances")[0]
    for config in typing.get_args(EncodingConfig):
        module = layer(encoding=config(), attention=SOFTMAX)
        x, positions = inputs(1, 12), torch.arange(12)[None, :, None]
        same = torch.equal(module(x, positions=3 * positions)[0], module(x)[0])
        assert same == (f"`{config.kind}`" in said), config.kind
