from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.attention.windowed import masked_blocks
from relpe.attention.windowed import offset_scores as offset_attention
from relpe.attention.windowed.attention import (
    WindowedAttentionConfig,
    WindowedAttentionState,
    box_of,
    box_offsets,
    windowed_attention,
)
from relpe.attention.windowed.offset_scores import softmax_with_table
from relpe.encodings.absolute import sinusoids
from relpe.encodings.base import OffsetTable, Scoring
from relpe.encodings.offset.windows import in_box
from tests.support import reference_offsets
from tests.support.compared import compare_with_gradients
from tests.support.golden_siren import GOLDEN, golden, golden_network
from tests.support.grids import gaussian, span_size

CASES = sorted({key.split("/")[1] for key in GOLDEN.files if key.startswith("attn/")})
CAUSAL_1D = [case for case in CASES if case.startswith("1d") and case.endswith("causal")]
FEATURES, HEADS = 4, 2


class GoldenCase:
    """One attention case of the original, with its inputs as leaves in one dtype."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.name, self.dtype = name, dtype
        self.grid = tuple(GOLDEN[f"attn/{name}/structure_size"].tolist())
        extent = [max(1, places - 1) for places in self.grid]
        self.extent = torch.tensor(extent, dtype=torch.float64)
        self.leaves = {
            key: self.get(key).requires_grad_()
            for key in ("q", "k", "v", "u", "vbias", "sigma")
            if f"attn/{name}/{key}" in GOLDEN.files
        }
        self.network: Any = None
        if "sinusoid" in name:
            self.network = torch.nn.Linear(6, HEADS * FEATURES)
            weights = {"weight": golden("baseline/W"), "bias": golden("baseline/b")}
            self.network.load_state_dict(weights)
        elif "no_pe" not in name:
            self.network = golden_network("siren/" + ("1d_long" if "1d_long" in name else name[:2]))
        if self.network is not None:
            first, *_, last = self.network.to(dtype).parameters()
            self.leaves |= {"pe_first_weight": first, "pe_last_bias": last}

    def get(self, key: str) -> torch.Tensor:
        return golden(f"attn/{self.name}/{key}").to(self.dtype)

    @property
    def order(self) -> Any:
        if self.name.endswith("causal"):
            return "raster"
        return self.name.rsplit("_", 1)[1] if "_causal_" in self.name else None

    @property
    def half_widths(self) -> tuple[int, ...]:
        if "sigma" not in self.leaves:
            return tuple(places - 1 for places in self.grid)
        threshold = float(GOLDEN[f"attn/{self.name}/threshold"])
        sizes = span_size(self.grid, self.leaves["sigma"].double().tolist(), threshold)
        assert list(sizes) == GOLDEN[f"attn/{self.name}/mask_size"].tolist()
        return tuple(size // 2 for size in sizes)

    def features(self, offsets: torch.Tensor) -> torch.Tensor | None:
        if self.network is None:
            return None
        x = (offsets / self.extent).to(self.dtype)
        if "sinusoid" in self.name:
            x = sinusoids(offsets[:, 0] + self.grid[0] - 1, 6).to(self.dtype)
        return self.network(x).unflatten(-1, (HEADS, FEATURES))

    def qkv(self) -> list[torch.Tensor]:
        return [self.leaves[key].permute(0, 3, 1, 2) for key in "qkv"]

    def table(self, offsets: torch.Tensor) -> OffsetTable:
        """Scores of offsets (o, n)."""
        features, bias, window = self.features(offsets), None, None
        if features is not None:
            bias = torch.einsum("ohd,hd->oh", features, self.leaves["vbias"])
        if "sigma" in self.leaves:
            scaled = (offsets / self.extent).to(self.dtype)
            window = gaussian(scaled, self.leaves["sigma"])[:, None].expand(-1, HEADS)
        return OffsetTable(
            features,
            bias,
            self.leaves["u"],
            window,
            multiplies=self.name == "1d_span_product",
            factor_on_position="positional_only" in self.name,
        )

    def check(self, out: torch.Tensor) -> None:
        """Asserts that outputs (b, l, h, e) and all gradients equal those of the original."""
        tight = self.dtype == torch.float64
        atol, rtol = (1e-9, 0.0) if tight else (2e-5, 1e-4)
        wanted = self.get("out").permute(0, 3, 1, 2)
        torch.testing.assert_close(out, wanted, atol=atol, rtol=rtol)
        (out * self.get("cotangent").permute(0, 3, 1, 2)).sum().backward()
        for name, leaf in self.leaves.items():
            if f"attn/{self.name}/grad_{name}" not in GOLDEN.files:
                continue
            expected, found = self.get(f"grad_{name}"), leaf.grad
            assert found is not None, name
            if tight:
                torch.testing.assert_close(found, expected, atol=1e-8, rtol=1e-7)
            elif expected.abs().max() < 1e-12:
                # zero by cancellation, as for terms added to all logits of a query, so that only
                # an absolute tolerance is meaningful in float32
                assert found.abs().max() <= 2e-5, name
            else:
                assert (found - expected).abs().max() <= 5e-4 * expected.abs().max(), name


@pytest.mark.parametrize("name", CASES)
def test_boxes_match_the_original(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_attention, "SCORES_AT_ONCE", 300)
    for tile, dtype in ((1, torch.float64), (5, torch.float64), (64, torch.float32)):
        monkeypatch.setattr(offset_attention, "TILE", tile)
        case = GoldenCase(name, dtype)
        q, k, v = (x.unflatten(1, case.grid) for x in case.qkv())
        table = case.table(box_offsets(box_of(case.half_widths, case.order)))
        out = windowed_attention(q, k, v, table, case.half_widths, order=case.order)
        case.check(out.flatten(1, len(case.grid)))


@pytest.mark.parametrize("name", CAUSAL_1D)
def test_dense_and_streamed_causal_attention_match_the_original(name: str) -> None:
    for dtype in (torch.float64, torch.float32):
        for dense in (True, False):
            case = GoldenCase(name, dtype)
            span = min(case.half_widths[0] + 1, case.grid[0])
            table = case.table(-torch.arange(span)[:, None])._replace(span=span)
            q, k, v = case.qkv()
            if dense:
                case.check(softmax_with_table(q, k, v, table))
            else:
                case.check(run((q, k, v), table, [q.shape[1]])[0])
        wanted = case.get("out").permute(0, 3, 1, 2)
        atol, rtol = (1e-9, 0) if dtype == torch.float64 else (2e-5, 1e-4)
        with torch.no_grad():
            out, state = run((q, k, v), table, [7] + [1] * (q.shape[1] - 7))
        torch.testing.assert_close(out, wanted, atol=atol, rtol=rtol)
        assert state.keys.shape[1] == span - 1


def run(
    qkv: Iterable[torch.Tensor],
    table: OffsetTable | None,
    pieces: list[int],
    *,
    span: int = 256,
    state: WindowedAttentionState | None = None,
) -> tuple[torch.Tensor, WindowedAttentionState]:
    q, k, v = qkv
    operation = WindowedAttentionConfig(span=span).build()
    if state is None:
        shape = (q.shape[0], q.shape[2], v.shape[-1])
        state = operation.init_state(shape, torch.Generator(), q, q.shape[-1])
    outs, done = [], 0
    for size in pieces:
        piece = slice(done, done + size)
        rows = table
        if table is not None and table.rows is not None:
            rows = table._replace(rows=table.rows[:, piece])
        out, state = operation(q[:, piece], k[:, piece], v[:, piece], state, Scoring(rows))
        outs.append(out)
        done += size
    return torch.cat(outs, 1), state


def inputs(length: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(3, 2, length, 3, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))


def random_table(span: int, *, dtype: torch.dtype = torch.float64, **options: Any) -> OffsetTable:
    generator = torch.Generator().manual_seed(1)
    shapes = [(span, 3, 4), (span, 3), (3, 4), (span, 3), (span, 3)]
    parts: list[Any] = [
        torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes
    ]
    return OffsetTable(*parts)._replace(**{"span": span, **options})


def leaves_of(table: OffsetTable) -> list[torch.Tensor]:
    return [x for x in table if isinstance(x, torch.Tensor) and x.requires_grad]


@given(
    span=st.sampled_from([1, 2, 9, 40, 90]),
    length=st.integers(1, 80),
    multiplies=st.booleans(),
    on_position=st.booleans(),
    tile=st.sampled_from([1, 16, 64]),
)
@settings(max_examples=60)
def test_banded_matches_dense_with_gradients(
    span: int, length: int, multiplies: bool, on_position: bool, tile: int
) -> None:
    q, k, v = (x.requires_grad_() for x in inputs(length))
    table = random_table(span, multiplies=multiplies, factor_on_position=on_position)
    dense = softmax_with_table(q, k, v, table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_attention, "TILE", tile)
        patch.setattr(offset_attention, "SCORES_AT_ONCE", 20_000)
        banded, _ = run((q, k, v), table, [length])
        compare_with_gradients(banded, dense, [q, k, v, *leaves_of(table)])


@given(
    pieces=st.lists(st.integers(1, 70), min_size=1, max_size=6),
    span=st.sampled_from([1, 2, 16, 100]),
    grad=st.booleans(),
)
def test_any_split_of_a_sequence_gives_the_same_output(
    pieces: list[int], span: int, grad: bool
) -> None:
    q, k, v = inputs(sum(pieces))
    table = random_table(span)
    with torch.set_grad_enabled(grad):
        split, _ = run((q, k, v), table, pieces)
        whole, _ = run((q, k, v), table, [sum(pieces)])
    torch.testing.assert_close(split, whole, rtol=1e-10, atol=1e-10)


def test_a_state_computed_with_gradients_continues_without_them() -> None:
    q, k, v = inputs(30)
    table = random_table(12)
    whole, _ = run((q, k, v), table, [30])
    first, state = run((x[:, :5] for x in (q, k, v)), table, [5])
    with torch.no_grad():
        second, state = run((x[:, 5:9] for x in (q, k, v)), table, [4], state=state)
    third, _ = run((x[:, 9:] for x in (q, k, v)), table, [21], state=state)
    torch.testing.assert_close(torch.cat([first, second, third], 1), whole)


@pytest.mark.parametrize("with_table", [True, False])
def test_rows_may_be_at_different_positions(
    with_table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_blocks, "BLOCK", 4)
    q, k, v = inputs(40)
    table = random_table(16) if with_table else OffsetTable(span=16)
    given_table = table if with_table else None
    whole = softmax_with_table(q, k, v, table)
    late = softmax_with_table(q[:, 11:], k[:, 11:], v[:, 11:], table)
    with torch.no_grad():
        _, long = run((x[:1, :20] for x in (q, k, v)), given_table, [20], span=16)
        _, short = run((x[1:, 11:20] for x in (q, k, v)), given_table, [9], span=16)
        joined = WindowedAttentionState(*map(torch.cat, zip(long, short, strict=True)))
        rest = (x[:, 20:] for x in (q, k, v))
        out, state = run(rest, given_table, [1, 12, 7], span=16, state=joined)
    torch.testing.assert_close(out[0], whole[0, 20:], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(out[1], late[1, 9:], rtol=1e-10, atol=1e-10)
    assert state.seen.tolist() == [15, 15]


@given(spans=st.lists(st.integers(1, 20), min_size=3, max_size=3), pieces=st.integers(1, 40))
def test_heads_may_have_different_spans(spans: list[int], pieces: int) -> None:
    q, k, v = (x.requires_grad_() for x in inputs(40))
    table = random_table(20, head_spans=tuple(spans))
    dense = softmax_with_table(q, k, v, table)
    out, _ = run((q, k, v), table, [pieces] * (40 // pieces) + [40 % pieces] * (40 % pieces > 0))
    torch.testing.assert_close(out, dense, rtol=1e-10, atol=1e-10)
    for head, span in enumerate(spans):
        alone = random_table(20)._replace(span=span)
        expected = softmax_with_table(q, k, v, alone)[:, :, head]
        torch.testing.assert_close(out[:, :, head], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shared", [True, False])
def test_tables_of_irregular_positions_are_indexed_by_pair(shared: bool) -> None:
    span, length, terms = 9, 50, 2
    q, k, v = (x.requires_grad_() for x in inputs(length))
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, 30, (1 if shared else 2, length, span, terms), generator=generator)
    wide, narrow = random_table(30), random_table(span)
    table = narrow._replace(features=wide.features, bias=wide.bias, rows=rows)
    out, _ = run((q, k, v), table, [length])
    dense = softmax_with_table(q, k, v, table)
    compare_with_gradients(out, dense, [q, k, v, *leaves_of(table)])
    split, _ = run((q, k, v), table, [1, 20, 3, 26])
    torch.testing.assert_close(split, dense, rtol=1e-10, atol=1e-10)

    # the features of a pair are the sum of the features in its rows
    plain = table._replace(factor=None, log_weight=None, bias=None)
    found, _ = run((q, k, v), plain, [length])
    assert table.features is not None
    steps = torch.arange(length)
    ages = (steps[:, None] - steps).clamp(0, span - 1)
    pair_rows = rows.gather(2, ages[None, :, :, None].expand(len(rows), -1, -1, terms))
    for row in range(2):
        slow, _ = reference_offsets.offset_attention(
            *(x[row : row + 1] for x in (q, k, v)),
            allowed=(steps[:, None] >= steps) & (steps[:, None] - steps < span),
            features=table.features[pair_rows[min(row, len(rows) - 1)]].sum(-3),
            content_bias=table.content_bias,
        )
        torch.testing.assert_close(found[row : row + 1], slow, rtol=1e-10, atol=1e-10)


@given(
    grid=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    data=st.data(),
    order=st.sampled_from([None, "raster", "product"]),
    tile=st.sampled_from([1, 8, 64]),
)
@settings(max_examples=60)
def test_boxes_on_grids_match_dense_attention_with_gradients(
    grid: list[int], data: st.DataObject, order: Any, tile: int
) -> None:
    half_widths = [data.draw(st.integers(0, places + 1)) for places in grid]
    q, k, v = (x.requires_grad_() for x in inputs(math.prod(grid)))
    box = box_of(half_widths, order)
    table = random_table(math.prod(box.sizes))
    mask = torch.rand(2, *grid, generator=torch.Generator().manual_seed(5)) < 0.8
    mask |= torch.rand(1) < 0.5
    tiles = [x.unflatten(1, grid) for x in (q, k, v)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_attention, "TILE", tile)
        patch.setattr(offset_attention, "SCORES_AT_ONCE", 500)
        out = windowed_attention(
            tiles[0], tiles[1], tiles[2], table, half_widths, order=order, key_mask=mask
        )
        out = out.flatten(1, len(grid))

        places = reference_offsets.grid_positions(grid)
        offsets = reference_offsets.pair_offsets(places, places)
        allowed = in_box(offsets, half_widths)
        if order is not None:
            allowed &= reference_offsets.causal_mask(offsets, order)
        index = torch.zeros(offsets.shape[:2], dtype=torch.int64)
        for axis, (before, size) in enumerate(zip(box.before, box.sizes, strict=True)):
            index = index * size + (offsets[..., axis] + before).clamp(0, size - 1)
        by_offset: Any = (table.features, table.bias, table.factor, table.log_weight)
        features, bias, factor, log_weight = (x[index] for x in by_offset)
        assert table.content_bias is not None
        seen = allowed & mask.flatten(1)[:, None]  # (b, l, s)
        # the output of a query without keys is undefined and must not affect others
        empty = ~seen.any(-1)
        seen = (seen | empty[..., None])[:, None]
        logits = torch.einsum("blhd,bshd->bhls", q + table.content_bias, k)
        logits = logits + torch.einsum("blhd,lshd->bhls", q, features) + bias.permute(2, 0, 1)
        logits = logits * factor.permute(2, 0, 1) / 2 + log_weight.permute(2, 0, 1)
        weights = logits.masked_fill(~seen, -math.inf).softmax(-1)
        expected = torch.einsum("bhls,bshe->blhe", weights, v)
        out, expected = (x * ~empty[..., None, None] for x in (out, expected))
        compare_with_gradients(out, expected, [q, k, v, *leaves_of(table)])


@given(
    pieces=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    span=st.sampled_from([1, 2, 8, 40, 200]),
    block=st.sampled_from([3, 16, 256]),
)
def test_without_a_table_it_is_softmax_attention_within_the_span(
    pieces: list[int], span: int, block: int
) -> None:
    q, k, v = (x.requires_grad_() for x in inputs(sum(pieces)))
    expected = softmax_with_table(q, k, v, OffsetTable(span=span))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masked_blocks, "BLOCK", block)
        out, _ = run((q, k, v), None, pieces, span=span)
        compare_with_gradients(out, expected, (q, k, v))


def test_the_state_has_constant_size_and_is_never_changed() -> None:
    q, k, v = inputs(200)
    table = random_table(16)
    with torch.no_grad():
        _, early = run((x[:, :3] for x in (q, k, v)), table, [3])
        kept = [x.clone() for x in early]
        _, late = run((x[:, 3:] for x in (q, k, v)), table, [1] * 50 + [147], state=early)
    assert [x.shape for x in early] == [x.shape for x in late]
    assert all(map(torch.equal, early, kept))
    # the memory of a long piece is released
    assert late.keys.untyped_storage().nbytes() <= 2 * late.keys.nbytes


def test_training_stores_nothing_as_large_as_the_scores() -> None:
    kept: list[int] = []

    def weigh(x: torch.Tensor) -> torch.Tensor:
        kept.append(x.numel())
        return x

    def kept_for(length: int, span: int) -> int:
        kept.clear()
        q, k, v = inputs(length).requires_grad_()
        table = random_table(span)
        with torch.autograd.graph.saved_tensors_hooks(weigh, lambda x: x):
            run((q, k, v), table, [length])
        return sum(kept)

    small, twice, wide = kept_for(512, 33), kept_for(1024, 33), kept_for(1024, 129)
    assert twice - small <= 1.1 * 512 * 3 * 2 * 3 * 4  # q, k and v of each position
    # a wider span needs a few bands (h, c, w), regardless of the length
    assert wide - twice <= 10 * 3 * 64 * 96


def test_bfloat16_under_autocast() -> None:
    q, k, v = inputs(40, dtype=torch.float32)
    table = random_table(16, dtype=torch.float32)
    exact, _ = run((q, k, v), table, [40])
    with torch.autocast("cpu", torch.bfloat16):
        out, state = run((x.bfloat16() for x in (q, k, v)), table, [40])
    assert out.dtype == torch.bfloat16
    assert state.keys.dtype == torch.float32
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)


def test_a_state_has_its_own_memory() -> None:
    qkv = torch.randn(1, 8, 3, 2, 4)
    operation = WindowedAttentionConfig(span=9).build()
    with torch.no_grad():
        state = operation.init_state((1, 2, 4), torch.Generator(), qkv, 4)
        q, k, v = qkv.unbind(2)
        _, state = operation(q, k, v, state)
        expected = state.keys.clone()
        qkv.zero_()
    assert torch.equal(state.keys, expected)
    assert state.keys.untyped_storage().nbytes() == state.keys.nbytes
